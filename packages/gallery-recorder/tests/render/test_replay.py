"""Rendering recordings: pages, provenance, downloads, refusals."""

import io
import json
import re
import subprocess
import zipfile
from pathlib import Path

import msgspec
import nbformat
import pytest
from bs4 import BeautifulSoup

from gallery_recorder.store import recording
from gallery_recorder.store.format import FILE_NAME, Figure, GpuFacts, GpuState, Image
from gallery_recorder.testing import processes, small_gallery

#: A machine without PyTorch: an import of these fails, whatever is installed.
WITHOUT_TORCH = ("torch", "triton", "matplotlib", "numpy")


def build(gallery: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Render *gallery* in a process that cannot import torch, warnings as errors."""
    return processes.build(gallery, "-W", *options, without=WITHOUT_TORCH)


def page(gallery: Path, name: str) -> str:
    return (gallery / "build" / "html" / f"{name}.html").read_text()


def download(gallery: Path, name: str) -> bytes:
    (path,) = (gallery / "build" / "html" / "_downloads").glob(f"*/{name}")
    return path.read_bytes()


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """A gallery of two tutorials, one recorded on a GPU, one in the interpreter; rendered."""
    root = small_gallery.make_gallery(tmp_path_factory.mktemp("gallery") / "g")
    small_gallery.make_recording(root, "01-first")
    small_gallery.make_recording(root, "02-second", "interpreter")
    result = build(root)
    assert result.returncode == 0, result.stderr
    return root


def test_outputs_stand_below_their_block(gallery):
    html = page(gallery, "tutorials/01-first")
    order = ["math", "3.14159 on nvidia-h200", "a warning", "More prose", "answer", "<img", ">42"]
    places = [html.index(text) for text in order]
    assert places == sorted(places)
    assert 'alt="A rising line"' in html
    assert "gallery-stderr" in html
    assert "speed.csv" in html


def test_provenance_line_leads_to_the_full_record(gallery):
    html = page(gallery, "tutorials/01-first")
    line = html[html.index("gallery-provenance") :].split("</p>")[0]
    for part in ("NVIDIA H200", "triton 3.6.0", "torch 2.11.0", "20 November 2026"):
        assert part in line
    assert "12 s" in line
    label = "recording-nvidia-h200-tutorials-01-first"
    assert f'href="recordings-nvidia-h200.html#{label}"' in line
    assert f'id="{label}"' in page(gallery, "tutorials/recordings-nvidia-h200")
    assert 'href="tutorials/recordings-nvidia-h200.html"' in page(gallery, "recordings")
    assert "gallery-banner" not in html


def test_interpreter_page_has_a_banner_and_no_time(gallery):
    html = page(gallery, "tutorials/02-second")
    assert "gallery-banner" in html
    assert "Total running time" not in html
    assert "12 s" not in html
    assert "in an interpreter" in BeautifulSoup(html, "html.parser").get_text()
    assert "not timed" in page(gallery, "tutorials/recordings-interpreter")


def test_settings_leave_no_empty_box(gallery):
    assert page(gallery, "tutorials/01-first").count('class="highlight-Python') == 2


def test_notebook_holds_the_recorded_outputs(gallery):
    inside = zipfile.ZipFile(io.BytesIO(download(gallery, "01-first.zip")))
    everything = zipfile.ZipFile(io.BytesIO(download(gallery, "tutorials_jupyter.zip")))
    for content in (
        download(gallery, "01-first.ipynb"),
        inside.read("01-first.ipynb"),
        everything.read("01-first.ipynb"),
    ):
        notebook = nbformat.reads(content.decode(), as_version=4)
        nbformat.validate(notebook)
        first, second = (cell for cell in notebook.cells if cell.cell_type == "code")
        assert [output.name for output in first.outputs] == ["stdout", "stderr"]
        assert (
            second.outputs[0].data["text/html"].startswith('<img src="data:image/svg+xml;base64,')
        )
        assert second.outputs[1].data["text/plain"] == "42"
        assert notebook.metadata.recorded.device == "NVIDIA H200"
    assert sorted(inside.namelist()) == ["01-first.ipynb", "01-first.py"]
    assert inside.read("01-first.py") == (gallery / "tutorials" / "01-first.py").read_bytes()


def test_stale_and_missing_recordings_are_listed_with_the_command(tmp_path):
    root = small_gallery.make_gallery(tmp_path / "g")
    small_gallery.make_recording(root, "01-first")
    script = root / "tutorials" / "01-first.py"
    script.write_text(script.read_text().replace("6 * 7", "6 * 9"))
    result = build(root, "-D", "gallery_unrecorded=error")
    assert result.returncode != 0
    assert "No recording matches the code of: 01-first, 02-second" in result.stderr
    assert "report" not in result.stderr  # it is no fault of Sphinx
    assert "python -m gallery_recorder record 01-first 02-second" in result.stderr
    assert not (root / "build" / "html" / "index.html").exists()


def test_each_other_recording_has_a_page_of_its_own(tmp_path):
    """Its notebook has its outputs; no label, equation or index entry is doubled."""
    root = small_gallery.make_gallery(tmp_path / "g", ("01-first",))
    script = root / "tutorials" / "01-first.py"
    script.write_text(script.read_text().replace("# Prose before code.\n", LABELS))
    for place in ("nvidia-h200/release-10", "nvidia-h200/release-9", "amd-instinct-mi300x"):
        small_gallery.make_recording(root, "01-first", place)
    stale = small_gallery.make_recording(root, "01-first", "nvidia-h200/release-8")
    small_gallery.make_stale(stale)
    with (root / "conf.py").open("a") as conf:
        conf.write('gallery_devices = ["nvidia-h200"]\ngallery_others = True\n')
    result = build(root)
    assert result.returncode == 0, result.stderr
    main = BeautifulSoup(page(root, "tutorials/01-first"), "html.parser")
    (also,) = [p for p in main.select(".gallery-provenance") if "Also recorded" in p.text]
    links = {a["href"] for a in also("a")}
    own = {path.name for path in root.glob("build/html/tutorials/01-first.*.html")}
    assert links == own
    assert own == {f"01-first.{view}.html" for view in ("release-9", "amd-instinct-mi300x")}
    for name in ("01-first.release-9", "01-first.amd-instinct-mi300x"):
        html = BeautifulSoup(page(root, f"tutorials/{name}"), "html.parser")
        (line,) = [p for p in html.select(".gallery-provenance") if "Reference" in p.text]
        assert line.a["href"] == "01-first.html"
        assert html.find("a", string="The target")["href"] == "01-first.html#the-target"
        place = "nvidia-h200/release-9" if "release" in name else "amd-instinct-mi300x"
        assert f"3.14159 on {place}" in html.text
        assert f"3.14159 on {place}" in download(root, f"{name}.ipynb").decode()
        inside = zipfile.ZipFile(io.BytesIO(download(root, f"{name}.zip")))
        assert {*inside.namelist()} == {f"{name}.ipynb", "01-first.py"}
    assert "3.14159 on nvidia-h200/release-10" in download(root, "01-first.ipynb").decode()
    menus = page(root, "index") + page(root, "tutorials/index") + page(root, "genindex")
    assert "01-first.html" in menus
    assert not [name for name in own if name in menus]


#: What may be defined once in a project, or says where pages are.
LABELS = """# Prose before code, :ref:`The target`, :eq:`sum` and [Book]_.
#
# .. index:: single: a word of the index
#
# .. math:: x + y
#    :label: sum
#
# .. [Book] A book.
#
# .. _The target:
#
# .. rubric:: The target
#
"""


def test_what_needs_a_particular_gpu_has_a_page_without_a_recording(tmp_path):
    root = small_gallery.make_gallery(tmp_path / "g")
    small_gallery.make_recording(root, "01-first")
    script = root / "tutorials" / "02-second.py"
    says = '# sphinx_gallery_needs = "compute_capability>=10.0, memory>=40GB"\n'
    script.write_text(script.read_text() + says)
    result = build(root)
    assert result.returncode == 0, result.stderr
    html = page(root, "tutorials/02-second")
    assert "gallery-banner" in html
    assert "needs a GPU with compute_capability&gt;=10.0 and memory&gt;=40GB" in html
    assert "More prose" in html
    assert "sphinx_gallery_needs" not in html
    assert "Total running time" not in html
    assert "gallery-provenance" not in html

    folder = small_gallery.make_recording(root, "02-second")
    assert build(root).returncode == 0
    assert "gallery-banner" not in page(root, "tutorials/02-second")
    assert "3.14159 on nvidia-h200" in page(root, "tutorials/02-second")

    small_gallery.make_stale(folder)
    assert build(root).returncode == 0
    assert "gallery-banner" in page(root, "tutorials/02-second")
    assert "of older code" in page(root, "tutorials/recordings-nvidia-h200")


def test_a_value_that_the_script_no_longer_shows_is_on_no_page(tmp_path):
    root = small_gallery.make_gallery(tmp_path / "g", ("01-first",))
    small_gallery.make_recording(root, "01-first")
    script = root / "tutorials" / "01-first.py"
    code = script.read_text()
    before, last = code.rstrip().rsplit("\n", 1)  # the last block ends with an expression
    script.write_text(f"{before}\n# sphinx_gallery_capture_repr_block = ()\n{last}\n")
    assert build(root).returncode == 0
    assert ">42" not in page(root, "tutorials/01-first")
    notebook = nbformat.reads(download(root, "01-first.ipynb").decode(), as_version=4)
    assert not any("42" in str(cell.get("outputs")) for cell in notebook.cells)


def test_a_damaged_recording_stops_the_build(tmp_path):
    root = small_gallery.make_gallery(tmp_path / "g", ("01-first",))
    folder = small_gallery.make_recording(root, "01-first")
    (folder / "images" / "sphx_glr_01-first_001.svg").write_text("<svg/>")
    result = build(root)
    assert result.returncode != 0
    assert "sphx_glr_01-first_001.svg is not the file that was recorded" in result.stderr


@pytest.mark.parametrize(("policy", "told"), [("warn", True), ("no-output", False)])
def test_a_script_without_a_recording_may_have_a_page(tmp_path, policy, told):
    root = small_gallery.make_gallery(tmp_path / "g")
    small_gallery.make_recording(root, "01-first")
    result = build(root, "-D", f"gallery_unrecorded={policy}")
    assert ("No recording matches the code of: 02-second" in result.stderr) == told
    assert (result.returncode != 0) == told  # a warning is an error here
    html = page(root, "tutorials/02-second")
    assert "this page shows no outputs" in html
    assert "More prose" in html


def test_what_sphinx_gallery_would_not_execute_needs_no_recording(tmp_path):
    root = small_gallery.make_gallery(tmp_path / "g")
    small_gallery.make_recording(root, "01-first")
    result = build(root, "-D", "sphinx_gallery_conf.filename_pattern=01-")
    assert result.returncode == 0, result.stderr
    assert "gallery-banner" not in page(root, "tutorials/02-second")
    assert "More prose" in page(root, "tutorials/02-second")
    result = build(root, "-D", "plot_gallery=0")
    assert result.returncode == 0, result.stderr
    assert "3.14159" not in page(root, "tutorials/01-first")
    assert build(root, "-D", "sphinx_gallery_conf.filename_pattern=01-").returncode == 0
    assert "3.14159 on nvidia-h200" in page(root, "tutorials/01-first")


def test_what_lies_among_recordings_is_no_page(tmp_path):
    """They may be kept below the documentation's pages, as where ``conf.py`` is among these."""
    root = small_gallery.make_gallery(tmp_path / "g", ("01-first",))
    folder = small_gallery.make_recording(root, "01-first")
    evil = "Evil\n====\n\n.. raw:: html\n\n   <script>evil()</script>\n"
    (folder / "notes.rst").write_text(evil)
    files = recording.load(folder).files | {"notes.rst": recording.digest(folder / "notes.rst")}
    small_gallery.change(folder, files=files)
    left = root / "recordings" / "nvidia-h200" / ".staging-01-first" / "tree"
    left.mkdir(parents=True)
    (left / "page.rst").write_text(evil)
    (root / "recordings").rename(root / "docs" / "recordings")
    with (root / "conf.py").open("a") as conf:
        conf.write('gallery_recordings = ["docs/recordings"]\n')
    result = build(root)
    assert result.returncode == 0, result.stderr
    assert "3.14159" in page(root, "tutorials/01-first")
    html = [path.read_text() for path in (root / "build" / "html").rglob("*.html")]
    assert not [text for text in html if "<script>evil()" in text]


DRAWN = (
    "source/_static/logo.svg",
    "extra/logo.svg",
    "02-second.svg",
    "images/sphx_glr_02-second_001.svg",
    "images/SPHX_GLR_02-second_003.svg",
    "images/thumb/sphx_glr_02-second_thumb.svg",
    "images/sphx_glr_01-first_more_001.svg",
    "source/tutorials/images/sphx_glr_02-second_002.svg",
)


def test_no_image_of_a_recording_replaces_a_file_of_the_project(tmp_path):
    root = small_gallery.make_gallery(tmp_path / "g", ("01-first",))
    folder = small_gallery.make_recording(root, "01-first")
    made = recording.load(folder)
    places = [
        name.removeprefix("source/") if "source" in name else f"tutorials/{name}" for name in DRAWN
    ]
    figures, files = [], dict(made.files)
    for number, (name, address) in enumerate(zip(DRAWN, places, strict=True)):
        own = root / "docs" / address
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(f"{small_gallery.SVG}<!-- {number} -->")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{small_gallery.SVG}<!-- drawn {number} -->")
        files[name] = recording.digest(folder / name)
        figures.append(Figure((Image(name, f"drawn {number}"),)))
    first = msgspec.structs.replace(made.blocks[0], images=DRAWN, figures=tuple(figures))
    small_gallery.change(folder, blocks=(first, *made.blocks[1:]), files=files)
    result = build(root)
    assert result.returncode == 0, result.stderr
    html = BeautifulSoup(page(root, "tutorials/01-first"), "html.parser")
    for number, address in enumerate(places):
        own = root / "docs" / address
        assert own.read_text() == f"{small_gallery.SVG}<!-- {number} -->"
        source = html.find("img", alt=f"drawn {number}")["src"]
        shown = root / "build" / "html" / "tutorials" / source
        assert shown.read_text() == f"{small_gallery.SVG}<!-- drawn {number} -->"


def test_nothing_that_a_recording_says_of_itself_is_markup(tmp_path):
    """Each text of ``recording.json`` that a page shows is one that tries to be more."""
    evil = "`x <javascript:alert(1)>`_ |v| <script>evil()</script> :raw-html:`y`\n\n.. raw:: html\n"
    root = small_gallery.make_gallery(tmp_path / "g", ("01-first",))
    folder = small_gallery.make_recording(root, "01-first")
    made = recording.load(folder)
    state = GpuState(throttling=(evil,))
    probe = dict.fromkeys(("triton", "torch", "numpy", "matplotlib", "toolkit"), evil)
    small_gallery.change(
        folder,
        title=f"Title {evil}",
        provenance=msgspec.structs.replace(
            made.provenance,
            os=evil,
            python=evil,
            commit=evil,
            environment={f"NAME {evil}": evil, "b": "``"},
            versions={"sphinx-gallery": evil, evil: evil},
            gpu=GpuFacts(compute_capability=evil, driver=evil),
            before=state,
            after=state,
        ),
        probes={small_gallery.PROBE: probe | {"peak_gpu_memory": evil}, evil: {evil: evil}},
    )
    result = build(root)
    assert result.returncode == 0, result.stderr
    for path in (root / "build" / "html").rglob("*.html"):
        html = BeautifulSoup(path.read_text(), "html.parser")
        assert not [s for s in html.find_all("script") if "evil" in s.get_text()]
        assert not [a for a in html.find_all("a") if a.get("href", "").startswith("javascript")]
    html = page(root, "tutorials/recordings-nvidia-h200")
    assert "evil()" in BeautifulSoup(html, "html.parser").get_text()


def test_damaged_recordings_that_no_page_shows_are_left_out_with_a_warning(tmp_path):
    root = small_gallery.make_gallery(tmp_path / "g", ("01-first",))
    small_gallery.make_recording(root, "01-first")
    for number, damage in enumerate((b"\xff", b"[" * 200_000, b"")):
        other = small_gallery.make_recording(root, "01-first", device=f"zz-other-{number}")
        (other / FILE_NAME).write_bytes(damage)
    result = build(root)
    for number in range(3):
        (told,) = [line for line in result.stderr.splitlines() if f"zz-other-{number}" in line]
        assert re.search("is not valid JSON|Expected `object`", told)
    assert "Traceback" not in result.stderr
    assert "NVIDIA H200" in page(root, "recordings")


def test_notebooks_are_plain_if_conf_py_says_so_and_doctrees_hold_none(tmp_path):
    root = small_gallery.make_gallery(tmp_path / "g")
    for name in ("01-first", "02-second"):
        small_gallery.make_recording(root, name)
    for setting, has_outputs in (("outputs", True), ("plain", False)):
        done = processes.build(root, "-W", "-D", f"gallery_notebooks={setting}")
        assert done.returncode == 0, done.stderr
        (path,) = root.glob("build/html/_downloads/*/01-first.ipynb")
        cells = json.loads(path.read_text())["cells"]
        assert any(cell.get("outputs") for cell in cells) is has_outputs
        assert not any("gallery_line" in cell["metadata"] for cell in cells)
        (archive,) = root.glob("build/html/_downloads/*/*_jupyter.zip")
        with zipfile.ZipFile(archive) as opened:
            assert opened.read("01-first.ipynb") == path.read_bytes()
        assert not [*root.glob("build/doctrees/**/*.ipynb"), *root.glob("build/doctrees/**/*.zip")]
