"""Panels with tabs: a kernel with what became of it, a figure with its table.

The first tab stands open. The others are folds, which work without JavaScript; ``panels.js`` makes
one row of tabs of them.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from triton_site.pages.assets import is_a, load_where
from triton_site.pages.folds import add_node


class Panel(nodes.General, nodes.Element):
    """A panel of the ``kind`` kernel or figure; its children are tabs, the first of them open."""


class Tab(nodes.General, nodes.Element):
    """A tab of a panel with its ``title`` and ``kind``; *is_open* for the first one."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the nodes and their script."""
    add_node(app, Panel, _open_panel, _close_panel)
    add_node(app, Tab, _open_tab, _close_tab)
    load_where(app, "panels.js", is_a(Panel))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def panel(kind: str, tabs: list[Tab]) -> Panel:
    """A panel of *tabs*, the first of which is open."""
    tabs[0]["is_open"] = True
    return Panel("", *tabs, kind=kind)


def tab(kind: str, title: str, *children: nodes.Node) -> Tab:
    """A tab with its *title* and its content; its *kind* is a class."""
    return Tab("", *children, kind=kind, title=title, is_open=False)


def _open_panel(translator: Any, node: Panel) -> None:
    translator.body.append(f'<div class="gallery-panel gallery-panel-{node["kind"]}">\n')


def _close_panel(translator: Any, node: Panel) -> None:
    del node
    translator.body.append("</div>\n")


def _open_tab(translator: Any, node: Tab) -> None:
    classes = f"gallery-tab gallery-tab-{node['kind']}"
    if node["is_open"]:
        title = translator.attval(node["title"])
        translator.body.append(f'<div class="{classes}" data-title="{title}">\n')
    else:
        title = translator.encode(node["title"])
        translator.body.append(f'<details class="{classes}"><summary>{title}</summary>\n')


def _close_tab(translator: Any, node: Tab) -> None:
    translator.body.append("</div>\n" if node["is_open"] else "</details>\n")
