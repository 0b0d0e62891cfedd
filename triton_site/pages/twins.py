"""Pages for programs: each page as Markdown beside its HTML, and ``llms.txt``, which lists them.

``getting-started/tutorials/01-vector-add.md`` is the twin of the ``.html`` page; ``llms.txt``
(https://llmstxt.org) lists the twins in sections, each with a sentence. Lists of recordings, and
the pages of recordings that are not the reference's, are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from docutils import nodes
from sphinx.application import Sphinx

from gallery_recorder.api import downloads
from triton_site.pages.cards import first_sentence
from triton_site.pages.cells import page_of
from triton_site.pages.markdown import Writer
from triton_site.pages.path import LEVELS, path_of

#: What llms.txt says of the site.
SUMMARY = (
    "Tutorials on GPU kernels in Triton, executed on a GPU: each page has its code, outputs, "
    "measurements beside PyTorch and libraries, and exercises."
)
#: Sections behind the lessons: the beginning of their pages, and their titles.
_SECTIONS = {
    "kernels/": "Kernels for programs",
    "programming-guide/": "Guide",
    "python-api/": "Python API",
    "getting-started/tutorials/solutions/": "Solutions of exercises",
    "": "Look up",
}


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
    lines = [f"# {app.config.project}", "", f"> {SUMMARY}"]
    for title, pages in sections(app).items():
        lines += ["", f"## {title}", ""]
        lines += [_line(app, page) for page in pages]
    downloads.write(Path(app.outdir, "llms.txt"), ("\n".join(lines) + "\n").encode())


def sections(app: Sphinx) -> dict[str, list[str]]:
    """The documents of each section, in the order of the menu."""
    relations = app.env.collect_relations()
    left = [
        page for page in relations if page in app.env.titles and not _is_of_recordings(app, page)
    ]
    found: dict[str, list[str]] = {}
    for level, names in path_of(app.env).items():
        found[LEVELS[level]] = names
        left = [page for page in left if page not in names]
    for beginning, title in _SECTIONS.items():
        found[title] = [page for page in left if page.startswith(beginning)]
        left = [page for page in left if not page.startswith(beginning)]
    return {title: pages for title, pages in found.items() if pages}


def _is_of_recordings(app: Sphinx, page: str) -> bool:
    name = page.rpartition("/")[2]
    known = page_of(app, page)
    return name.startswith("recordings") or (known is not None and known.main != page)


def _line(app: Sphinx, page: str) -> str:
    address = urljoin(app.config.html_baseurl, f"{page}.md")
    sentence = first_sentence(app.env, app.env.get_doctree(page))
    link = f"- [{app.env.titles[page].astext()}]({address})"
    return f"{link}: {sentence}" if sentence else link
