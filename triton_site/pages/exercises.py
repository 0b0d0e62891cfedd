"""Exercises: below each its solution, folded, and how to have one's own checked.

An exercise is an item of the list under the heading *Exercises*, and its link to a page below
``solutions/`` says which it is. The solution's first kernel and its launcher are shown in a fold.
One without such a page is known by the function that it asks for, and solved by the check's own.
Where ``tutorials/shared/exercise.py`` has a check for it, the page says how it is run; the file is
in the site as ``_static/exercise.py``.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from gallery_recorder.render import downloads
from gallery_recorder.render.domain import domain_of
from triton_site.pages.cells import cells_of, functions, page_of
from triton_site.pages.folds import Fold

#: The file with the checks, from the folder of ``conf.py``, and its place in the site.
SOURCE, TARGET = Path("tutorials/shared/exercise.py"), "_static/exercise.py"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-read", _add)
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add(app: Sphinx, doctree: nodes.document) -> None:
    docname = app.env.docname
    page = page_of(app, docname)
    checks = functions_in(Path(app.confdir, SOURCE))
    if page is None:
        return
    for section in doctree.findall(nodes.section):
        if section[0].astext() != "Exercises":
            continue
        checked = False
        for item in section.findall(nodes.list_item):
            if name := _solution_of(item):
                if name in checks:
                    item += _how_to_check(name)
                    checked = True
                folder = docname.rpartition("/")[0]
                item += _solution(app, f"{folder}/solutions/{name}")
            elif name := _asked_for(item, checks):
                item += _how_to_check(name)
                code = functions(Path(app.confdir, SOURCE).read_text(encoding="utf-8"))
                item += _folded("The solution", code[checks[name]])
                checked = True
        if checked:
            section.insert(1, _what_checks(docname))


def _solution_of(item: nodes.list_item) -> str:
    for link in item.findall(addnodes.pending_xref):
        if found := re.search(r"solutions/([\w-]+)$", link["reftarget"]):
            return found[1]
    return ""


def _asked_for(item: nodes.list_item, checks: dict[str, str]) -> str:
    """The check of the function that *item* names first, if there is one."""
    literal = item.next_node(nodes.literal)
    asked = "" if literal is None else literal.astext().partition("(")[0]
    return next((name for name, function in checks.items() if function == asked), "")


def _how_to_check(name: str) -> nodes.paragraph:
    paragraph = nodes.paragraph("", "Check yours: ", classes=["exercise-check"])
    paragraph += nodes.literal("", f"python exercise.py {name} mine.py")
    return paragraph


def _what_checks(docname: str) -> nodes.paragraph:
    uri = "../" * docname.count("/") + TARGET
    paragraph = nodes.paragraph("", "Save yours as ", classes=["exercise-check"])
    paragraph += [
        nodes.literal("", "mine.py"),
        nodes.Text(" and fetch "),
        nodes.reference("", "exercise.py", refuri=uri, internal=True),
        nodes.Text(
            " to have it checked: it needs no GPU, says what is wrong, and counts the bytes that "
            "are moved."
        ),
    ]
    return paragraph


def _solution(app: Sphinx, docname: str) -> list[nodes.Node]:
    page = domain_of(app.env).pages.get(docname)
    if page is None:
        return []
    code = next((c.code for c in cells_of(page.script) if "@triton.jit" in c.code), "")
    if not code:
        return []
    return [_folded("The kernel of the solution", code)]


def _folded(summary: str, code: str) -> Fold:
    fold = Fold(summary=summary, note="", kind="solution")
    fold += nodes.literal_block(code, code, language="python")
    return fold


@cache
def functions_in(path: Path) -> dict[str, str]:
    """{exercise: the function it asks for}, of those that the file *path* checks; not executed."""
    if not path.is_file():
        return {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EXERCISES":
            assert isinstance(node.value, ast.Dict)
            return {
                ast.literal_eval(key): ast.literal_eval(value.args[0]).partition("(")[0]
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if key and isinstance(value, ast.Call)
            }
    return {}


def _copy(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        downloads.write(Path(app.outdir, TARGET), Path(app.confdir, SOURCE).read_bytes())
