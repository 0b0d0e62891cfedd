"""The sentence of each name of the API and of each word of the glossary, which links to them show.

``_static/previews-data.js`` has them by their addresses; ``previews.js`` loads it when a reader
first rests on such a link.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from gallery_recorder.api import downloads
from triton_site.pages.search import SearchDomain, with_titles

#: Characters of a sentence at most.
_MOST = 240
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the file when all pages have been read."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    found = {}
    for docname, sections in app.env.domaindata[SearchDomain.name]["pages"].items():
        if not docname.startswith(("glossary", "python-api/")):
            continue
        for section in sections:
            if section.kind in ("term", "entry") and section.prose:
                address = f"{app.builder.get_target_uri(docname)}#{section.anchor}"
                found[address] = _sentence(section.prose)
    text = with_titles(app.env, json.dumps(found, ensure_ascii=False, separators=(",", ":")))
    content = f"galleryPreviews({text});\n".encode()
    downloads.write(Path(app.outdir, "_static", "previews-data.js"), content)


def _sentence(prose: str) -> str:
    first = _SENTENCE.split(prose)[0]
    if len(first) <= _MOST:
        return first
    return f"{first[:_MOST].rpartition(' ')[0]} …"
