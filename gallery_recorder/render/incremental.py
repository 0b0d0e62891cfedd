"""A second build equals a first one: what has to be written again, and what has to go.

Sphinx writes pages whose source changed. A page also shows titles, links and menus that come from
others, so where one of these changed, all are written again. Files of pages that are gone are
removed.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.environment import BuildEnvironment

from gallery_recorder import seam
from gallery_recorder.render import downloads, files, others, sphinx_faults
from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.state import Site

#: Data of Sphinx's domains that references are resolved with, and that ``get_objects`` leaves out.
_REFERENCES = (("math", "objects"), ("citation", "citations"))


def setup(app: Sphinx) -> None:
    """Register the events."""
    app.connect("source-read", _note_minigallery)
    app.connect("doctree-read", _note_contents, priority=900)  # after the table of contents
    app.connect("env-before-read-docs", _note_read)
    app.connect("env-get-updated", _shows_changed, priority=900)
    app.connect("write-started", _before_writing)
    app.connect("build-finished", _remove_left_over)


# --- what is read again ---------------------------------------------------------------------------


def _note_minigallery(app: Sphinx, docname: str, content: list[str]) -> None:
    """A page with cards of scripts shows their introductions."""
    del docname
    if ".. minigallery::" in content[0]:
        domain_of(app.env).depends("introductions")


def _note_contents(app: Sphinx, doctree: nodes.document) -> None:
    """Remember what a page has for menus: its title and sections.

    Archives are offered on pages, and not shown: what is in them has no page read again.
    """
    del doctree
    env, docname = app.env, app.env.docname
    title, toc = env.longtitles.get(docname), env.tocs.get(docname)
    parts = (title.astext() if title else "", toc.pformat() if toc else "")
    domain_of(env).data["contents"][docname] = files.digest(parts)
    depends = env.dependencies[docname]
    depends -= {name for name in depends if str(name).endswith(".zip")}


def _note_read(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    del app
    domain_of(env).read = set(docnames)


# --- what is written again ------------------------------------------------------------------------


def _shows_changed(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """All pages, where what pages show of one another has changed."""
    domain, builder = domain_of(env), app.builder
    if builder.format != "html":
        return []
    images, loaded = env.images.values(), env.dlfiles.values()
    folders = {Path(app.srcdir, docname).parent for docname in env.all_docs}
    figures = {path.name for folder in folders for path in folder.glob("images/*")}
    figures |= {name for _, name in images}  # of others, what sphinx-gallery copies is none
    domain.site = Site(
        shown=files.digest(_shown(env, builder)),
        pages=set(env.all_docs),
        files={f"_images/{name}" for name in figures} | {f"_downloads/{n}" for _, n in loaded},
    )
    before = domain.before.sites.get(output(builder))
    domain.all_are_written = before is None or domain.site.shown != before.shown
    return sorted(env.all_docs) if domain.all_are_written else []


def _shown(env: BuildEnvironment, builder: Any) -> Iterator[str]:
    """Titles, sections, the order of pages, everything that can be referred to; styles, settings.

    Pages name style sheets and scripts with a checksum, and Sphinx leaves that of before on those
    that it does not write again.
    """
    yield repr(sorted(domain_of(env).data["contents"].items()))
    yield repr(sorted(env.toctree_includes.items()))
    for name in sorted(seam.app_of(env).registry.domains):
        yield from sorted(map(repr, env.get_domain(name).get_objects()))
    for name, data in _REFERENCES:
        yield repr(sorted(env.get_domain(name).data[data].items()))
    conf = builder.config
    names = [*conf.html_static_path, *filter(None, (conf.html_logo, conf.html_favicon))]
    static = [Path(builder.confdir, name) for name in names]
    static += [Path(folder, "static") for folder in builder.theme.get_theme_dirs()]
    yield from files.times(static)
    info = getattr(builder, "build_info", None)  # for which Sphinx writes every page again
    yield f"{info.config_hash} {info.tags_hash}" if info else ""


def rest(builder: Builder) -> str:
    """Digest of the names and sizes of what was written besides pages, as it is now."""
    out = Path(builder.outdir)
    found = sorted([*out.glob("*"), *out.glob("_static/**/*")])
    return files.digest(f"{path.name} {path.lstat().st_size}" for path in found)


def output(builder: Builder) -> str:
    """What a build is of: its builder and folder."""
    return f"{builder.name} {builder.outdir}"


def _before_writing(app: Sphinx, builder: Builder) -> None:
    domain = domain_of(app.env)
    if builder.format != "html":
        return
    written = None if domain.all_are_written else domain.read
    if written is not None:
        sphinx_faults.leave_parents_alone(app.env)
        if domain.before.sites[output(builder)].rest == rest(builder):
            sphinx_faults.leave_what_is_there(builder)
    if domain.kept and written == set():
        return  # there is nothing new to be downloaded
    downloads.fill(app, domain.selection, domain.before.selection.archives, written)
    others.fill(app, written)


# --- what goes ------------------------------------------------------------------------------------


def _remove_left_over(app: Sphinx, error: Exception | None) -> None:
    """Remove the files of pages that are gone, and of images that no page has any more."""
    domain, out = domain_of(app.env), Path(app.outdir)
    builder: Any = app.builder
    if error is not None or domain.site is None:
        return
    before = domain.before.sites.get(output(builder), Site())
    gone = [out / name for name in before.files - domain.site.files]
    gone.append(out / ".buildinfo.bak")  # of the settings before, which nobody publishes
    for docname in before.pages - domain.site.pages:
        page = Path(builder.get_outfilename(docname))
        gone += page.parent.glob(f"{glob.escape(page.stem)}.*")
        gone += (out / "_sources").glob(f"{glob.escape(docname)}.*")
    sphinx_faults.remove(gone, out)
