"""Pages for programs: each page as Markdown beside its HTML, and ``llms.txt``, which lists them.

``getting-started/tutorials/01-vector-add.md`` is the twin of the ``.html`` page; ``llms.txt``
(https://llmstxt.org) lists all twins, in the order of the menu.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from docutils import nodes
from sphinx.application import Sphinx

from gallery_recorder.api import downloads
from triton_site.pages.markdown import Writer


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("html-page-context", _write_twin)
    app.connect("build-finished", _write_list)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_twin(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Write the twin of a page; generated pages, such as the index, have no document."""
    del template
    if doctree is not None and app.builder.name == "html":
        address = urljoin(app.config.html_baseurl, app.builder.get_target_uri(page))
        text = Writer(address).blocks(doctree.children)
        downloads.write(Path(app.outdir, f"{page}.md"), f"{text}\n".encode())
        context["twin"] = f"{page.rpartition('/')[2]}.md"


def _write_list(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.name != "html":
        return
    lines = [f"# {app.config.project}", ""]
    for page in app.env.collect_relations():
        if page in app.env.titles:
            address = urljoin(app.config.html_baseurl, f"{page}.md")
            lines.append(f"- [{app.env.titles[page].astext()}]({address})")
    downloads.write(Path(app.outdir, "llms.txt"), ("\n".join(lines) + "\n").encode())
