"""The switch: a page as it was recorded on another device, or with another release of Triton.

Below the title of each page of a tutorial stands a choice of all devices and releases of the site,
which a script brings to life. What a page has otherwise on another of them is beside it, in a file
for each, ``01-vector-add.nvidia-h200-triton-3.6.0.js``, that the browser fetches when it is chosen;
a script and not JSON, so that it works from a file as well. It holds, for the sections that differ,
which elements are exchanged and for what.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Set
from difflib import SequenceMatcher
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment

from gallery_recorder.render import others
from gallery_recorder.render.domain import domain_of
from triton_site.numbers import claims, recorded

#: Elements that have no end.
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"}
_VOID |= {"track", "wbr"}

#: A comment, an element whose content is no HTML, or a tag; its attributes may hold a ``>``.
_TAG = re.compile(
    r"<!--.*?-->|<(?P<raw>script|style)\b.*?</(?P=raw)\s*>|<(?P<end>/?)(?P<tag>[a-z][^\s/>]*)"
    r"""(?P<rest>[^"'>]*(?:"[^"]*"[^"'>]*|'[^']*'[^"'>]*)*)>""",
    re.DOTALL | re.IGNORECASE,
)
_ID = re.compile(r'(?<![\w-])id="([^"]*)"')

#: What the switch stands below: the line that says where a page was recorded, or the title.
_LINES = (
    re.compile(r'<p class="gallery-provenance[^"]*">.*?</p>\n', re.DOTALL),
    re.compile("</h1>\n"),
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_domain(SwitchDomain)
    app.connect("env-get-outdated", _outdated_pages)
    app.connect("html-page-context", _add_switch, priority=600)  # after the links
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class SwitchDomain(Domain):
    """Where the site's tutorials were recorded: in this build, and in the one before."""

    name = "switch"
    label = "Switch"
    initial_data: ClassVar[dict[str, dict[str, str]]] = {"places": {}}

    @cached_property
    def places(self) -> dict[str, str]:
        """Each place with its name; the reference comes first."""
        items = recorded.of_build(self.env)
        order = claims.in_order((item.device, item.release) for item in items)
        found = {(item.device, item.release): item.place for item in items}
        return {found[device, release]: f"{device}, Triton {release}" for device, release in order}

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Nothing is learned from reading a page."""


def _domain_of(env: BuildEnvironment) -> SwitchDomain:
    domain = env.domains[SwitchDomain.name]
    assert isinstance(domain, SwitchDomain)
    return domain


class Exchange(NamedTuple):
    """In a section, the elements from one to before another, and the HTML that replaces them."""

    section: str
    first: int
    end: int
    html: str


class Element(NamedTuple):
    """An element: what it is known by, its HTML, and the elements in it where it is a section."""

    key: str
    html: str
    children: list[Element]


def _add_switch(
    app: Sphinx,
    pagename: str,
    template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    del template
    if doctree is None or len(places := _domain_of(app.env).places) < 2:
        return
    page = domain_of(app.env).pages.get(pagename)
    if page is not None and page.recorded is not None and page.recorded.timed:
        shown = page.recorded.location.place
        bodies = {
            view.recorded.location.place: body
            for view, body in others.bodies(app, pagename)
            if view.recorded
        }
    else:
        shown, bodies = next(iter(places)), _drawn(context["body"], doctree)
        if not bodies:
            return
    drawn = {place for place, body in bodies.items() if body == context["body"]}
    bodies = {place: body for place, body in bodies.items() if place not in drawn}
    stem = Path(pagename).name
    files = {place: f"{stem}.{place.replace('/', '-')}.js" for place in bodies}
    switch = _switch(places, shown, files, drawn)
    context["body"] = _with_switch(context["body"], switch)
    folder = Path(app.outdir, pagename).parent
    for path in folder.glob(f"{glob.escape(stem)}.*.js"):
        if path.name not in files.values():
            path.unlink()
    for place, body in bodies.items():
        found = exchanges(context["body"], _with_switch(body, switch))
        made = {"exchanges": found, "notebook": _notebook(body, pagename)}
        text = f"galleryView({json.dumps(place)}, {_encoded(made)});\n"
        _write(folder / files[place], text)


def _drawn(body: str, doctree: nodes.document) -> dict[str, str]:
    """By place, the body of a page that has charts with ``views`` for other places."""
    found: dict[str, str] = {}
    for chart in doctree.findall(nodes.raw):
        for place, other in chart.get("views", {}).items():
            found[place] = found.get(place, body).replace(chart.astext(), other)
    return found


def _outdated_pages(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """The pages of all tutorials are made again when there is a place more, or less."""
    del app, added, changed, removed
    domain = _domain_of(env)
    before, domain.data["places"] = domain.data["places"], domain.places
    return list(domain_of(env).pages) if before != domain.places else []


def _switch(places: dict[str, str], shown: str, files: dict[str, str], drawn: set[str]) -> str:
    """The switch of a page that shows the place *shown*; the *files* have the others.

    What is *drawn* is on the page whatever is chosen.
    """
    options = []
    for place, name in places.items():
        said, attributes = name, ""
        if place == shown:
            attributes = " selected data-shown"
        elif place in files:
            attributes = f' data-file="{escape(files[place])}"'
        elif place not in drawn:
            said, attributes = f"{name} (this page was not recorded there)", " disabled"
        options.append(f'<option value="{escape(place)}"{attributes}>{escape(said)}</option>')
    return (
        '<div class="gallery-switch" hidden><label for="gallery-device">Show what was recorded on'
        f'</label> <select id="gallery-device">{"".join(options)}</select> '
        '<span role="status"></span></div>\n'
    )


def _with_switch(body: str, switch: str) -> str:
    line = next(filter(None, (pattern.search(body) for pattern in _LINES)))
    return body[: line.end()] + switch + body[line.end() :]


def _notebook(body: str, pagename: str) -> str:
    """Where the notebook to download lies, below ``_downloads``."""
    name = re.escape(f"{Path(pagename).name}.ipynb")
    found = re.search(rf'_downloads/(\w+/{name})"', body)
    return found[1] if found else ""


def _encoded(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


# --- what differs ---------------------------------------------------------------------------------


def exchanges(shown: str, other: str) -> list[Exchange]:
    """What makes the HTML *other* of *shown*, section by section."""
    return list(_exchanges("", elements(shown), elements(other)))


def _exchanges(section: str, shown: list[Element], other: list[Element]) -> Iterator[Exchange]:
    matcher = SequenceMatcher(None, [e.key for e in shown], [e.key for e in other], autojunk=False)
    for what, i, end, j, stop in matcher.get_opcodes():
        if what != "equal":
            yield Exchange(section, i, end, "".join(e.html for e in other[j:stop]))
            continue
        for one, two in zip(shown[i:end], other[j:stop], strict=True):
            if one.html != two.html:
                yield from _exchanges(one.key.removeprefix("#"), one.children, two.children)


def elements(html: str) -> list[Element]:
    """The elements of *html*; sections are known by their name, others by all that they are.

    A page has some ten thousand tags, of which a regular expression finds the places; a parser
    that reads all their attributes takes five times as long.
    """
    found: list[Element] = []
    opened = [("", 0, "#", found)]
    for match in _TAG.finditer(html):
        tag, rest = (match["tag"] or "").lower(), match["rest"] or ""
        if match["end"]:
            if opened[-1][0] != tag:
                continue
        elif tag or match["raw"]:
            name = _ID.search(rest) if tag == "section" else None
            opened.append((tag, match.start(), f"#{name[1]}" if name else "", []))
            if tag and tag not in _VOID and not rest.endswith("/"):
                continue
        else:
            continue  # a comment
        _, start, key, children = opened.pop()
        if opened[-1][2]:
            text = html[start : match.end()]
            opened[-1][3].append(Element(key or text, text, children))
    return found
