"""What a page says about its recording: the line under the title, and the *Recordings* page.

``.. gallery-recordings::`` lists every recording with its provenance, time and memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.store import reading, recording
from gallery_recorder.store.reading import ReadingError
from gallery_recorder.store.recording import GpuState, Provenance, Recording, RecordingError

if TYPE_CHECKING:
    from gallery_recorder.render.replay import Replayed, Unrecorded

logger = logging.getLogger(__name__)

#: Directives whose output depends on recordings or on tutorials' introductions.
_DEPENDENT = (".. gallery-", ".. minigallery::")


def setup(app: Sphinx) -> None:
    """Register the directive and the events; called by ``replay.setup``."""
    # A directive has no supported way to the application, so it is told here.
    directive = type("RecordingsDirective", (RecordingsDirective,), {"app": app})
    app.add_directive("gallery-recordings", directive)
    written = (_visit_line, _depart_line)
    app.add_node(ProvenanceLine, html=written, latex=written, text=written, man=written)
    app.connect("doctree-read", _add_provenance)
    app.connect("env-get-outdated", _outdated_pages)
    app.connect("missing-reference", _leave_text)


def readable_bytes(count: int) -> str:
    """``3456789`` as ``3.3 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def readable_seconds(seconds: float) -> str:
    """``75.2`` as ``1 min 15 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def readable_date(recorded: str) -> str:
    """``2026-11-20T17:00:00Z`` as ``20 November 2026``."""
    date = datetime.strptime(recorded, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return f"{date.day} {date:%B %Y}"


# --- on each tutorial's page ------------------------------------------------------------------


class ProvenanceLine(nodes.Admonition, nodes.paragraph):
    """A paragraph about the page, not of it: descriptions and previews leave it out."""


def _visit_line(translator: Any, node: nodes.Element) -> None:
    translator.visit_paragraph(node)


def _depart_line(translator: Any, node: nodes.Element) -> None:
    translator.depart_paragraph(node)


def _add_provenance(app: Sphinx, doctree: nodes.document) -> None:
    """Put the provenance line, and a banner where there is no GPU's, under the page's title."""
    item = app.gallery_pages.get(app.env.docname)  # type: ignore[attr-defined]
    title = next(doctree.findall(nodes.title), None)
    if item is None or title is None:
        return
    if item.folder is None:
        text = (
            f"This tutorial needs a GPU with {' and '.join(item.needs)}, and its current code has "
            "not been recorded on one. The page has no outputs."
        )
        _insert_below(title, [_banner(text)])
        return
    line = ProvenanceLine(classes=["gallery-provenance"])
    line += nodes.Text(f"Recorded {summary(item.recording)} · ")
    line += _reference(app.env.docname, label(item.device, item.script.name), "full record")
    added: list[nodes.Node] = [line]
    if not item.recording.timed:
        text = (
            "The outputs on this page come from Triton's interpreter on a CPU, because no "
            "recording from a GPU belongs to the current code. They show what the code computes, "
            "not how fast it is: nothing was timed."
        )
        added.append(_banner(text))
    _insert_below(title, added)


def _banner(text: str) -> nodes.Node:
    return nodes.warning("", nodes.paragraph("", text), classes=["gallery-banner"])


def _insert_below(title: nodes.Node, added: list[nodes.Node]) -> None:
    parent = title.parent
    parent[parent.index(title) + 1 : parent.index(title) + 1] = added


def summary(content: Recording) -> str:
    """Device, versions, date, time and memory in one line."""
    where, run = content.provenance, content.run
    software = content.probe(recording.SOFTWARE)
    device = f"on {where.device}" if content.timed else "in Triton's interpreter"
    parts = [device, f"Triton {software.get('triton')}", f"PyTorch {software.get('torch')}"]
    if software.get("toolkit"):
        parts.append(str(software["toolkit"]))
    parts.append(readable_date(run.recorded))
    if content.timed:
        parts.append(readable_seconds(run.seconds))
        memory = software.get("peak_gpu_memory")
        if isinstance(memory, int) and memory > 0:
            parts.append(f"{readable_bytes(memory)} of GPU memory")
    return plain(" · ".join(parts))


def label(device: str, tutorial: str) -> str:
    """The reference label of a recording on the *Recordings* page."""
    return f"recording-{device}-{tutorial}".replace("/", "-").lower()


def _reference(docname: str, target: str, text: str) -> addnodes.pending_xref:
    return addnodes.pending_xref(
        "",
        nodes.inline("", text),
        refdomain="std",
        reftype="ref",
        reftarget=target,
        refexplicit=True,
        refwarn=False,
        refdoc=docname,
    )


def _page_reference(docname: str, item: ListedRecording) -> addnodes.pending_xref:
    return addnodes.pending_xref(
        "",
        nodes.inline("", plain(item.content.title)),
        refdomain="std",
        reftype="doc",
        reftarget=f"/{item.docname}",
        refexplicit=False,
        refwarn=True,
        refdoc=docname,
    )


def _leave_text(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Node
) -> nodes.Node | None:
    """Without a *Recordings* page, the line under the title just has no link."""
    del app, env
    return text if node["reftarget"].startswith("recording-") else None


# --- the Recordings page ------------------------------------------------------------------------


class RecordingsDirective(SphinxDirective):
    """``.. gallery-recordings::``: a table of all recordings, and a section for each."""

    app: Sphinx

    def run(self) -> list[nodes.Node]:
        """Make it of nodes: what a recording says is text, whatever characters it has."""
        items = listed_recordings(self.app)
        if not items:
            return [nodes.paragraph("", "There are no recordings yet.")]
        return [self._table(items), *(self._section(item) for item in items)]

    def _table(self, items: list[ListedRecording]) -> nodes.table:
        docname = self.env.docname
        rows = [
            [
                _page_reference(docname, item) if item.shown else nodes.Text(item.name),
                _reference(docname, label(item.device, item.name), _device_name(item)),
                nodes.Text(item.content.run.recorded[:10]),
                nodes.Text(item.said("triton") or "–"),
                nodes.Text(item.said("torch") or "–"),
                nodes.Text(
                    readable_seconds(item.content.run.seconds)
                    if item.content.timed
                    else "not timed"
                ),
                nodes.Text(item.peak_gpu_memory or "–"),
                nodes.Text(item.state),
            ]
            for item in items
        ]
        head = ("Tutorial", "Device", "Date", "Triton", "PyTorch", "Time", "GPU memory", "State")
        return _table(head, rows)

    def _section(self, item: ListedRecording) -> nodes.section:
        name = nodes.fully_normalize_name(label(item.device, item.name))
        heading = nodes.title("", f"{_title(item)}: {_device_name(item)}")
        section = nodes.section("", heading, names=[name])
        facts = nodes.field_list()
        for field, value in _facts(item):
            if value:
                body = nodes.field_body("", nodes.paragraph("", plain(value)))
                facts += nodes.field("", nodes.field_name("", field), body)
        section += facts
        self.state.document.note_explicit_target(section, section)
        return section


def _title(item: ListedRecording) -> str:
    """A script's title; sphinx-gallery has taken its markup away, but for backslashes."""
    return re.sub(r"\\(.)", r"\1", plain(item.content.title))


def _device_name(item: ListedRecording) -> str:
    return plain(item.content.provenance.device)


def plain(value: object) -> str:
    """*value* as one line of text that can be seen, character by character."""
    line = " ".join(str(value).split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def _table(head: Sequence[str], rows: Sequence[Sequence[nodes.Node]]) -> nodes.table:
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _row([nodes.Text(name) for name in head]))
    group += nodes.tbody("", *(_row(row) for row in rows))
    return nodes.table("", group, classes=["colwidths-auto"])


def _row(cells: Sequence[nodes.Node]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))


class ListedRecording:
    """A recording on the *Recordings* page, with what the page says of it."""

    def __init__(
        self, device: str, folder: Path, name: str, replayed: Replayed | Unrecorded | None
    ) -> None:
        """Read the recording in *folder*; *replayed* is what its tutorial's page shows."""
        self.device, self.folder, self.name = device, folder, name
        self.content = recording.load(folder)
        self._software = self.content.probe(recording.SOFTWARE)
        self.docname = replayed.docname if replayed else None
        self.shown = replayed is not None and replayed.folder == folder
        if self.shown:
            self.state = "shown"
        elif replayed is None:
            self.state = "its tutorial is gone"
        else:
            same = self.content.key == replayed.script.key
            self.state = "current" if same else "of older code"

    def said(self, name: str) -> str:
        """What the recording says of *name* among the software, empty where it says nothing."""
        return plain(self._software.get(name, ""))

    @property
    def peak_gpu_memory(self) -> str:
        """The most memory that it held on the GPU, to read; empty where that is not known."""
        count = self._software.get("peak_gpu_memory")
        return readable_bytes(count) if isinstance(count, int) and count > 0 else ""


def listed_recordings(app: Sphinx) -> list[ListedRecording]:
    """All recordings below the configured folders; the interpreter's only where they are shown."""
    replayed: dict[str, Replayed | Unrecorded] = {
        item.script.name: item
        for item in app.gallery_pages.values()  # type: ignore[attr-defined]
    }
    items = []
    for root in app.config.gallery_recordings:
        for folder in recording.all_recordings(Path(app.confdir, root)):
            try:
                location = recording.location_of(folder, Path(app.confdir, root))
                device, name = location.place, location.name
                item = ListedRecording(device, folder, name, replayed.get(name))
            except RecordingError as error:  # one recording less; the other ones are whole
                logger.warning("%s", error, type="gallery", subtype="recording")
                continue
            if item.shown or item.content.timed:
                items.append(item)
    return sorted(items, key=lambda item: (item.name.count("/"), item.name, item.device))


def _facts(item: ListedRecording) -> list[tuple[str, str]]:
    content = item.content
    where, run = content.provenance, content.run
    driver = where.gpu.driver if where.gpu else None
    environment = sorted(where.environment.items())
    return [
        ("Device", _device(where)),
        ("Driver and toolkit", ", ".join(filter(None, (driver, item.said("toolkit"))))),
        ("Triton", item.said("triton")),
        ("PyTorch", item.said("torch")),
        ("NumPy", item.said("numpy")),
        ("Matplotlib", item.said("matplotlib")),
        ("sphinx-gallery", where.versions.get("sphinx-gallery", "")),
        ("Python", where.python),
        ("Operating system", where.os),
        ("Environment", ", ".join(f"{name}={value}" for name, value in environment)),
        ("Commit", where.commit or ""),
        ("Recorded", run.recorded.replace("T", " ").replace("Z", " UTC")),
        ("Time", readable_seconds(run.seconds) if content.timed else "not timed"),
        ("Peak GPU memory", item.peak_gpu_memory),
        ("Peak host memory", readable_bytes(run.peak_host_memory) if run.peak_host_memory else ""),
        ("GPU before", _gpu_state(where.before)),
        ("GPU after", _gpu_state(where.after)),
        ("Key of the code", content.key),
        ("Files", ", ".join(content.files)),
    ]


def _device(where: Provenance) -> str:
    parts = [where.device]
    if where.gpu and where.gpu.compute_capability:
        parts.append(f"compute capability {where.gpu.compute_capability}")
    if where.gpu and where.gpu.multiprocessors:
        parts.append(f"{where.gpu.multiprocessors} multiprocessors")
    if where.gpu and where.gpu.memory:
        parts.append(readable_bytes(where.gpu.memory))
    return ", ".join(parts)


def _gpu_state(state: GpuState | None) -> str:
    if state is None:
        return ""
    parts = [
        f"SM clock {state.sm_clock} MHz" if state.sm_clock is not None else "",
        f"memory clock {state.memory_clock} MHz" if state.memory_clock is not None else "",
        f"{state.temperature} °C" if state.temperature is not None else "",
        f"{state.power} W" if state.power is not None else "",
        "throttled: " + ", ".join(state.throttling) if state.throttling else "",
        f"{state.other_processes} other processes on it" if state.other_processes else "",
    ]
    return ", ".join(filter(None, parts))


def _outdated_pages(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Pages made from recordings and introductions are read again when one of these changed."""
    del added, changed, removed
    replayed: dict[str, Any] = app.gallery_pages  # type: ignore[attr-defined]
    parts = [item.script.blocks[0].content for item in replayed.values()]
    for root in app.config.gallery_recordings:
        for folder in recording.all_recordings(Path(app.confdir, root)):
            with contextlib.suppress(ReadingError):  # damaged: told where it is listed
                content = reading.read_file(folder / recording.FILE_NAME, recording.MAX_READ)
                parts.append(hashlib.sha256(content).hexdigest())
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
    if getattr(env, "gallery_digest", None) == digest:
        return []
    env.gallery_digest = digest  # type: ignore[attr-defined]
    return [
        docname
        for docname in env.found_docs
        if docname not in replayed
        and any(name in env.doc2path(docname).read_text(encoding="utf-8") for name in _DEPENDENT)
    ]
