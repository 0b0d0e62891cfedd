"""``.. calls::``: the CPU's share of a call in Triton and in PyTorch.

``launch`` is the share of an empty kernel that is launched as often.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import domain_of
from triton_site.numbers import benchmarks
from triton_site.numbers.recorded import CALLS, current
from triton_site.numbers.tables import link, table


class CallsDirective(SphinxDirective):
    """``.. calls::``."""

    def run(self) -> list[nodes.Node]:
        """Make the table; nothing where no calls were recorded."""
        domain_of(self.env).depends("recordings")
        providers = {"triton": "Ours", "torch": "PyTorch", "launch": "Empty launches"}
        rows = []
        for item in current(self.env):
            if item.state == "shown" and CALLS in item.content.data:
                measured = benchmarks.read(item.folder / CALLS)
                for size in measured.get("triton", ()):
                    function = link("doc", item.page, size.partition("=")[2], self.env.docname)
                    times = [measured.get(name, {}).get(size) for name in providers]
                    shown = [f"{time.median:.1f}" if time else "–" for time in times]
                    rows.append([nodes.paragraph("", "", function), item.content.title, *shown])
        return (
            [table(["Function", "Page", *(f"{name}, µs" for name in providers.values())], rows)]
            if rows
            else []
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("calls", CallsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
