"""``.. kernel-map::``: what a model does, the tutorial for it, and the call that it competes with.

Each line of the content has four parts: what the model does, the page, the benchmark and provider
in the recordings, and the call in words::

    .. kernel-map::

       Loss | getting-started/tutorials/10-cross-entropy | cross-entropy-performance: torch | a call

The last column is computed from the newest recording of the reference device, or else of another.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.rst import escape

from gallery_recorder.render.domain import domain_of
from triton_site.numbers.performance import Comparison, newest_benchmarks
from triton_site.numbers.tables import table

#: A mean this close to 1 counts as even.
EVEN = 0.03


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("kernel-map", KernelMapDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class KernelMapDirective(SphinxDirective):
    """``.. kernel-map::``: see the module."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        domain_of(self.env).depends("recordings")
        verdicts = {
            (benchmark.item.page, benchmark.name, c.against): _verdict(c, benchmark.item.device)
            for benchmark in reversed(newest_benchmarks(self.env))
            for c in benchmark.comparisons
            if c.provider == "triton"
        }
        rows = []
        for line in filter(str.strip, self.content):
            what, page, measured, call = (part.strip() for part in line.split("|"))
            benchmark, provider = (part.strip() for part in measured.split(":"))
            link = f":doc:`/{page}`" if page in self.env.found_docs else "not written yet"
            verdict = verdicts.get((page, benchmark, provider), "not recorded yet")
            rows.append([self.parse_text_to_nodes(cell)[0] for cell in (what, link, call, verdict)])
        head = ["What the model does", "Tutorial", "The call in PyTorch", "The kernel against it"]
        return [table(head, rows, classes=["gallery-map"])]


def _verdict(c: Comparison, device: str) -> str:
    words = "even" if abs(c.mean - 1) <= EVEN else "faster" if c.mean > 1 else "slower"
    numbers = f"{c.mean:.2f} ({c.least[0]:.2f} to {c.largest[0]:.2f})"
    return f"**{words}**: {numbers} on {escape(device)}"
