"""A recording from anybody runs nothing, shows text as text, and costs at most its own page."""

import hashlib
import json
import shutil
import struct
import sys
import time
import zlib
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup

from gallery_recorder.project.script import key_of, load_script
from gallery_recorder.store import recording
from gallery_recorder.testing import processes, small_gallery

#: Extensions whose directives would run code, were a recording's text markup.
EXTENSIONS = (
    *small_gallery.EXTENSIONS,
    "matplotlib.sphinxext.plot_directive",
    "sphinx.ext.autodoc",
)
PLOT = "\n.. plot::\n\n   open({!r}, 'w')\n"


GOOD = "zz-good"


def make(root, names, more=""):
    """A gallery of examples with these *names* and a good one, each with a recording."""
    small_gallery.make_gallery(root, (*names, GOOD), extensions=EXTENSIONS)
    with (root / "conf.py").open("a") as conf:
        conf.write(f'gallery_devices = ["nvidia-h200"]\n{more}\n')
    for name in (*names, GOOD):
        small_gallery.make_recording(root, name)
    return root


def folder_of(root, name):
    return root / "recordings" / "nvidia-h200" / "tutorials" / name


def build(root):
    """Build *root*; the build must end well, with the page of the good example whole."""
    result = processes.build(root)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert "3.14159 on nvidia-h200" in page(root, GOOD).get_text()
    return result


def page(root, name):
    html = (root / "build" / "html" / "tutorials" / f"{name}.html").read_text()
    return BeautifulSoup(html, "html.parser")


def change(folder, edit):
    """Let *edit* change the JSON of the recording in *folder*."""
    path = folder / "recording.json"
    content = json.loads(path.read_text())
    content.pop("sha256", None)  # of the text as it was
    edit(content)
    path.write_text(json.dumps(content))


def put(folder, name, content):
    """Put a file into the recording in *folder*, which lists it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    change(folder, lambda c: c["files"].update({name: digest}))


def pages(root):
    """All pages of the site."""
    for path in (root / "build" / "html").rglob("*.html"):
        yield BeautifulSoup(path.read_text(), "html.parser")


def check_harmless(root):
    """No page has a script, an address or a file of the attacker."""
    for page in pages(root):
        assert not [script for script in page.find_all("script") if "evil" in script.get_text()]
        for tag in page.find_all(href=True):
            assert not tag["href"].strip().lower().startswith(("javascript", "data:"))
        for tag in page.find_all(True):
            assert not [name for name in tag.attrs if name.startswith("on")]
    assert not [*(root / "build" / "html").rglob("passwd*")]


# --- what is refused: each in one line, in one build ----------------------------------------------

SCRAPED = [
    PLOT,
    "\n.. automodule:: this\n",
    "\n.. csv-table::\n   :url: http://127.0.0.1:9/evil\n",
    "\n.. csv-table::\n   :file: /etc/passwd\n",
    "\n.. include:: /etc/passwd\n",
    "\n.. raw:: html\n   :file: /etc/passwd\n",
    "\n.. image:: /@@gallery@@/images/sphx_glr_01-first_001.svg\n   :target: javascript:evil()\n",
    "\n:download:`/etc/passwd`\n",
]


def first_image(content):
    return content["blocks"][-1]["figures"][0]["items"][0]


def bomb(width, height):
    """A PNG file whose header says *width* and *height*."""

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


LONG = {"name": "n" * 190, "module": "m" * 190, "module_short": "m" * 190,
        "is_class": False, "is_explicit": False}  # fmt: skip

EDITS = {
    "an image that is not listed": lambda c: first_image(c).update(file="images/gone.png"),
    "a source that is not listed": lambda c: first_image(c).update(sources={"2.0": "images/g.png"}),
    "an image of the project": lambda c: first_image(c).update(file="../conf.py"),
    "a source file as image": lambda c: first_image(c).update(file="speed.csv/x.rst"),
    "a link that runs": lambda c: first_image(c).update(link="javascript:evil()"),
    "HTML of a file that is not listed": lambda c: c["blocks"][-1].update(
        figures=[{"items": [{"kind": "html", "file": "images/gone.html"}]}]
    ),
    "an item of another kind": lambda c: first_image(c).update(kind="plot"),
    "another MIME type": lambda c: c["blocks"][0].update(value={"text/x-rst": ".. plot::"}),
    "a month of 13": lambda c: c["run"].update(recorded="2026-13-01T00:00:00Z"),
    "a hash that is none": lambda c: c["files"].update({"speed.csv": "z" * 64}),
    "a key that is none": lambda c: c.update(key="z" * 64),
    "a key of a block that is none": lambda c: c["blocks"][0].update(key=""),
    "a name too long for a file": lambda c: c.update(backreferences={"n" * 190: [LONG]}),
    "a name that is markup": lambda c: c.update(
        backreferences={"a`b": [LONG | {"name": "a`b", "module": "m", "module_short": "m"}]}
    ),
    "text of 20 MB": lambda c: c["blocks"][0].update(stdout="x\n" * 10_000_000),
    "blocks without end": lambda c: c.update(blocks=c["blocks"] * 20_000),
    "schema 2": lambda c: c.update(schema=2),
}


def edit_of_scraped(rst):
    def edit(content):
        content["schema"] = 3
        content["blocks"][-1]["figures"] = [{"rst": rst.format("ran")}]

    return edit


NAMES = [
    "a\u2028.. raw:: html.csv",
    "a\u2029b.csv",
    "a\x85b.csv",
    "a\u202egnp.csv",
    "a\u200bb.csv",
    "a<b>.csv",
    "a:b.csv",
    "NUL.csv",
    "com1",
    "dot.",
    "two  spaces.csv",
]


def data_file(name):
    def attack(folder):
        put(folder, name, b"1,2\n")
        change(folder, lambda c: c["blocks"][-1]["data"].append(name))

    return attack


IMAGES = {
    "empty": b"",
    "text": b"not an image",
    "cut off": small_gallery.PNG[:40],
    "400 Mpx": bomb(20_000, 20_000),
    "1 Tpx": bomb(10**6, 10**6),
}


def image(content, role):
    def attack(folder):
        name = "images/sphx_glr_attacked_002.png"
        put(folder, name, content)

        def edit(recorded):
            recorded["thumbnail"] = name if role == "thumbnail" else None
            if role == "image":
                item = {"kind": "image", "file": name}
                recorded["blocks"][-1]["images"].append(name)
                recorded["blocks"][-1]["figures"].append({"items": [item]})

        change(folder, edit)

    return attack


def edited(edit):
    return lambda folder: change(folder, edit)


REFUSED = {f"markup {n}": edited(edit_of_scraped(rst)) for n, rst in enumerate(SCRAPED)}
REFUSED |= {what: edited(edit) for what, edit in EDITS.items()}
REFUSED |= {f"a file called {name!r}": data_file(name) for name in NAMES}
for role in ("thumbnail", "image"):
    REFUSED |= {f"{role}: {what}": image(content, role) for what, content in IMAGES.items()}


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """A gallery with an example for each attack, and the messages of its build."""
    root = tmp_path_factory.mktemp("refused") / "g"
    make(root, [f"{number:02}-x" for number in range(len(REFUSED))])
    for number, attack in enumerate(REFUSED.values()):
        attack(folder_of(root, f"{number:02}-x"))
    return root, build(root).stderr.splitlines()


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[*REFUSED])
def test_a_damaged_recording_is_one_line_and_its_page_shows_no_outputs(refused, number):
    root, messages = refused
    folder = folder_of(root, f"{number:02}-x")
    assert len([line for line in messages if str(folder) in line]) == 1
    assert "this page shows no outputs" in page(root, f"{number:02}-x").get_text()


def test_nothing_of_a_damaged_recording_runs_or_is_shown(refused):
    root, _ = refused
    check_harmless(root)
    assert not [*root.rglob("ran")]


# --- what is shown as text ------------------------------------------------------------------------

DEVICES = [
    "`x <javascript:evil()>`__",
    ":download:`/etc/passwd`",
    "\u2028.. raw:: html\u2028\u2028   <script>evil()</script>",
    "x\n\n.. plot::\n\n   open('ran', 'w')",
    "|evil| evil_ https://evil.example.org",
]
DATA = ["a`b.csv", "a_b_.csv", "a[1](x).csv", "`x`__.csv", "50%;+=@!.csv", "ä €.csv"]
ALT = '"><script>evil()</script><img onerror="evil()'
EVIL_SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><!-- evil --></svg>'


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A gallery whose recordings have hostile names and texts that are allowed."""
    root = tmp_path_factory.mktemp("shown") / "g"
    make(root, ["data", "alt", "taken", "taken.evil", "views"], "gallery_others = True")
    for device in DEVICES:
        place = root / "recordings" / recording.slug(device) / "tutorials"
        place.mkdir(parents=True)
        shutil.copytree(folder_of(root, GOOD), place / GOOD)
        change(place / GOOD, lambda c, device=device: c["provenance"].update(device=device))
    for name in DATA:
        data_file(name)(folder_of(root, "data"))
    png, svg = "images/sphx_glr_alt_002.png", f"images/sphx_glr_{GOOD}_001.svg"
    put(folder_of(root, "alt"), png, small_gallery.PNG)
    put(folder_of(root, "alt"), svg, EVIL_SVG)

    def edit(content):
        block = content["blocks"][-1]
        block["images"] += [png, svg]
        for name, scraped in ((png, True), (png, False), (svg, True)):
            item = {"kind": "image", "file": name, "alt": ALT, "scraped": scraped}
            block["figures"].append({"items": [item]})

    change(folder_of(root, "alt"), edit)
    small_gallery.make_recording(root, "taken", "evil")
    for place in ("evil-a/b", "evil/a-b"):
        small_gallery.make_recording(root, "views", place)
    return root, build(root).stderr.splitlines()


def test_a_hostile_text_runs_nothing(shown):
    root, _ = shown
    check_harmless(root)
    assert not [*root.rglob("ran")]
    for html in pages(root):
        assert not html.find("a", href=lambda href: href and "evil.example.org" in href)


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_is_text_in_titles(shown, device):
    root, _ = shown
    text = " ".join(device.split())
    titles = [html.h1.get_text() for html in pages(root) if html.h1]
    assert [title for title in titles if text in title], titles


def test_a_data_file_of_any_name_is_a_link_with_this_name(shown):
    root, _ = shown
    links = page(root, "data").select("a.download[href*=_downloads]")
    for name in DATA:
        (link,) = [a for a in links if a.get_text() == name]
        file = root / "build" / "html" / "tutorials" / unquote(link["href"])
        assert file.read_bytes() == b"1,2\n"


def test_an_alternative_text_is_no_html(shown):
    root, _ = shown
    assert len(page(root, "alt").find_all("img", alt=ALT)) == 3


def test_an_image_named_after_another_example_does_not_replace_its_image(shown):
    root, _ = shown
    (there,) = page(root, GOOD).find_all("img", alt="A rising line")
    file = root / "build" / "html" / "tutorials" / there["src"]
    assert (
        file.read_bytes()
        == (folder_of(root, GOOD) / f"images/sphx_glr_{GOOD}_001.svg").read_bytes()
    )


def test_a_device_whose_page_is_that_of_an_example_costs_its_own_page(shown):
    root, messages = shown
    lines = [line for line in messages if "is another page" in line]
    assert len(lines) == 2, messages
    assert str(root / "recordings" / "evil" / "tutorials" / "taken") in "".join(lines)
    assert "3.14159 on nvidia-h200" in page(root, "taken.evil").get_text()


# --- notes about failures, and bounds -------------------------------------------------------------

NOTES = [
    b"",
    b"{}",
    b'{"key": "KEY", "recorded": "2026-13-01T00:00:00Z", "text": ""}',
    b'{"key": "KEY", "recorded": "x\\n\\n.. plot::\\n\\n   open(1)", "text": ""}',
]


def test_a_damaged_note_about_a_failure_is_one_line_for_build_and_status(tmp_path):
    root = make(tmp_path / "g", [f"{number}-x" for number in range(len(NOTES))])
    notes = []
    for number, content in enumerate(NOTES):
        folder = folder_of(root, f"{number}-x")
        small_gallery.make_stale(folder)
        script = root / "tutorials" / f"{number}-x.py"
        note = folder.with_name(f"{number}-x.failed.json")
        note.write_bytes(content.replace(b"KEY", load_script(script, script.parent).key.encode()))
        notes.append(note)
    messages = build(root).stderr.splitlines()
    words = ["status", "--conf", str(root), "--source", str(root / "docs")]
    listed = processes.run([sys.executable, "-m", "gallery_recorder", *words], cwd=root)
    assert "Traceback" not in listed.stderr
    assert GOOD in listed.stdout
    for note in notes:
        (line,) = [line for line in messages if str(note) in line]
        assert "remove the file" in line


def test_a_recording_of_more_than_32_mb_is_not_read(tmp_path):
    root = make(tmp_path / "g", ["large"])
    change(folder_of(root, "large"), lambda c: c.update(title="x" * 33_000_000))
    (line,) = [line for line in build(root).stderr.splitlines() if "large/recording.json" in line]
    assert "32,000,000" in line


def test_the_similarity_of_stale_code_takes_bounded_time(tmp_path):
    root = make(tmp_path / "g", ["stale"], 'gallery_unrecorded = "stale"')
    script = root / "tutorials" / "stale.py"
    long = "".join(f"x{n} = {n}\n" for n in range(4_000))
    script.write_text(script.read_text() + f"\n# %%\n# More.\n\n{long}")

    def edit(content):
        block = content["blocks"][0]
        blocks = [dict(block, key=f"{n:064x}", code="ab " * 10_000) for n in range(5)]
        content["blocks"] = blocks
        content["key"] = key_of(made["key"] for made in blocks)

    change(folder_of(root, "stale"), edit)
    before = time.monotonic()
    build(root)
    assert (
        time.monotonic() - before < 60
    )  # 34 s for each pair of such blocks, compared by characters
