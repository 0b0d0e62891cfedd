"""X-ray, on the page: below each kernel what the compiler made of it, folded.

The facts come from the recording, where the probe :class:`triton_site.xray.kernels` has left them.
The intermediate code is a file of its own for each kernel, ``_static/xray/….js``, which the browser
fetches when the fold is opened; a script and not JSON, so that it works from a file as well. Each
line of TTGIR and PTX knows which line of the kernel it was made from.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from gallery_recorder.render import files, others
from triton_site import xray
from triton_site.pages.cells import Page, boxes_of, page_of, stamps
from triton_site.pages.folds import Fold

PROBE = "triton_site.xray.kernels"

#: More variants of one kernel than these are not listed.
MAX_VARIANTS = 12


class Viewer(nodes.General, nodes.Element):
    """Where the intermediate code will be shown; ``source`` is the file to fetch."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    silent = (_skip, _skip)
    app.add_node(Viewer, html=(_visit_viewer, _depart), latex=silent, text=silent, man=silent)
    app.connect("doctree-read", _add_folds, priority=600)
    app.connect("doctree-read", _hide_download)
    app.connect("build-finished", _write_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def facts_of(page: Page) -> dict[str, list[dict[str, Any]]]:
    """What the probe found in the recording that *page* shows, by the name of the kernel."""
    found: dict[str, list[dict[str, Any]]] = {}
    for facts in page.probes.get(PROBE, {}).get("kernels", []):
        found.setdefault(facts["name"], []).append(facts)
    return found


def _add_folds(app: Sphinx, doctree: nodes.document) -> None:
    page = page_of(app, app.env.docname)
    facts = facts_of(page) if page else {}
    if page is None or page.folder is None or not facts:
        return
    has_code = (page.folder / xray.FILE_NAME).is_file()
    shown: set[str] = set()
    for cell, box in list(boxes_of(doctree, page.script)):
        place = box.parent if isinstance(box.parent, Fold) else box
        wanted = {name for name in facts if name in cell.code} - shown
        for name in _defined(cell.code) if wanted else ():
            if name in wanted:
                shown.add(name)
                fold = fold_of(name, facts[name])
                if has_code:
                    fold += Viewer(source=_file_name(app.env.docname, page, name))
                place.parent.insert(place.parent.index(place) + 1, fold)
                place = fold


def fold_of(name: str, variants: list[dict[str, Any]]) -> Fold:
    """The fold of the kernel *name*: one line of summary, and a table of its *variants*."""
    last = variants[-1]
    fold = Fold(summary=f"X-ray: what became of {name}", note=summary(last), kind="xray")
    fold += _table(variants[-MAX_VARIANTS:])
    if len(variants) > MAX_VARIANTS:
        fold += nodes.paragraph("", f"The last {MAX_VARIANTS} of {len(variants)} variants.")
    if last["instructions"]:
        fold += nodes.paragraph("", "What stands in the code of the last one, and how often:")
        items = nodes.bullet_list()
        for instruction, count in sorted(last["instructions"].items(), key=lambda i: -i[1]):
            what = xray.INSTRUCTIONS.get(instruction, "")
            text = nodes.paragraph("", "", nodes.literal("", instruction.rstrip(".")))
            text += nodes.Text(f" × {count}: {what}")
            items += nodes.list_item("", text)
        fold += items
    return fold


def summary(facts: dict[str, Any]) -> str:
    """The facts of one compiled kernel in a line: does it spill, what did ``tl.dot`` become?"""
    spills = facts["spills"]
    parts = [
        f"{facts['registers']} registers",
        f"{spills} spilled" if spills else "nothing spilled",
        f"{_bytes(facts['shared'])} of shared memory" if facts["shared"] else "no shared memory",
    ]
    if room := facts.get("occupancy"):
        parts.append(f"{room['warps']} of {room['of']} warps")
    made = facts["instructions"]
    for instruction in ("wgmma.mma_async", "tcgen05.mma", "mma.sync"):
        if instruction in made:
            parts.append(f"tl.dot became {instruction.partition('.')[0]}")
            break
    if "cp.async.bulk" in made:
        parts.append("tiles come by TMA")
    elif "cp.async.c" in made:
        parts.append("loads are pipelined")
    return ", ".join(parts)


def _table(variants: list[dict[str, Any]]) -> nodes.table:
    names = list(dict.fromkeys(name for facts in variants for name in facts["constants"]))
    differing = [n for n in names if len({str(f["constants"].get(n)) for f in variants}) > 1]
    head = [*(differing or names[:6]), "warps", "stages", "registers", "spilled"]
    head += ["shared memory", "programs on a multiprocessor", "warps on it", "limited by", "code"]
    rows = []
    for facts in variants:
        room = facts.get("occupancy") or {}
        rows.append([
            *(str(facts["constants"].get(name, "–")) for name in (differing or names[:6])),
            str(facts["warps"]),
            str(facts["stages"] or "–"),
            str(facts["registers"]),
            str(facts["spills"]),
            _bytes(facts["shared"]),
            str(room.get("programs", "–")),
            f"{room['warps']} of {room['of']}" if room else "–",
            str(room.get("limit", "–")),
            _bytes(facts["bytes"]),
        ])  # fmt: skip
    table = nodes.table(classes=["gallery-xray-table"])
    group = nodes.tgroup(cols=len(head))
    table += group
    group += [nodes.colspec(colwidth=10) for _ in head]
    for part, lines in ((nodes.thead(), [head]), (nodes.tbody(), rows)):
        group += part
        for line in lines:
            row = nodes.row()
            row += [nodes.entry("", nodes.paragraph("", cell)) for cell in line]
            part += row
    return table


def _bytes(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.0f} KiB"


def _hide_download(app: Sphinx, doctree: nodes.document) -> None:
    """The file of the probe is not one that the script wrote: it is no download."""
    for container in list(doctree.findall(nodes.container)):
        if "gallery-data" in container["classes"] and xray.FILE_NAME in container.astext():
            paragraphs = [p for p in container.children if xray.FILE_NAME in p.astext()]
            for paragraph in paragraphs:
                container.remove(paragraph)
            if not container.children:
                container.parent.remove(container)


# --- the code ------------------------------------------------------------------------------------


def _file_name(docname: str, page: Page, kernel: str) -> str:
    parts = (docname.rpartition("/")[2], page.view, kernel)
    return f"xray/{'-'.join(filter(None, parts))}.js"


def _write_code(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    static, kept = Path(app.outdir, "_static"), Path(app.doctreedir, "xray.json")
    before: dict[str, list[str]] = {}
    with contextlib.suppress(OSError, ValueError):
        before = json.loads(kept.read_text(encoding="utf-8"))
    own = files.digest(files.times([Path(__file__), Path(xray.__file__)]))
    now = {}
    for docname, made_from in stamps(app).items():
        stamp = f"{docname} {made_from} {own}"
        names = before.get(stamp)
        if names is None or not all((static / name).is_file() for name in names):
            names = [name for seen in _seen(app, docname) for name in _write(static, docname, seen)]
        now[stamp] = names
    for name in {*chain(*before.values())} - {*chain(*now.values())}:
        (static / name).unlink(missing_ok=True)
    if now != before:
        kept.write_text(json.dumps(now), encoding="utf-8")


def _seen(app: Sphinx, docname: str) -> Iterator[Page]:
    """A page with a recording, as each of its recordings has it."""
    page = page_of(app, docname)
    if page is not None and page.folder is not None:
        yield page
        for view in others.views_of(app.env, docname):
            with others.shown_as(app.env, view):
                page = page_of(app, docname)
            if page is not None:
                yield page


def _write(static: Path, docname: str, page: Page) -> Iterator[str]:
    """Write the code of a page's kernels, and give the names of the files."""
    assert page.folder is not None
    code = xray.load(page.folder / xray.FILE_NAME)
    text = page.script.path.read_text(encoding="utf-8") if code else ""
    for name, entry in code.items():
        path = static / _file_name(docname, page, name)
        shown = _encoded(viewed(name, entry, text))
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"galleryXray({json.dumps(path.stem)}, {shown});\n", encoding="utf-8")
        yield path.relative_to(static).as_posix()


def _encoded(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def viewed(name: str, entry: dict[str, Any], script: str) -> dict[str, Any]:
    """What the viewer shows of a kernel: its source, and each code with the lines it comes from.

    The source is that of *script*; its lines may have moved since the recording, where only prose
    was changed.
    """
    lines = script.splitlines()
    span = _defined(script).get(name, range(0))
    first = span.start if span else 1
    moved = first - entry["facts"].get("line", first) if span else 0
    found: dict[str, Any] = {
        "first": first,
        "source": [lines[number - 1] for number in span],
        "codes": {},
    }
    for kind, mapped in (("ttgir", ttgir_lines), ("ptx", ptx_lines), ("sass", plain_lines),
                         ("amdgcn", plain_lines)):  # fmt: skip
        if entry.get(kind):
            found["codes"][kind] = [
                [line + moved if line + moved in span else 0, text]
                for line, text in mapped(entry[kind])
            ]
    return found


@functools.lru_cache(maxsize=1)
def _defined(code: str) -> dict[str, range]:
    """The lines of the functions in a script or cell, those within others as well.

    A page asks for each kernel of its script in turn; the script is parsed once.
    """
    found: dict[str, range] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            lines = range(first, (node.end_lineno or first) + 1)
            found.setdefault(node.name, lines)  # of one name, the outermost and first
    return found


def plain_lines(text: str) -> Iterable[tuple[int, str]]:
    """Code that does not say where it comes from."""
    return ((0, line) for line in text.splitlines())


def ptx_lines(text: str) -> Iterable[tuple[int, str]]:
    """The instructions of PTX, each with the line of the script that it was made from.

    ``.loc`` tells it for the instructions that follow; of a function that was built in,
    ``inlined_at`` tells where it was called.
    """
    line = 0
    for row in text.splitlines():
        if found := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(.*)", row):
            called = re.search(r"inlined_at\s+(\d+)\s+(\d+)", found[3])
            line = int(called[2]) if called else int(found[2]) if found[1] == "1" else 0
        elif not re.match(r"\s*(//|\$L__tmp|\$L__func)|\s*\.(file|section)\b", row):
            yield line, row.replace("\t", "    ")


def ttgir_lines(text: str) -> Iterable[tuple[int, str]]:
    """The operations of TTGIR without their locations, each with the line that it was made from."""
    locations = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, flags=re.M))

    def line_of(location: str, depth: int = 0) -> int:
        if depth > 8:
            return 0
        if place := re.match(r'"[^"]*\.py":(\d+):', location):
            return int(place[1])
        if called := re.match(r"callsite\((#loc\d*) at (#loc\d*)\)", location):
            return line_of(locations.get(called[2], ""), depth + 1)
        if inner := re.search(r"#loc\d*", location):
            return line_of(locations.get(inner[0], ""), depth + 1)
        return 0

    for row in text.splitlines():
        if re.match(r"#loc\d* = ", row):
            continue
        found = re.search(r"\s*loc\((#loc\d*)\)\s*$", row)
        line = line_of(locations.get(found[1], "")) if found else 0
        yield line, re.sub(r'\s*loc\((?:#loc\d*|"[^"]*"\(#loc\d*\))\)', "", row)


def _visit_viewer(translator: Any, node: Viewer) -> None:
    prefix = "../" * translator.builder.current_docname.count("/")
    translator.body.append(
        f'<div class="gallery-xray" data-source="{prefix}_static/{node["source"]}">'
        "<p>The intermediate code is shown here, line by line beside the kernel, where scripts may "
        "run.</p>"
    )


def _depart(translator: Any, node: Viewer) -> None:
    del node
    translator.body.append("</div>\n")


def _skip(translator: Any, node: nodes.Node) -> None:
    raise nodes.SkipNode
