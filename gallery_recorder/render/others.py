"""Pages as their other recordings have them, for a site whose readers may choose.

With ``gallery_others = True``, a page with several current recordings is read once for each: first
as the others have it, in turn, and last as the one that it shows, which is what Sphinx keeps. While
the page is written, :func:`bodies` gives a site's own extension what the others' bodies are.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.osutil import relative_uri

from gallery_recorder.render import downloads, notebook
from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.selection import Page

#: Where files of a page lie below its folder: Sphinx looks for no pages in a folder of this name,
#: and sphinx-gallery, so deep, for no scripts. So a file is a file, whatever its name.
_OPAQUE = "_sources"


def setup(app: Sphinx) -> None:
    """Register the events."""
    app.connect("builder-inited", _read_views_first)
    app.connect("source-read", _take_source)
    app.connect("doctree-resolved", _resolve, priority=990)


def views_of(env: BuildEnvironment, docname: str) -> list[Page]:
    """The page *docname* as each of its other recordings has it."""
    page = domain_of(env).pages.get(docname)
    return page.views if page else []


@contextmanager
def shown_as(env: BuildEnvironment, view: Page) -> Iterator[Page]:
    """Have everybody who asks for a page get its *view*."""
    pages = domain_of(env).pages
    shown, pages[view.docname] = pages[view.docname], view
    try:
        yield view
    finally:
        pages[view.docname] = shown


# --- the sources ----------------------------------------------------------------------------------


def folder(source: Path, page: Page) -> Path:
    """Where the files of a page lie; those of a view are by themselves."""
    own = source / page.docname / _OPAQUE
    return own / ".views" / page.view if page.view else own


def file(source: Path, view: Page, suffix: str) -> Path:
    """The notebook or archive of a *view*; also, for a moment, its source."""
    return folder(source, view) / f"{view.docname}{suffix}"


def source_of(source: Path, view: Page) -> Path:
    """The source of a *view*, which is no page of its own."""
    return file(source, view, ".view")


def forget(source: Path, page: Page) -> None:
    """Remove the files of all views of a page."""
    shutil.rmtree(folder(source, page) / ".views", ignore_errors=True)


def finish_source(source: Path, view: Page) -> None:
    """Have the source of a *view* lead to its own notebook and archive, which are made later."""
    path = file(source, view, ".rst")
    text, stem = path.read_text(encoding="utf-8"), path.stem
    for suffix in (".ipynb", ".zip"):
        own = file(source, view, suffix)
        own.touch()
        text = text.replace(f"<{stem}{suffix}>", f"</{own.relative_to(source).as_posix()}>")
    source_of(source, view).write_text(text, encoding="utf-8")
    path.unlink()


# --- reading them ---------------------------------------------------------------------------------


def _read_views_first(app: Sphinx) -> None:
    builder: Any = app.builder
    read = builder.read_doc

    def read_doc(docname: str, **named: Any) -> None:
        for view in views_of(app.env, docname):
            with shown_as(app.env, view):
                read(docname, **named)
            os.replace(_doctree(app, domain_of(app.env).pages[docname]), _doctree(app, view))
            for domain in app.env.domains.values():
                domain.clear_doc(docname)
        read(docname, **named)

    builder.read_doc = read_doc


def _doctree(app: Sphinx, page: Page) -> Path:
    return Path(app.doctreedir, f"{page.docname}{page.view and '.' + page.view}.doctree")


def _take_source(app: Sphinx, docname: str, content: list[str]) -> None:
    page = domain_of(app.env).pages.get(docname)
    if page and page.view:
        content[0] = source_of(Path(app.srcdir), page).read_text(encoding="utf-8")


# --- writing them ---------------------------------------------------------------------------------


def fill(app: Sphinx, written: set[str] | None) -> None:
    """Make the notebooks and archives of views of the pages *written*; None stands for all."""
    source, target = Path(app.srcdir), Path(app.doctreedir, downloads.FOLDER)
    archives = domain_of(app.env).selection.archives
    for docname in domain_of(app.env).pages:
        unfilled = source / f"{docname}.ipynb"
        for view in views_of(app.env, docname):
            path, archive = (file(target, view, suffix) for suffix in (".ipynb", ".zip"))
            if unfilled.is_file() and (written is None or docname in written or not path.is_file()):
                with shown_as(app.env, view):
                    content = notebook.with_outputs(unfilled.read_bytes(), view, app)
                downloads.write(path, content)
            if own := archives.get(unfilled.with_suffix(".zip")):
                own.write(archive, {unfilled: path})


def _resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Resolve the references of a page's views: where its own are, before processes part."""
    if app.builder.format != "html":
        return
    resolved = []
    builder: Any = app.builder  # whose folder of images is as of the page that was written last
    builder.imgpath = relative_uri(builder.get_target_uri(docname), builder.imagedir)
    for view in views_of(app.env, docname):
        with shown_as(app.env, view):
            made = pickle.loads(_doctree(app, view).read_bytes())
            made.settings.env, made.reporter = app.env, doctree.reporter
            app.env.apply_post_transforms(made, docname)
            builder.post_process_images(made)
        resolved.append((view, made))
    domain_of(app.env).resolved[docname] = resolved


def bodies(app: Sphinx, docname: str) -> Iterator[tuple[Page, str]]:
    """Each view of the page that is being written, with the HTML of its body."""
    builder: Any = app.builder
    for view, doctree in domain_of(app.env).resolved.pop(docname, ()):
        doctree.settings = builder.docsettings
        visitor = builder.create_translator(doctree, builder)
        with shown_as(app.env, view):
            doctree.walkabout(visitor)
        yield view, "".join(visitor.fragment)
