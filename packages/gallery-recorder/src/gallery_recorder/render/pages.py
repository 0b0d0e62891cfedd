"""The line about the recording under a page's title, and the pages that list recordings.

Each gallery has a page of recordings for each device and variant, beside the pages of examples.
``.. gallery-recordings::`` lists these pages of recordings.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from docutils import nodes
from docutils.statemachine import StringList
from docutils.utils import column_width
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gallery_recorder import seam
from gallery_recorder.project import needs
from gallery_recorder.render import files, labels
from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.downloads import write
from gallery_recorder.render.markup import escaped
from gallery_recorder.render.selection import ListedRecording, Page, Selection
from gallery_recorder.store.format import Recording


def setup(app: Sphinx) -> None:
    """Register the directive and the events."""
    app.add_directive("gallery-recordings", RecordingsDirective)
    app.add_node(ProvenanceLine, latex=(_skip, _skip))
    app.add_node(Details, html=(_open, _close))
    app.connect("doctree-read", _add_provenance)
    app.connect("doctree-read", _leave_out, priority=400)  # before Sphinx notes parents


class ProvenanceLine(nodes.Admonition, nodes.paragraph):
    """A paragraph about the page; descriptions and previews of the page leave it out."""


class Details(nodes.container):
    """Content that a reader opens by its ``summary``."""


def _open(translator: Any, node: Details) -> None:
    translator.body.append(f"<details><summary>{translator.encode(node['summary'])}</summary>\n")


def _close(translator: Any, node: Details) -> None:
    del node
    translator.body.append("</details>\n")


def _skip(translator: Any, node: nodes.Node) -> None:
    raise nodes.SkipNode  # its links lead nowhere in a book


def _add_provenance(app: Sphinx, doctree: nodes.document) -> None:
    """Say under the page's title where its outputs come from, or that it has none."""
    page = domain_of(app.env).pages.get(app.env.docname)
    title = next(doctree.findall(nodes.title), None)
    if page and title:
        title.parent[1:1] = list(_provenance(app, page))
        for block in list(doctree.findall(nodes.literal_block)):
            if not block.astext().strip():  # it contained only settings
                block.parent.remove(block)


def _provenance(app: Sphinx, page: Page) -> Iterator[nodes.Node]:
    if page.later:
        why, _, detail = page.later.text.partition("\n")
        when = f"The current code was executed on {labels.readable_date(page.later.recorded)}. "
        banner = _banner(when + why)
        banner += nodes.literal_block(detail, detail, language="none") if detail else []
        yield banner
    if page.shown is None:
        text = "No recording matches the current code, so this page shows no outputs."
        if needed := needs.in_words(page.script):
            text = f"This example needs {needed}. {text}"
        yield _banner(text)
        return
    made = page.recording
    facts = labels.facts_of(app, made)
    record = _reference(page.docname, "ref", page.shown.label, "full record")
    yield _line(nodes.Text(f"Recorded {_summary(made, facts)} · "), record)
    if page.is_stale:
        commit = f", from commit {made.provenance.commit[:12]}" if made.provenance.commit else ""
        yield _banner(
            f"Out of date: {plain(page.why_stale)}. The outputs were recorded before, on "
            f"{plain(made.provenance.device)} on {labels.readable_date(made.run.recorded)}"
            f"{plain(commit)}."
        )
    elif not made.timed and made.run.status == "passed":
        yield _banner(
            "The outputs show what the code computes, not how fast it is. No recording with times "
            "matches the current code."
        )
    others = [domain_of(app.env).pages[page.main]] if page.view else page.views
    links: list[nodes.Node] = []
    for other in others:
        assert other.shown is not None
        there = _reference(page.docname, "doc", f"/{other.docname}", other.shown.place)
        links += [nodes.Text(", "), there]
    if links:
        text = "Reference recording: " if page.view else "Also recorded: "
        yield _line(nodes.Text(text), *links[1:])


def _line(*parts: nodes.Node) -> ProvenanceLine:
    return ProvenanceLine("", "", *parts, classes=["gallery-provenance"])


def _banner(text: str) -> nodes.Element:
    return nodes.warning("", nodes.paragraph("", text), classes=["gallery-banner"])


def _summary(made: Recording, facts: list[labels.Fact]) -> str:
    """Device, facts of the project, date, time and measured facts in one line."""
    said = {fact.name: fact.line for fact in facts}
    parts = [said.get("Device") or f"on {made.provenance.device}"]
    parts += [fact.line for fact in facts if not fact.measured and fact.name != "Device"]
    parts.append(labels.readable_date(made.run.recorded))
    if made.timed:
        parts.append(labels.readable_seconds(made.run.seconds))
        parts += [fact.line for fact in facts if fact.measured]
    return plain(" · ".join(filter(None, parts)))


def _reference(docname: str, kind: str, target: str, text: str) -> addnodes.pending_xref:
    """A link from *docname* to a label or, of the *kind* ``doc``, to a page."""
    to = {"refdomain": "std", "reftype": kind, "reftarget": target, "refdoc": docname}
    return addnodes.pending_xref("", nodes.inline("", text), refexplicit=True, **to)


def listings(made: Selection) -> dict[str, list[ListedRecording]]:
    """The pages of recordings, one for each gallery, device and variant, by document."""
    found: dict[str, list[ListedRecording]] = {}
    for item in made.recordings:
        folder = item.page.removesuffix(f"/{item.location.name}")
        place = item.location.place.replace("/", "-")
        docname = f"{folder}/recordings-{place}"
        while docname in made.pages:  # an example has this name
            docname += "-list"
        found.setdefault(docname, []).append(item)
    return dict(sorted(found.items()))


#: The content of a page of recordings.
_TABLE = ".. gallery-recordings:: here"


def write_sources(app: Sphinx, made: Selection) -> None:
    """Write the sources of the pages of recordings, and remove sources without recordings.

    A source changes with the recordings on its page, so Sphinx reads it again.
    """
    written = set()
    for docname, items in listings(made).items():
        title = escaped(f"Recordings of {items[0].location.gallery} on {items[0].place}")
        listed = files.digest(f"{item.label} {item.digest} {item.state}" for item in items)
        lines = [":orphan:", ":nosearch:", "", title, "=" * column_width(title), ""]
        lines += [_TABLE, "", f".. recorded: {listed}"]
        path = Path(app.srcdir, f"{docname}.rst")
        write(path, "\n".join([*lines, ""]).encode())
        written.add(path)
    for _, gallery in seam.galleries(app):
        for path in {*Path(app.srcdir, gallery).glob("recordings-*.rst")} - written:
            # Another page may have such a name.
            if f"\n{_TABLE}\n" in path.read_text(encoding="utf-8", errors="replace"):
                path.unlink()


def _leave_out(app: Sphinx, doctree: nodes.document) -> None:
    """Keep generated pages out of a toctree that lists all files of a folder."""
    made = domain_of(app.env).selection
    for toctree in doctree.findall(addnodes.toctree):
        if toctree["glob"]:
            ours = {*listings(made), *(page.docname for page in made.pages.values() if page.view)}
            toctree["entries"] = [entry for entry in toctree["entries"] if entry[1] not in ours]
            toctree["includefiles"] = [n for n in toctree["includefiles"] if n not in ours]


class RecordingsDirective(SphinxDirective):
    """``.. gallery-recordings::`` links to the pages of recordings, which use it themselves."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make nodes, not markup: a recording's text must not be parsed."""
        domain = domain_of(self.env)
        found = listings(domain.selection)
        if self.arguments:  # on a page of recordings, whose source changes with them
            return [self._table(found.get(self.env.docname, []))]
        domain.depends("recordings")
        if not found:
            return [nodes.paragraph("", "There are no recordings yet.")]
        toctree = [".. toctree::", "   :maxdepth: 1", "   :titlesonly:", ""]
        toctree += [f"   /{docname}" for docname in found]
        parsed = nodes.Element()
        self.state.nested_parse(StringList(toctree, source=""), 0, parsed)
        return parsed.children

    def _table(self, items: list[ListedRecording]) -> nodes.table:
        """A row for each recording, and one below it that opens to its full record."""
        told = [self._told(item) for item in items]
        columns = list(dict.fromkeys(name for row, _ in told for name in row))
        head = nodes.row("", *(_entry(nodes.Text(plain(name))) for name in columns))
        body = nodes.tbody()
        for item, (row, record) in zip(items, told, strict=True):
            texts = (nodes.Text(plain(row.get(name, ""))) for name in columns[1:])
            page = _reference(self.env.docname, "doc", f"/{item.page}", item.location.name)
            details = Details("", self._fields(item, record), summary="Full record")
            whole = nodes.entry("", details, morecols=len(columns) - 1)
            body += [nodes.row("", *map(_entry, (page, *texts))), nodes.row("", whole)]
        widths = [nodes.colspec(colwidth=20)] * len(columns)
        group = nodes.tgroup("", *widths, nodes.thead("", head), body, cols=len(columns))
        return nodes.table("", group, classes=["gallery-recordings", "colwidths-auto"])

    def _told(self, item: ListedRecording) -> tuple[dict[str, str], dict[str, str]]:
        """The columns of a recording, and its full record."""
        made = item.content
        facts = labels.facts_of(seam.app_of(self.env), made)
        record = record_of(made, facts) | {"State": item.state}
        row = {"Script": item.location.name}
        shown = (fact for fact in facts if fact.line and not fact.measured)
        row |= {fact.name: fact.text for fact in shown if fact.name != "Device"}
        row["Recorded"] = labels.readable_date(made.run.recorded)
        row |= {name: record[name] for name in ("Time", "State")}
        return row | {"Commit": (made.provenance.commit or "")[:12]}, record

    def _fields(self, item: ListedRecording, record: dict[str, str]) -> nodes.field_list:
        """The full record of *item*, to which its page links."""
        fields = nodes.field_list(names=[nodes.fully_normalize_name(item.label)])
        for name, value in record.items():
            if value:
                body = nodes.field_body("", nodes.paragraph("", plain(value)))
                fields += nodes.field("", nodes.field_name("", plain(name)), body)
        self.state.document.note_explicit_target(fields, fields)
        return fields


def _entry(content: nodes.Node) -> nodes.entry:
    return nodes.entry("", nodes.paragraph("", "", content))


def plain(value: object) -> str:
    """*value* as one line of visible characters."""
    line = " ".join(str(value).split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def record_of(made: Recording, facts: list[labels.Fact]) -> dict[str, str]:
    """The provenance and the run; the project's facts replace fields of the same name."""
    where = msgspec.to_builtins(made.provenance)
    fields = {_NAMES.get(name, name.capitalize()): _text(value) for name, value in where.items()}
    fields |= {fact.name: fact.text for fact in facts}
    memory = made.run.peak_host_memory
    imported = made.inputs.versions if made.inputs else {}
    return fields | {
        "Recorded": made.run.recorded,
        "Time": labels.readable_seconds(made.run.seconds) if made.timed else "not timed",
        "Peak host memory": labels.readable_bytes(memory) if memory else "",
        "Imported": ", ".join(f"{name} {version}" for name, version in imported.items()),
        "Key of the code": made.key,
        "Files": ", ".join(made.files),
    }


_NAMES = {"os": "Operating system", "gpu": "GPU", "before": "GPU before", "after": "GPU after"}
_UNITS = {"temperature": "°C", "power": "W"}
_UNITS |= dict.fromkeys(("sm_clock", "memory_clock"), "MHz")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        known = {name: _text(item) for name, item in value.items() if item}
        if value.get("memory"):
            known["memory"] = labels.readable_bytes(value["memory"])
        texts = (f"{name} {text} {_UNITS.get(name, '')}" for name, text in known.items())
        return ", ".join(text.strip() for text in texts)
    return "; ".join(value) if isinstance(value, list) else str(value or "")
