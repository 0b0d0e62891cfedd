"""The Sphinx extension: recordings in place of execution.

In ``conf.py``, besides what sphinx-gallery wants::

    extensions = ["sphinx_gallery.gen_gallery", "gallery_recorder"]

The order of a build: :mod:`~gallery_recorder.render.choice` says which recording each page shows,
:mod:`~gallery_recorder.render.state` what has changed since the last build; sphinx-gallery makes
the pages, with :mod:`~gallery_recorder.render.replay` in the place of execution; Sphinx reads them
and writes them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from gallery_recorder.render import (
    choice,
    codeblocks,
    incremental,
    pages,
    replay,
    seam,
    sphinx_faults,
    state,
)
from gallery_recorder.render.choice import Page
from gallery_recorder.render.domain import GalleryDomain, domain_of
from gallery_recorder.source import reader, settings
from gallery_recorder.source.project import Example
from gallery_recorder.source.settings import SettingsError

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
    seam.leave_generating(app)
    settings.register(app)
    app.add_domain(GalleryDomain)
    app.connect("config-inited", _configure, priority=5)  # sphinx-gallery reads it at 10
    app.connect("builder-inited", _begin)
    app.connect("build-finished", _finish, priority=990)
    codeblocks.setup(app)
    incremental.setup(app)
    pages.setup(app)
    sphinx_faults.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "2"}


def _configure(app: Sphinx, config: Any) -> None:
    conf = dict(config.sphinx_gallery_conf)
    if conf.get("show_memory"):
        conf["show_memory"] = unmeasured  # what was recorded is shown
    config.sphinx_gallery_conf = conf | _NO_EXECUTION
    seam.without_matplotlib(app)
    # The engine's styles come first, so that a site's own are stronger.
    config.html_static_path = [str(_STATIC), *config.html_static_path]
    config.html_css_files = ["gallery_recorder.css", *config.html_css_files]


def unmeasured(function: Any) -> tuple[float, Any]:
    """Call *function* without measuring its memory."""
    return 0.0, function()


def _begin(app: Sphinx) -> None:
    try:
        _generate(app)
    except SettingsError as error:
        raise ExtensionError(str(error)) from error


def _generate(app: Sphinx) -> None:
    """Make the pages of all galleries; nothing where nothing changed."""
    domain = domain_of(app.env)
    before = domain.before = state.load(app)
    inputs, said = state.inputs(app)
    domain.now = now = state.State(inputs, said, shown=before.shown)
    conf = app.config.sphinx_gallery_conf
    if (
        inputs == before.inputs
        and before.generated == state.generated(app)
        and not conf["run_stale_examples"]
        and not conf["expected_failing_examples"]  # sphinx-gallery counts them each time
    ):
        domain.now = now = replace(before, inputs=inputs, settings=said)
        domain.choice = now.choice
        return
    splitting = replay.Splitting()
    with seam.replaced(split_code_and_text_blocks=splitting.split):
        domain.choice = now.choice = choice.choose(app, before.choice)
    now.stamps = {name: f"{page.stamp} {said}" for name, page in now.choice.pages.items()}
    current = {
        name
        for name, page in now.choice.pages.items()
        if not conf["run_stale_examples"]
        and before.stamps.get(name) == now.stamps[name]
        and seam.is_current(page.path, _target(app, page))
    }
    examples = reader.examples_of(app)
    for example in examples:
        if f"{example.pages}/{example.path.stem}" not in current:
            seam.forget(Path(app.srcdir, example.pages, example.path.name))
    _remove_left_over(app, examples)
    stand_in = replay.Replay(now.choice.pages, current, splitting, before.packed)
    with seam.replaced(**stand_in.functions()):
        seam.generate(app)
    stand_in.keep_times()
    kept = {path: archive for path, archive in before.archives.items() if path.is_file()}
    now.archives = kept | stand_in.archives
    now.packed = before.packed | stand_in.packed
    seam.forget_backreferences(app)
    pages.write_sources(app, now.choice)


def _target(app: Sphinx, page: Page) -> Path:
    """Where sphinx-gallery copies the script of a page."""
    return Path(app.srcdir, page.example.pages, page.path.name)


def _remove_left_over(app: Sphinx, examples: list[Example]) -> None:
    """Remove what sphinx-gallery made of scripts that are gone: it would stay in the site."""
    domain = domain_of(app.env)
    found: dict[Path, set[str]] = {}
    for example in examples:
        found.setdefault(Path(app.srcdir, example.pages), set()).add(example.path.stem)
    for _, gallery in seam.galleries(app):
        root = Path(app.srcdir, gallery)
        for name, _, _ in os.walk(root):
            folder = Path(name)
            gone = replay.left_over(folder, found.get(folder, set()))
            index = folder / "index.rst"
            if folder not in found and folder != root and replay.is_index(index):
                gone.append(index)
            domain.maybe_gone |= {f"_images/{path.name}" for path in gone}
            sphinx_faults.remove(gone, root)


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Leave for the next build what this one knows."""
    if error is not None:
        return
    domain = domain_of(app.env)
    if domain.now is not None:
        domain.now.generated = state.generated(app)
        if domain.shown:
            domain.now.shown = domain.now.shown | {incremental.output(app.builder): domain.shown}
        state.save(app, domain.now)
