"""Incremental builds with the result of a full build.

Sphinx writes the pages whose source changed. Pages also show titles, links and menus of other
pages; if one of these changed, all pages are written. With ``gallery_menus = "titles"`` menus show
no sections, so a changed section lets no other page be written. Files of removed pages go.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.environment import BuildEnvironment

from gallery_recorder import seam
from gallery_recorder.render import assets, downloads, files
from gallery_recorder.render.domain import Site, domain_of
from gallery_recorder.store import atomic

#: Targets of references in Sphinx's domains that ``get_objects`` leaves out.
_REFERENCES = (("math", "objects"), ("citation", "citations"))


def setup(app: Sphinx) -> None:
    """Register the events."""
    app.connect("source-read", _note_minigallery)
    app.connect("doctree-read", _forget_archives)
    app.connect("env-before-read-docs", _note_read)
    app.connect("env-get-updated", _sort, priority=100)
    app.connect("env-get-updated", _write_all, priority=900)
    seam.before_writing(app, _before_writing)
    app.connect("build-finished", _remove_left_over)


# --- reading --------------------------------------------------------------------------------------


def _note_minigallery(app: Sphinx, docname: str, content: list[str]) -> None:
    """Let pages with a minigallery depend on the introductions of examples."""
    del docname
    if ".. minigallery::" in content[0]:
        domain_of(app.env).depends("introductions")


def _forget_archives(app: Sphinx, doctree: nodes.document) -> None:
    """Let no page depend on its archives, whose content it does not show."""
    del doctree
    depends = app.env.dependencies[app.env.docname]
    depends -= {name for name in depends if str(name).endswith(".zip")}


def _note_read(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    del app
    domain_of(env).read = set(docnames)


# --- writing --------------------------------------------------------------------------------------


def _sort(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Sort pages, which Sphinx keeps in the order in which it read them."""
    del app
    env.all_docs = dict(sorted(env.all_docs.items()))
    env.titles = dict(sorted(env.titles.items()))
    return []


def _write_all(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """All pages, if something that pages show from one another has changed."""
    domain, builder = domain_of(env), app.builder
    if builder.format != "html":
        return []
    loaded = (f"_downloads/{name}" for _, name in env.dlfiles.values())
    sections = files.digest(f"{name} {toc.pformat()}" for name, toc in sorted(env.tocs.items()))
    shown = files.digest([*_shown(env), sections * (app.config.gallery_menus == "sections")])
    written = {docname: _files_of(app, docname) for docname in env.all_docs}
    domain.assets = assets.of_pages(app, domain.selection.main)
    domain.site = Site(shown, sections, written, {*loaded, *domain.assets})
    before = domain.before.sites.get(output(builder))
    domain.all_are_written = before is None or domain.site.shown != before.shown
    return sorted(env.all_docs) if domain.all_are_written else []


def _shown(env: BuildEnvironment) -> Iterator[str]:
    """Titles, the order of pages, and targets of references."""
    for docname, title in sorted(env.longtitles.items()):
        yield f"{docname} {title.astext()}"
    yield repr(sorted(env.toctree_includes.items()))
    for name in sorted(seam.app_of(env).registry.domains):
        yield from sorted(map(repr, env.get_domain(name).get_objects()))
    for name, data in _REFERENCES:
        yield repr(sorted(env.get_domain(name).data[data].items()))


def output(builder: Builder) -> str:
    """The identity of an output: its builder and folder."""
    return f"{builder.name} {builder.outdir}"


def _before_writing(app: Sphinx) -> None:
    """Finish downloads, now that the environment is saved."""
    domain, builder = domain_of(app.env), app.builder
    written = None if domain.all_are_written else domain.read
    if builder.format == "html" and written is not None:
        before = domain.before.sites[output(builder)]
        if domain.site and domain.site.sections == before.sections:
            # No title and no section has changed, so the menus of parents are unchanged.
            app.env.files_to_rebuild = {}
    if getattr(builder, "download_support", False):  # an EPUB has none
        downloads.finish(app, domain.selection, written)


# --- removing -------------------------------------------------------------------------------------


def _remove_left_over(app: Sphinx, error: Exception | None) -> None:
    """Remove the files of removed pages, and downloads that no page offers."""
    domain, out = domain_of(app.env), Path(app.outdir)
    if error is not None or domain.site is None:
        return
    before = domain.before.sites.get(output(app.builder), Site())
    assets.copy(app, domain.assets, before.files)
    gone = [out / name for name in before.files - domain.site.files]
    kept = {path for paths in domain.site.pages.values() for path in paths}
    for docname in before.pages.keys() - domain.site.pages.keys():
        gone += [out / path for path in before.pages[docname] if path not in kept]
    remove(gone, out)


def _files_of(app: Sphinx, docname: str) -> tuple[str, ...]:
    """The files below the output folder that a build writes for the page *docname*."""
    builder: Any = app.builder
    page = os.path.relpath(builder.get_outfilename(docname), app.outdir)
    source = str(app.env.doc2path(docname, False))
    suffix = app.config.html_sourcelink_suffix
    if not source.endswith(suffix):
        source = f"{source}{suffix}"
    return (page, f"_sources/{source}")


def remove(paths: Iterable[Path], root: Path) -> None:
    """Remove files and folders, and then the empty folders above them, up to *root*."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        atomic.remove_empty_folders(path, root)
