"""Pages for programs: each page as Markdown beside it, and ``llms.txt``, which lists them.

``getting-started/tutorials/01-vector-add.md`` is the twin of the ``.html`` page. ``llms.txt``
(https://llmstxt.org) names the tutorials first, each with a sentence, then everything else;
``llms-full.txt`` holds the twins of all tutorials in one file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from gallery_recorder.render import downloads
from triton_site.pages.markdown import Writer
from triton_site.pages.search import SearchDomain

#: A sentence has fewer characters; what has more is a table.
LONGEST = 400
#: The parts of llms.txt: a heading, and how the names of its pages begin.
_PARTS = (
    ("Tutorials", r"getting-started/tutorials/(?!index|recordings-)[^/]+$"),
    ("Programming guide", r"programming-guide/(?!.*/recordings-)"),
    ("Python API", r"python-api/|glossary$"),
    ("Solutions to the exercises", r"getting-started/tutorials/solutions/"),
    ("Optional", r""),
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("html-page-context", _write_twin)
    app.connect("build-finished", _write_lists)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}


def _write_twin(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Write the twin of a page that is made of a document."""
    del template
    if doctree is None or app.builder.name != "html":
        return
    address = urljoin(app.config.html_baseurl, app.builder.get_target_uri(page))
    text = Writer(address).blocks(list(doctree.children), level=1)
    downloads.write(_twin(app, page), f"<!-- {address} -->\n\n{text}\n".encode())
    context["twin"] = page.rpartition("/")[2] + ".md"


def _twin(app: Sphinx, page: str) -> Path:
    return Path(app.outdir, f"{page}.md")


def _write_lists(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.name != "html":
        return
    env = app.env
    # Pages in the order of the menu; those that no menu has, at the end.
    related = env.collect_relations()
    order = [page for page in related if page in env.found_docs]
    order += sorted(env.found_docs - set(order))
    lines = [f"# {app.config.project}", "", f"> {_sentence(env, app.config.root_doc)}"]
    full = []
    waiting = [page for page in order if page != app.config.root_doc]
    for heading, pattern in _PARTS:
        mine = [page for page in waiting if re.match(pattern, page)]
        waiting = [page for page in waiting if page not in mine]
        lines += ["", f"## {heading}", ""]
        for page in mine:
            address = urljoin(app.config.html_baseurl, f"{page}.md")
            lines.append(f"- [{env.titles[page].astext()}]({address}): {_sentence(env, page)}")
            if heading == "Tutorials":
                full.append(_twin(app, page).read_text(encoding="utf-8"))
    downloads.write(Path(app.outdir, "llms.txt"), ("\n".join(lines) + "\n").encode())
    downloads.write(Path(app.outdir, "llms-full.txt"), "\n\n".join(full).encode())


def _sentence(env: BuildEnvironment, page: str) -> str:
    """The first sentence of a page."""
    sections = env.domaindata[SearchDomain.name]["pages"].get(page, [])
    prose = sections[0].prose if sections else ""
    first = re.split(r"(?<=[.!?])\s", prose, maxsplit=1)[0]
    return first if len(first) < LONGEST else "A table."
