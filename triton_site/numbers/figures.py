"""Figures: a panel *Plot · Table · CSV* instead of the image of a script's plot.

``figures.toml`` beside the tutorials names the image and the benchmark of it. The plot is SVG,
drawn when the page is built from the CSV file of its recording; ``figure.js`` adds a crosshair
with the values of all lines, and switches lines off. Without it the panel is a picture and a table.

The title is a conclusion, computed from the points that are drawn.
"""

from __future__ import annotations

import functools
import json
import statistics
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import Page, domain_of
from triton_site.numbers import benchmarks, figure_svg
from triton_site.numbers.benchmarks import Measurement
from triton_site.numbers.figure_svg import Axes, Line, Point
from triton_site.numbers.measured import page_of_script as measured_page
from triton_site.numbers.performance import CEILINGS, EVEN, WORDS
from triton_site.numbers.tables import table
from triton_site.pages.assets import is_a, load_where
from triton_site.pages.cells import page_of
from triton_site.pages.folds import add_node
from triton_site.pages.panels import Panel, panel, tab

logger = logging.getLogger(__name__)

#: Width and height of the two drawings.
_WIDE, _NARROW = (734, 340), (344, 300)
#: Classes of colors, by provider; others take the free ones in turn.
_COLORS = {
    **dict.fromkeys(["torch", "eager"], "pytorch"),
    **dict.fromkeys(["cublas", "cudnn", "rocblas"], "vendor"),
    **dict.fromkeys(CEILINGS, "limit"),
}
_FREE = ("other-1", "other-2", "other-3")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``figures.toml`` says of the figure of a page."""

    image: str
    data: str
    x: str
    axis: str
    lines: dict[str, str]
    where: dict[str, str] = {}
    equal: list[str] = []
    beside: str = ""
    of: str = ""


class Figure(nodes.General, nodes.Element):
    """A plot: its ``svg`` for wide and narrow columns, its title and what its script needs.

    Its child is the image of the script's own plot, which other formats show.
    """


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the node, and replace the images of each page that is read."""
    app.setup_extension("triton_site.pages.panels")
    add_node(app, Figure, _draw, None)
    app.add_directive("front-figure", FrontFigureDirective)
    app.connect("doctree-read", _replace_images, priority=660)
    load_where(app, "figure.js", is_a(Figure))
    load_where(app, "plots.js", _is_drawn_plot)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _is_drawn_plot(node: nodes.Node) -> bool:
    if not isinstance(node, nodes.image) or isinstance(node.parent, Figure):
        return False
    return "sphx-glr-single-img" in node["classes"]


class FrontFigureDirective(SphinxDirective):
    """``.. front-figure:: SCRIPT``: the figure of a lesson, on another page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The plot alone; nothing where the lesson has no recording with times."""
        domain_of(self.env).depends("recordings")
        name = self.arguments[0]
        page = measured_page(self.env, name)
        if page is None or not has_times(page):
            return []
        settings = _settings_of(self.env, Path(self.env.app.confdir), name)
        if settings is None or settings.data not in page.recording.data:
            return []
        figure = figure_of(page, settings)
        return [figure] if figure is not None else []


def has_times(page: Page) -> bool:
    """Whether the page shows times that were measured with its own code."""
    return page.folder is not None and page.shown is not None and page.shown.timed


def _settings_of(env: BuildEnvironment, root: Path, script: str) -> Settings | None:
    path = root / "tutorials/figures.toml"
    env.note_dependency(str(path))
    return settings_in(path, path.stat().st_mtime).get(script)


@functools.cache
def settings_in(path: Path, changed: float) -> dict[str, Settings]:
    """The figures that the file *path*, last *changed* at that time, names by script.

    Raises:
        msgspec.ValidationError: a figure lacks a setting, or has an unknown one.
    """
    del changed
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), dict[str, Settings])


def _replace_images(app: Sphinx, doctree: nodes.document) -> None:
    page = page_of(app, app.env.docname)
    if page is None or not has_times(page):
        return
    settings = _settings_of(app.env, Path(app.confdir), page.script.name)
    if settings is None or settings.data not in page.recording.data:
        return
    images = [
        image
        for image in doctree.findall(nodes.image)
        if image.get("alt", "").startswith(settings.image)
    ]
    if len(images) != 1:
        if not page.is_stale:
            logger.warning(
                "figures.toml: %d images of %s begin with %r; name one of its plots",
                len(images), page.script.name, settings.image, location=app.env.docname,
            )  # fmt: skip
        return
    made = figure_panel(page, settings, images[0].deepcopy())
    if made is not None:
        images[0].parent.replace(images[0], made)
        _join_download(doctree, settings.data, made)


def _join_download(doctree: nodes.document, name: str, made: Panel) -> None:
    """Move the link to the file of the figure from the list of files into the panel."""
    for box in list(doctree.findall(nodes.container)):
        if "gallery-data" not in box["classes"]:
            continue
        for paragraph in list(box.children):
            if paragraph.astext().split()[:1] == [name]:
                box.remove(paragraph)
                paragraph["classes"].append("gallery-data-link")
                made += paragraph
        if not box.children:
            box.parent.remove(box)


def figure_panel(page: Page, settings: Settings, image: nodes.image) -> Panel | None:
    """The panel of a figure; None if the recording lacks what its settings name."""
    assert page.folder is not None
    figure = figure_of(page, settings)
    if figure is None:
        return None
    figure += image
    measured = benchmarks.read(page.folder / settings.data)
    return panel("figure", [tab("plot", "Plot", figure), tab("table", "Table", table_of(measured))])


def figure_of(page: Page, settings: Settings) -> Figure | None:
    """The plot of a figure; None if the recording lacks what its settings name."""
    assert page.folder is not None
    measured = benchmarks.read(page.folder / settings.data)
    rows = {
        provider: selected(measured[provider], settings)
        for provider in settings.lines
        if provider in measured
    }
    rows = {provider: found for provider, found in rows.items() if found}
    if len(rows) < 2:
        return None
    unit = next(iter(next(iter(rows.values())).values())).unit
    lines = [
        Line(settings.lines[provider], kind, _points(found, rows.get(settings.of)))
        for (provider, found), kind in zip(rows.items(), kinds(list(rows)), strict=True)
    ]
    lower = not benchmarks.is_rate(unit) and not settings.of
    y_words = f"speed; {settings.lines[settings.of]} = 1" if settings.of in rows else unit
    better = "lower is better" if lower else "higher is better"
    title = conclusion(rows, settings)
    axes = Axes(settings.axis, y_words, lower)
    drawings = [figure_svg.draw(lines, axes, f"Plot. {title}", *size) for size in (_WIDE, _NARROW)]
    figure = Figure(title=title, note=f"{y_words}, {better}")
    figure["svg"] = [drawing.svg for drawing in drawings]
    figure["data"] = _data(lines, drawings, unit, bool(settings.of))
    return figure


def selected(measured: dict[str, Measurement], settings: Settings) -> dict[float, Measurement]:
    """The measurements that *settings* choose, by the size along the axis, in its order."""
    found = {}
    for size, measurement in measured.items():
        columns = dict(part.split("=") for part in size.split(", "))
        chosen = all(columns.get(name) == value for name, value in settings.where.items())
        equal = len({columns.get(name) for name in settings.equal}) <= 1
        if chosen and equal:
            found[float(columns[settings.x])] = measurement
    return dict(sorted(found.items()))


def kinds(providers: list[str]) -> list[str]:
    """The class of each provider's line: ours is the first of them, others by what they are."""
    free = list(_FREE)
    found = []
    for number, provider in enumerate(providers):
        name = provider.partition(",")[0].partition(" +")[0]
        if number == 0:
            found.append("ours")
        elif name in _COLORS:
            found.append(_COLORS[name])
        else:
            kind = free.pop(0) if free else "limit"
            found.append(kind)
    return found


def _points(found: dict[float, Measurement], whole: dict[float, Measurement] | None) -> list[Point]:
    points = []
    for x, measurement in found.items():
        one = 1.0
        if whole is not None:
            if x not in whole:
                continue
            one = whole[x].median
        low, high = sorted((measurement.p20 / one, measurement.p80 / one))
        points.append(Point(x, measurement.median / one, low, high))
    return points


def conclusion(rows: dict[str, dict[float, Measurement]], settings: Settings) -> str:
    """What the lines show, in a sentence: how fast ours is beside the one it is compared with.

    Without one, the sentence names what is fastest at the largest size.
    """
    ours = next(iter(rows))
    beside = rows.get(settings.beside)
    if beside is None:
        return _fastest(rows, settings)
    ratios = []
    for x, measurement in rows[ours].items():
        if x in beside:
            ratio = measurement.median / beside[x].median
            ratios.append(ratio if benchmarks.is_rate(measurement.unit) else 1 / ratio)
    mean = statistics.geometric_mean(ratios)
    name, other = settings.lines[ours], settings.lines[settings.beside]
    if abs(mean - 1) <= EVEN:
        return f"{name} is as fast as {other}, within 3 %, on average over {len(ratios)} sizes"
    return f"{name} has {mean:.2f} × the speed of {other}, on average over {len(ratios)} sizes"


def _fastest(rows: dict[str, dict[float, Measurement]], settings: Settings) -> str:
    limits = {provider for provider in rows if provider in CEILINGS}
    largest = max(x for found in rows.values() for x in found)
    at_largest = {
        provider: found[largest]
        for provider, found in rows.items()
        if largest in found and provider not in limits
    }
    unit = next(iter(at_largest.values())).unit
    choose = max if benchmarks.is_rate(unit) else min
    best = choose(at_largest, key=lambda provider: at_largest[provider].median)
    size = figure_svg.size(largest)
    return f"{settings.lines[best]} is the fastest at {size} {settings.axis}"


def _data(
    lines: list[Line], drawings: list[figure_svg.Drawing], unit: str, relative: bool
) -> dict[str, Any]:
    """What figure.js shows at the crosshair: places, sizes, and the value of each line in words."""
    xs = sorted({point.x for line in lines for point in line.points})
    series = []
    for line in lines:
        values = {point.x: point.y for point in line.points}
        texts = [_value(values.get(x), unit, relative) for x in xs]
        ys = [values.get(x) for x in xs]
        series.append({"name": line.name, "kind": line.kind, "texts": texts, "values": ys})
    return {
        "sizes": [figure_svg.size(x) for x in xs],
        "places": [drawing.places for drawing in drawings],
        "widths": [drawing.width for drawing in drawings],
        "series": series,
    }


def _value(value: float | None, unit: str, relative: bool) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if relative else f"{figure_svg.number(float(f'{value:.3g}'))} {unit}"


def table_of(measured: dict[str, dict[str, Measurement]]) -> nodes.table:
    """All measurements of a benchmark: a row for each size, a column for each provider."""
    sizes = list(dict.fromkeys(size for found in measured.values() for size in found))
    columns = list(dict(part.split("=") for part in sizes[0].split(", ")))
    unit = next(iter(next(iter(measured.values())).values())).unit
    names = [WORDS.get(provider, provider) for provider in measured]
    rows = []
    for size in sizes:
        cells = list(dict(part.split("=") for part in size.split(", ")).values())
        for found in measured.values():
            cells.append(figure_svg.number(float(f"{found[size].median:.4g}"))
                         if size in found else "–")  # fmt: skip
        rows.append(cells)
    return table([*columns, *(f"{name}, {unit}" for name in names)], rows)


def _draw(translator: Any, node: Figure) -> None:
    title, note = translator.encode(node["title"]), translator.encode(node["note"])
    data = translator.attval(json.dumps(node["data"], ensure_ascii=False))
    translator.body.append(
        f'<div class="gallery-figure" data-figure="{data}">'
        f'<p class="conclusion">{title}</p><p class="unit">{note}</p>{"".join(node["svg"])}</div>\n'
    )
    raise nodes.SkipNode
