"""The Sphinx extension: recordings instead of execution.

:mod:`~gallery_recorder.render.selection` selects the recording of each page. sphinx-gallery makes
the pages, with :mod:`~gallery_recorder.render.replay` instead of execution. Sphinx reads and writes
them.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

from gallery_recorder import seam
from gallery_recorder.errors import RecorderError
from gallery_recorder.project import reader, settings
from gallery_recorder.render import incremental, pages, replay, selection, variants
from gallery_recorder.render.domain import (
    GalleryDomain,
    domain_of,
    load,
    save,
    settings_of,
    write_marks,
)
from gallery_recorder.render.selection import Page
from gallery_recorder.version import VERSION

logger = logging.getLogger(__name__)

#: Without execution, sphinx-gallery needs no scrapers, resets of modules (both import matplotlib),
#: variables or parallel processes.
_NO_EXECUTION = {
    "image_scrapers": (),
    "reset_modules": (),
    "inspect_global_variables": False,
    "parallel": False,
}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx; loads sphinx-gallery."""
    seam.check()
    app.setup_extension("sphinx_gallery.gen_gallery")
    execution: dict[str, Any] = {}
    seam.generate_with(app, partial(_begin, execution))
    settings.register(app)
    app.add_domain(GalleryDomain)
    reading = ExitStack()
    app.connect("config-inited", partial(_configure, reading, execution), priority=5)
    # sphinx-gallery reads its settings at 10.
    app.connect("config-inited", lambda *_: reading.close(), priority=11)
    app.connect("build-finished", _summarize, priority=10)  # before sphinx-gallery
    app.connect("build-finished", _finish, priority=990)
    incremental.setup(app)
    variants.setup(app)
    pages.setup(app)
    return {
        "version": VERSION,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
        "env_version": 5,
    }


def _configure(reading: ExitStack, execution: dict[str, Any], app: Sphinx, config: Any) -> None:
    """Take the settings of the *execution* out of sphinx-gallery's, since a build has none."""
    with _ending():
        roots = settings.read(config, Path(app.confdir)).roots
    for text in settings.misspelt(config):
        logger.warning("%s", text, type="gallery", subtype="setting")
    # Files of recordings are not pages, whatever their names.
    inside = [f"{os.path.relpath(root, app.srcdir)}/*/**" for root in roots]
    config.exclude_patterns = [*config.exclude_patterns, *inside]
    conf = dict(config.sphinx_gallery_conf)
    if conf.get("show_memory"):
        conf["show_memory"] = partial(_unmeasured)  # Sphinx cannot pickle a plain function
    for name in _NO_EXECUTION:
        execution[name] = conf.get(name, seam.default(name))
    config.sphinx_gallery_conf = conf | _NO_EXECUTION
    reading.enter_context(seam.only_reading(conf.get("pypandoc")))
    # The project's own styles come after the engine's and override them.
    config.html_static_path = [str(Path(__file__).parent / "static"), *config.html_static_path]
    config.html_css_files = ["gallery_recorder.css", *config.html_css_files]


@contextmanager
def _ending() -> Iterator[None]:
    """End the build with the message of an error, without a traceback."""
    try:
        yield
    except RecorderError as error:
        logger.error("%s", error)
        raise SystemExit(2) from error


def _unmeasured(function: Any) -> tuple[float, Any]:
    """Call *function* without measuring memory: pages show what was recorded."""
    return 0.0, function()


def _begin(execution: dict[str, Any], app: Sphinx) -> None:
    """Let sphinx-gallery make the pages whose script, recording or settings changed."""
    domain, source = domain_of(app.env), Path(app.srcdir)
    domain.before = before = load(app)
    domain.now = now = replace(before)
    conf, said = app.config.sphinx_gallery_conf, settings_of(app)
    current: dict[str, Page] = {}
    with seam.replaced(split_code_and_text_blocks=replay.splitting(current)):
        examples = list(reader.examples_of(app))
        with _ending():
            now.selection = selection.choose(app, before.selection, examples, conf | execution)
        main = now.selection.main
        now.stamps = {page.docname: f"{page.stamp} {said}" for page in main}
        unchanged = {
            page.docname: now.stamps[page.docname]
            for page in main
            if before.stamps.get(page.docname) == now.stamps[page.docname]
            and not conf["run_stale_examples"]
            and all((source / f"{p.docname}.rst").is_file() for p in (page, *page.views))
        }
        changed = {page.script.path for page in main if page.docname not in unchanged}
        current |= {str(page.script.path): page for page in main if page.script.path not in changed}
        # If this build is interrupted, the next one knows which pages are unchanged.
        save(app, now, stamps=unchanged)
        kept = {source / e.pages / e.path.stem for e in examples}
        kept |= {source / docname for docname in now.selection.pages}
        for _, gallery in seam.galleries(app):
            root = source / gallery
            if conf["write_computation_times"]:
                kept.add(root / "sg_execution_times")
                kept |= {source / e.pages / "sg_execution_times" for e in examples}
            gone = replay.left_over(root, kept, conf["example_extensions"])
            incremental.remove(gone, root)
        stand_in = replay.Replay(source, now.selection.pages, {*unchanged})
        with seam.replaced(**stand_in.functions()):
            seam.generate(app)
    for name in stand_in.failed:  # sphinx-gallery must report them in each build
        del now.stamps[name]
    made = now.selection.archives | stand_in.archives
    now.selection.archives = {path: archive for path, archive in made.items() if path.is_file()}
    write_marks(app, now.selection)
    pages.write_sources(app, now.selection)


def _summarize(app: Sphinx, _: Exception | None) -> None:
    """Let sphinx-gallery's summary say what the pages show, since no example was executed.

    It cannot be known whether an example without a current recording fails as expected.
    """
    pages = domain_of(app.env).now.selection.main
    unknown = {
        str(page.script.path)
        for page in pages
        if page.is_stale or (page.shown is None and page.later is None)
    }
    seam.expect_no_failure(unknown, app.config.sphinx_gallery_conf)
    shown = sum(page.shown is not None for page in pages)
    without = f", {len(pages) - shown} show no outputs" if shown < len(pages) else ""
    if stale := domain_of(app.env).stale:
        without += f", {len(stale)} of them outputs of older code ({', '.join(stale)})"
    seam.summarize(f"{shown} of {len(pages)} examples show recordings{without}.")


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Save the state for the next build."""
    domain = domain_of(app.env)
    if error is not None:
        return
    if domain.site:
        domain.now.sites = domain.now.sites | {incremental.output(app.builder): domain.site}
    save(app, domain.now)
