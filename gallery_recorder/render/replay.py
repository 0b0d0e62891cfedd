"""The Sphinx extension that renders recordings where sphinx-gallery would execute tutorials.

sphinx-gallery executes a tutorial in one function, ``gen_rst.execute_script``. While a gallery is
generated, :func:`replay_script` stands in its place and hands back what was recorded. Everything
else is sphinx-gallery's own: the page's layout, thumbnails, index, notebook, downloads. Nothing is
executed and torch is never imported.

In ``conf.py``::

    extensions = ["gallery_recorder.render.replay"]
    gallery_recordings = ["recordings", "build/recordings"]
"""

from __future__ import annotations

import inspect
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx_gallery import __version__ as sphinx_gallery_version
from sphinx_gallery import gen_rst
from sphinx_gallery.py_source_parser import remove_config_comments

from gallery_recorder.render import codeblocks, growth, notebook, pages
from gallery_recorder.source import needs, project, settings
from gallery_recorder.source.script import Script, ScriptError
from gallery_recorder.store import recording
from gallery_recorder.store.recording import (
    INTERPRETER,
    REFERENCE_DEVICE,
    Recording,
    RecordingError,
)
from triton_site import performance

logger = logging.getLogger(__name__)

#: The parameters that ``gen_rst.execute_script`` must have to be replaced.
_SEAM = ("script_blocks", "script_vars", "gallery_conf", "file_conf")

#: What sphinx-gallery must not do where nothing is executed: import matplotlib to scrape figures
#: and to reset its state, and look into the variables that an execution leaves.
_NO_EXECUTION = {"image_scrapers": (), "reset_modules": (), "inspect_global_variables": False}


@dataclass(frozen=True)
class Replayed:
    """A tutorial and the recording that its page shows."""

    script: Script
    docname: str
    device: str
    folder: Path
    recording: Recording


@dataclass(frozen=True)
class Unrecorded:
    """A tutorial that needs more than this machine may have, and has no current recording.

    Its page shows text and code, and says what it needs.
    """

    script: Script
    docname: str
    needs: list[str]
    folder: None = None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx; loads sphinx-gallery."""
    check_seam()
    app.setup_extension("sphinx_gallery.gen_gallery")
    settings.register(app)
    app.connect("config-inited", _configure, priority=5)  # sphinx-gallery reads it at 10
    app.connect("builder-inited", _begin, priority=490)  # sphinx-gallery generates at 500
    app.connect("builder-inited", _end, priority=510)
    app.connect("build-finished", notebook.add_outputs_to_downloads)
    codeblocks.setup(app)
    pages.setup(app)
    performance.setup(app)
    growth.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}


def check_seam() -> None:
    """Refuse to go on where sphinx-gallery is not the one this was written for.

    Raises:
        ExtensionError: ``gen_rst.execute_script`` is gone or has other parameters.
    """
    function = getattr(gen_rst, "execute_script", None)
    found = tuple(inspect.signature(function).parameters) if function else None
    if found != _SEAM:
        raise ExtensionError(
            "gallery_recorder.render.replay: sphinx_gallery.gen_rst.execute_script "
            + (f"takes ({', '.join(found)})" if found else "does not exist")
            + f" in sphinx-gallery {sphinx_gallery_version}, but replaying needs "
            f"({', '.join(_SEAM)}). Install the sphinx-gallery that requirements.txt names."
        )


def _configure(app: Sphinx, config: Any) -> None:
    gallery_conf = dict(config.sphinx_gallery_conf)
    if gallery_conf.get("parallel"):
        raise ExtensionError(
            "sphinx_gallery_conf['parallel'] must stay off: its worker processes would execute the "
            "tutorials. Replaying a recording takes milliseconds; remove the setting."
        )
    config.sphinx_gallery_conf = gallery_conf | _NO_EXECUTION


def _begin(app: Sphinx) -> None:
    """Choose a recording for every tutorial, and put :func:`replay_script` in place."""
    items = choose_recordings(app)
    app.gallery_pages = {item.docname: item for item in items}  # type: ignore[attr-defined]
    app.gallery_replayed = {  # type: ignore[attr-defined]
        item.docname: item for item in items if isinstance(item, Replayed)
    }
    by_path = {item.script.path.resolve(): item for item in items}
    app.gallery_execute_script = gen_rst.execute_script  # type: ignore[attr-defined]

    def replay(script_blocks, script_vars, gallery_conf, file_conf):
        item = by_path[Path(script_vars["src_file"]).resolve()]
        return replay_script(item, script_blocks, script_vars, gallery_conf, file_conf)

    gen_rst.execute_script = replay


def _end(app: Sphinx) -> None:
    gen_rst.execute_script = app.gallery_execute_script  # type: ignore[attr-defined]


def choose_recordings(app: Sphinx) -> list[Replayed | Unrecorded]:
    """The recording that each tutorial's page shows.

    It is one whose key is the script's: the reference device's, else another GPU's, else the
    interpreter's. A tutorial that needs a particular GPU may have none.

    Raises:
        ExtensionError: tutorials lack a current recording, or one is damaged; all are listed.
    """
    roots = [Path(app.confdir, root) for root in app.config.gallery_recordings]
    chosen, without, problems = [], [], []
    for example in project.examples_of(app):
        if not example.recorded:
            continue
        try:
            script = example.load()
            found = choose_recording(script, roots)
            needed = needs.needs_of(script)
        except (ScriptError, RecordingError) as error:
            problems.append(str(error))
            continue
        docname = f"{example.pages}/{script.path.stem}"
        if found is not None:
            chosen.append(Replayed(script, docname, *found))
        elif needed:
            chosen.append(Unrecorded(script, docname, needed))
        else:
            without.append(script.name)
    if without:
        problems.append(
            "No recording belongs to the code of: "
            + ", ".join(without)
            + ".\nRecord what is missing"
            " with: python -m gallery_recorder record "
            + " ".join(without)
            + "\n(on a GPU where there"
            " is one, otherwise in Triton's interpreter; `make html` does it by itself)."
        )
    if problems:
        raise ExtensionError("\n\n".join(problems))
    return chosen


def choose_recording(script: Script, roots: list[Path]) -> tuple[str, Path, Recording] | None:
    """The device, folder and content of the recording to show for *script*, if there is any.

    Raises:
        RecordingError: a recording of the tutorial is damaged.
    """
    found = [at for root in roots for at in recording.find(root, script.gallery, script.name)]
    order = {REFERENCE_DEVICE: 0, INTERPRETER: 2}
    for at in sorted(found, key=lambda at: order.get(at.device, 1)):
        content = at.load()
        if content.key == script.key:
            return at.place, at.folder, content
    return None


def replay_script(
    item: Replayed | Unrecorded,
    script_blocks: list[Any],
    script_vars: dict[str, Any],
    gallery_conf: dict[str, Any],
    file_conf: dict[str, Any],
) -> tuple[list[str], float]:
    """Do for sphinx-gallery what ``execute_script`` does, out of a recording.

    Returns one string of reStructuredText a block, and the seconds that the run took.
    """
    script_vars.update(memory_delta=0.0, example_globals={}, passing=True)
    outputs = ["\n"] * len(script_blocks)
    if isinstance(item, Unrecorded):
        _drop_empty_blocks(script_blocks, outputs)
        return outputs, 0.0
    target, src_dir = Path(script_vars["target_file"]), Path(gallery_conf["src_dir"])
    for code, block in zip(item.script.code, item.recording.blocks, strict=True):
        outputs[code.index] = _output(item, block, target, src_dir)
    _drop_empty_blocks(script_blocks, outputs)
    _choose_thumbnail(item, script_vars, gallery_conf, file_conf)
    # The page changes when its recording does, also where the outputs are the same: a comment
    # makes sphinx-gallery write it, and so Sphinx read it, again.
    run = item.recording.run
    outputs[-1] += f"\n.. recorded {run.recorded} on {item.device}, key {item.recording.key}\n\n"
    return outputs, run.seconds if item.recording.timed else 0.0


def _output(item: Replayed, block: recording.Block, target: Path, src_dir: Path) -> str:
    """What a code block did, as sphinx-gallery wrote it down; its files are put in place."""
    for name in block.images:
        _copy(item.folder / name, target.parent / name)
    for name in block.data:
        _copy(item.folder / name, target.with_suffix("") / name)
    return recording.rst_of(block, target.parent.relative_to(src_dir).as_posix())


def _drop_empty_blocks(script_blocks: list[Any], outputs: list[str]) -> None:
    """Take away blocks that hold nothing but settings, which would show as empty boxes."""
    for index in reversed(range(len(script_blocks))):
        block = script_blocks[index]
        if block.type == "code" and not remove_config_comments(block.content).strip():
            del script_blocks[index], outputs[index]


def _choose_thumbnail(
    item: Replayed,
    script_vars: dict[str, Any],
    gallery_conf: dict[str, Any],
    file_conf: dict[str, Any],
) -> None:
    """Have sphinx-gallery take the recorded thumbnail, whatever figure it was made from."""
    file_conf.pop("thumbnail_number", None)
    if item.recording.thumbnail:
        image = Path(script_vars["image_path_iterator"].image_path.format(0))
        _copy(item.folder / item.recording.thumbnail, image)
        file_conf["thumbnail_path"] = image.relative_to(gallery_conf["src_dir"]).as_posix()


def _copy(source: Path, target: Path) -> None:
    """Copy a file where it differs: a newer file would have Sphinx read its page again."""
    content = source.read_bytes()
    if not (target.is_file() and target.read_bytes() == content):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _as_list(value: Any) -> list[str]:
    return list(value) if isinstance(value, list | tuple) else [value]
