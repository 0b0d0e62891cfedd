"""The figures of a tutorial: drawn by sphinx-gallery's scraper, kept in their smaller form.

A figure is written as SVG, sharp at every size, and as PNG, which is smaller where there are
many points. The smaller is recorded, by what it takes compressed, as git keeps it and servers
send it. Drawing the same figure again gives the same bytes.
"""

from __future__ import annotations

import sys
import time
import zlib
from pathlib import Path
from typing import Any

from sphinx_gallery import scrapers
from sphinx_gallery.utils import scale_image

from gallery_recorder.store.convert import Figure

THUMBNAIL = "thumbnail.png"

_THUMBNAIL_SIZE = (400, 280)  # pixels, as sphinx-gallery makes them
_PNG_DPI = 150
_CSS_DPI = 96  # CSS defines an inch as 96 of its pixels


class FigureScraper:
    """What sphinx-gallery's scraper drew.

    Attributes:
        new: the figures since this list was last emptied.
        count: how many there are in the tutorial so far.
        seconds: the time that drawing took, which is not the tutorial's own.
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch
        self.new: list[Figure] = []
        self.count = 0
        self.seconds = 0.0

    def draw(self, block: Any, block_vars: dict[str, Any], gallery_conf: dict) -> str:
        """Draw the open figures, as sphinx-gallery asks its scrapers to."""
        if "matplotlib.pyplot" not in sys.modules:
            return ""
        import matplotlib
        import matplotlib.pyplot as plt

        started = time.perf_counter()
        drawn = [plt.figure(number) for number in plt.get_fignums()]
        # The salt makes the ids in an SVG the same each time.
        with matplotlib.rc_context({"svg.hashsalt": "gallery"}):
            # matplotlib's version is in the provenance; here it would only enlarge diffs.
            rst = scrapers.matplotlib_scraper(
                block,
                block_vars,
                gallery_conf,
                format="svg",
                dpi=_PNG_DPI,  # of images within the figure; the rest has no dots
                metadata={"Date": None, "Creator": None},
            )
            for figure in drawn:
                self._keep_smaller(figure)
        self.seconds += time.perf_counter() - started
        return rst

    def _keep_smaller(self, figure: Any) -> None:
        self.count += 1
        svg = self._folder / f"figure-{self.count:02d}.svg"
        png = self._scratch / f"figure-{self.count:02d}.png"  # also what a thumbnail is made of
        figure.savefig(png, dpi=_PNG_DPI, metadata={"Software": None})
        kept = svg
        if png.stat().st_size < len(zlib.compress(svg.read_bytes())):
            kept = svg.with_suffix(".png")
            kept.write_bytes(png.read_bytes())
            svg.unlink()
        width, height = _size(png)
        alt = scrapers._matplotlib_fig_titles(figure) or f"figure {self.count}"
        self.new.append(
            Figure(
                file=kept.name,
                alt=" ".join(alt.split()),
                width=round(width * _CSS_DPI / _PNG_DPI),
                height=round(height * _CSS_DPI / _PNG_DPI),
            )
        )

    def make_thumbnail(self, number: int) -> str | None:
        """Write the thumbnail from figure *number* (from 1); return its name, None without figures.

        The last figure is taken where there are fewer: in the interpreter, plots of benchmarks
        are missing. Negative numbers count from the last, as in sphinx-gallery.
        """
        if not self.count:
            return None
        chosen = number if number > 0 else self.count + 1 + number
        chosen = min(max(chosen, 1), self.count)
        scaled = self._scratch / THUMBNAIL
        scale_image(self._scratch / f"figure-{chosen:02d}.png", scaled, *_THUMBNAIL_SIZE)
        _on_white(scaled, self._folder / THUMBNAIL)
        return THUMBNAIL


def _size(png: Path) -> tuple[int, int]:
    from PIL import Image

    with Image.open(png) as image:
        return image.size


def _on_white(transparent: Path, opaque: Path) -> None:
    from PIL import Image

    with Image.open(transparent) as image:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        flat = Image.alpha_composite(white, image).convert("RGB")
        # A plot has few colours; naming them halves the file.
        flat.quantize(256, dither=Image.Dither.NONE).save(opaque, optimize=True)
