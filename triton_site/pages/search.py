"""Search by section: the words of every section, which the bar's search and its page use.

Sphinx's own index leads to pages. This one leads to sections, entries of the API reference, terms
of the glossary, and the entries of lists, such as error messages. ``_static/search-index.js`` holds
them, without code but the names and the errors in it, and with ``words.toml``: readers load at most
150 kB before they see a result. ``docs/_static/search.js`` ranks them with MiniSearch in the
reader's browser, also from ``file://``. Sphinx keeps the sections of a page in its environment, so
a second build finds what a first one would.
"""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import snowballstemmer
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment
from sphinx.util import docname_join, logging

from gallery_recorder.api import domain_of, downloads
from triton_site.pages.folds import Fold

logger = logging.getLogger(__name__)

#: Pages of lists alone, which are not searched.
_NOT_SEARCHED = re.compile(r"/recordings-|^recordings$|^claims$|^genindex")
#: A build of fewer pages is one of a part of the site.
_FEW = 100
#: The words that lead to others.
WORDS = Path(__file__).with_name("words.toml")
#: Characters of a section's prose that are kept as they are, of an entry of the API reference, of
#: one for one kind of device, and of the names in a section's code.
_MOST, _MOST_OF_ENTRY, _MOST_OF_DEVICE, _MOST_OF_CODE = 380, 200, 60, 150
#: The share of sections above which a word says little of a section whose beginning lacks it.
_COMMON = 0.05
#: A link to a page, or to a label, whose titles are known when all pages have been read.
_DOC, _LABEL = "\ue001", "\ue002"  # for private use
_LINK = re.compile(f"([{_DOC}{_LABEL}])([^{_DOC}{_LABEL}]*)[{_DOC}{_LABEL}]")
#: A path or the name of a file, which no excerpt shows.
_FILE = re.compile(r"\S*/\S*|\S+\.(?:py|csv|json|js|toml|rst|html|md|txt|sh)")
#: A line that tells of an error, and a name that is one in code alone.
_ERROR = re.compile(
    r"\b\w*(?:Error|Exception|OutOfResources)\b.*|.*\b(?:must be|cannot|invalid)\b.*"
)
_NAME = re.compile(r"[A-Za-z]\w*(?:_\w+)+|[A-Z][A-Z0-9]{2,}\w*|\w+\.\w+[\w.]*")
#: The classes of the lines under a title, and of the downloads at the end of a page.
_LEFT_OUT = {"api-facts", "sphx-glr-footer", "gallery-data", "gallery-provenance", "gallery-chips"}


class Section(NamedTuple):
    """A search result: what is shown of it, and the words that it is found by.

    ``rest`` are the words of its text that ``prose``, the beginning of the text, does not have.
    """

    title: str
    anchor: str
    kind: str
    prose: str
    code: str
    terms: str
    rest: str = ""


class SearchDomain(Domain):
    """The sections of each page."""

    name = "sections"
    label = "Search by section"
    data_version = 13
    initial_data: ClassVar[dict[str, dict[str, list[Section]]]] = {"pages": {}}

    def process_doc(self, env: BuildEnvironment, docname: str, document: nodes.document) -> None:
        """Collect the sections of a page that was read."""
        del env
        self.data["pages"][docname] = list(_sections(document, docname))

    def clear_doc(self, docname: str) -> None:
        """Forget a page."""
        self.data["pages"].pop(docname, None)

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Take the pages that another process has read."""
        self.data["pages"] |= {name: otherdata["pages"][name] for name in docnames}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_domain(SearchDomain)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write(app: Sphinx, error: Exception | None) -> None:
    """Write the file that the search loads, without pages marked ``:nosearch:`` and twins."""
    if error or app.builder.format != "html":
        return
    own = domain_of(app.env).pages
    words = tomllib.loads(WORDS.read_text(encoding="utf-8"))
    pages = []
    for docname, sections in sorted(app.env.domaindata[SearchDomain.name]["pages"].items()):
        view = docname in own and own[docname].view
        hidden = _NOT_SEARCHED.search(docname) or "nosearch" in app.env.metadata[docname]
        if sections and not view and not hidden:
            address, title = app.builder.get_target_uri(docname), sections[0].title
            asked = words["asked"].pop(docname, {})
            sections = [_with_terms(s, asked.pop(s.anchor, [])) for s in sections]
            if asked:
                logger.warning("%s: %s has no section %s", WORDS.name, docname, ", ".join(asked))
            pages.append([address, title, _kind(docname), sections])
    if words["asked"] and len(pages) > _FEW:
        logger.warning("%s: there is no page %s", WORDS.name, ", ".join(words["asked"]))
    _leave_common_words(pages)
    phrases = {**words["phrases"]}
    phrases |= {f.lower(): ours for ours, them in words["languages"].items() for f in them}
    data = {"pages": pages, "phrases": phrases}
    data |= {name: words[name] for name in ("synonyms", "whole", "fillers")}
    for *_, sections in pages:
        sections[:] = [[s.title, _place(s), *s[2:]] for s in sections]
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    text = f"window.galleryIndex = {with_titles(app.env, text)};\n"
    downloads.write(Path(app.outdir, "_static", "search-index.js"), text.encode())


def with_titles(env: BuildEnvironment, text: str) -> str:
    """The JSON *text* with the titles that its links show."""
    labels = env.domaindata["std"]["labels"]
    return _LINK.sub(lambda m: _title(env, labels, m[1], m[2]), text)


def _place(section: Section) -> str | int:
    """The anchor of a *section*: 0 if it is the title, 1 if it is made of the title."""
    if section.anchor == section.title:
        return 0
    slug = re.sub("[^a-z0-9]+", "-", section.title.lower()).strip("-")
    return 1 if section.anchor == slug else section.anchor


def _leave_common_words(pages: list[list[Any]]) -> None:
    """Leave numbers, and words that many sections of *pages* have, out of the words of a rest.

    Of the words with one stem, which the search takes for one, one is kept.
    """
    stem = functools.cache(snowballstemmer.stemmer("english").stemWord)
    texts = [f"{s.title} {s.prose} {s.terms} {s.rest}" for *_, sections in pages for s in sections]
    count = Counter(word for text in texts for word in set(re.findall(r"[\w.]+", text.lower())))
    for page in pages:
        for number, section in enumerate(page[-1]):
            told = f"{section.title} {section.prose} {section.terms}".lower()
            seen = {stem(word) for word in re.findall(r"\w+", told)}
            rest = {stem(word): word for word in section.rest.split()}
            kept = sorted(
                word
                for key, word in rest.items()
                if key not in seen
                and count[word] <= _COMMON * len(texts)
                and not re.fullmatch(r"[\d.]+", word)
            )
            page[-1][number] = section._replace(rest=" ".join(kept))


def _with_terms(section: Section, asked: list[str]) -> Section:
    """The *section* with the words that readers type for it."""
    return section._replace(terms="; ".join([section.terms, *asked]).strip("; "))


def _title(env: BuildEnvironment, labels: dict[str, Any], kind: str, target: str) -> str:
    """The title that a link shows, for JSON."""
    title = labels.get(target, ("", "", ""))[2]
    if kind == _DOC:
        title = env.titles[target].astext() if target in env.titles else ""
    return json.dumps(title, ensure_ascii=False)[1:-1]


def _kind(docname: str) -> str:
    """What a page is, for readers."""
    if "/solutions/" in docname:
        return "exercise"
    if "chapter-7/" in docname:
        return "question"
    kinds = {"getting-started/tutorials/": "lesson", "getting-started/": "setup"}
    kinds |= {"programming-guide/": "guide", "python-api/": "API", "glossary": "glossary"}
    return next((kind for start, kind in kinds.items() if docname.startswith(start)), "page")


def _sections(document: nodes.document, docname: str) -> Iterator[Section]:
    """Every section of a page and every entry and term in it, each with its own text only."""
    for section in document.findall(nodes.section):
        kind = "page" if section.parent is document else "section"
        anchor = "" if kind == "page" else section["ids"][0]
        yield _cut_section(section[0].astext(), anchor, kind, *_text(section.children[1:]))
    for signature in document.findall(addnodes.desc_signature):
        if signature["ids"] and isinstance(signature.parent.parent, nodes.section):
            name = signature["ids"][0]
            prose, code, terms = _text(signature.parent.children[-1:])
            most = _MOST_OF_DEVICE if docname.endswith(".extra") else _MOST_OF_ENTRY
            kept = _cut(prose, most)
            names = dict.fromkeys(re.findall(r"\w*[0-9_]\w*", prose[len(kept) :]))
            title = name.removeprefix("confval-")  # the setting's own name
            yield Section(title, name, "entry", kept, code, terms, _cut(" ".join(names), most))
    for item in document.findall(nodes.definition_list_item):
        term = item[0]
        of_glossary = isinstance(item.parent.parent, addnodes.glossary)
        if not of_glossary and not _is_entry(item, docname):
            continue
        if not term["ids"]:
            _name(term, document)
        kind = "term" if of_glossary else "entry"
        yield _cut_section(term.astext(), term["ids"][0], kind, *_text(item.children[1:]))


def _name(term: nodes.Element, document: nodes.document) -> None:
    """Give a *term* an id by which links lead to it."""
    name = start = nodes.make_id(term.astext())[:60].rstrip("-") or "entry"
    number = 1
    while name in document.ids:
        number += 1
        name = f"{start}-{number}"
    term["ids"].append(name)
    document.ids[name] = term


def _cut_section(title: str, anchor: str, kind: str, prose: str, code: str, terms: str) -> Section:
    """A section with the beginning of its *prose*, and each other word once."""
    kept = _cut(prose, _MOST)
    seen = set(re.findall(r"\w+", kept.lower()))
    others = re.findall(r"[\w.]{3,}", prose[len(kept) :].lower())
    rest = dict.fromkeys(word.strip(".") for word in others if word not in seen)
    return Section(title, anchor, kind, kept, code, terms, " ".join(rest))


def _is_entry(item: nodes.Element, docname: str) -> bool:
    """Whether *item* of a list is looked up by itself: it belongs to a page of the guide."""
    has_entries = docname.startswith(("getting-started/installation", "programming-guide/"))
    own = isinstance(item.parent.parent, nodes.section)
    return has_entries and own and len(item[0].astext()) < 200


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most].rpartition(" ")[0]


def _text(children: list[nodes.Node]) -> tuple[str, str, str]:
    """Prose, names in code and bold text below some nodes, without what has its own section."""
    parts: tuple[list[str], list[str], list[str]] = ([], [], [])
    prose, code, bold = parts
    waiting = list(reversed(children))
    while waiting:
        node = waiting.pop()
        if isinstance(node, nodes.math_block):
            prose.append("…")
        if isinstance(node, _OTHERS):
            continue
        if isinstance(node, nodes.Element) and not _LEFT_OUT.isdisjoint(node.get("classes", ())):
            continue
        if isinstance(node, nodes.literal_block):
            code.append(node.astext())
        elif isinstance(node, nodes.TextElement) and not isinstance(node, nodes.Invisible):
            prose.append(_words(node))
            bold += [part.astext() for part in node.findall(nodes.strong)]
        else:
            waiting += reversed(node.children)
    told = " ".join(" ".join(prose).split())
    return told, _names(code, told), " ".join(" ".join(bold).split())


#: Nodes with sections of their own, formulas, and what is not shown.
_OTHERS = (nodes.section, addnodes.desc, addnodes.glossary, nodes.raw, nodes.math_block, Fold)


def _words(node: nodes.Element) -> str:
    """The text of *node* without addresses, paths and names of files; a formula is an ellipsis."""
    if isinstance(node, nodes.math):
        return node.astext() if node.astext().isalnum() else "…"
    if isinstance(node, addnodes.pending_xref) and not node["refexplicit"]:
        if node["reftype"] == "doc":
            return f"{_DOC}{docname_join(node['refdoc'], node['reftarget'])}{_DOC}"
        if node["reftype"] == "ref":
            return f"{_LABEL}{node['reftarget'].lower()}{_LABEL}"
    if isinstance(node, nodes.reference) and "://" in node.astext():
        return ""
    if isinstance(node, nodes.literal) and _FILE.fullmatch(node.astext()):
        return ""
    parts = (_words(c) if isinstance(c, nodes.Element) else c.astext() for c in node.children)
    return "".join(parts)


def _names(blocks: list[str], prose: str) -> str:
    """The errors in code and output, and the names that *prose* does not have."""
    text = "\n".join(blocks)
    errors = dict.fromkeys(_cut(line.strip(), 160) for line in _ERROR.findall(text))
    known = set(re.findall(r"[\w.]+", prose))
    names = dict.fromkeys(name for name in _NAME.findall(text) if name not in known)
    return _cut(" ".join([*list(errors)[:6], *names]), _MOST_OF_CODE)
