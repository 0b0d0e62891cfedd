"""``.. gallery-releases::``: what a release of Triton changed, for each provider of each benchmark.

Compared are recordings of one device and one script's code, of the newest release and of each older
one. Providers that Triton does not compile, such as a copy, show how far two runs differ anyway.
"""

from __future__ import annotations

import math
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.rst import escape

from gallery_recorder.render.choice import ListedRecording
from gallery_recorder.render.domain import domain_of
from gallery_recorder.store import benchmarks
from triton_site.facts import PROBE
from triton_site.recorded import version_key

#: A provider that lost more than this share of its rate is marked.
LOSS = 0.05

NOTHING = "The recordings are of one release of Triton only."


class Change(NamedTuple):
    """What one provider reaches with the newer release over what it reached with the older."""

    provider: str
    mean: float
    least: float
    most: float
    spread: float


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("gallery-releases", ReleasesDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class ReleasesDirective(SphinxDirective):
    """``.. gallery-releases::``: a table for each tutorial and each older release."""

    def run(self) -> list[nodes.Node]:
        """Write the tables."""
        domain = domain_of(self.env)
        domain.depends("recordings")
        current = [
            item
            for item in domain.choice.recordings
            if item.timed and item.state in ("shown", "current")
        ]
        text = "\n".join(self._tables(current))
        return self.parse_text_to_nodes(text or NOTHING)

    def _tables(self, current: list[ListedRecording]) -> list[str]:
        lines: list[str] = []
        current.sort(key=_place)
        for (page, device), grouped in groupby(current, key=_place):
            items = sorted(grouped, key=lambda item: version_key(_release(item)))
            newest = items[-1]
            for older in reversed(items[:-1]):
                changes = changed(newest, older)
                if changes:
                    title = f"{newest.content.title}, {device}: Triton {_release(newest)} over "
                    lines += _table(escape(f"{title}{_release(older)}"), page, changes)
        return lines


def _place(item: ListedRecording) -> tuple[str, str]:
    return item.page, item.content.provenance.device


def _release(item: ListedRecording) -> str:
    return str(item.content.probe(PROBE).get("triton", ""))


def changed(newer: ListedRecording, older: ListedRecording) -> list[Change]:
    """The ratios of all providers that both recordings measured at the same sizes."""
    found = []
    for name in newer.content.data:
        if not name.endswith(".csv") or not Path(older.folder, name).is_file():
            continue
        now, then = (benchmarks.read(Path(item.folder, name)) for item in (newer, older))
        for provider in now:
            sizes = now[provider].keys() & then.get(provider, {}).keys()
            if not sizes:
                continue
            pairs = [(now[provider][size], then[provider][size]) for size in sizes]
            ratios = [
                a.median / b.median if benchmarks.is_rate(a.unit) else b.median / a.median
                for a, b in pairs
            ]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            spreads = sorted(abs(m.p80 - m.p20) / m.median for pair in pairs for m in pair)
            label = provider if len(newer.content.data) == 1 else f"{Path(name).stem}: {provider}"
            found.append(Change(label, mean, min(ratios), max(ratios), spreads[len(spreads) // 2]))
    return found


def _table(title: str, page: str, changes: list[Change]) -> list[str]:
    head = ["Provider", "Geometric mean", "Least", "Most", "Spread of a measurement"]
    rows = [
        [
            escape(c.provider),
            f"**{c.mean:.3f}**" + (" lost" if c.mean < 1 - LOSS else ""),
            f"{c.least:.2f}",
            f"{c.most:.2f}",
            f"{c.spread:.1%}".replace("%", " %"),
        ]
        for c in changes
    ]
    return [
        f".. list-table:: {title} (:doc:`the page </{page}>`)",
        "   :header-rows: 1",
        "",
        *("   * - " + "\n     - ".join(row) for row in [head, *rows]),
        "",
    ]
