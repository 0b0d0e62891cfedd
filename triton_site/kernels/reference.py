"""The Sphinx extension that renders the API reference of Triton out of ``triton.json``.

A page groups names and may add words of ours::

    .. py:module:: triton.language

    .. api:: load

    .. api:: sort

       Sorts along the last dimension, with a bitonic network.

The signature, the docstring, the versions that have the name and the tutorials that use it come
by themselves. What stands below the directive is shown as ours. A name without a docstring and
without words of ours is a warning. Several names may share an entry. ``.. api-index::`` lists the
names of its page by section, and ``.. api-versions::`` the versions that were read.

Neither Triton nor PyTorch is imported. Links into the entries from the code of tutorials, and
back, are sphinx-gallery's: set ``doc_module`` and ``backreferences_dir`` in its configuration.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from triton_site.kernels import api, docstrings
from triton_site.kernels.api import ApiError, Entry

logger = logging.getLogger(__name__)

_RUNS = {
    "kernel": "call it in kernels",
    "host": "call it on the host",
    "both": "call it in kernels, on compile-time values, and on the host",
}
_BACKENDS = {"cuda": "NVIDIA", "hip": "AMD"}


@dataclass
class Reference:
    """All versions of the API, and which tutorials use which name."""

    path: Path = Path()
    versions: list[str] = field(default_factory=list)
    history: dict[str, dict[str, Entry]] = field(default_factory=dict)
    aliases: dict[str, list[str]] = field(default_factory=dict)
    uses: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def load(self, path: Path) -> None:
        """Read every version in *path*.

        Raises:
            ApiError: the file is damaged, or there is none.
        """
        self.path = path
        apis = api.load(path)
        self.versions = [item.triton for item in apis]
        self.history, self.aliases = {}, {}
        for item in apis:
            for entry in item.entries:
                self.history.setdefault(entry.name, {})[item.triton] = entry
                if entry.same_as:
                    names = self.aliases.setdefault(entry.same_as, [])
                    if entry.name not in names:
                        names.append(entry.name)

    def newest(self, name: str) -> tuple[str, Entry] | None:
        """The newest version that has *name*, and what it says of it."""
        return next(reversed(self.history.get(name, {}).items()), None)

    def resolve(self, name: str) -> str | None:
        """The entry that ``dot``, ``tl.dot`` or ``triton.language.dot`` means."""
        bare = name.removeprefix("tl.").removeprefix("triton.language.").removeprefix("tensor.")
        for full in (name, f"triton.language.{bare}", f"triton.{bare}", f"triton.testing.{bare}"):
            if full in self.history and full not in ("triton", "triton.language"):
                return full
        return None


class ReferenceDomain(Domain):
    """Hands what was read to the directives; keeps what pages were made of it."""

    name = "triton-reference"
    label = "Reference of Triton"
    initial_data: ClassVar[dict[str, str]] = {"state": ""}

    def __init__(self, env: BuildEnvironment) -> None:
        super().__init__(env)
        self.reference = Reference()

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Nothing to do: what was read is the same in every process."""


def _reference(env: BuildEnvironment) -> Reference:
    domain = env.domains[ReferenceDomain.name]
    assert isinstance(domain, ReferenceDomain)
    return domain.reference


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("triton_api", "python-api/triton.json", "env", (str,))
    app.add_domain(ReferenceDomain)
    app.add_directive("api", ApiDirective)
    app.add_directive("api-versions", VersionsDirective)
    app.add_directive("api-index", IndexDirective)
    app.add_node(index_node)
    app.connect("builder-inited", _name_decorators, priority=600)  # sphinx-gallery generates at 500
    app.connect("builder-inited", _load, priority=600)
    app.connect("env-get-outdated", _outdated)
    app.connect("doctree-read", _fill_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "2"}


def _load(app: Sphinx) -> None:
    """Read the API, and sphinx-gallery's back-references, which it has written by now."""
    reference = _reference(app.env)
    try:
        reference.load(Path(app.srcdir, app.config.triton_api))
    except ApiError as error:
        raise ExtensionError(str(error)) from error
    folder = getattr(app.config, "sphinx_gallery_conf", {}).get("backreferences_dir")
    path = Path(app.srcdir, folder, "backreferences_all.json") if folder else None
    if path and path.is_file():
        for name, examples in json.loads(path.read_text(encoding="utf-8")).items():
            reference.uses[name] = sorted(
                {
                    (
                        f"{Path(os.path.relpath(target, app.srcdir)).as_posix()}/{Path(file).stem}",
                        title,
                    )
                    for file, _, target, _, title in examples
                },
                key=lambda use: (use[0].count("/"), use[0]),
            )


def _name_decorators(app: Sphinx) -> None:
    """Let ``@triton.jit`` be a link too.

    sphinx-gallery looks up names as they are highlighted, and there the sign belongs to the name.
    """
    for folder in getattr(app.config, "sphinx_gallery_conf", {}).get("gallery_dirs", ()):
        for path in Path(app.srcdir, folder).rglob("*.codeobj.json"):
            names = json.loads(path.read_text(encoding="utf-8"))
            decorators = {f"@{name}": names[name] for name in names if f"@{name}" not in names}
            if decorators and not any(name.startswith("@") for name in names):
                path.write_text(json.dumps(names | decorators), encoding="utf-8")


def _outdated(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Pages with entries are read again when versions or the uses of names change."""
    del app, added, changed, removed
    reference = _reference(env)
    made_of = json.dumps([reference.versions, reference.uses], sort_keys=True)
    state = hashlib.sha256(made_of.encode()).hexdigest()
    data = env.domaindata[ReferenceDomain.name]
    known, data["state"] = data["state"], state
    if known == state:
        return []
    return [
        docname
        for docname in env.found_docs
        if ".. api::" in env.doc2path(docname).read_text(encoding="utf-8")
    ]


# --- an entry ------------------------------------------------------------------------------------


class ApiDirective(SphinxDirective):
    """``.. api:: NAME …``: the entry of a name, or of several that share their description."""

    required_arguments = 1
    optional_arguments = 0
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"no-members": directives.flag}

    @property
    def reference(self) -> Reference:
        """What was read of Triton."""
        return _reference(self.env)

    def run(self) -> list[nodes.Node]:
        """Write the entry as reStructuredText, so that the Python domain treats it as its own."""
        module = self.env.ref_context.get("py:module", "")
        self.env.note_dependency(str(self.reference.path))
        found: list[tuple[str, Entry]] = []
        for name in self.arguments[0].split():
            full = name if name in self.reference.history else f"{module}.{name}"
            item = self.reference.newest(full)
            if item is None:
                raise self.error(
                    f"no version of Triton in {self.reference.path} has the name {full}; "
                    "correct it, or read the versions again with: make api"
                )
            found.append(item)
        if not any(entry.doc for _, entry in found) and not self.content:
            logger.warning(
                "%s has no docstring; say in the directive's content what is known of it",
                found[0][1].name,
                location=self.get_location(),
            )
        text = "\n".join(self._lines(found))
        result = self.parse_text_to_nodes(text)
        self._note_aliases(found, result)
        return result

    def _lines(self, found: list[tuple[str, Entry]]) -> list[str]:
        entry = found[0][1]
        if entry.kind == "module":
            around = self.env.ref_context.get("py:module")
            back = [f".. py:currentmodule:: {around}", ""] if around else []
            return [f".. py:module:: {entry.name}", "", *back, *self._content(found)]
        kind = entry.kind
        module, _, _ = entry.name.rpartition(".")
        marker = f".. py:{kind}:: "
        signatures = [
            item.name.rpartition(".")[2]
            + (
                ""
                if item.kind == "data"
                else item.signature or ("()" if kind == "function" else "")
            )
            for _, item in found
        ]
        lines = [marker + f"\n{' ' * len(marker)}".join(signatures), f"   :module: {module}"]
        if entry.kind == "data" and entry.value and entry.defined != "triton.language.core":
            lines.append(f"   :value: {entry.value}")
        name = entry.name.rpartition(".")[2]
        defined = f"{entry.defined}.{name}"
        if len(found) == 1 and entry.defined.startswith("triton.") and defined != entry.name:
            lines.append(f"   :canonical: {defined}")
        return [*lines, "", *(f"   {line}" if line else "" for line in self._content(found))]

    def _content(self, found: list[tuple[str, Entry]]) -> list[str]:
        entry = found[0][1]
        lines = [".. rst-class:: api-facts", "", self._facts(found), ""]
        documented = [item for _, item in found if item.doc]
        for item in documented[:1]:
            lines += self._docstring(item.doc)
        lines += self._history(found)
        lines += self._overloads(found)
        if self.content:
            label = "Our note." if documented else "In our words; Triton has no docstring here."
            lines += [".. container:: api-ours", "", f"   *{label}*", ""]
            lines += [
                *(f"   {line}" if line else "" for line in self.content),
                "",
            ]
        if "no-members" not in self.options:
            lines += self._members(entry)
        return lines

    def _facts(self, found: list[tuple[str, Entry]]) -> str:
        """Where it can be called, other ways to call it, where it was read from, who uses it."""
        version, entry = found[0]
        facts = []
        if entry.runs:
            facts.append(_RUNS[entry.runs])
        if entry.method:
            facts.append(f"also a method, ``x.{entry.name.rpartition('.')[2]}(…)``")
        aliases = [name for _, item in found for name in self.reference.aliases.get(item.name, [])]
        if aliases:
            facts.append("also " + ", ".join(f"``{name}``" for name in aliases))
        if entry.bases:
            facts.append(
                "a kind of "
                + ", ".join(
                    f":py:obj:`{base} <{full}>`" if (full := self.reference.resolve(base)) else base
                    for base in entry.bases
                    if not base.startswith("base_")
                )
            )
        facts = [fact for fact in facts if fact != "a kind of "]
        source = entry.defined or entry.name.rpartition(".")[0]
        facts.append(f"read from ``{source}``, Triton {version}")
        uses = sorted({use for _, item in found for use in self._uses(item.name)})
        text = "; ".join(facts)
        text = f"{text[0].upper()}{text[1:]}."
        if uses:
            links = ", ".join(f":doc:`{title} </{docname}>`" for docname, title in uses)
            text += f" Used in {links}."
        return text

    def _uses(self, name: str) -> list[tuple[str, str]]:
        names = [name, *self.reference.aliases.get(name, [])]
        return [use for name in names for use in self.reference.uses.get(name, [])]

    def _docstring(self, text: str) -> list[str]:
        parsed = docstrings.parse(text, self.reference.resolve)
        lines = [*parsed.body.split("\n"), ""]
        for note in parsed.notes:
            lines += [*note.split("\n"), ""]
        if parsed.parameters:
            lines += [":Parameters:"]
            for item in parsed.parameters:
                kind = f" ({item.type})" if item.type else ""
                first, *rest = item.text.split("\n")
                text = f" – {first}" if first else ""
                lines.append(f"   * **{_escape(item.name)}**{kind}{text}")
                lines += [f"     {line}".rstrip() for line in rest]
        if parsed.returns.text or parsed.returns.type:
            parts = (parsed.returns.text, parsed.returns.type)
            lines.append(":Returns: " + " – ".join(filter(None, parts)))
        return [*lines, ""]

    def _history(self, found: list[tuple[str, Entry]]) -> list[str]:
        """In which of the versions that were read the name is new, changed or gone."""
        versions = self.reference.versions
        lines: list[str] = []
        for _, entry in found:
            subject = f"``{entry.name.rpartition('.')[2]}``" if len(found) > 1 else ""
            having = self.reference.history[entry.name]
            first = next(iter(having))
            if first != versions[0]:
                lines += [
                    f".. versionadded:: {_short(first)}",
                    f"   {subject}" if subject else "",
                    "",
                ]
            previous = None
            for version in versions:
                item = having.get(version)
                if previous and item and item.signature != previous.signature:
                    lines += [
                        f".. versionchanged:: {_short(version)}",
                        f"   {subject} Before, the parameters were".replace("  ", " ")
                        + f" ``{previous.signature or '()'}``.",
                        "",
                    ]
                if previous and not item:
                    lines += [f".. versionremoved:: {_short(version)}", f"   {subject}", ""]
                previous = item
        return lines

    def _overloads(self, found: list[tuple[str, Entry]]) -> list[str]:
        """The types that each back end has a function for."""
        by_backend: dict[str, dict[str, None]] = {}
        for _, entry in found:
            for overload in entry.overloads:
                text = f"{overload.arguments} → {overload.result}"
                by_backend.setdefault(overload.backend, {})[text] = None
        if not by_backend:
            return []
        lines = [
            f":{_BACKENDS[backend]}: " + "; ".join(f"``{text}``" for text in texts)
            for backend, texts in by_backend.items()
        ]
        return [*lines, ""]

    def _members(self, entry: Entry) -> list[str]:
        """Methods with a docstring one by one; others, and those that are functions, in brief."""
        functions = [
            member.name
            for member in entry.members
            if entry.name == "triton.language.tensor"
            and f"triton.language.{member.name}" in self.reference.history
        ]
        rest = [member for member in entry.members if member.name not in functions]
        lines: list[str] = []
        if functions:
            links = ", ".join(f":py:obj:`{name} <triton.language.{name}>`" for name in functions)
            lines += [f"Functions that are also methods: {links}.", ""]
        for member in (member for member in rest if member.doc):
            lines += [f".. py:{member.kind}:: {member.name}{member.signature}", ""]
            lines += [f"   {line}" if line else "" for line in self._docstring(member.doc)]
        for kind in ("property", "method"):
            silent = [member for member in rest if member.kind == kind and not member.doc]
            if silent:
                marker = f".. py:{kind}:: "
                separator = f"\n{' ' * len(marker)}"
                lines += [marker + separator.join(m.name + m.signature for m in silent), ""]
        return lines

    def _note_aliases(self, found: list[tuple[str, Entry]], result: list[nodes.Node]) -> None:
        """Let references by every public name of an object lead to its entry."""
        domain = self.env.domains["py"]
        descriptions = [node for node in result if isinstance(node, addnodes.desc)]
        for _, entry in found:
            for alias in self.reference.aliases.get(entry.name, []):
                if alias not in domain.objects and descriptions:  # type: ignore[attr-defined]
                    domain.note_object(  # type: ignore[attr-defined]
                        alias, entry.kind, entry.name, aliased=True, location=descriptions[0]
                    )


def _short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _escape(text: str) -> str:
    return text.replace("*", r"\*").replace("_", r"\_")


# --- what a page has besides ---------------------------------------------------------------------


class VersionsDirective(SphinxDirective):
    """``.. api-versions::``: the sentence that says which versions were read."""

    def run(self) -> list[nodes.Node]:
        """Name the newest version, and those it is compared with."""
        *older, newest = _reference(self.env).versions
        text = f"Read from Triton {newest}, and compared with {', '.join(older)}."
        return self.parse_text_to_nodes(text if older else f"Read from Triton {newest}.")


class index_node(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes like this
    """Stands for the list of names until the page has been read."""


class IndexDirective(SphinxDirective):
    """``.. api-index::``: the names on this page, by section."""

    def run(self) -> list[nodes.Node]:
        """Leave a place; the names are known when the page has been read."""
        return [index_node()]


def _fill_index(app: Sphinx, doctree: nodes.document) -> None:
    for place in list(doctree.findall(index_node)):
        rows = []
        for section in doctree.findall(nodes.section):
            signatures = [
                signature
                for description in section.children
                if isinstance(description, addnodes.desc)
                for signature in description.findall(addnodes.desc_signature)
                if signature.parent is description
            ]
            if signatures:
                row = nodes.paragraph("", "", nodes.strong("", f"{section[0].astext()}: "))
                for signature in signatures:
                    name = signature["ids"][0].rpartition(".")[2]
                    link = nodes.reference("", "", nodes.literal("", name), internal=True)
                    link["refid"] = signature["ids"][0]
                    row += [link, nodes.Text(" ")]
                rows.append(row)
        place.replace_self(nodes.container("", *rows, classes=["api-index"]))
