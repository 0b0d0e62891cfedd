"""``.. kernel-map::``: what a model does, the tutorial for it, and the call that it competes with.

Each line of the content has four parts: what the model does, the page, the benchmark with two of
its providers, ours first, and the call in words::

    .. kernel-map::

       Loss | tutorials/10-cross-entropy | cross-entropy-performance: triton / torch | a call

The last column compares the two at the sizes that both have, in the recording that the page shows.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import domain_of
from triton_site.numbers import benchmarks
from triton_site.numbers.performance import Comparison, ratios
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
        rows = []
        for line in filter(str.strip, self.content):
            what, page, measured, call = (part.strip() for part in line.split("|"))
            benchmark, _, providers = measured.partition(":")
            link = f":doc:`/{page}`" if page in self.env.found_docs else "not written yet"
            verdict = self._verdict(page, benchmark.strip(), *providers.split("/"))
            words = [self.parse_text_to_nodes(cell)[0] for cell in (what, link, call)]
            rows.append([*words, verdict])
        head = ["What the model does", "Tutorial", "The call in PyTorch", "The kernel against it"]
        return [table(head, rows, classes=["gallery-map"])]

    def _verdict(self, page: str, benchmark: str, ours: str, other: str) -> str | nodes.paragraph:
        """The comparison as nodes: the text of a recording is never markup."""
        found = domain_of(self.env).pages.get(page)
        shown = found and found.shown
        if not (shown and shown.timed):
            return "not recorded yet"
        path = shown.files.path(f"{benchmark}.csv")
        measured = benchmarks.read(path) if path else {}
        sizes = [measured.get(name.strip(" '"), {}) for name in (ours, other)]
        both = [
            {key: one[key] for key in one if key in sizes[0] and key in sizes[1]} for one in sizes
        ]
        if not both[0]:
            return "not recorded yet"
        c = Comparison(ours, other, ratios(*both))
        words = "even" if abs(c.mean - 1) <= EVEN else "faster" if c.mean > 1 else "slower"
        numbers = f"{c.mean:.2f} ({c.least[0]:.2f} to {c.largest[0]:.2f})"
        text = nodes.Text(f": {numbers} on {' '.join(shown.device.split())}")
        return nodes.paragraph("", "", nodes.strong("", words), text)
