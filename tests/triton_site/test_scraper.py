"""Figures are sharp, small, and the same each time; one of them is the thumbnail."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.fixtures.gallery import Gallery

# Each is the second block of a script of this name; all are recorded in one go.
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

        # sphinx_gallery_defer_figures
        figure, axes = plt.subplots(figsize=(4, 4), facecolor="red")
        None

        # %%
        axes.set_title("Deferred")
        plt.figure(figsize=(3, 2))
        import numpy as np
        points = plt.plot(*np.random.default_rng(0).random((2, 20_000)), ".")
        """,
    "last-thumbnail": """
        # sphinx_gallery_thumbnail_number = 9
        import matplotlib.pyplot as plt
        first = plt.figure(figsize=(4, 2))
        last = plt.figure(figsize=(2, 4), facecolor="blue")
        """,
    "none": "print('no figure')",
}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    options = '"image_scrapers": ("triton_site.pages.scraper.svg_scraper",),'
    gallery = Gallery(tmp_path_factory.mktemp("figures"), options)
    for name, code in SCRIPTS.items():
        gallery.write(name, code)
    return gallery.record_all()


def test_figures(gallery):
    made = gallery.load("figures")
    assert [block.images for block in made.blocks[1:]] == [
        ("images/sphx_glr_figures_001.svg",),
        (),
        # many points: PNG is smaller
        ("images/sphx_glr_figures_002.svg", "images/sphx_glr_figures_003.png"),
    ]
    assert (
        ".. image:: /@@gallery@@/images/sphx_glr_figures_001.svg\n"
        "   :alt: Both, Left side, Right\n   :width: 480\n   :height: 288\n"
    ) in made.blocks[1].rst
    folder = gallery.recordings / "figures"
    assert Image.open(folder / "images/sphx_glr_figures_003.png").size == (450, 300)
    svg = (folder / "images/sphx_glr_figures_002.svg").read_text()
    assert "<dc:date>" not in svg
    assert "ff0000" in svg
    assert made.thumbnail == "images/sphx_glr_figures_thumbnail.png"
    with Image.open(folder / made.thumbnail) as image:
        assert image.size == (400, 280)
        image = image.convert("RGB")
        assert image.getpixel((5, 140)) == (255, 255, 255)
        assert image.getpixel((80, 5)) == (255, 0, 0)


def test_the_last_figure_is_the_thumbnail_where_there_are_fewer(gallery):
    made = gallery.load("last-thumbnail")
    with Image.open(gallery.recordings / "last-thumbnail" / made.thumbnail) as image:
        assert image.convert("RGB").getpixel((200, 140)) == (0, 0, 255)
    assert gallery.load("none").thumbnail is None
