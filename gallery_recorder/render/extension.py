"""The Sphinx extension: recordings in place of execution.

In ``conf.py``, besides what sphinx-gallery wants::

    extensions = ["sphinx_gallery.gen_gallery", "gallery_recorder"]

The order of a build: :mod:`~gallery_recorder.render.selection` selects the recording of each page,
:mod:`~gallery_recorder.render.state` what has changed since the last build; sphinx-gallery makes
the pages, with :mod:`~gallery_recorder.render.replay` in the place of execution; Sphinx reads them
and writes them.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from gallery_recorder import seam
from gallery_recorder.project import reader, settings
from gallery_recorder.project.settings import SettingsError
from gallery_recorder.render import (
    codeblocks,
    incremental,
    others,
    pages,
    replay,
    selection,
    sphinx_faults,
    state,
)
from gallery_recorder.render.domain import GalleryDomain, domain_of
from gallery_recorder.render.selection import Page

#: What sphinx-gallery must not do where nothing is executed: import matplotlib to scrape figures
#: and to reset its state, look into the variables that an execution leaves, start processes.
_NO_EXECUTION = {
    "image_scrapers": (),
    "reset_modules": (),
    "inspect_global_variables": False,
    "parallel": False,
}

_STATIC = Path(__file__).parent / "static"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx; loads sphinx-gallery."""
    seam.check()
    app.setup_extension("sphinx_gallery.gen_gallery")
    seam.generate_with(app, _begin)
    settings.register(app)
    app.add_domain(GalleryDomain)
    app.connect("config-inited", _configure, priority=5)  # sphinx-gallery reads it at 10
    app.connect("build-finished", _finish, priority=990)
    codeblocks.setup(app)
    incremental.setup(app)
    others.setup(app)
    pages.setup(app)
    sphinx_faults.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "3"}


def _configure(app: Sphinx, config: Any) -> None:
    try:
        roots = settings.read(config, Path(app.confdir)).roots
    except SettingsError as error:
        raise ExtensionError(str(error)) from error
    # What a script wrote is no page, whatever its name; nor is what an interrupted run left.
    inside = [f"{os.path.relpath(root, app.srcdir)}/*/**" for root in roots]
    config.exclude_patterns = [*config.exclude_patterns, *inside]
    conf = dict(config.sphinx_gallery_conf)
    if conf.get("show_memory"):
        conf["show_memory"] = _Unmeasured()  # what was recorded is shown
    config.sphinx_gallery_conf = conf | _NO_EXECUTION
    drawing = ExitStack()
    drawing.enter_context(seam.only_reading(conf.get("pypandoc")))
    app.connect("config-inited", lambda *_: drawing.close(), priority=11)
    # The engine's styles come first, so that a site's own are stronger.
    config.html_static_path = [str(_STATIC), *config.html_static_path]
    config.html_css_files = ["gallery_recorder.css", *config.html_css_files]


@dataclass(frozen=True)
class _Unmeasured:
    """Calls without measuring memory; Sphinx keeps settings, and would warn of a function."""

    def __call__(self, function: Any) -> tuple[float, Any]:
        return 0.0, function()


def _begin(app: Sphinx) -> None:
    """Make the pages of all galleries; nothing where nothing changed."""
    domain = domain_of(app.env)
    domain.before = before = state.load(app)
    inputs, said = state.inputs(app)
    conf = app.config.sphinx_gallery_conf
    if (
        inputs == before.inputs
        and before.generated == state.generated(app)
        and not conf["run_stale_examples"]
        and not conf["expected_failing_examples"]  # sphinx-gallery counts them each time
    ):
        domain.now, domain.kept = replace(before), True
    else:
        domain.now = replace(before, inputs=inputs)
        _generate(app, said)


def _generate(app: Sphinx, said: str) -> None:
    """Have sphinx-gallery make the pages whose script, recording, or settings *said* changed."""
    domain, source = domain_of(app.env), Path(app.srcdir)
    before, now, conf = domain.before, domain.now, app.config.sphinx_gallery_conf
    current: dict[str, Page] = {}
    unchanged: dict[str, str] = {}
    with seam.replaced(split_code_and_text_blocks=replay.splitting(current)):
        examples = list(reader.examples_of(app))
        now.selection = selection.choose(app, before.selection, examples)
        now.stamps = {name: f"{page.stamp} {said}" for name, page in now.selection.pages.items()}
        for name, page in now.selection.pages.items():
            known = before.stamps.get(name) == now.stamps[name] and not conf["run_stale_examples"]
            made = [source / f"{name}.rst", *(others.source_of(source, v) for v in page.views)]
            if known and all(path.is_file() for path in made):
                unchanged[name] = now.stamps[name]
                current[str(page.path)] = page
        for name in now.selection.pages.keys() - unchanged:  # a script may have two pages
            current.pop(str(now.selection.pages[name].path), None)
        # Whatever ends this build, the next one knows which pages are as they were.
        state.save(app, now, inputs="", stamps=unchanged)
        kept = {source / e.pages / e.path.stem for e in examples}
        for _, gallery in seam.galleries(app):
            root = source / gallery
            sphinx_faults.remove(replay.left_over(root, kept), root)
        stand_in = replay.Replay(source, now.selection.pages, {*unchanged})
        if examples:
            _reset(app, examples[0].path)
        with seam.replaced(**stand_in.functions()):
            seam.generate(app)
    stand_in.keep_times()
    for name in stand_in.failed:  # sphinx-gallery counts them each time
        del now.stamps[name]
    archives = before.selection.archives | stand_in.archives
    now.selection.archives = {path: a for path, a in archives.items() if path.is_file()}
    state.write_marks(app, now.selection)
    pages.write_sources(app, now.selection)


def _reset(app: Sphinx, first: Path) -> None:
    """Reset what the project does before its *first* script: this may change how pages are made."""
    for reset in settings.resets(app.config):
        conf = app.config.sphinx_gallery_conf | {"reset_modules": (reset,)}
        with suppress(Exception):  # what it resets need not be installed here
            seam.ORIGINAL["clean_modules"](conf, str(first), "before")


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Leave for the next build what this one knows."""
    if error is not None:
        return
    domain = domain_of(app.env)
    if domain.site:
        domain.site.rest = incremental.rest(app.builder)
        domain.now.sites = domain.now.sites | {incremental.output(app.builder): domain.site}
    if not domain.kept:
        domain.now.generated = state.generated(app)
    if not domain.kept or domain.now.sites != domain.before.sites:
        state.save(app, domain.now)
