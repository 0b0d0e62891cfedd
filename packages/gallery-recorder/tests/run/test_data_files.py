"""A data file is handed on as it is, whatever its name says."""

import msgspec
import pytest

from gallery_recorder.store import recording
from gallery_recorder.store.format import FILE_NAME, encode
from gallery_recorder.testing import processes
from gallery_recorder.testing.small_gallery import make_gallery, make_recording

EVIL = b".. raw:: html\n\n   <script>evil()</script>\n\nA title\n=======\n"
FILES = {
    "broken.py": b"def (\n",
    "no-zip.zip": b"this is no zip file",
    "page.rst": EVIL,
    "index.rst": EVIL,
    "notebook.ipynb": b"no JSON",
    "page.md": b"# <script>evil()</script>\n",
    "page.html": b"<script>evil()</script>",
    "none": b"",
    "bytes.bin": bytes(range(256)),
    "conf.py": b"raise SystemExit",
    "01-first.py": b"x = 1\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site of a gallery whose recording has all these files."""
    root = make_gallery(tmp_path_factory.mktemp("data") / "g", names=("01-first",))
    folder = make_recording(root, "01-first")
    made = recording.load(folder)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    last = made.blocks[-1]
    last = msgspec.structs.replace(last, data=(*last.data, *FILES))
    made = msgspec.structs.replace(
        made,
        blocks=(*made.blocks[:-1], last),
        files=made.files | {name: recording.digest(folder / name) for name in FILES},
    )
    (folder / FILE_NAME).write_bytes(encode(made))
    done = processes.build(root, "-W", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    return root / "build" / "html"


def test_every_file_can_be_downloaded_byte_for_byte(site):
    for name, content in FILES.items():
        found = (site / "_downloads").glob(f"*/{name}")
        assert content in [path.read_bytes() for path in found], name


def test_no_file_becomes_a_page_or_markup(site):
    pages = [path for path in site.rglob("*.html") if "_downloads" not in path.parts]
    assert not [page for page in pages if page.parent.name == "01-first"]
    assert not [page for page in pages if "<script>evil()" in page.read_text()]
