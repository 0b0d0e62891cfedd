"""What a page says about its recording: the line under the title, and the pages of recordings.

Each gallery has a page of recordings for each device, with at most :data:`MOST` of them; they are
made beside the gallery's own pages. ``.. gallery-recordings::`` lists these pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from docutils.utils import column_width
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from gallery_recorder import seam
from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.labels import Fact, facts_of
from gallery_recorder.render.selection import ListedRecording, Selection
from gallery_recorder.render.units import readable_bytes, readable_date, readable_seconds
from gallery_recorder.store.format import GpuFacts, GpuState, Provenance, Recording

#: As many recordings as one page of them has.
MOST = 50


def setup(app: Sphinx) -> None:
    """Register the directive and the events."""
    app.add_directive("gallery-recordings", RecordingsDirective)
    paragraph = (
        lambda translator, node: translator.visit_paragraph(node),
        lambda translator, node: translator.depart_paragraph(node),
    )
    app.add_node(ProvenanceLine, html=paragraph, latex=paragraph, text=paragraph, man=paragraph)
    app.connect("doctree-read", _add_provenance)
    app.connect("doctree-read", _leave_out, priority=400)  # before Sphinx notes who lists whom
    app.connect("missing-reference", _leave_text)


# --- on each tutorial's page ------------------------------------------------------------------


class ProvenanceLine(nodes.Admonition, nodes.paragraph):
    """A paragraph about the page, not of it: descriptions and previews leave it out."""


def _add_provenance(app: Sphinx, doctree: nodes.document) -> None:
    """Put under the page's title where its outputs are from, or that it has none."""
    docname = app.env.docname
    page = domain_of(app.env).pages.get(docname)
    title = next(doctree.findall(nodes.title), None)
    if page is None or title is None:
        return
    if page.recorded is None:
        text = "No recording belongs to the current code. The page has no outputs."
        if page.needs:
            needs = " and ".join(page.needs)
            text = f"This script needs a GPU with {needs}, and n{text[1:]}"
        _insert_below(title, [_banner(text)])
        return
    made = page.recording
    facts = facts_of(app, made)
    line = ProvenanceLine(classes=["gallery-provenance"])
    line += nodes.Text(f"Recorded {summary(made, facts)} · ")
    line += _reference(docname, "ref", page.recorded.label, "full record")
    added: list[nodes.Node] = [line]
    if not made.timed:
        device = next((fact.text for fact in facts if fact.name == "Device"), "")
        text = (
            f"The outputs on this page come from {device or made.provenance.device}, because no "
            "recording with times belongs to the current code. They show what the code computes, "
            "not how fast it is: nothing was timed."
        )
        added.append(_banner(plain(text)))
    _insert_below(title, added)


def _banner(text: str) -> nodes.Node:
    return nodes.warning("", nodes.paragraph("", text), classes=["gallery-banner"])


def _insert_below(title: nodes.Node, added: list[nodes.Node]) -> None:
    parent = title.parent
    parent[parent.index(title) + 1 : parent.index(title) + 1] = added


def summary(made: Recording, facts: Sequence[Fact] = ()) -> str:
    """Device, what the project says, date, time and memory in one line."""
    said = {fact.name: fact.line for fact in facts}
    parts = [said.get("Device") or f"on {made.provenance.device}"]
    parts += [fact.line for fact in facts if not fact.measured and fact.name != "Device"]
    parts.append(readable_date(made.run.recorded))
    if made.timed:
        parts.append(readable_seconds(made.run.seconds))
        parts += [fact.line for fact in facts if fact.measured]
    return plain(" · ".join(filter(None, parts)))


def _reference(docname: str, kind: str, target: str, text: str) -> addnodes.pending_xref:
    """A link from *docname* to a label or, of the *kind* ``doc``, to a page."""
    return addnodes.pending_xref(
        "",
        nodes.inline("", text),
        refdomain="std",
        reftype=kind,
        reftarget=target,
        refexplicit=kind == "ref",
        refwarn=kind == "doc",
        refdoc=docname,
    )


def _leave_text(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Node
) -> nodes.Node | None:
    """Without a *Recordings* page, the line under the title just has no link."""
    del app, env
    return text if node["reftarget"].startswith("recording-") else None


# --- the pages of recordings ----------------------------------------------------------------------


class Listing(NamedTuple):
    """A page of recordings: its document and title, and those that are on it."""

    docname: str
    title: str
    items: list[ListedRecording]


def listings(made: Selection) -> list[Listing]:
    """The pages of recordings: for each gallery and device, of :data:`MOST` recordings each."""
    groups: dict[tuple[str, str, str], list[ListedRecording]] = {}
    for item in made.recordings:
        if item.pages:  # the gallery is there
            key = (item.pages, item.location.place, item.location.gallery)
            groups.setdefault(key, []).append(item)
    found = []
    for (pages, place, gallery), items in groups.items():
        for number, first in enumerate(range(0, len(items), MOST), 1):
            name = f"{pages}/recordings-{place.replace('/', '-')}"
            title = f"Recordings of {gallery} on {plain(items[0].device)}"
            if items[0].location.variant:
                title += f", {items[0].location.variant}"
            if number > 1:
                name, title = f"{name}-{number}", f"{title}, {number}"
            found.append(Listing(name, title, items[first : first + MOST]))
    return found


def write_sources(app: Sphinx, made: Selection) -> None:
    """Write the sources of the pages of recordings, and remove those of no recordings.

    A source changes when a recording on its page does, and so Sphinx reads it again.
    """
    written = set()
    for listing in listings(made):
        path = Path(app.srcdir, f"{listing.docname}.rst")
        lines = [f".. {item.label} {item.digest} {item.state}" for item in listing.items]
        head = [":orphan:", "", listing.title, "=" * column_width(listing.title), ""]
        text = "\n".join([*head, ".. gallery-recordings:: here", "", *lines, ""])
        if not (path.is_file() and path.read_text(encoding="utf-8") == text):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        written.add(path)
    for folder in {path.parent for path in written} | {
        Path(app.srcdir, page.pages) for page in made.pages.values()
    }:
        for path in folder.glob("recordings-*.rst"):
            if path not in written:
                path.unlink()


def _leave_out(app: Sphinx, doctree: nodes.document) -> None:
    """A toctree of whatever there is lists no pages of recordings, which nobody put there."""
    for toctree in doctree.findall(addnodes.toctree):
        if toctree["glob"]:
            ours = {listing.docname for listing in listings(domain_of(app.env).selection)}
            entries = [entry for entry in toctree["entries"] if entry[1] not in ours]
            files = [name for name in toctree["includefiles"] if name not in ours]
            toctree["entries"], toctree["includefiles"] = entries, files


class RecordingsDirective(SphinxDirective):
    """``.. gallery-recordings::``: a table of the pages of recordings, which have the rest."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make it of nodes: what a recording says is text, whatever characters it has."""
        domain = domain_of(self.env)
        found = listings(domain.selection)
        if self.arguments:  # its source changes with its recordings
            here = [listing for listing in found if listing.docname == self.env.docname]
            return self._recordings(here[0].items) if here else []
        domain.depends("recordings")
        if not found:
            return [nodes.paragraph("", "There are no recordings yet.")]
        toctree = [".. toctree::", "   :hidden:", "   :maxdepth: 1", "   :titlesonly:", ""]
        toctree += [f"   /{listing.docname}" for listing in found]
        return [self._overview(found), *self.parse_text_to_nodes("\n".join(toctree))]

    def _overview(self, found: list[Listing]) -> nodes.table:
        rows = []
        for listing in found:
            dates = [item.recorded[:10] for item in listing.items]
            span = dates[0] if len({*dates}) == 1 else f"{min(dates)} to {max(dates)}"
            shown = sum(item.shown for item in listing.items)
            link = _reference(self.env.docname, "doc", f"/{listing.docname}", listing.title)
            cells = (span, str(len(listing.items)), str(shown))
            rows.append([link, *map(nodes.Text, cells)])
        return _table(("Page", "Recorded", "Recordings", "Shown"), rows)

    def _recordings(self, items: list[ListedRecording]) -> list[nodes.Node]:
        """A table of recordings, and each whole."""
        app, docname = seam.app_of(self.env), self.env.docname
        contents = [(item, item.content) for item in items]
        told = [(item, made, facts_of(app, made)) for item, made in contents]
        said = [fact for _, _, facts in told for fact in facts if fact.column]
        columns = list(dict.fromkeys((fact.column, fact.measured) for fact in said))
        before = [column for column, measured in columns if not measured]
        after = [column for column, measured in columns if measured]
        rows = []
        for item, made, facts in told:
            texts = {fact.column: plain(fact.text) for fact in facts}
            took = readable_seconds(made.run.seconds) if made.timed else "not timed"
            cells = [item.recorded[:10], *(texts.get(column) or "–" for column in before)]
            cells += [took, *(texts.get(column) or "–" for column in after), item.state]
            link: nodes.Node = nodes.Text(item.name)
            if item.shown:
                link = _reference(docname, "doc", f"/{item.page}", item.name)
            record = _reference(docname, "ref", item.label, plain(item.device))
            rows.append([link, record, *map(nodes.Text, cells)])
        head = ("Script", "Device", "Date", *before, "Time", *after, "State")
        return [_table(head, rows), *(self._section(*one) for one in told)]

    def _section(self, item: ListedRecording, made: Recording, facts: list[Fact]) -> nodes.section:
        name = nodes.fully_normalize_name(item.label)
        heading = nodes.title("", f"{_title(item)}: {plain(item.device)}")
        section = nodes.section("", heading, names=[name])
        fields = nodes.field_list()
        for field, value in _fields(made, facts):
            if value:
                body = nodes.field_body("", nodes.paragraph("", plain(value)))
                fields += nodes.field("", nodes.field_name("", plain(field)), body)
        section += fields
        self.state.document.note_explicit_target(section, section)
        return section


def _title(item: ListedRecording) -> str:
    """A script's title; sphinx-gallery has taken its markup away, but for backslashes."""
    return re.sub(r"\\(.)", r"\1", plain(item.title))


def plain(value: object) -> str:
    """*value* as one line of text that can be seen, character by character."""
    line = " ".join(str(value).split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def _table(head: Sequence[str], rows: Sequence[Sequence[nodes.Node]]) -> nodes.table:
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _row([*map(nodes.Text, head)]))
    group += nodes.tbody("", *(_row(row) for row in rows))
    return nodes.table("", group, classes=["colwidths-auto"])


def _row(cells: Sequence[nodes.Node]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))


def _fields(made: Recording, facts: list[Fact]) -> list[tuple[str, str]]:
    where, run = made.provenance, made.run
    environment = sorted(where.environment.items())
    said = [(fact.name, fact.text) for fact in facts if not fact.measured and fact.name != "Device"]
    names = {name.lower() for name, _ in said}
    versions = [(n, v) for n, v in sorted(where.versions.items()) if n.lower() not in names]
    return [
        ("Device", _device(where)),
        ("Driver", (where.gpu.driver if where.gpu else None) or ""),
        *said,
        *versions,
        ("Python", where.python),
        ("Operating system", where.os),
        ("Environment", ", ".join(f"{name}={value}" for name, value in environment)),
        ("Commit", where.commit or ""),
        ("Recorded", run.recorded.replace("T", " ").replace("Z", " UTC")),
        ("Time", readable_seconds(run.seconds) if made.timed else "not timed"),
        *((fact.name, fact.text) for fact in facts if fact.measured),
        ("Peak host memory", readable_bytes(run.peak_host_memory) if run.peak_host_memory else ""),
        ("GPU before", _gpu_state(where.before)),
        ("GPU after", _gpu_state(where.after)),
        ("Key of the code", made.key),
        ("Files", ", ".join(made.files)),
    ]


def _device(where: Provenance) -> str:
    gpu = where.gpu or GpuFacts()
    memory = readable_bytes(gpu.memory) if gpu.memory else ""
    parts = (
        (where.device, where.device),
        (gpu.compute_capability, f"compute capability {gpu.compute_capability}"),
        (gpu.multiprocessors, f"{gpu.multiprocessors} multiprocessors"),
        (memory, memory),
    )
    return ", ".join(text for known, text in parts if known)


def _gpu_state(state: GpuState | None) -> str:
    if state is None:
        return ""
    parts = (
        (state.sm_clock is not None, f"SM clock {state.sm_clock} MHz"),
        (state.memory_clock is not None, f"memory clock {state.memory_clock} MHz"),
        (state.temperature is not None, f"{state.temperature} °C"),
        (state.power is not None, f"{state.power} W"),
        (state.throttling, f"throttled: {', '.join(state.throttling)}"),
        (state.other_processes, f"{state.other_processes} other processes on it"),
    )
    return ", ".join(text for known, text in parts if known)
