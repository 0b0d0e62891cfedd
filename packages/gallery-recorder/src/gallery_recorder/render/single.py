"""Print one recording to a terminal, or write it as a notebook, without a build."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from gallery_recorder import console, seam
from gallery_recorder.project import galleries, reader
from gallery_recorder.project.commands import record, record_again
from gallery_recorder.project.galleries import Example, Where
from gallery_recorder.render import notebook, pages, selection
from gallery_recorder.render.selection import Page
from gallery_recorder.store import bounds, recording
from gallery_recorder.store.format import Block
from gallery_recorder.store.inputs import Here
from gallery_recorder.store.recording import RecordingError


class Single:
    """A project for commands about single recordings; *root* replaces its recordings folders."""

    def __init__(self, where: Where, scratch: Path, root: Path | None = None) -> None:
        self._app, self.project = reader.load(where, scratch)
        said = self.project.settings
        self._roots, self._checks = [root] if root else said.roots, bounds.checks_of(said)
        self._here = Here.of(self.project)

    def pages(self, names: Sequence[str], place: str | None) -> list[Page]:
        """The examples *names*, each with its recording at *place*, or else that of its page."""
        return [self._page(one, place) for one in galleries.select(self.project, names)]

    def _page(self, example: Example, place: str | None) -> Page:
        name = self.project.label(example)
        found = [
            selection.checked(at.folder, root, self._checks)
            for root in self._roots
            for at in recording.find(root, example.gallery, example.name)
            if place in (None, at.device, at.place)
        ]
        if not found:
            where = f" at {place}" if place else ""
            raise RecordingError(
                f"{name}: has no recording{where}; record it with: {record([name])}"
            )
        script, devices = example.load(), self.project.settings.devices
        found = [selection.with_changes(item, self._here, script) for item in found]
        newest = max(found, key=lambda item: item.recorded)
        shown = selection.best(script, found, devices) or newest
        others = tuple(item for item in found if item is not shown)
        docname = f"{example.pages}/{example.path.stem}"
        return Page(docname, example, script, "", shown, others)

    def export(self, page: Page, folder: Path) -> Path:
        """Write the notebook of *page* with its outputs to *folder*; return its path."""
        if page.is_stale:
            name = self.project.label(page.example)
            raise RecordingError(f"{name}: {page.why_stale}; {record_again(name)}")
        conf = self._app.config.sphinx_gallery_conf
        blocks = list(page.script.blocks)
        if conf["remove_config_comments"]:
            shown = [seam.without_settings(block.content) for block in blocks]
            blocks = [b._replace(content=s) for b, s in zip(blocks, shown, strict=True)]
        made = notebook.marked(blocks, conf, str(folder))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{page.example.path.stem}.ipynb"
        path.write_bytes(notebook.finished(msgspec.json.encode(made), page))
        return path


def show(page: Page) -> None:
    """Print the recording of *page*."""
    out = Console(highlight=False, soft_wrap=True)
    made = page.recording
    _heading(out, f"{made.gallery}/{made.name}: {made.title}")
    facts = {
        "Code": page.why_stale or "current",
        "Status": made.run.status,
        **pages.record_of(made, []),
    }
    facts["Folder"] = str(page.folder)
    facts["Others"] = "; ".join(f"{item.place}, {item.recorded}" for item in page.other_recordings)
    for name, fact in facts.items():
        if fact:
            out.print(_text(f"{name + ':':<18}{fact}"))
    for number, block in enumerate(made.blocks, 1):
        _heading(
            out, f"block {number} of {len(made.blocks)}, line {block.line}, {block.seconds:.3g} s"
        )
        for title, text in _outputs(block):
            out.print(_text(f"{title}:", "dim"))
            out.print(_text(text.rstrip("\n")))


def _outputs(block: Block) -> Iterator[tuple[str, str]]:
    """The titles and texts of a block's outputs."""
    shown = block.value.get("text/plain", "")
    if html := block.value.get("text/html"):
        shown = f"HTML of {len(html):,} characters"
    texts = {
        "stdout": block.stdout,
        "stderr": block.stderr,
        "value": shown,
        "exception": block.exception or "",
        "files": "\n".join([*block.images, *block.data]),
    }
    yield from ((title, text) for title, text in texts.items() if text)


def _heading(out: Console, text: str) -> None:
    out.print(_text(f"\n{text}", "bold"))


def _text(text: str, style: str = "") -> Text:
    return Text(console.visible(text.replace("\t", "    ")), style)
