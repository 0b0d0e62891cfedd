"""What a script writes is handed on as it is, whatever its name says that it is."""

from __future__ import annotations

import io
import zipfile

import msgspec
import pytest

from gallery_recorder.run.outputs import Files, data_rst
from gallery_recorder.run.protocol import Refusal
from gallery_recorder.store import names, recording
from gallery_recorder.store.format import FILE_NAME, encode
from tests.fixtures import forked
from tests.fixtures.fixture_gallery import make_gallery, make_recording

EVIL = b".. raw:: html\n\n   <script>evil()</script>\n\nA title\n=======\n"


def a_zip() -> bytes:
    """A zip file with a date and a mode of its own."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        info = zipfile.ZipInfo("b.txt", date_time=(2001, 2, 3, 4, 5, 6))
        info.external_attr = 0o755 << 16
        made.writestr(info, "content")
    return buffer.getvalue()


FILES = {
    "helper.py": b'"""Not a tutorial"""\nprint("never executed")\n',
    "broken.py": b"def (\n",
    "no-zip.zip": b"this is no zip file",
    "a-zip.zip": a_zip(),
    "page.rst": EVIL,
    "index.rst": EVIL,
    "README.txt": EVIL,
    "notebook.ipynb": b"no JSON",
    "page.md": b"# <script>evil()</script>\n",
    "page.html": b"<script>evil()</script>",
    "none": b"",
    "bytes.bin": bytes(range(256)),
    "conf.py": b"raise SystemExit",
    "codeobj.json": b"\xff",
    "01-first.py": b"x = 1\n",
    "views": b"no folder",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A built gallery whose recording has all these files; its folder, and what was said."""
    root = make_gallery(tmp_path_factory.mktemp("data") / "g", names=("01-first",))
    make_recording(root, "01-first", device="amd-instinct-mi300x")
    with (root / "conf.py").open("a") as conf:
        conf.write('gallery_devices = ["nvidia-h200"]\ngallery_others = True\n')
    folder = make_recording(root, "01-first")
    made = recording.load(folder)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    last = made.blocks[-1]
    links = "".join(f"\n{data_rst(name, len(FILES[name]), '01-first')}\n" for name in FILES)
    made = msgspec.structs.replace(
        made,
        blocks=(
            *made.blocks[:-1],
            msgspec.structs.replace(last, data=(*last.data, *FILES), rst=last.rst + links),
        ),
        files=made.files | {name: recording.digest(folder / name) for name in FILES},
    )
    (folder / FILE_NAME).write_bytes(encode(made))
    said = []
    for _ in range(2):  # the second time from what the first one left
        done = forked.build(root, "-W", "-q")
        said.append((done.returncode, done.stderr))
    return root, said


def test_any_file_can_be_built_and_built_again(built):
    _, said = built
    assert said == [(0, ""), (0, "")]


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_handed_on_byte_for_byte(built, name):
    root, _ = built
    found = (root / "build" / "html" / "_downloads").glob(f"*/{name}")
    assert FILES[name] in [path.read_bytes() for path in found]


def test_no_file_becomes_a_page_or_markup(built):
    root, _ = built
    site = root / "build" / "html"
    pages = [path.relative_to(site).as_posix() for path in site.rglob("*.html")]
    assert not [page for page in pages if page.startswith("tutorials/01-first/")]
    for page in pages:
        if not page.startswith("_downloads/"):
            assert "<script>evil()" not in (site / page).read_text()


def test_thousands_of_files_are_refused_at_the_first_that_is_too_many(tmp_path, monkeypatch):
    """Each is compared with all others: of all of them, that would take hours."""
    pages, script = tmp_path / "docs" / "pages", tmp_path / "scripts" / "01-first.py"
    pages.mkdir(parents=True)
    script.parent.mkdir()
    script.touch()
    files = Files(tmp_path / "docs", pages, script, ["*"], size=9, count=3)
    for number in range(2_000):
        (script.parent / f"{number}.txt").touch()
    compared = []
    monkeypatch.setattr(names, "twin", lambda name, others: compared.append(name))
    with pytest.raises(Refusal, match="more than 3 images and data files"):
        files.look(1)
    assert len(compared) == 4
