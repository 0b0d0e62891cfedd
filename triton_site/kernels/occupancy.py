"""``.. occupancy::``: how much room recorded kernels leave on a multiprocessor.

Each line of the content names a kernel in words, its script, and the kernel function. Without
constants the variant is the one that the script's page is about; with constants, the last one that
has them. A quantity of the script's page may follow, and stands in a last column::

    .. occupancy::
       :calculator:

       Attention, d = 128 | 06-fused-attention | attention_kernel
       A strip of 512 rows | profiling-inside | strip_kernel: BLOCK_M = 512 | rows_512

The limits are those of an H100 or H200 (compute capability 9.0). With ``:calculator:`` the script
``occupancy.js`` adds sliders for registers, shared memory and warps.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import Page, domain_of
from triton_site import xray, xray_data
from triton_site.numbers import measured
from triton_site.numbers.quantities import QuantityError
from triton_site.numbers.tables import Cell, table
from triton_site.pages.assets import is_a, load_where
from triton_site.pages.folds import add_node
from triton_site.xray_data import Facts

logger = logging.getLogger(__name__)

#: The resources of a multiprocessor of compute capability 9.0, as the probe would note them.
LIMITS = {"warps": 64, "programs": 32, "registers": 65536, "shared": 228 * 1024}


class Calculator(nodes.General, nodes.Element):
    """The place of the sliders; its child is the table of ``kernels``."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and its node."""
    add_node(app, Calculator, _open, lambda translator, node: translator.body.append("</div>\n"))
    load_where(app, "occupancy.js", is_a(Calculator))
    app.add_directive("occupancy", OccupancyDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class OccupancyDirective(SphinxDirective):
    """``.. occupancy::``: see the module."""

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"calculator": directives.flag}

    def run(self) -> list[nodes.Node]:
        """A table with a row for each kernel whose recording is current; nothing without one."""
        domain_of(self.env).depends("recordings")
        lines = [
            [part.strip() for part in line.split("|")] for line in self.content if line.strip()
        ]
        rows: list[list[Cell]] = []
        kernels: list[dict[str, Any]] = []
        for text, script, kernel, *quantity in lines:
            page = measured.page_of_script(self.env, script)
            if page is None or page.folder is None or page.is_stale:
                continue
            facts = variant(page, kernel)
            if facts is None:
                raise self.error(f"the recording of {script} has no kernel {kernel}")
            rows.append([text, *_cells(facts), *(self._rate(page, name) for name in quantity)])
            kernels.append({"name": text, "registers": facts.registers, "shared": facts.shared,
                            "warps": facts.warps})  # fmt: skip
        if not rows:
            return []
        head = ["Kernel", "Registers a thread", "Spilled", "Shared memory", "Warps a program",
                "Programs that fit", "Warps", "Limited by"]  # fmt: skip
        head += ["Measured"] * (len(rows[0]) - len(head))
        made = table(head, rows, classes=["gallery-xray-table"])
        return [Calculator("", made, kernels=kernels)] if "calculator" in self.options else [made]

    def _rate(self, page: Page, name: str) -> str:
        if page.shown is None or not page.shown.timed:
            return "…"
        try:
            quantity = measured.quantity_of(page, name)
        except QuantityError as error:  # the page of the recording says so, too
            logger.warning("%s", error, type="gallery", subtype="recording")
            return "–"
        return f"{quantity.text} GB/s"


def variant(page: Page, kernel: str) -> Facts | None:
    """The variant ``NAME: A = 1, B = 2`` in the recording of *page*; None if it has none."""
    assert page.files is not None
    name, _, wanted = kernel.partition(":")
    probes = page.recording.probes
    if not wanted:
        return xray_data.launches(probes).get(name, ("", None))[1]
    constants = dict(part.split("=") for part in wanted.replace(" ", "").split(","))
    found = [
        facts
        for facts in xray_data.read(page.files, probes)[0]
        if facts.name == name
        and all(str(facts.constants.get(key)) == value for key, value in constants.items())
    ]
    return found[-1] if found else None


def _cells(facts: Facts) -> list[str]:
    """What a row says of a kernel."""
    room = xray.occupancy(facts.registers, facts.shared, facts.warps, LIMITS)
    assert room is not None
    shared = f"{facts.shared} B" if facts.shared < 1024 else f"{facts.shared / 1024:.0f} KiB"
    return [str(facts.registers), str(facts.spills or "–"), shared, str(facts.warps),
            str(room["programs"]), f"{room['warps']} of {room['of']}", room["limit"]]  # fmt: skip


def _open(translator: Any, node: Calculator) -> None:
    limits, kernels = (translator.encode(json.dumps(x)) for x in (LIMITS, node["kernels"]))
    translator.body.append(
        f'<div class="gallery-occupancy" data-limits="{limits}" data-kernels="{kernels}">\n'
    )
