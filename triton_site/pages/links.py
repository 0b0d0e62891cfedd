"""Where to edit a page and where to run its notebook: ``edit_url`` and ``colab_url``.

The templates get both, and a ``description`` for link previews. The addresses are below the
``repository`` and ``branch`` of ``html_context``. Colab opens notebooks from GitHub, so its link
leads to the published notebook.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from triton_site.pages.cards import first_paragraph
from triton_site.pages.cells import page_of

#: The branch that holds the published site.
SITE_BRANCH = "gh-pages"
COLAB = "https://colab.research.google.com"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    # {folder of assembled scripts: folder of the scripts that people edit}
    app.add_config_value("assembled_sources", {}, "env", (dict,))
    app.connect("doctree-read", _remove_note)
    app.connect("html-page-context", _add_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _remove_note(app: Sphinx, doctree: nodes.document) -> None:
    """Remove sphinx-gallery's note on downloads; the templates link to them."""
    del app
    for note in list(doctree.findall(nodes.note)):
        if "sphx-glr-download-link-note" in note["classes"]:
            note.parent.remove(note)


def _add_links(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    del template
    if "repository" not in context or doctree is None:  # search and index pages have no source
        return
    context["description"] = first_paragraph(app.env, doctree)[:200]
    github, branch = context["repository"], context["branch"]
    source = source_of(app, pagename)
    if source.is_file():  # generated pages of recordings have none
        path = source.relative_to(app.confdir).as_posix()
        context["edit_url"] = f"https://github.com/{github}/edit/{branch}/{path}"
    notebook = f"/{pagename.rpartition('/')[2]}.ipynb"
    page = page_of(app, pagename)
    script = f"/{page.main.rpartition('/')[2]}.py" if page else "/"
    for download in doctree.findall(addnodes.download_reference):
        target = download.get("filename", "")  # HASH/NAME
        if target.endswith(script):
            context["script_file"] = f"_downloads/{target}"
        if target.endswith(notebook):
            context["notebook_file"] = f"_downloads/{target}"
            published = f"{github}/blob/{SITE_BRANCH}/{context.get('version_name', branch)}"
            context["colab_url"] = f"{COLAB}/github/{published}/_downloads/{target}"


def source_of(app: Sphinx, docname: str) -> Path:
    """The file to edit in order to change the page *docname*."""
    if page := page_of(app, docname):
        docname = page.main
    gallery = app.config.sphinx_gallery_conf
    for folder, output in zip(gallery["examples_dirs"], gallery["gallery_dirs"], strict=True):
        if docname.startswith(f"{output}/"):
            sources = Path(app.config.assembled_sources.get(str(folder), folder))
            script = sources / docname.removeprefix(f"{output}/")
            if script.name == "index":
                return script.with_name("GALLERY_HEADER.rst")
            return script.with_name(f"{script.name}.py")
    edited = app.env.metadata[docname].get("edit")  # of a page that includes another file
    if edited:
        return Path(app.confdir, edited)
    return Path(app.env.doc2path(docname))
