"""X-ray, on the page: a tab of each kernel's panel shows what the compiler made of it.

The facts come from the recording, where the probe :class:`triton_site.xray.kernels` noted them. The
intermediate code of each kernel is a file ``_static/xray/<page>/<kernel>.js``, which the browser
loads when the fold is opened; it is a script because a page opened from disk cannot load JSON. Each
line of TTGIR and PTX names its line of the kernel.

A kernel of which the compiler says nothing has no fold: see :func:`is_trivial`. Only names of
functions in the script become names of files, never those in a recording.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from gallery_recorder.api import Page
from triton_site import launches, xray, xray_data
from triton_site.numbers.tables import table
from triton_site.pages.assets import is_a, load_where
from triton_site.pages.cells import boxes_of, cells_of, functions, in_sight, page_of
from triton_site.pages.folds import Fold, add_node
from triton_site.pages.keylines import without_marks
from triton_site.xray_data import Facts, Kernel

#: Variants of one kernel in its table; more do not fit on a page.
MOST = 6


class XrayCode(nodes.General, nodes.Element):
    """The place of the intermediate code of a kernel, which xray.js loads from ``source``."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.setup_extension("triton_site.kernels.kernel_panels")
    add_node(app, XrayCode, _draw_code, None)
    load_where(app, "xray.js", is_a(XrayCode))
    app.connect("doctree-read", _add_folds, priority=600)
    app.connect("doctree-read", _hide_download)
    app.connect("html-page-context", _write_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _xray(page: Page | None) -> tuple[dict[str, list[Facts]], dict[str, Kernel]]:
    """Facts and code of each kernel in the recording of *page*, which the probe has checked."""
    if page is None or page.files is None or page.is_stale:
        return {}, {}
    facts, code = xray_data.read(page.files, page.recording.probes)
    found: dict[str, list[Facts]] = {}
    for variant in facts:
        found.setdefault(variant.name, []).append(variant)
    shown = {name: made for name, made in found.items() if not all(map(is_trivial, made))}
    return shown, {name: kernel for name, kernel in code.items() if name in shown}


def is_trivial(facts: Facts) -> bool:
    """Whether a kernel is straight and small: a few loads and stores in registers that none lacks.

    Sixteen registers leave room for all warps of a multiprocessor on any GPU.
    """
    few = facts.registers <= 16 and sum(facts.instructions.values()) <= 4
    return few and not facts.spills and not facts.shared


# --- on the page ---------------------------------------------------------------------------------


def _add_folds(app: Sphinx, doctree: nodes.document) -> None:
    docname = app.env.docname
    page = page_of(app, docname)
    facts, code = _xray(page)
    if page is None or not facts:
        return
    shown: set[str] = set()
    launched_by = xray_data.launches(page.recording.probes)
    # The words for a shape are prose: they come from the script, as all prose does.
    shapes = [launches.wanted(cell.setting("xray")) for cell in cells_of(page.script)]
    named = {name: shape for cell in shapes for name, shape in cell.items()}
    for cell, box in list(boxes_of(doctree, page.script)):
        visible = functions(in_sight(cell))
        inside, outside = box, box.parent if isinstance(box.parent, Fold) else box
        wanted = {name for name in facts if name in cell.code} - shown
        for name in _defined(cell.code) if wanted else ():
            if name in wanted:
                place = outside if name in visible else inside  # where its code stands
                shown.add(name)
                shape, launched = launched_by.get(name, ("", None))
                shape = named.get(name, shape)
                load = widest_load(code[name].ptx) if name in code else ""
                fold = fold_of(name, facts[name], shape, launched, load)
                if name in code:
                    variant = code[name].facts
                    of = f"{_described(variant)}, {variant.registers} registers"
                    of = shape if variant == launched else of
                    fold += nodes.paragraph("", f"The code of {of}:")
                    source = f"{'../' * docname.count('/')}_static/{_file(docname, name)}"
                    fold += XrayCode(source=source)
                place.parent.insert(place.parent.index(place) + 1, fold)
                inside, outside = (inside, fold) if name in visible else (fold, outside)


def fold_of(
    name: str,
    variants: list[Facts],
    shape: str = "",
    launched: Facts | None = None,
    load: str = "",
) -> Fold:
    """What the compiler made of the kernel *name*: one variant in chips, and a table of all.

    The one is the variant that was *launched* for the *shape* that the page is about. Without it,
    the chips have the least and the most of what the typical configuration became. *load* says how
    much an instruction loads.
    """
    if launched is not None:
        return _fold_of_launch(name, variants, shape, launched, load)
    found: dict[str, list[Facts]] = {}
    for facts in variants:
        key = xray.configuration(facts.constants, facts.warps, facts.stages)
        made = found.setdefault(key, [])
        if all(_outcome(facts) != _outcome(other) for other in made):
            made.append(facts)
    often = Counter(xray.configuration(f.constants, f.warps, f.stages) for f in variants)
    most = [found[key] for key, _ in often.most_common(MOST)]
    # Each configuration has a column before any has a second one.
    columns = [facts for row in zip_longest(*most) for facts in row if facts][:MOST]
    shown = [facts for made in found.values() for facts in made if facts in columns]
    fold = Fold(summary=f"X-ray: what became of {name}", note="", kind="xray", name=name)
    if len(found) > 1:
        fold += nodes.paragraph("", f"{_described(most[0][0])}:")
    fold += chips(most[0], load)
    behind = Fold(summary="All variants" if len(shown) > 1 else "All counts", kind="variants")
    behind += _table(shown)
    if any(len(made) > 1 for made in most):
        text = "Columns with the same settings differ by their arguments: dtypes, sizes, alignment."
        behind += nodes.paragraph("", text)
    if (count := sum(map(len, found.values()))) > len(shown):
        behind += nodes.paragraph("", f"{len(shown)} of {count} variants.")
    fold += behind
    return fold


def _fold_of_launch(
    name: str, variants: list[Facts], shape: str, launched: Facts, load: str
) -> Fold:
    """What became of a kernel whose variant for *shape* stands before the others."""
    fold = Fold(summary=f"X-ray: what became of {name}", note="", kind="xray", name=name)
    fold += nodes.paragraph("", f"{shape}, the launch that this page is about:")
    fold += chips([launched], load)
    others: dict[str, Facts] = {}
    for facts in variants:
        if _chosen(facts) != _chosen(launched) or facts.warps != launched.warps:
            others.setdefault(_described(facts), facts)
    behind = Fold(summary="All counts", kind="variants")
    behind += _table([launched])
    fold += behind
    if others:
        behind = Fold(summary="Other variants", note=f"{len(others)}", kind="variants")
        behind += _table(list(others.values())[:MOST])
        if len(others) > MOST:
            behind += nodes.paragraph("", f"The first {MOST} of {len(others)}.")
        fold += behind
    return fold


def chips(variants: list[Facts], load: str = "") -> nodes.bullet_list:
    """What a reader looks at first, in a few words each; what costs speed has a class."""
    found = nodes.bullet_list("", classes=["gallery-chips"])
    parts = summary(*variants).split(", ")
    for text in [*parts, load] if load else parts:
        item = nodes.list_item("", nodes.paragraph("", text))
        if text.endswith("spilled") and not text.startswith("nothing"):
            item["classes"].append("chip-costs")
        found += item
    return found


#: Loads of PTX: how many values, and their bits.
_LOAD = re.compile(r"\bld\.global(?:\.\w+(?:::\w+)*)*?(?:\.v(\d))?\.[bfus](\d+)\b")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\b[^;]*, 0x([0-9a-f]+)")


def widest_load(ptx: str) -> str:
    """``16 bytes a load``: the most that one instruction of a thread loads from global memory."""
    sizes = [int(count or 1) * int(bits) // 8 for count, bits in _LOAD.findall(ptx)]
    sizes += [int(size, 16) for size in _COPY.findall(ptx)]
    return f"{max(sizes)} bytes a load" if sizes else ""


def _chosen(facts: Facts) -> dict[str, Any]:
    """The constants that are choices, as in :func:`triton_site.xray.configuration`."""
    return {name: value for name, value in facts.constants.items() if value not in (None, 1)}


def _described(facts: Facts) -> str:
    """A configuration in words, such as ``BLOCK = 1024, 4 warps``."""
    constants = (f"{name} = {value}" for name, value in _chosen(facts).items() if value != "")
    return ", ".join([*constants, f"{facts.warps} warps"])


def _outcome(facts: Facts) -> tuple[Any, ...]:
    """What the compiler made of a variant, as far as the page shows it."""
    return facts.registers, facts.spills, facts.shared, facts.occupancy, facts.instructions


def summary(*variants: Facts) -> str:
    """Compiled variants of a kernel in a line: resources, and how all of them load and multiply."""

    def span(numbers: Iterable[int], text: Callable[[int], str] = str) -> str:
        ends = sorted(numbers)
        return " to ".join(dict.fromkeys((text(ends[0]), text(ends[-1]))))

    def all_have(instruction: str) -> bool:
        return all(instruction in facts.instructions for facts in variants)

    spills = span(facts.spills for facts in variants)
    shared = span((facts.shared for facts in variants), _bytes)
    parts = [
        f"{span(facts.registers for facts in variants)} registers",
        "nothing spilled" if spills == "0" else f"{spills} spilled",
        "no shared memory" if shared == "0 B" else f"{shared} of shared memory",
    ]
    if rooms := [facts.occupancy for facts in variants if facts.occupancy]:
        parts.append(f"{span(room.warps for room in rooms)} of {rooms[0].of} warps")
    for instruction in ("wgmma.mma_async", "tcgen05.mma", "mma.sync"):
        if all_have(instruction):
            parts.append(f"products by {instruction.partition('.')[0]}")
            break
    if all_have("cp.async.bulk"):
        parts.append("tiles come by TMA")
    elif all_have("cp.async.c"):
        parts.append("loads are pipelined")
    return ", ".join(parts)


def _table(variants: list[Facts]) -> nodes.table:
    """A column for each of the *variants*; constants that are the same in all are left out."""
    names = list(dict.fromkeys(name for facts in variants for name in _chosen(facts)))
    differing = [name for name in names if len({_chosen(f).get(name) for f in variants}) > 1]
    rows = {
        name: [str(facts.constants.get(name, "–")) for facts in variants]
        for name in differing or names
    }
    rows |= {
        "warps": [str(f.warps) for f in variants],
        "stages": [str(f.stages or "–") for f in variants],
        "registers": [str(f.registers) for f in variants],
        "spilled": [str(f.spills) for f in variants],
        "shared memory": [_bytes(f.shared) for f in variants],
    }
    rooms = [f.occupancy for f in variants if f.occupancy]
    if len(rooms) == len(variants):
        rows["programs on a multiprocessor"] = [str(room.programs) for room in rooms]
        rows["warps on it"] = [f"{room.warps} of {room.of}" for room in rooms]
        rows["limited by"] = [room.limit for room in rooms]
    for instruction, meaning in xray.INSTRUCTIONS.items():
        counts = [f.instructions.get(instruction, 0) for f in variants]
        if any(counts):
            rows[f"{instruction.rstrip('.')}: {meaning}"] = list(map(str, counts))
    head, *body = ([name, *row] for name, row in rows.items())
    return table(head, body, classes=["gallery-xray-table"])


def _bytes(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.0f} KiB"


def _hide_download(app: Sphinx, doctree: nodes.document) -> None:
    """Offer no download of the probe's file: the script did not write it."""
    for paragraph in list(doctree.findall(nodes.paragraph)):
        box = paragraph.parent
        if "gallery-data" in box["classes"] and xray_data.FILE_NAME in paragraph.astext():
            gone = paragraph if len(box) > 1 else box
            gone.parent.remove(gone)


# --- the code ------------------------------------------------------------------------------------


def _file(docname: str, kernel: str) -> str:
    """The file of a kernel below ``_static``."""
    return f"xray/{docname}/{kernel}.js"


def _draw_code(translator: Any, node: XrayCode) -> None:
    source = translator.attval(node["source"])
    text = "The intermediate code is shown here where scripts may run."
    translator.body.append(f'<div class="gallery-xray" data-source="{source}"><p>{text}</p></div>')
    raise nodes.SkipNode


def _write_code(app: Sphinx, docname: str, *_: object) -> None:
    """Write the code of the kernels of a page that is written."""
    page = page_of(app, docname)
    if page is None:
        return
    static = Path(app.outdir, "_static")
    shutil.rmtree((static / _file(docname, "any")).parent, ignore_errors=True)
    script = page.script.path.read_text(encoding="utf-8")
    for name, kernel in _xray(page)[1].items():
        if name in _defined(script):  # a name in the recording alone could be any path
            path = static / _file(docname, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            shown = json.dumps(viewed(name, kernel, script), ensure_ascii=False)
            path.write_text(f"galleryXray({json.dumps(name)}, {shown});\n", encoding="utf-8")


def viewed(name: str, kernel: Kernel, script: str) -> dict[str, Any]:
    """The data of the viewer: the source of a kernel, and each code with its lines of the source.

    Prose may have moved the kernel in *script* since it was recorded.
    """
    lines, span = script.splitlines(), _defined(script).get(name, range(0))
    moved = span.start - kernel.facts.line if span else 0
    mappers = {"ttgir": ttgir_lines, "ptx": ptx_lines, "amdgcn": plain_lines}
    return {
        "first": span.start,
        "source": [without_marks(lines[number - 1]) for number in span],
        "codes": {
            kind: [
                [line + moved if line + moved in span else 0, text] for line, text in mapped(code)
            ]
            for kind, mapped in mappers.items()
            if (code := getattr(kernel, kind))
        },
    }


@functools.lru_cache(maxsize=1)
def _defined(code: str) -> dict[str, range]:
    """The lines of each function in a script or cell; of one name, the outermost and first."""
    found: dict[str, range] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found.setdefault(node.name, range(first, (node.end_lineno or first) + 1))
    return found


def plain_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of code that does not name its source."""
    return ((0, line) for line in text.splitlines())


def ptx_lines(text: str) -> Iterator[tuple[int, str]]:
    """The instructions of PTX, each with its line of the script.

    ``.loc`` names the line of the instructions below it; for code that was inlined, ``inlined_at``
    names the line of the call.
    """
    line = 0
    for row in text.splitlines():
        if found := re.match(r"\s*\.loc\s+(\d{1,9})\s+(\d{1,9})\s+\d+(.*)", row):
            called = re.search(r"inlined_at\s+\d+\s+(\d{1,9})", found[3])
            line = int(called[1]) if called else int(found[2]) if found[1] == "1" else 0
        elif not re.match(r"\s*(//|\$L__tmp|\$L__func)|\s*\.(file|section)\b", row):
            yield line, row.replace("\t", "    ")


def ttgir_lines(text: str) -> Iterator[tuple[int, str]]:
    """The operations of TTGIR without their locations, each with its line of the script."""
    locations = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, flags=re.M))

    def line_of(name: str) -> int:
        for _ in range(8):
            location = locations.get(name, "")
            if place := re.match(r'"[^"]*\.py":(\d{1,9}):', location):
                return int(place[1])
            called = re.match(r"callsite\(#loc\d* at (#loc\d*)\)", location)
            inner = called or re.search(r"(#loc\d*)", location)
            if inner is None:
                return 0
            name = inner[1]
        return 0

    for row in text.splitlines():
        if re.match(r"#loc\d* = ", row):
            continue
        found = re.search(r"loc\((#loc\d*)\)$", row.rstrip())
        line = line_of(found[1]) if found else 0
        yield line, re.sub(r' ?loc\((?:#loc\d*|"[^"]*"\(#loc\d*\))\)', "", row).rstrip()
