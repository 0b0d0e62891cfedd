"""A scraper of matplotlib's figures, for ``image_scrapers`` in conf.py: sharp, small, repeatable.

A figure is written as SVG, sharp at every size, and as PNG, which is smaller where there are
many points. The smaller is kept, by what it takes compressed, as git keeps it and servers
send it. Drawing the same figure again gives the same bytes. The thumbnail is made of the PNG::

    sphinx_gallery_conf = {"image_scrapers": ("triton_site.pages.scraper.svg_scraper",), …}
"""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from gallery_recorder import seam

_PNG_DPI = 150
_CSS_DPI = 96  # CSS defines an inch as 96 of its pixels


class _SvgScraper:
    """The scraper; it remembers the figures of the script, of which there is one a process."""

    def __init__(self) -> None:
        self._pngs: list[Path] = []
        self._thumbnail_number: int | None = None

    def __repr__(self) -> str:
        return "svg_scraper"

    def __call__(self, block: Any, block_vars: dict[str, Any], gallery_conf: Any) -> str:
        """Draw the open figures, as sphinx-gallery asks its scrapers to."""
        if "matplotlib.pyplot" not in sys.modules:
            return ""
        import matplotlib
        import matplotlib.pyplot as plt

        drawn = [plt.figure(number) for number in plt.get_fignums()]
        if not drawn:
            return ""
        count = len(block_vars["image_path_iterator"])
        # The salt makes the ids in an SVG the same each time.
        with matplotlib.rc_context({"svg.hashsalt": "gallery"}):
            # matplotlib's version is in the provenance; here it would only enlarge diffs.
            seam.draw_matplotlib(
                block,
                block_vars,
                gallery_conf,
                format="svg",
                dpi=_PNG_DPI,  # of images within the figure; the rest has no dots
                metadata={"Date": None, "Creator": None},
            )
            paths = block_vars["image_path_iterator"].paths[count:]
            rst = [
                self._keep_smaller(figure, Path(path).with_suffix(".svg"), gallery_conf)
                for figure, path in zip(drawn, paths, strict=True)
            ]
        self._make_thumbnail(block_vars, gallery_conf)
        return "\n\n".join(rst)

    def _keep_smaller(self, figure: Any, svg: Path, gallery_conf: Any) -> str:
        png = Path(tempfile.gettempdir(), f"{svg.stem}.png")  # also what a thumbnail is made of
        figure.savefig(png, dpi=_PNG_DPI, metadata={"Software": None})
        self._pngs.append(png)
        kept = svg
        if png.stat().st_size < len(zlib.compress(svg.read_bytes())):
            kept = svg.with_suffix(".png")
            kept.write_bytes(png.read_bytes())
            svg.unlink()
        width, height = _size(png)
        alt = seam.figure_titles(figure) or f"figure {len(self._pngs)}"
        return (
            f".. image:: /{Path(os.path.relpath(kept, gallery_conf['src_dir'])).as_posix()}\n"
            f"   :alt: {' '.join(alt.split())}\n"
            f"   :width: {round(width * _CSS_DPI / _PNG_DPI)}\n"
            f"   :height: {round(height * _CSS_DPI / _PNG_DPI)}\n"
            "   :loading: lazy\n"
            "   :class: sphx-glr-single-img\n"
        )

    def _make_thumbnail(self, block_vars: dict[str, Any], gallery_conf: Any) -> None:
        """Have sphinx-gallery take the figure that the script names, or the last before it.

        Negative numbers count from the last, as in sphinx-gallery.
        """
        settings = block_vars["file_conf"]
        if self._thumbnail_number is None:
            if "thumbnail_path" in settings:
                return
            number = settings.pop("thumbnail_number", 1)
            self._thumbnail_number = number if isinstance(number, int) else 1
        number, count = self._thumbnail_number, len(self._pngs)
        chosen = min(max(number if number > 0 else count + 1 + number, 1), count)
        image = Path(block_vars["image_path_iterator"].image_path.format(0))
        made = image.with_name(image.name.replace("_000.", "_thumbnail."))
        seam.scale_image(self._pngs[chosen - 1], made, gallery_conf["thumbnail_size"])
        _on_white(made)
        settings["thumbnail_path"] = os.path.relpath(made, gallery_conf["src_dir"])


#: The scraper to name in conf.py.
svg_scraper = _SvgScraper()


def _size(png: Path) -> tuple[int, int]:
    from PIL import Image

    with Image.open(png) as image:
        return image.size


def _on_white(path: Path) -> None:
    from PIL import Image

    with Image.open(path) as opened:
        image = opened.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    flat = Image.alpha_composite(white, image).convert("RGB")
    # A plot has few colours; naming them halves the file.
    flat.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
