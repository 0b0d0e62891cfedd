"""Where a page can be edited and where its notebook can be run: ``edit_url`` and ``colab_url``.

Both come from one setting in ``conf.py``, the repository on GitHub, and go to the templates::

    html_context = {"repository": "OWNER/NAME", "branch": "main"}

A tutorial's page is generated, so its link leads to the script. Colab opens notebooks from GitHub
alone, so that link leads to the published notebook, on the branch that the site is served from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

#: The branch that holds the published site.
SITE_BRANCH = "gh-pages"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    # Folders of assembled scripts, and where those are kept that a person edits.
    app.add_config_value("assembled_sources", {}, "env", (dict,))
    app.connect("doctree-read", _remove_note)
    app.connect("html-page-context", _add_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _remove_note(app: Sphinx, doctree: nodes.document) -> None:
    """Take sphinx-gallery's note off, which would begin each page and each search result.

    It says where the downloads are; the templates say it beside the breadcrumbs.
    """
    del app
    for note in list(doctree.findall(nodes.note)):
        if "sphx-glr-download-link-note" in note["classes"]:
            note.parent.remove(note)


def _add_links(
    app: Sphinx,
    pagename: str,
    template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    del template
    if "repository" not in context or doctree is None:  # search and index pages have no source
        return
    repository, branch = context["repository"], context["branch"]
    source = source_of(app, pagename)
    if source.is_file():  # a page of recordings is made of many
        path = source.relative_to(app.confdir).as_posix()
        context["edit_url"] = f"https://github.com/{repository}/edit/{branch}/{path}"
    for download in doctree.findall(addnodes.download_reference):
        target = download.get("filename", "")  # HASH/NAME
        if target.endswith(f"/{Path(pagename).name}.ipynb"):
            version = context.get("version_name") or branch
            context["colab_url"] = (
                f"https://colab.research.google.com/github/{repository}/blob/{SITE_BRANCH}"
                f"/{version}/_downloads/{target}"
            )


def source_of(app: Sphinx, docname: str) -> Path:
    """The file that a person edits to change the page *docname*."""
    gallery = app.config.sphinx_gallery_conf
    folders, outputs = (
        [value] if isinstance(value, str) else value
        for value in (gallery["examples_dirs"], gallery["gallery_dirs"])
    )
    for folder, output in zip(folders, outputs, strict=True):
        if docname.startswith(f"{output}/"):
            folder = app.config.assembled_sources.get(str(folder), folder)
            script = Path(app.srcdir, folder, docname.removeprefix(f"{output}/")).resolve()
            if script.name == "index":
                return script.with_name("GALLERY_HEADER.rst")
            return script.with_name(f"{script.name}.py")
    return Path(app.env.doc2path(docname))
