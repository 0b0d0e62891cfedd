"""``.. kernel-map::``: what a model does, the tutorial for it, and the call it is held against.

Each line of the content has four parts: what the model does, the page, the benchmark and provider
in the recordings, and the call in words::

    .. kernel-map::

       Loss | getting-started/tutorials/10-cross-entropy | cross-entropy-performance: torch | a call

What the tutorial's kernel reaches against that call is computed from the newest recording. A page
that is not there yet, or not recorded, says so.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.render.domain import domain_of
from triton_site.numbers.performance import Comparison, performance_of
from triton_site.numbers.recorded import version_key

#: As far from 1, a mean counts as even.
EVEN = 0.03

_HEAD = ["What the model does", "Tutorial", "The call that you would make", "The kernel against it"]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("kernel-map", KernelMapDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class KernelMapDirective(SphinxDirective):
    """``.. kernel-map::``: see the module."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Write a table."""
        domain_of(self.env).depends("recordings")
        rows = [_HEAD]
        for line in filter(str.strip, self.content):
            try:
                what, page, measured, call = (part.strip() for part in line.split("|"))
                benchmark, provider = (part.strip() for part in measured.split(":"))
            except ValueError:
                raise self.error(
                    f"{line!r} has not the four parts «what | page | benchmark: provider | call»"
                ) from None
            link = f":doc:`/{page}`" if page in self.env.found_docs else "not written yet"
            rows.append([what, link, call, self._verdict(page, benchmark, provider)])
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 24 22 24 30", ""]
        lines += ["   * - " + "\n     - ".join(row) for row in rows]
        return self.parse_text_to_nodes("\n".join(lines))

    def _verdict(self, page: str, benchmark: str, provider: str) -> str:
        """What the newest recording says, in words and numbers."""
        found: list[tuple[tuple[int, ...], Comparison, str]] = [
            (version_key(item.triton), comparison, item.device)
            for item in performance_of(self.env).benchmarks
            if item.page == page and item.name == benchmark
            for comparison in item.comparisons
            if comparison.provider == "triton" and comparison.against == provider
        ]
        if not found:
            return "not recorded yet"
        _, best, device = max(found, key=lambda item: item[0])
        mean = best.geometric_mean
        words = "even" if abs(mean - 1) <= EVEN else "faster" if mean > 1 else "slower"
        return f"**{words}**: {mean:.2f} ({best.min:.2f} to {best.max:.2f}) on {device}"
