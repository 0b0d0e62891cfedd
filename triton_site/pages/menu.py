"""The menu beside each page: of bounded size, and written once for each folder of pages.

The theme has Sphinx resolve the whole tree of contents anew for each page, and puts a link to every
tutorial into every page: time and bytes grow with the square of the tutorials. Here the tree is
read once, an entry is written once for each folder of pages, and of a list with more than
:data:`WINDOW` pages those around the current one are shown, with a link to the page that lists all.
The markup is the theme's: links in nested lists, for which the keyboard needs no script.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.domains.std import StandardDomain
from sphinx.util import url_re

#: As many pages of one list as are shown at a time.
WINDOW = 10

_NO_PAGES: list[Any] = []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    menus: dict[str, Menu] = {}  # at most one: that of the tree as it is when pages are written

    def forget(app: Sphinx, builder: object) -> None:
        menus.clear()

    def replace(
        app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
    ) -> None:
        original = context["toctree"]

        def toctree(**options: Any) -> str:
            if not options.get("collapse", True):  # everything is asked for, on every page
                return original(**options)
            if not menus:
                menus["html"] = Menu(app.builder)
            depth = int(options.get("maxdepth") or -1)
            titles_only = bool(options.get("titles_only", False))
            hidden = bool(options.get("includehidden", False))
            return menus["html"].of(pagename, depth, titles_only, hidden)

        context["toctree"] = toctree

    app.connect("write-started", forget)
    app.connect("html-page-context", replace)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


@dataclass(eq=False)
class Entry:
    """A link of the menu and what is below it.

    Attributes:
        docname: the document that it leads to, or empty.
        address: where it leads, seen from the site's root; with the anchor of a section.
        title: its text, as HTML.
        is_section: whether it leads to a part of a document.
        find_below: gives its sections, and the pages of its toctrees; most menus do not ask.
    """

    docname: str
    address: str
    title: str
    is_section: bool = False
    find_below: Callable[[], list[Entry | addnodes.toctree]] = list

    @cached_property
    def below(self) -> list[Entry | addnodes.toctree]:
        """Its sections, and the pages of its toctrees."""
        return self.find_below()


class Menu:
    """The menus of all pages of one build."""

    def __init__(self, builder: StandaloneHTMLBuilder) -> None:
        """Take the tree of contents as it is now."""
        self._builder, self._env = builder, builder.env
        self._roots = list(self._env.master_doctree.findall(addnodes.toctree))
        self._parents = {
            child: parent
            for parent, children in sorted(self._env.toctree_includes.items())
            for child in children
        }
        self._documents: dict[str, Entry | None] = {}
        self._lists: dict[int, list[Entry]] = {}
        self._places: dict[int, dict[str, int]] = {}
        self._links: dict[tuple[str, int, int], str] = {}

    def of(self, pagename: str, depth: int, titles_only: bool, hidden: bool) -> str:
        """The menu on the page *pagename*: *depth* lists deep, with or without sections.

        Toctrees that their own pages do not show are in it where *hidden* says so.
        """
        page = _Page(self, pagename, depth, titles_only, hidden)
        return "".join(page.root(node) for node in self._roots)

    # --- the tree, read once ---

    def ancestors(self, docname: str) -> list[str]:
        """The document and those above it, upwards."""
        found: list[str] = []
        while docname and docname not in found:
            found.append(docname)
            docname = self._parents.get(docname, "")
        return found

    def pages_of(self, node: addnodes.toctree) -> list[Entry]:
        """The entries of a toctree."""
        if id(node) not in self._lists:
            made = (self._entry(title, target, node) for title, target in node["entries"])
            self._lists[id(node)] = [entry for entry in made if entry]
        return self._lists[id(node)]

    def place(self, pages: list[Entry], docnames: list[str]) -> int | None:
        """Where in *pages* one of the documents *docnames* is."""
        if id(pages) not in self._places:
            self._places[id(pages)] = {entry.docname: n for n, entry in enumerate(pages)}
        places = self._places[id(pages)]
        return next((places[name] for name in docnames if name in places), None)

    def _entry(self, title: str | None, target: str, node: addnodes.toctree) -> Entry | None:
        """What a line of a toctree stands for; nothing where it is no page."""
        if url_re.match(target):
            return Entry("", target, _text(title or target))
        if target in StandardDomain._virtual_doc_names:
            name, words = StandardDomain._virtual_doc_names[target]
            return Entry(name, self._builder.get_target_uri(name), _text(title or words))
        name = node["parent"] if target == "self" else target
        found = self._document(name)
        if found and (title or target == "self"):
            below = list if target == "self" else found.find_below
            return Entry(name, found.address, _text(title) if title else found.title, False, below)
        return found

    def _document(self, docname: str) -> Entry | None:
        if docname not in self._documents:
            toc = self._env.tocs.get(docname)
            items = list(self._items(toc.children, docname)) if toc is not None else []
            first = items[0] if items else None
            if isinstance(first, Entry):
                # The title of a page is its first section; what follows is below it.
                first.is_section = False
                find, rest = first.find_below, items[1:]
                first.find_below = lambda: [*find(), *rest]
                self._documents[docname] = first
            else:
                self._documents[docname] = None
        return self._documents[docname]

    def _items(
        self, children: Iterable[nodes.Node], docname: str
    ) -> Iterator[Entry | addnodes.toctree]:
        for node in children:
            if isinstance(node, addnodes.toctree):
                yield node
            elif isinstance(node, addnodes.only):
                if self._builder.tags.eval_condition(node["expr"]):
                    yield from self._items(node.children, docname)
            elif isinstance(node, nodes.bullet_list):
                yield from self._items(node.children, docname)
            elif isinstance(node, nodes.list_item):
                link = next(node.findall(nodes.reference))
                address = self._builder.get_target_uri(docname) + link["anchorname"]
                find = partial(self._items, node.children[1:], docname)
                yield Entry(docname, address, self._title(link), True, lambda find=find: [*find()])

    def _title(self, link: nodes.reference) -> str:
        if all(isinstance(child, nodes.Text) for child in link.children):
            return _text(link.astext())
        inline = nodes.inline("", "", *(child.deepcopy() for child in link.children))
        html = self._builder.render_partial(inline)["fragment"].strip()
        return html.removeprefix("<span>").removesuffix("</span>")

    # --- its entries, written once for each folder of pages ---

    def link(self, base: str, entry: Entry, level: int) -> str:
        """An entry with nothing open below it, on pages in the folder of *base*."""
        key = (posixpath.dirname(base), id(entry), level)
        if key not in self._links:
            self._links[key] = _item(level, _anchor(relative(base, entry.address), entry.title))
        return self._links[key]


class _Page:
    """The menu of one page."""

    def __init__(
        self, menu: Menu, pagename: str, depth: int, titles_only: bool, hidden: bool
    ) -> None:
        self.menu, self.depth, self.titles_only, self.hidden = menu, depth, titles_only, hidden
        self.pagename = pagename
        self.base = menu._builder.get_target_uri(pagename)
        self.branch = menu.ancestors(pagename)

    def root(self, node: addnodes.toctree) -> str:
        """A toctree of the front page, under its caption."""
        if not self._pages_of(node):
            return ""
        caption = node.get("caption")
        head = (
            '<p class="caption" role="heading">'
            f'<span class="caption-text">{_text(caption)}</span></p>\n'
            if caption
            else ""
        )
        front = self.menu._env.config.root_doc
        return head + self._list([node], 1, self.menu._document(front))

    def _pages_of(self, node: addnodes.toctree) -> list[Entry]:
        return self.menu.pages_of(node) if self.hidden or not node.get("hidden") else _NO_PAGES

    def _list(self, items: list[Entry | addnodes.toctree], level: int, above: Entry | None) -> str:
        """The sections and pages *items*, which are below the entry *above*."""
        parts, current = [], False
        for item in items:
            if isinstance(item, Entry):
                if self.titles_only:
                    parts += [self._pages(node, level, above) for node in _toctrees(item)]
                else:
                    parts.append(self._entry(item, level))
                current = current or self._leads_to_page(item)
            else:
                parts.append(self._pages(item, level, above))
                place = self.menu.place(self._pages_of(item), self.branch)
                current = current or place is not None
        html = "".join(parts)
        kind = ' class="current"' if current else ""
        return f"<ul{kind}>\n{html}</ul>\n" if html else ""

    def _pages(self, node: addnodes.toctree, level: int, above: Entry | None) -> str:
        """The pages of a toctree, those around the current one where they are many."""
        pages = self._pages_of(node)
        shown, place = pages, self.menu.place(pages, self.branch)
        if len(pages) > WINDOW:
            first = min(max((place or 0) - WINDOW // 2, 0), len(pages) - WINDOW)
            shown = pages[first : first + WINDOW]
        html = "".join(self._entry(entry, level) for entry in shown)
        if len(pages) > WINDOW and above:
            address = relative(self.base, above.address)
            html += _item(level, _anchor(address, f"All {len(pages)}"), " menu-all")
        return html

    def _entry(self, entry: Entry, level: int) -> str:
        if entry.docname == self.pagename:
            anchor = entry.address.partition("#")[2] if entry.is_section else ""
            link = _anchor(f"#{anchor}", entry.title, "" if entry.is_section else "current ")
            current = " current" * (not entry.is_section)
        elif self._leads_to_page(entry):
            link = _anchor(relative(self.base, entry.address), entry.title)
            current = " current"
        else:
            return self.menu.link(self.base, entry, level)
        below = ""
        if entry.below and (self.depth < 1 or level < self.depth):
            below = self._list(entry.below, level + 1, entry)
        return _item(level, link + below, current)

    def _leads_to_page(self, entry: Entry) -> bool:
        """Whether the page is *entry* or below it."""
        if not entry.is_section:
            return entry.docname in self.branch
        return any(
            self.menu.place(self._pages_of(node), self.branch) is not None
            for node in _toctrees(entry)
        )


def relative(base: str, address: str) -> str:
    """The *address* as a page at *base* writes it; both are seen from the site's root."""
    if url_re.match(address):
        return address
    path, hash_, anchor = address.partition("#")
    if path == base:
        return f"#{anchor}"
    made = posixpath.relpath(path or ".", posixpath.dirname(base) or ".")
    return made + "/" * (path.endswith("/") or not path) + hash_ + anchor


def _toctrees(entry: Entry) -> Iterator[addnodes.toctree]:
    for item in entry.below:
        if isinstance(item, addnodes.toctree):
            yield item
        elif item.is_section:
            yield from _toctrees(item)


def _item(level: int, html: str, classes: str = "") -> str:
    return f'<li class="toctree-l{level}{classes}">{html}</li>\n'


def _anchor(address: str, title: str, kind: str = "") -> str:
    place = "external" if url_re.match(address) else "internal"
    return f'<a class="{kind}reference {place}" href="{escape(address)}">{title}</a>'


def _text(text: str) -> str:
    return escape(text, quote=False).replace('"', "&quot;")
