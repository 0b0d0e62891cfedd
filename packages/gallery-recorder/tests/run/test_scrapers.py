"""What a recording cannot hold is refused by its name when the example is recorded."""

import pytest

from gallery_recorder.store.format import Figure, Html, Image, Video
from gallery_recorder.testing.projects import Gallery

SCRAPING = '''
import os
from pathlib import Path

PNG = bytes.fromhex({png!r})

def scraper(block, block_vars, gallery_conf):
    """Each block that defines RST has this as the output of a scraper, with the files NAMES."""
    names = block_vars["example_globals"].pop("NAMES", ())
    folder = Path(block_vars["image_path_iterator"].image_path).parent
    for name in names:
        (folder / name).write_bytes(PNG)
    where = os.path.relpath(folder, gallery_conf["src_dir"])
    return block_vars["example_globals"].pop("RST", "").replace("FOLDER", "/" + where)
'''
MORE = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
"""
PNG = (
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
    "53de0000000c4944415478da63f8ffff3f0005fe02fe0def46b80000000049454e44ae426082"
)

KEPT = {
    "html": ("<p>", '".. raw:: html\\n\\n    <p>\\n"', [], (Figure((Html("<p>"),)),)),
    "file": (
        "a file of HTML",
        '".. raw:: html\\n   :file: images/a.html\\n"',
        ["a.html"],
        (Figure((Html(file="images/a.html"),)),),
    ),
    "caption": (
        "a figure",
        '".. figure:: FOLDER/a.png\\n   :alt: A\\n\\n   A caption.\\n"',
        ["a.png"],
        (Figure((Image("images/a.png", "A", caption="A caption."),)),),
    ),
    "video": (
        "a video",
        '".. video:: FOLDER/a.mp4\\n   :width: 5\\n   :loop:\\n"',
        ["a.mp4"],
        (Figure((Video("images/a.mp4", width=5, loop=True),)),),
    ),
}
REFUSED = {
    "plot": '".. plot::\\n\\n   import os\\n"',
    "table": '".. csv-table::\\n   :file: /etc/passwd\\n"',
    "rubric": '".. rubric:: Words\\n"',
    "elsewhere": '".. image:: /_static/logo.png\\n"',
    "latex": '".. raw:: latex\\n\\n   x\\n"',
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A gallery with an example for each output, and what became of each."""
    options = '"image_scrapers": ("scraping.scraper",),\n"reset_modules": (),'
    gallery = Gallery(tmp_path_factory.mktemp("scrapers"), options, MORE)
    (gallery.conf / "scraping.py").write_text(SCRAPING.format(png=PNG))
    for name, (_, rst, names, _) in KEPT.items():
        gallery.write(name, f"NAMES = {names}\nRST = {rst}")
    for name, rst in REFUSED.items():
        gallery.write(name, f"RST = {rst}")
    return gallery, gallery.record()


@pytest.mark.parametrize("name", KEPT)
def test_images_videos_and_html_are_recorded_as_data(recorded, name):
    gallery, outcomes = recorded
    assert outcomes[name].status == "recorded", outcomes[name].text
    assert gallery.load(name).blocks[-1].figures == KEPT[name][3]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("plot", ".. plot::"),
        ("table", ".. csv-table::"),
        ("rubric", ".. rubric::"),
        ("elsewhere", "/_static/logo.png"),
        ("latex", ".. raw:: latex"),
    ],
)
def test_anything_else_fails_the_example_by_name(recorded, name, named):
    _gallery, outcomes = recorded
    assert outcomes[name].status == "failed"
    assert named in outcomes[name].text


def test_a_file_with_a_name_that_some_system_refuses_fails_the_example(tmp_path):
    gallery = Gallery(tmp_path, more='gallery_data = ["*.csv"]')
    gallery.write("names", 'open("a:b.csv", "w").write("1")')
    gallery.write("hidden", 'open(".hidden.csv", "w").write("1")')
    outcomes = gallery.record()
    assert outcomes["names"].status == "failed"
    assert "a:b.csv" in outcomes["names"].text
    assert gallery.load("hidden").data == []
