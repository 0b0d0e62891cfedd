"""The API reference: Sphinx directives that render entries of ``triton.json``.

A page groups names and may add text of its own::

    .. py:module:: triton.language

    .. api:: load

    .. api:: sort

       Sorts along the last dimension, with a bitonic network.

Several names may share an entry; a name without a docstring and without text is a warning.
``.. api-index::`` lists the names of its page, or of the pages below it. Links from the code of
tutorials and back are
sphinx-gallery's, with its ``doc_module`` and ``backreferences_dir``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from triton_site.kernels import api, docstrings
from triton_site.kernels.api import ApiError, Entry, Member

logger = logging.getLogger(__name__)

_RUNS = {
    "kernel": "call it in kernels",
    "host": "call it on the host",
    "both": "call it in kernels, on compile-time values, and on the host",
}
_BACKENDS = {"cuda": "NVIDIA", "hip": "AMD"}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("triton_api", "python-api/triton.json", "env", (str,))
    app.add_directive("api", ApiDirective)
    app.add_directive("api-index", IndexDirective)
    app.add_node(index_node)
    app.connect("builder-inited", _load, priority=600)  # sphinx-gallery generates at 500
    app.connect("doctree-resolved", _fill_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 4}


# --- what was read -------------------------------------------------------------------------------


@dataclass
class Reference:
    """All releases of the API, and the tutorials that use each name."""

    versions: list[str]  # oldest first
    uses: dict[str, list[tuple[str, str]]]  # document and title
    history: dict[str, dict[str, Entry]] = field(default_factory=dict)  # by name and release
    aliases: dict[str, list[str]] = field(default_factory=dict)  # other names of the same object

    def resolve(self, name: str) -> str | None:
        """The entry that ``dot``, ``tl.dot`` or ``triton.language.dot`` means."""
        bare = name.removeprefix("tl.").removeprefix("triton.language.").removeprefix("tensor.")
        for full in (name, f"triton.language.{bare}", f"triton.{bare}", f"triton.testing.{bare}"):
            if full in self.history and full not in ("triton", "triton.language"):
                return full
        return None


def _sources(env: BuildEnvironment) -> tuple[Path, Path]:
    """The file of the API, and the file of uses that :func:`_load` keeps."""
    return Path(env.srcdir, env.config.triton_api), Path(env.doctreedir, "triton-uses.json")


def reference_of(env: BuildEnvironment) -> Reference:
    """The reference of a build, read once for each state of its two files."""
    return _read(*((path, path.stat().st_mtime_ns) for path in _sources(env)))


@lru_cache(maxsize=2)
def _read(api_file: tuple[Path, int], uses_file: tuple[Path, int]) -> Reference:
    apis = api.load(api_file[0])
    made = Reference(list(apis), json.loads(uses_file[0].read_text(encoding="utf-8")))
    for version, entries in apis.items():
        for entry in entries:
            made.history.setdefault(entry.name, {})[version] = entry
            if entry.same_as:
                names = made.aliases.setdefault(entry.same_as, [])
                if entry.name not in names:
                    names.append(entry.name)
    return made


def _load(app: Sphinx) -> None:
    """Check the API, and keep sphinx-gallery's back-references in a file that pages depend on."""
    settings = getattr(app.config, "sphinx_gallery_conf", {})
    _name_decorators(Path(app.srcdir, folder) for folder in settings.get("gallery_dirs", ()))
    path = Path(app.srcdir, settings.get("backreferences_dir") or "", "backreferences_all.json")
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    places = {example[2] for examples in found.values() for example in examples}
    pages = {place: Path(os.path.relpath(place, app.srcdir)).as_posix() for place in places}
    uses = {
        name: sorted(
            {
                (f"{pages[place]}/{file.removesuffix('.py')}", title)
                for file, _, place, _, title in examples
            },
            key=lambda use: (use[0].count("/"), use[0]),
        )
        for name, examples in sorted(found.items())
    }
    text, kept = json.dumps(uses), _sources(app.env)[1]
    if not kept.is_file() or kept.read_text(encoding="utf-8") != text:
        kept.write_text(text, encoding="utf-8")
    try:
        reference_of(app.env)
    except (ApiError, OSError) as error:
        raise ExtensionError(str(error)) from error


def _name_decorators(folders: Iterator[Path]) -> None:
    """Let ``@triton.jit`` be a link: in sphinx-gallery's list the ``@`` belongs to the name."""
    for path in (path for folder in folders for path in folder.rglob("*.codeobj.json")):
        text = path.read_text(encoding="utf-8")
        if '"@' not in text:
            names = json.loads(text)
            decorators = {f"@{name}": meant for name, meant in names.items()}
            path.write_text(json.dumps(names | decorators), encoding="utf-8")


# --- an entry ------------------------------------------------------------------------------------


class ApiDirective(SphinxDirective):
    """``.. api:: NAME …``: the entry of a name, or of several that share their description."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"no-members": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Write the entry as reStructuredText of the Python domain."""
        self.reference = reference_of(self.env)
        module = self.env.ref_context.get("py:module", "")
        for path in _sources(self.env):
            self.env.note_dependency(str(path))
        found: list[tuple[str, Entry]] = []
        for name in self.arguments[0].split():
            full = name if name in self.reference.history else f"{module}.{name}"
            newest = next(reversed(self.reference.history.get(full, {}).items()), None)
            if newest is None:
                raise self.error(
                    f"no release of Triton in {self.config.triton_api} has the name {full}; "
                    "correct the name, or read the releases again with: make api"
                )
            found.append(newest)
        if not any(entry.doc for _, entry in found) and not self.content:
            logger.warning(
                "%s has no docstring; describe it in the content of the directive",
                found[0][1].name,
                location=self.get_location(),
            )
        result = self.parse_text_to_nodes("\n".join(self._lines(found)))
        self._note_aliases([entry for _, entry in found], result)
        return result

    def _lines(self, found: list[tuple[str, Entry]]) -> Iterator[str]:
        entry = found[0][1]
        if entry.kind == "module":
            yield from (f".. py:module:: {entry.name}", "")
            if around := self.env.ref_context.get("py:module"):
                yield from (f".. py:currentmodule:: {around}", "")
            yield from self._content(found)
            return
        module, _, name = entry.name.rpartition(".")
        default = "()" if entry.kind == "function" else ""
        signatures = [
            item.name.rpartition(".")[2] + (item.signature or default) * (item.kind != "data")
            for _, item in found
        ]
        yield from _described(entry.kind, signatures)
        yield f"   :module: {module}"
        if entry.kind == "data" and entry.value and entry.defined != "triton.language.core":
            yield f"   :value: {entry.value}"
        defined = f"{entry.defined}.{name}"
        if len(found) == 1 and entry.defined.startswith("triton.") and defined != entry.name:
            yield f"   :canonical: {defined}"
        yield ""
        yield from _indented(self._content(found))

    def _content(self, found: list[tuple[str, Entry]]) -> Iterator[str]:
        entries = [entry for _, entry in found]
        yield from (".. rst-class:: api-facts", "", self._facts(found), "")
        documented = next((entry for entry in entries if entry.doc), None)
        if documented:
            yield from self._docstring(documented)
        for entry in entries:
            yield from self._changes(entry, several=len(entries) > 1)
        for backend, maker in _BACKENDS.items():
            types = [
                f"``{overload.arguments} → {overload.result}``"
                for entry in entries
                for overload in entry.overloads
                if overload.backend == backend
            ]
            if types:
                yield f":{maker}: " + "; ".join(dict.fromkeys(types))
        yield ""
        if self.content:
            label = "Our note." if documented else "In our words; Triton has no docstring here."
            yield from (".. container:: api-ours", "", f"   *{label}*", "")
            yield from _indented(self.content)
            yield ""
        yield from self._uses(entries)
        if "no-members" not in self.options:
            yield from self._members(entries[0])

    def _facts(self, found: list[tuple[str, Entry]]) -> str:
        """Where a name can be called, its other names and its source, in a sentence."""
        version, entry = found[0]
        names = [item.name for _, item in found]
        aliases = [alias for name in names for alias in self.reference.aliases.get(name, [])]
        bases = [
            f":py:obj:`{base} <{full}>`" if (full := self.reference.resolve(base)) else base
            for base in entry.bases
            if not base.startswith("base_")
        ]
        facts = [
            _RUNS.get(entry.runs, ""),
            f"also a method, ``x.{entry.name.rpartition('.')[2]}(…)``" if entry.method else "",
            "also " + ", ".join(f"``{alias}``" for alias in aliases) if aliases else "",
            "a kind of " + ", ".join(bases) if bases else "",
            f"read from ``{entry.defined or entry.name.rpartition('.')[0]}``, Triton {version}",
        ]
        text = "; ".join(filter(None, facts))
        return f"{text[0].upper()}{text[1:]}."

    def _uses(self, entries: list[Entry]) -> Iterator[str]:
        names = [entry.name for entry in entries]
        names += [alias for name in names for alias in self.reference.aliases.get(name, [])]
        uses = {tuple(use) for name in names for use in self.reference.uses.get(name, [])}
        links = ", ".join(f":doc:`{title} </{docname}>`" for docname, title in sorted(uses))
        if links:
            yield from (".. rst-class:: api-facts", "", f"Used in {links}.", "")

    def _docstring(self, item: Entry | Member) -> list[str]:
        return [*docstrings.sound(item.doc, self.reference.resolve).split("\n"), ""]

    def _changes(self, entry: Entry, several: bool) -> Iterator[str]:
        """The releases that added, changed or removed a name; of *several*, the name is told."""
        subject = f"``{entry.name.rpartition('.')[2]}`` " if several else ""
        having = self.reference.history[entry.name]
        for before, version in pairwise(self.reference.versions):
            old, new = having.get(before), having.get(version)
            short = ".".join(version.split(".")[:2])
            if new and not old:
                yield from (f".. versionadded:: {short}", f"   {subject}", "")
            elif old and not new:
                yield from (f".. versionremoved:: {short}", f"   {subject}", "")
            elif old and new and old.signature != new.signature:
                yield f".. versionchanged:: {short}"
                yield f"   {subject}Before, the parameters were ``{old.signature or '()'}``."
                yield ""

    def _members(self, entry: Entry) -> Iterator[str]:
        """Members with a docstring one by one, then the others as a list of signatures."""
        rest = list(entry.members)
        if entry.name == "triton.language.tensor":
            names = [m.name for m in rest if f"triton.language.{m.name}" in self.reference.history]
            links = ", ".join(f":py:obj:`{name} <triton.language.{name}>`" for name in names)
            yield from ([f"Functions that are also methods: {links}.", ""] if names else [])
            rest = [member for member in rest if member.name not in names]
        for member in (member for member in rest if member.doc):
            yield from (*_described(member.kind, [member.name + member.signature]), "")
            yield from _indented(self._docstring(member))
        for kind in ("property", "method"):
            silent = [m.name + m.signature for m in rest if m.kind == kind and not m.doc]
            yield from ([*_described(kind, silent), ""] if silent else [])

    def _note_aliases(self, entries: list[Entry], result: list[nodes.Node]) -> None:
        """Let references by every public name of an object lead to its entry."""
        domain: Any = self.env.domains["py"]
        place = next((node for node in result if isinstance(node, addnodes.desc)), None)
        for entry in entries if place else ():
            for alias in self.reference.aliases.get(entry.name, []):
                if alias not in domain.objects:
                    domain.note_object(alias, entry.kind, entry.name, aliased=True, location=place)


def _described(kind: str, signatures: list[str]) -> list[str]:
    """The head of a directive of the Python domain for several signatures."""
    marker = f".. py:{kind}:: "
    return (marker + f"\n{' ' * len(marker)}".join(signatures)).split("\n")


def _indented(lines: Any) -> Iterator[str]:
    return (f"   {line}" if line else "" for line in lines)


# --- lists of names ------------------------------------------------------------------------------


class index_node(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes like this
    """The place of the list of names until all pages have been read."""


class IndexDirective(SphinxDirective):
    """``.. api-index::``: the names on this page, by section, or those on the pages below it."""

    def run(self) -> list[nodes.Node]:
        """Leave a place; the names are known when the pages have been read."""
        return [index_node()]


def _fill_index(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for place in list(doctree.findall(index_node)):
        rows = list(_own_names(doctree))
        classes = ["api-index"]
        if not rows:
            rows = list(_names_below(app, docname))
            classes.append("api-index-pages")
        place.replace_self(nodes.container("", *rows, classes=classes))


def _own_names(doctree: nodes.document) -> Iterator[nodes.paragraph]:
    """A line for each section that has entries."""
    for section in doctree.findall(nodes.section):
        ids = [
            signature["ids"][0]
            for description in section.children
            if isinstance(description, addnodes.desc)
            for signature in description.children
            if isinstance(signature, addnodes.desc_signature)
        ]
        if ids:
            row = nodes.paragraph("", "", nodes.strong("", f"{_short(section)}: "))
            row += [part for name in ids for part in _link(name, refid=name)]
            yield row


def _names_below(app: Sphinx, docname: str) -> Iterator[nodes.paragraph]:
    """A line for each page below *docname*, with the ids that its entries once had on this page.

    ``site.js`` leads from such an id to the entry.
    """
    objects: Any = app.env.domains["py"].data["objects"]
    for page in app.env.toctree_includes.get(docname, []):
        uri = app.builder.get_relative_uri(docname, page)
        own = {n: item for n, item in objects.items() if item.docname == page and not item.aliased}
        classes = [name for name, item in own.items() if item.objtype == "class"]
        title = nodes.strong("", _short(nodes.Element("", app.env.titles[page])))
        row = nodes.paragraph("", "", ids=[page.rpartition("/")[2]])
        row += [nodes.reference("", "", title, internal=True, refuri=uri), nodes.Text(" ")]
        for name, item in own.items():
            if name.rpartition(".")[0] not in classes:
                inside = [own[n].node_id for n in own if n.startswith(f"{name}.")]
                ids = [item.node_id, *(inside if name in classes else ())]
                row += _link(name, refuri=f"{uri}#{item.node_id}", ids=ids)
        yield row


def _short(section: nodes.Element) -> str:
    """The title of a section without the module before a colon."""
    return section[0].astext().rpartition(": ")[2]


def _link(name: str, **target: Any) -> list[nodes.Node]:
    """A link to an entry, and a space."""
    text = nodes.literal("", name.rpartition(".")[2])
    return [nodes.reference("", "", text, internal=True, **target), nodes.Text(" ")]
