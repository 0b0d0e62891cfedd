"""A scraper of matplotlib's figures: sharp, small, and the same bytes for the same figure.

A figure is drawn as SVG, which is sharp at every size, and as PNG, which is smaller for plots of
many points. The file that is smaller when compressed is kept. In ``conf.py``::

    sphinx_gallery_conf = {"image_scrapers": ("triton_site.pages.scraper.svg_scraper",), …}
"""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from gallery_recorder.api import seam
from triton_site.pages import points

_PNG_DPI = 150
_CSS_DPI = 96  # CSS defines an inch as 96 pixels


class _SvgScraper:
    """The scraper; it keeps the figures of the script, since each script has its own process."""

    def __init__(self) -> None:
        self._pngs: list[Path] = []
        self._thumbnail_number: int | None = None

    def __repr__(self) -> str:
        return "svg_scraper"

    def __call__(self, block: Any, block_vars: dict[str, Any], gallery_conf: Any) -> str:
        """Save the open figures and return their reStructuredText."""
        if "matplotlib.pyplot" not in sys.modules:
            return ""
        import matplotlib
        import matplotlib.pyplot as plt

        drawn = [plt.figure(number) for number in plt.get_fignums()]
        if not drawn:
            return ""
        points.name_lines(drawn)
        count = len(block_vars["image_path_iterator"])
        with matplotlib.rc_context({"svg.hashsalt": "gallery"}):  # the same ids each time
            seam.draw_matplotlib(
                block,
                block_vars,
                gallery_conf,
                format="svg",
                dpi=_PNG_DPI,  # of images within the figure
                metadata={"Date": None, "Creator": None},  # would only enlarge diffs
            )
            paths = block_vars["image_path_iterator"].paths[count:]
            rst = [
                self._keep_smaller(figure, Path(path).with_suffix(".svg"), gallery_conf)
                for figure, path in zip(drawn, paths, strict=True)
            ]
        self._make_thumbnail(block_vars, gallery_conf)
        return "\n\n".join(rst)

    def _keep_smaller(self, figure: Any, svg: Path, gallery_conf: Any) -> str:
        from PIL import Image

        svg.write_text(points.with_values(svg.read_text("utf-8"), figure), "utf-8")
        png = Path(tempfile.gettempdir(), f"{svg.stem}.png")  # a thumbnail is made of it, too
        figure.savefig(png, dpi=_PNG_DPI, metadata={"Software": None})
        self._pngs.append(png)
        kept = svg
        if png.stat().st_size < len(zlib.compress(svg.read_bytes())):
            kept = svg.with_suffix(".png")
            kept.write_bytes(png.read_bytes())
            svg.unlink()
        with Image.open(png) as image:
            width, height = (round(pixels * _CSS_DPI / _PNG_DPI) for pixels in image.size)
        alt = seam.figure_titles(figure) or f"figure {len(self._pngs)}"
        return (
            f".. image:: /{Path(os.path.relpath(kept, gallery_conf['src_dir'])).as_posix()}\n"
            f"   :alt: {' '.join(alt.split())}\n"
            f"   :width: {width}\n"
            f"   :height: {height}\n"
            "   :loading: lazy\n"
            "   :class: sphx-glr-single-img\n"
        )

    def _make_thumbnail(self, block_vars: dict[str, Any], gallery_conf: Any) -> None:
        """Make the thumbnail of the figure that the script names, or of the last before it.

        Negative numbers count from the last, as in sphinx-gallery, which cannot scale an SVG.
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
        path = image.with_name(image.name.replace("_000.", "_thumbnail."))
        seam.scale_image(self._pngs[chosen - 1], path, gallery_conf["thumbnail_size"])
        settings["thumbnail_path"] = os.path.relpath(path, gallery_conf["src_dir"])


#: The scraper to name in conf.py.
svg_scraper = _SvgScraper()
