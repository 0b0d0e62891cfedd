"""Figures that answer: the rates behind a plot, for the page to show at the pointer or by keyboard.

A figure is a picture that matplotlib wrote, and a benchmark is a CSV file beside it in the
recording. A line of the figure that has a point for each size of a provider, at the sizes and rates
of the file up to the scales of the axes, is that provider's line; so are bars as long as its rates.
Any tutorial's plots are found this way: they need not say anything. What the file says of the
points goes to ``_static/rates/``, one small script a figure, named by the picture's content; the
picture on the page names it, and ``figures.js`` fetches it when it is asked for. Without scripts
the picture is there as it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from sphinx.application import Sphinx

from gallery_recorder.store import benchmarks
from triton_site.numbers.performance import said, varying_sizes
from triton_site.pages.cells import page_of

#: Where the scripts are, below the site's root.
FOLDER = "_static/rates"

#: How far a line may be from what a file says, in points of the picture.
TOLERANCE = 0.02
#: A line through as few points would fit too much.
MIN_POINTS = 4
#: Bars all begin at zero, which is one point more.
MIN_BARS = 3

_SVG = "{http://www.w3.org/2000/svg}"
_PICTURE = re.compile(r'<img [^>]*?src="(?:\.\./)*_images/([^"/]+\.svg)"')


#: What tells lines apart, and bars: color and dashes.
Style = tuple[str, str]


@dataclass(frozen=True)
class Drawn:
    """A line of a picture, or the ends of bars: its points, its style, its name in a legend.

    Bars stand along ``x`` or lie along ``y``, and begin at ``zero``; a line begins nowhere.
    """

    points: list[tuple[float, float]]
    style: Style
    name: str = ""
    along: str = "x"
    zero: float | None = None


@dataclass(frozen=True)
class Row:
    """What a file says of one point: a size, in words, too, and what was measured there."""

    size: int
    words: str
    at: benchmarks.Measurement


@dataclass(frozen=True)
class Rows:
    """What a provider reached at some sizes, which are values of *column* where they are a line."""

    column: str
    provider: str
    rows: list[Row]


@dataclass
class Axes:
    """One frame of a picture: its edges (left, top, right, bottom), title, and what is drawn."""

    box: tuple[float, float, float, float]
    title: str = ""
    drawn: list[Drawn] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """A picture: its width and height, and its frames."""

    width: float
    height: float
    axes: list[Axes]


def setup(app: Sphinx) -> dict[str, Any]:
    """Have each page of a recording name the rates of its pictures."""
    app.connect("html-page-context", _name_rates)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _name_rates(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    del template
    page = page_of(app, pagename) if doctree is not None else None
    if page is None or page.folder is None or "body" not in context:
        return
    folder, root = page.folder, context["pathto"]("", resource=True)
    sources = {name: Path(app.srcdir, path) for path, (_, name) in app.env.images.items()}

    def named(match: re.Match[str]) -> str:
        picture = sources.get(match[1])
        address = picture and write_rates(Path(app.outdir), folder, picture)
        return match[0].replace("<img ", f'<img data-rates="{root}{address}" ', 1) if address \
            else match[0]  # fmt: skip

    context["body"] = _PICTURE.sub(named, context["body"])


def write_rates(site: Path, recording: Path, picture: Path) -> str:
    """Write what *recording* says of its *picture* below *site*; the address, or nothing."""
    if not picture.is_file() or not (found := rates_of(recording, picture)):
        return ""
    name = hashlib.sha256(picture.read_bytes()).hexdigest()[:16]
    address = f"{FOLDER}/{name}.js"
    text = f"galleryRates({json.dumps(name)}, {json.dumps(found, separators=(',', ':'))});\n"
    path = site / address
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return address


def rates_of(recording: Path, picture: Path) -> dict[str, Any] | None:
    """The rates of the lines of *picture* that the benchmarks of its *recording* tell of.

    Edges and points are in the picture's own units; a point is its place, its size, and the median
    and the ends of the spread there.
    """
    try:
        drawn = read_figure(picture.read_text(encoding="utf-8"))
    except (ElementTree.ParseError, UnicodeDecodeError, ValueError):
        return None  # a picture that something else drew
    known = list(_known(recording))
    axes = [made for frame in drawn.axes if (made := _answers(frame, known))]
    return {"size": [drawn.width, drawn.height], "axes": axes} if axes else None


def _answers(frame: Axes, known: Sequence[Rows]) -> dict[str, Any] | None:
    series, seen = [], set()
    for drawn in frame.drawn:
        match = next((item for item in known if same(drawn, item)), None)
        if match is None:
            continue
        seen.add((match.column, match.rows[0].at.unit, drawn.along))
        points = [
            [round(x, 1), round(y, 1), row.size if match.column else row.words]
            + [row.at.median, row.at.p20, row.at.p80]
            for (x, y), row in zip(drawn.points, match.rows, strict=True)
        ]
        series.append([drawn.name or match.provider, *drawn.style, points])
    if len(seen) != 1:  # no line that is known, or lines that cannot be compared
        return None
    ((column, unit, along),) = seen
    box = [round(edge, 1) for edge in frame.box]
    return {
        "box": box, "title": frame.title, "along": along, "label": column, "unit": unit,
        "series": series,
    }  # fmt: skip


def _known(recording: Path) -> Iterator[Rows]:
    """What lines and bars can be: for each benchmark, a provider's rows along each axis."""
    for path in sorted(recording.glob("*.csv")):
        try:
            measured = benchmarks.read(path)
        except benchmarks.BenchmarkError:
            continue  # rendering says so elsewhere
        if not measured:
            continue
        columns, sizes = varying_sizes(measured)
        for provider, at in measured.items():
            for column in columns:
                for others, texts in _grouped(at, sizes, lambda name, c=column: name != c):
                    rows = [Row(sizes[t][column], said(sizes[t]), at[t]) for t in texts]
                    name = f"{provider}, {others}" if others else provider
                    yield Rows(column, name, sorted(rows, key=lambda row: row.size))
            # Of products of many shapes, a line shows the squares.
            square = [t for t in at if len(set(sizes[t].values())) == 1]
            if square and len(columns) == len(sizes[square[0]]):
                rows = [Row(sizes[t][columns[0]], said(sizes[t]), at[t]) for t in square]
                yield Rows(columns[0], provider, sorted(rows, key=lambda row: row.size))
            for column in ("", *columns):
                for _, texts in _grouped(at, sizes, lambda name, c=column: name == c):
                    words = [
                        said({k: v for k, v in sizes[t].items() if k != column}) for t in texts
                    ]
                    rows = [Row(0, w, at[t]) for w, t in zip(words, texts, strict=True)]
                    yield Rows("", provider, rows)


def _grouped(
    texts: Iterable[str], sizes: dict[str, dict[str, int]], by: Callable[[str], bool]
) -> Iterable[tuple[str, list[str]]]:
    """The *texts* of sizes, in groups that are equal in the columns *by*; what is equal first."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        equal = said({name: value for name, value in sizes[text].items() if by(name)})
        groups.setdefault(equal, []).append(text)
    return groups.items()


def same(drawn: Drawn, known: Rows) -> bool:
    """Whether what is *drawn* are the rows *known*, in order, linear or logarithmic."""
    medians = [row.at.median for row in known.rows]
    if len(drawn.points) != len(medians) or bool(known.column) == (drawn.zero is not None):
        return False
    x, y = zip(*drawn.points, strict=True)
    if drawn.zero is not None:
        ends = [drawn.zero, *(y if drawn.along == "x" else x)]
        return len(medians) >= MIN_BARS and _fits(ends, [0.0, *medians])
    return (
        len(medians) >= MIN_POINTS
        and _on_a_scale(x, [row.size for row in known.rows])
        and _on_a_scale(y, medians)
    )


def _on_a_scale(places: Sequence[float], values: Sequence[float]) -> bool:
    if min(values) == max(values):
        return max(places) - min(places) <= TOLERANCE
    scales = [list(map(float, values))]
    if min(values) > 0:
        scales.append([math.log(value) for value in values])
    return any(_fits(places, scale) for scale in scales)


def _fits(places: Sequence[float], values: Sequence[float]) -> bool:
    """Whether a straight line through the outermost *values* meets all *places*."""
    low = min(range(len(values)), key=values.__getitem__)
    high = max(range(len(values)), key=values.__getitem__)
    slope = (places[high] - places[low]) / (values[high] - values[low])
    return all(
        abs(places[low] + slope * (value - values[low]) - place) <= TOLERANCE
        for place, value in zip(places, values, strict=True)
    )


# --- what matplotlib writes -----------------------------------------------------------------------


def read_figure(text: str) -> Figure:
    """The frames, lines and bars in the SVG that matplotlib wrote.

    Raises:
        ParseError: it is no XML.
        ValueError: it is no SVG of matplotlib's.
    """
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    root = ElementTree.fromstring(text, parser)
    edges = [float(part) for part in root.get("viewBox", "").split()]
    if root.tag != f"{_SVG}svg" or len(edges) != 4:
        raise ValueError("it has no size")
    of_figure = _names(root)
    axes = [
        made
        for group in root.iter(f"{_SVG}g")
        if group.get("id", "").startswith("axes_")
        and (made := _frame(group, of_figure | _names(group)))
    ]
    return Figure(edges[2], edges[3], axes)


def _frame(group: ElementTree.Element, names: dict[Style, str]) -> Axes | None:
    frame = None
    bars: dict[Style, list[list[tuple[float, float]]]] = {}
    for child in group:
        kind = str(child.get("id", "")).rstrip("0123456789")
        path = child.find(f"{_SVG}path")
        points = _points(path)
        if kind == "text_" and frame is not None:  # the title is the last of them
            said = next(child.iter(ElementTree.Comment), None)
            frame.title = (said.text or "").strip() if said is not None else ""
        if path is None or not points:
            continue
        style = _style(path)
        if kind == "patch_" and frame is None:
            frame = Axes(_edges(points))
        elif kind == "patch_" and style[0] != "none" and len(points) == 4:
            bars.setdefault(style, []).append(points)
        elif kind == "line2d_" and frame is not None:
            frame.drawn.append(Drawn(points, style, names.get(style, "")))
    if frame is not None:
        for style, boxes in bars.items():
            frame.drawn += _ends([_edges(box) for box in boxes], style, names.get(style, ""))
    return frame


def _ends(
    boxes: list[tuple[float, float, float, float]], style: Style, name: str
) -> Iterator[Drawn]:
    """The ends of bars that stand on one line, or begin at one."""
    left, _, _, bottom = zip(*boxes, strict=True)
    if len(set(bottom)) == 1:
        tops = [((x0 + x1) / 2, y0) for x0, y0, x1, _ in boxes]
        yield Drawn(tops, style, name, "x", bottom[0])
    elif len(set(left)) == 1:
        yield Drawn([(x1, (y0 + y1) / 2) for _, y0, x1, y1 in boxes], style, name, "y", left[0])


def _edges(points: list[tuple[float, float]]) -> tuple[float, float, float, float]:
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def _names(group: ElementTree.Element) -> dict[Style, str]:
    """The texts of the legends in *group*, by the style of the line or box before each.

    A style that two of them share has none.
    """
    found: dict[Style, str] = {}
    twice = set()
    for legend in group.iter(f"{_SVG}g"):
        if not legend.get("id", "").startswith("legend_"):
            continue
        style = None
        for child in legend:
            path = child.find(f"{_SVG}path")
            comment = next(child.iter(ElementTree.Comment), None)
            if child.get("id", "").startswith(("line2d_", "patch_")) and path is not None:
                style = _style(path)
            elif child.get("id", "").startswith("text_") and comment is not None and style:
                twice |= {style} & found.keys()
                found[style] = (comment.text or "").strip()
                style = None
    return {style: name for style, name in found.items() if style not in twice}


def _style(path: ElementTree.Element) -> Style:
    """The color and the dashes of a line, or the fill of a box."""
    pairs = (part.partition(":") for part in path.get("style", "").split(";"))
    said = {name.strip(): value.strip() for name, _, value in pairs}
    if said.get("fill", "none") != "none":
        return said["fill"], ""
    return said.get("stroke", "none"), said.get("stroke-dasharray", "")


def _points(path: ElementTree.Element | None) -> list[tuple[float, float]]:
    """The vertices of a *path* of straight lines; none where it is something else."""
    text = path.get("d", "") if path is not None else ""
    pairs = re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", text)
    return [] if re.search("[QCA]", text) else [(float(x), float(y)) for x, y in pairs]
