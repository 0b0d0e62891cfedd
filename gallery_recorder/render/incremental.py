"""A second build equals a first one: what has to be written again, and what has to go.

Sphinx writes pages whose source changed. A page also shows titles, links and menus that come from
others, so where one of these changed, all are written again. Files of pages that are gone are
removed.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.environment import BuildEnvironment

from gallery_recorder.render import downloads, files, seam, sphinx_faults
from gallery_recorder.render.domain import domain_of

#: Data of Sphinx's domains that references are resolved with, and that ``get_objects`` leaves out.
_REFERENCES = {
    "std": ("labels", "anonlabels", "terms"),
    "math": ("objects",),
    "citation": ("citations",),
}


def setup(app: Sphinx) -> None:
    """Register the events."""
    app.connect("env-purge-doc", _note_files, priority=100)  # before Sphinx forgets them
    app.connect("doctree-read", _note_contents, priority=900)  # after the table of contents
    app.connect("source-read", _note_minigallery)
    app.connect("env-before-read-docs", _note_read)
    app.connect("env-get-outdated", _made_from_changed)
    app.connect("env-get-updated", _shows_changed, priority=900)
    app.connect("write-started", _fill_downloads)
    app.connect("build-finished", _remove_left_over)


# --- what is read again ---------------------------------------------------------------------------


def _note_minigallery(app: Sphinx, docname: str, content: list[str]) -> None:
    if ".. minigallery::" in content[0]:
        domain_of(app.env).depends(docname, "introductions")


def _made_from_changed(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Pages made from recordings or introductions are read again when one of these changed."""
    del app, added, changed
    domain = domain_of(env)
    domain.removed = bool(removed)
    now, before = domain.choice.digests if domain.choice else {}, domain.data["digests"]
    differ = {name for name, digest in now.items() if before.get(name) != digest}
    domain.data["digests"] = now
    return [docname for docname, on in domain.data["dependents"].items() if differ & on]


# --- what is written again ------------------------------------------------------------------------


def _note_contents(app: Sphinx, doctree: nodes.document) -> None:
    """Remember what a page has for menus: its title and sections."""
    del doctree
    docname = app.env.docname
    toc = app.env.tocs.get(docname)
    parts = [app.env.longtitles[docname].astext()] if docname in app.env.longtitles else []
    for node in toc.findall() if toc is not None else ():
        if isinstance(node, nodes.reference):
            parts.append(f"{node['anchorname']} {node.pformat()}")
        elif isinstance(node, addnodes.toctree):
            parts.append(f"{node.get('caption')} {node['entries']} {node.get('hidden')}")
        else:
            parts.append(node.tagname)
    domain_of(app.env).data["contents"][docname] = files.digest(parts)


def _note_read(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    domain = domain_of(env)
    domain.read = set(docnames)


def _shows_changed(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """All pages, where what pages show of one another has changed."""
    domain = domain_of(env)
    if app.builder.format != "html":
        domain.shown, domain.all_are_written = {}, False
        return []
    domain.shown = {
        "pages": files.digest(_shown(env)),
        "static": sphinx_faults.static_digest(app.builder),
        "settings": _settings(app.builder),
    }
    before = domain.before.shown.get(output(app.builder), {})
    domain.all_are_written = domain.shown != before
    return sorted(env.all_docs) if domain.all_are_written and before else []


def _shown(env: BuildEnvironment) -> Iterator[str]:
    """Titles, sections, the order of pages, and everything that can be referred to."""
    yield from (f"{name} {digest}" for name, digest in sorted(_contents(env).items()))
    yield repr(sorted(env.toctree_includes.items()))
    for name in sorted(seam.app_of(env).registry.domains):
        domain = env.get_domain(name)
        yield domain.name
        yield from sorted(map(repr, domain.get_objects()))
        for name in _REFERENCES.get(domain.name, ()):
            yield from sorted(f"{key} {_plain(value)}" for key, value in _data(domain, name))


def _contents(env: BuildEnvironment) -> dict[str, str]:
    return domain_of(env).data["contents"]


def _data(domain: Any, name: str) -> Iterable[tuple[Any, Any]]:
    found = domain.data.get(name)
    return found.items() if isinstance(found, dict) else ()


def _plain(value: Any) -> str:
    parts = value if isinstance(value, tuple | list) else [value]
    return repr([part.astext() if isinstance(part, nodes.Node) else str(part) for part in parts])


def _settings(builder: Builder) -> str:
    """Of the settings for which Sphinx writes every page again."""
    info = getattr(builder, "build_info", None)
    return f"{info.config_hash} {info.tags_hash}" if info else ""


def output(builder: Builder) -> str:
    """What a build is of: its builder and folder."""
    return f"{builder.name} {builder.outdir}"


def _fill_downloads(app: Sphinx, builder: Builder) -> None:
    domain = domain_of(app.env)
    if not domain.all_are_written and builder.format == "html":
        sphinx_faults.parents_are_left_alone(app.env)
    downloads.fill(app, builder, None if domain.all_are_written else domain.read)


# --- what goes ------------------------------------------------------------------------------------


def _note_files(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    """Remember the files of a page that is read again or gone."""
    domain = domain_of(env)
    if domain.files is None:
        domain.files = {}
        for folder, listed in (("_images", env.images), ("_downloads", env.dlfiles)):
            for docnames, name in listed.values():
                for user in docnames:
                    domain.files.setdefault(user, set()).add(f"{folder}/{name}")
    domain.maybe_gone |= domain.files.get(docname, set())
    domain.purged.add(docname)


def _remove_left_over(app: Sphinx, error: Exception | None) -> None:
    """Remove the files of pages that are gone, and of images that no page has any more."""
    if error is not None or app.builder.format != "html":
        return
    env, domain, out = app.env, domain_of(app.env), Path(app.outdir)
    builder: Any = app.builder
    used = {f"_images/{name}" for _, name in env.images.values()}
    used |= {f"_downloads/{name}" for _, name in env.dlfiles.values()}
    gone = [out / name for name in domain.maybe_gone - used]
    gone.append(out / ".buildinfo.bak")  # of the settings before, which nobody publishes
    for docname in domain.purged - env.all_docs.keys():
        page = Path(builder.get_outfilename(docname))
        gone += page.parent.glob(f"{glob.escape(page.stem)}.*")
        gone += (out / "_sources").glob(f"{glob.escape(docname)}.*")
    sphinx_faults.remove(gone, out)
