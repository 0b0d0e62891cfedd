"""What a page says about its recording: the line under the title, and the *Recordings* page.

``.. gallery-recordings::`` lists every recording with its provenance, time and memory.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.store import recording
from gallery_recorder.store.recording import GpuState, Provenance, Recording

if TYPE_CHECKING:
    from gallery_recorder.render.replay import Replayed, Unrecorded

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
        parts.append(software["toolkit"])
    parts.append(readable_date(run.recorded))
    if content.timed:
        parts.append(readable_seconds(run.seconds))
        if software.get("peak_gpu_memory"):
            parts.append(f"{readable_bytes(software['peak_gpu_memory'])} of GPU memory")
    return " · ".join(parts)


def label(device: str, tutorial: str) -> str:
    """The reference label of a recording on the *Recordings* page."""
    return f"recording-{device}-{tutorial}".replace("/", "-")


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
        """Write it as reStructuredText, so that theme and references treat it like any other."""
        items = listed_recordings(self.app)
        if not items:
            return self.parse_text_to_nodes("There are no recordings yet.")
        rows = [
            "   * - "
            + "\n     - ".join(
                [
                    f":doc:`/{item.docname}`" if item.shown else item.name,
                    f":ref:`{item.content.provenance.device} <{label(item.device, item.name)}>`",
                    item.content.run.recorded[:10],
                    item.software.get("triton", "–"),
                    item.software.get("torch", "–"),
                    readable_seconds(item.content.run.seconds)
                    if item.content.timed
                    else "not timed",
                    readable_bytes(item.software["peak_gpu_memory"])
                    if item.software.get("peak_gpu_memory")
                    else "–",
                    item.state,
                ]
            )
            for item in items
        ]
        head = "\n     - ".join(
            ("Tutorial", "Device", "Date", "Triton", "PyTorch", "Time", "GPU memory", "State")
        )
        table = "\n".join(
            [".. list-table::", "   :header-rows: 1", "", f"   * - {head}", *rows, "", ""]
        )
        sections = "\n".join(_section(item) for item in items)
        return self.parse_text_to_nodes(table + sections, allow_section_headings=True)


class ListedRecording:
    """A recording on the *Recordings* page, with what the page says of it."""

    def __init__(
        self, device: str, folder: Path, name: str, replayed: Replayed | Unrecorded | None
    ) -> None:
        """Read the recording in *folder*; *replayed* is what its tutorial's page shows."""
        self.device, self.folder, self.name = device, folder, name
        self.content = recording.load(folder)
        self.software = self.content.probe(recording.SOFTWARE)
        self.docname = replayed.docname if replayed else None
        self.shown = replayed is not None and replayed.folder == folder
        if self.shown:
            self.state = "shown"
        elif replayed is None:
            self.state = "its tutorial is gone"
        else:
            same = self.content.key == replayed.script.key
            self.state = "current" if same else "of older code"


def listed_recordings(app: Sphinx) -> list[ListedRecording]:
    """All recordings below the configured folders; the interpreter's only where they are shown."""
    replayed: dict[str, Replayed | Unrecorded] = {
        item.script.name: item
        for item in app.gallery_pages.values()  # type: ignore[attr-defined]
    }
    items = []
    for root in app.config.gallery_recordings:
        for folder in recording.all_recordings(Path(app.confdir, root)):
            location = recording.location_of(folder, Path(app.confdir, root))
            device, name = location.place, location.name
            item = ListedRecording(device, folder, name, replayed.get(name))
            if item.shown or item.content.timed:
                items.append(item)
    return sorted(items, key=lambda item: (item.name.count("/"), item.name, item.device))


def _section(item: ListedRecording) -> str:
    content = item.content
    heading = f"{content.title}: {content.provenance.device}"
    fields = [f":{name}: {value}" for name, value in _facts(content) if value]
    return "\n".join(
        [
            "",
            f".. _{label(item.device, item.name)}:",
            "",
            heading,
            "-" * len(heading),
            "",
            *fields,
            "",
        ]
    )


def _facts(content: Recording) -> list[tuple[str, str]]:
    where, run = content.provenance, content.run
    software = content.probe(recording.SOFTWARE)
    driver = where.gpu.driver if where.gpu else None
    memory = software.get("peak_gpu_memory")
    return [
        ("Device", _device(where)),
        ("Driver and toolkit", ", ".join(filter(None, (driver, software.get("toolkit"))))),
        ("Triton", software.get("triton", "")),
        ("PyTorch", software.get("torch", "")),
        ("NumPy", software.get("numpy", "")),
        ("Matplotlib", software.get("matplotlib", "")),
        ("sphinx-gallery", where.versions.get("sphinx-gallery", "")),
        ("Python", where.python),
        ("Operating system", where.os),
        (
            "Environment",
            ", ".join(f"``{name}={value}``" for name, value in sorted(where.environment.items())),
        ),
        ("Commit", f"``{where.commit}``" if where.commit else ""),
        ("Recorded", run.recorded.replace("T", " ").replace("Z", " UTC")),
        ("Time", readable_seconds(run.seconds) if content.timed else "not timed"),
        ("Peak GPU memory", readable_bytes(memory) if memory else ""),
        ("Peak host memory", readable_bytes(run.peak_host_memory) if run.peak_host_memory else ""),
        ("GPU before", _gpu_state(where.before)),
        ("GPU after", _gpu_state(where.after)),
        ("Key of the code", f"``{content.key}``"),
        ("Files", ", ".join(name for name in content.files)),
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
            parts.append((folder / recording.FILE_NAME).read_text(encoding="utf-8"))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    if getattr(env, "gallery_digest", None) == digest:
        return []
    env.gallery_digest = digest  # type: ignore[attr-defined]
    return [
        docname
        for docname in env.found_docs
        if docname not in replayed
        and any(name in env.doc2path(docname).read_text(encoding="utf-8") for name in _DEPENDENT)
    ]
