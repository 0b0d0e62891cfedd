"""What stands around a page: the path at its left, its sections at its right, the way on.

The templates get it as ``frame``: the menu, the sections of the page, and on the page of another
recording the links of the script's main page. The theme's own menu, made by Sphinx for each page
from the whole tree of contents, is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from triton_site.pages.cards import minutes
from triton_site.pages.cells import page_of
from triton_site.pages.path import LEVELS, path_of
from triton_site.pages.record_line import release

#: Parts of the site that have a menu of their own: the beginning of their pages, and its caption.
_PARTS = {"programming-guide/": "Guide", "python-api/": "Python API"}
#: The parts in the bar: title, page, and the beginning of the pages that belong to it.
_BAR = (
    ("Learn", "getting-started/tutorials/index", "getting-started/"),
    ("Guide", "programming-guide/index", "programming-guide/"),
    ("API", "python-api/index", "python-api/"),
    ("Performance", "performance", "performance"),
)
#: The levels of headings that the list of sections has.
_DEEPEST = 2


@dataclass(frozen=True)
class Section:
    """A heading of a page, by its text and anchor; *inside* are those below it."""

    title: str
    anchor: str
    inside: tuple[Section, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A page in the menu, *inside* the one before it; only the current one shows its sections."""

    docname: str
    title: str
    current: bool
    inside: bool
    sections: tuple[Section, ...] = ()


@dataclass(frozen=True)
class Part:
    """A part of the site in the bar; *current* if the page belongs to it."""

    title: str
    docname: str
    current: bool


@dataclass(frozen=True)
class Above:
    """The link above a page's text to what the page is part of."""

    title: str
    uri: str


@dataclass(frozen=True)
class Frame:
    """What stands around a page; *minutes* are those to read it, 0 if it is not read through.

    On a page of another recording, *main* is the page of the reference, and *shown* and
    *reference* name the two devices and releases.
    """

    menu: list[tuple[str, list[Entry]]] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    sections: tuple[Section, ...] = ()
    above: Above | None = None
    minutes: int = 0
    is_lesson: bool = False
    main: str = ""
    shown: str = ""
    reference: str = ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Give the frame to the templates, before other handlers add scripts."""
    app.connect("builder-inited", _set_sign)
    app.connect("html-page-context", _add_frame, priority=300)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _set_sign(app: Sphinx) -> None:
    """Put a sign of the reader's font behind headings, not one of the theme's own font."""
    app.config.html_permalinks_icon = "#"


def _add_frame(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    del template
    page = page_of(app, pagename)
    main = page.main if page else pagename
    is_other = page is not None and main != pagename
    sections = sections_of(app.env, pagename) if doctree is not None else ()
    context["frame"] = Frame(
        menu=[
            (caption, [_entry(app.env, name, main, sections) for name in names])
            for caption, names in _menu(app.env, main)
        ],
        parts=[
            Part(title, docname, pagename.startswith(beginning))
            for title, docname, beginning in _BAR
            if docname in app.env.found_docs
        ],
        sections=sections,
        above=_above(app, pagename, main),
        minutes=minutes(page) if page else 0,
        is_lesson=any(main in names for names in path_of(app.env).values()),
        main=main if is_other else "",
        shown=_release(app, pagename) if is_other else "",
        reference=_release(app, main) if is_other else "",
    )
    if main != pagename:
        _link_like(app, pagename, main, context)


def _release(app: Sphinx, pagename: str) -> str:
    page = page_of(app, pagename)
    return release(page) if page and page.shown else "the reference"


def _above(app: Sphinx, pagename: str, main: str) -> Above | None:
    """What a page is part of: the level of a lesson, the guide, or the page above it."""
    for level, names in path_of(app.env).items():
        if main in names:
            index = "getting-started/tutorials/index"
            return Above(LEVELS[level], app.builder.get_relative_uri(pagename, index))
    relations = app.env.collect_relations().get(main)
    parent = relations[0] if relations else None
    if parent is None:
        return None
    title = app.env.titles[parent].astext()
    return Above(title, app.builder.get_relative_uri(pagename, parent))


def _menu(env: BuildEnvironment, docname: str) -> Iterator[tuple[str, list[str]]]:
    """The captions of the menu beside a page, with the documents below each."""
    for beginning, caption in _PARTS.items():
        if docname.startswith(beginning):
            yield caption, list(_pages_below(env, f"{beginning}index", docname))
            return
    for level, names in path_of(env).items():
        yield LEVELS[level], names


def _pages_below(env: BuildEnvironment, docname: str, current: str) -> Iterator[str]:
    """A page, the pages below it, and those below the one that is or holds *current*."""
    yield docname
    for below in env.toctree_includes.get(docname, []):
        yield below
        if f"{current}/".startswith(f"{below}/"):
            yield from env.toctree_includes.get(below, [])


def _entry(env: BuildEnvironment, name: str, main: str, sections: tuple[Section, ...]) -> Entry:
    above = env.titles.get(name.rpartition("/")[0])
    title = env.titles[name].astext().removeprefix(f"{above.astext()}: " if above else "")
    own = sections if name == main else ()
    return Entry(name, title, name == main, above is not None, own)


def sections_of(env: BuildEnvironment, docname: str) -> tuple[Section, ...]:
    """The headings below the title of a page."""
    tree = env.tocs.get(docname)  # a list of one item: the title, and the list of what is below
    below = tree.children[0].children[1:] if tree and tree.children else []
    return tuple(_sections(below[0], 1)) if below else ()


def _sections(items: nodes.Element, level: int) -> Iterator[Section]:
    for item in items.children:
        reference = item.next_node(nodes.reference) if isinstance(item, nodes.list_item) else None
        if reference is None or not reference.get("anchorname"):
            continue
        below = [child for child in item.children if isinstance(child, nodes.bullet_list)]
        inside = tuple(_sections(below[0], level + 1)) if below and level < _DEEPEST else ()
        yield Section(reference.astext(), reference["anchorname"].removeprefix("#"), inside)


def _link_like(app: Sphinx, pagename: str, main: str, context: dict[str, Any]) -> None:
    """Give the page of another recording the links *Previous* and *Next* of its main page."""
    relations = app.env.collect_relations().get(main)
    for key, name in zip(("parent", "prev", "next"), relations or (), strict=False):
        if key != "parent" and name:
            uri = app.builder.get_relative_uri(pagename, name)
            context[key] = {"link": uri, "title": app.env.titles[name].astext()}
