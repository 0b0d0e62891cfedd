"""Exercises: below each its solution, folded, and the command that checks a reader's own.

An exercise is an item of the list under the heading *Exercises*. Its link to a page below
``solutions/`` names it, and the first kernel of that solution is shown. An exercise without such a
page is known by the function that it asks for; the check's own function is its solution.

``tutorials/shared/exercise.py`` checks answers; ``html_static_path`` puts it into the site.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from triton_site.pages.assemble import assemble_script, defined, used
from triton_site.pages.cells import cells_of, functions, page_of
from triton_site.pages.folds import Fold
from triton_site.pages.keylines import without_marks

#: The checks, below the folder of ``conf.py``.
TABLE = Path("tutorials/shared/practice/exercises.py")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-read", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add(app: Sphinx, doctree: nodes.document) -> None:
    docname = app.env.docname
    sections = (s for s in doctree.findall(nodes.section) if s[0].astext() == "Exercises")
    section = next(sections, None)
    if section is None or page_of(app, docname) is None:
        return
    code = Path(app.confdir, SOURCE).read_text(encoding="utf-8")
    checks = checked_functions(code)
    checked = False
    for item in section.findall(nodes.list_item):
        name, solution = _solution_of(item), ""
        if name:
            solution = _kernel_of(app, f"{docname.rpartition('/')[0]}/solutions/{name}")
        elif name := _asked_for(item, checks):
            solution = functions(code)[checks[name]]
        if name in checks:
            command = nodes.literal("", f"python exercise.py {name} mine.py")
            item += nodes.paragraph("", "Check yours: ", command, classes=["exercise-check"])
            checked = True
        if solution:
            fold = Fold(summary="Solution", note="", kind="solution")
            fold += nodes.literal_block(solution, solution, language="python")
            item += fold
    if checked:
        section.insert(1, _how_to_check(f"{'../' * docname.count('/')}_static/{SOURCE.name}"))


def _solution_of(item: nodes.list_item) -> str:
    links = item.findall(addnodes.pending_xref)
    found = (re.search(r"solutions/([\w-]+)$", link["reftarget"]) for link in links)
    return next((match[1] for match in found if match), "")


def _asked_for(item: nodes.list_item, checks: dict[str, str]) -> str:
    """The check of the function that *item* names first, if there is one."""
    literal = item.next_node(nodes.literal)
    asked = "" if literal is None else literal.astext().partition("(")[0]
    return next((name for name, function in checks.items() if function == asked), "")


def _kernel_of(app: Sphinx, docname: str) -> str:
    page = page_of(app, docname)
    cells = cells_of(page.script) if page else []
    return next((without_marks(c.code) for c in cells if "@triton.jit" in c.code), "")


def _how_to_check(uri: str) -> nodes.paragraph:
    text = nodes.paragraph("", "Save your answer as ", classes=["exercise-check"])
    text += [nodes.literal("", "mine.py"), nodes.Text(" and download ")]
    text += nodes.reference("", "exercise.py", refuri=uri, internal=True)
    text += nodes.Text(
        ", which checks it without a GPU: it names wrong elements and counts the bytes that your "
        "kernel moves."
    )
    return text


def checked_functions(code: str) -> dict[str, str]:
    """The name of each exercise that the source *code* checks, with the function it asks for."""
    for node in ast.parse(code).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXERCISES":
            assert isinstance(node.value, ast.Dict)
            return {
                ast.literal_eval(key): ast.literal_eval(value.args[0]).partition("(")[0]
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if key and isinstance(value, ast.Call)
            }
    return {}


def write_checker(tutorials: Path, target: Path) -> Path:
    """Assemble the checker from its modules into the one file *target*, and return that."""
    shared = tutorials / "shared"
    code = assemble_script((shared / "exercise.py").read_text(encoding="utf-8"), shared)
    texts = {}
    for name, function in checked_functions((shared / "practice/exercises.py").read_text()).items():
        script = tutorials / "solutions" / f"{name}.py"
        if script.is_file():
            texts[name] = needed(
                assemble_script(script.read_text(encoding="utf-8"), shared), function
            )
    packed = base64.b85encode(zlib.compress(json.dumps(texts).encode(), 9)).decode()
    code = code.replace('SOLUTIONS = ""', f'SOLUTIONS = "{packed}"')
    if not target.is_file() or target.read_text(encoding="utf-8") != code:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(code, encoding="utf-8")
    return target


def needed(code: str, name: str) -> str:
    """The statements of *code* that the function *name* needs, without checks and benchmarks."""
    lines, kept = code.splitlines(), set()
    statements = ast.parse(code).body
    waiting = [name]
    while waiting:
        wanted = waiting.pop()
        for i, node in enumerate(statements):
            if i not in kept and wanted in defined(node):
                kept.add(i)
                waiting += used(node)
    parts = []
    for i in sorted(kept):
        node = statements[i]
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    return "\n\n".join(parts) + "\n"
