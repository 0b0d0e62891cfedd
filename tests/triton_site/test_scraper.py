"""Figures are sharp, small and repeatable; one of them is the thumbnail."""

from xml.etree import ElementTree

import pytest
from PIL import Image

from gallery_recorder.testing.projects import Gallery

SCRIPTS = {
    "figures": """
        # sphinx_gallery_thumbnail_number = 2
        import matplotlib.pyplot as plt
        figure, axes = plt.subplots(1, 2, figsize=(5, 3))
        figure.suptitle("Both")
        axes[0].set_title("Left\\nside")
        axes[1].set_title("Right")
        plt.show()

        # %%
        figure, axes = plt.subplots(figsize=(4, 4), facecolor="red")
        plt.figure(figsize=(3, 2))
        import numpy as np
        points = plt.plot(*np.random.default_rng(0).random((2, 20_000)), ".")
        """,
    "points": """
        import matplotlib.pyplot as plt
        for row in (0, 1):
            plt.plot([256, 4096], [1.25, 3980 + row], marker=".", gid="same", label=f"{row} < 2")
        plt.plot([1, 2], [3, 4], label="no points")
        plt.ylabel("GB/s, higher is better")
        """,
    "last-thumbnail": """
        # sphinx_gallery_thumbnail_number = 9
        import matplotlib.pyplot as plt
        first = plt.figure(figsize=(4, 2))
        last = plt.figure(figsize=(2, 4), facecolor="blue")
        """,
}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    options = '"image_scrapers": ("triton_site.pages.scraper.svg_scraper",),'
    gallery = Gallery(tmp_path_factory.mktemp("figures"), options)
    for name, code in SCRIPTS.items():
        gallery.write(name, code)
    return gallery.record_all()


def test_a_figure_is_the_smaller_of_svg_and_png_with_its_titles_as_text(gallery):
    made = gallery.load("figures")
    assert [block.images for block in made.blocks[1:]] == [
        ("images/sphx_glr_figures_001.svg",),
        # many points: PNG is smaller
        ("images/sphx_glr_figures_002.svg", "images/sphx_glr_figures_003.png"),
    ]
    (image,) = made.blocks[1].figures[0].items
    assert (image.file, image.alt) == made.blocks[1].images + ("Both, Left side, Right",)
    assert (image.width, image.height) == ("480", "288")
    folder = gallery.recorded / "figures"
    assert Image.open(folder / "images/sphx_glr_figures_003.png").size == (450, 300)
    assert "<dc:date>" not in (folder / "images/sphx_glr_figures_002.svg").read_text()


def test_each_point_of_a_line_has_its_value(gallery):
    svg = (gallery.recorded / "points/images/sphx_glr_points_001.svg").read_text()
    assert [title.text for title in ElementTree.fromstring(svg).iterfind(".//{*}use/{*}title")] == [
        "0 < 2, 256: 1.25 GB/s",
        "0 < 2, 4096: 3980 GB/s",
        "1 < 2, 256: 1.25 GB/s",
        "1 < 2, 4096: 3981 GB/s",
    ]


@pytest.mark.parametrize(
    ("name", "pixel", "color"),
    [("figures", (80, 5), (255, 0, 0)), ("last-thumbnail", (200, 140), (0, 0, 255))],
)
def test_the_thumbnail_is_the_chosen_figure_or_the_last(gallery, name, pixel, color):
    made = gallery.load(name)
    with Image.open(gallery.recorded / name / made.thumbnail) as image:
        assert image.size == (400, 280)
        assert image.convert("RGB").getpixel(pixel) == color
