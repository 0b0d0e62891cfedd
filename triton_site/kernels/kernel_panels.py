"""A kernel on a page is a panel: *Kernel · What the compiler made · Difference*.

X-ray and differences are folds after and before the code of a kernel. Here they become tabs of one
panel with that code. What is inside a fold of other code stays there, as a panel too.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from triton_site.pages.cells import page_of
from triton_site.pages.folds import Fold
from triton_site.pages.panels import Tab, panel, tab


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the panels once both kinds of folds stand on the page."""
    app.setup_extension("triton_site.pages.panels")
    app.connect("doctree-read", _make_panels, priority=650)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _make_panels(app: Sphinx, doctree: nodes.document) -> None:
    if page_of(app, app.env.docname) is None:
        return
    tabs: dict[nodes.Element, list[Fold]] = {}
    for fold in list(doctree.findall(Fold)):
        if fold["kind"] == "xray":
            code = _code_before(fold)
        elif fold["kind"] == "difference":
            code = _code_after(fold)
        else:
            continue
        if code is not None:
            tabs.setdefault(code, []).append(fold)
    for code, folds in tabs.items():
        _replace(code, sorted(folds, key=lambda fold: fold["kind"] == "difference"))


def _code_before(fold: Fold) -> nodes.Element | None:
    """The code that an X-ray is about: other folds may stand between them."""
    siblings = fold.parent.children
    for node in reversed(siblings[: siblings.index(fold)]):
        if _is_code(node):
            return node
        if not isinstance(node, Fold):
            return None
    return None


def _code_after(fold: Fold) -> nodes.Element | None:
    siblings = fold.parent.children
    for node in siblings[siblings.index(fold) + 1 :]:
        if _is_code(node):
            return node
        if not isinstance(node, Fold):
            return None
    return None


def _is_code(node: nodes.Node) -> bool:
    """Whether *node* is a block of code, linked names or not."""
    return isinstance(node, nodes.literal_block)


def _replace(code: nodes.Element, folds: list[Fold]) -> None:
    parent = code.parent
    place = parent.index(code)
    parent.remove(code)
    made: list[Tab] = [tab("kernel", "Kernel", code)]
    several = sum(fold["kind"] == "xray" for fold in folds) > 1
    for fold in folds:
        if fold["kind"] == "difference":
            kind, title = "difference", "Difference"
        elif several:
            kind, title = "compiled", f"What the compiler made of {fold['name']}"
        else:
            kind, title = "compiled", "What the compiler made"
        made.append(tab(kind, title, *_content(fold)))
    parent.insert(place, panel("kernel", made))
    for fold in folds:
        fold.parent.remove(fold)


def _content(fold: Fold) -> list[nodes.Node]:
    """What stands in the tab; the tab of a difference says between which kernels it is."""
    children = list(fold.children)
    if fold["kind"] == "difference":
        return [nodes.paragraph("", f"{fold['summary']}: {fold['note']}."), *children]
    return children
