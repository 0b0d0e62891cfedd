"""One style sheet for all pages, scripts that nothing waits for, and fonts as woff2 alone.

The theme, sphinx-gallery and this site bring a dozen style sheets, each of which a browser waits
for before it draws anything. They become one file, in their order. Scripts are run when the page
has been drawn; ``layout.html`` has the theme's own do the same. Every browser that the theme
still knows reads woff2, so the other formats, four fifths of the fonts' bytes, are left out.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

#: The style sheet that the others become, below the site's root.
FILE_NAME = "_static/site.css"

_OTHER_FORMATS = (".eot", ".svg", ".ttf", ".woff")
_URL = re.compile(r"""url\(\s*(["']?)(?!data:|https?:|/|#)([^)"']+)\1\s*\)""")
_FACE = re.compile(r"@font-face\s*{[^}]*}")
_SOURCE = re.compile(r"src\s*:\s*([^;}]*);?")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    made: set[str] = set()

    def begin(app: Sphinx, builder: object) -> None:
        made.clear()

    def join(
        app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
    ) -> None:
        context["script_files"] = [_deferred(script) for script in context["script_files"]]
        sheets = sorted(context["css_files"], key=lambda sheet: sheet.priority)
        local = [sheet for sheet in sheets if _can_be_joined(sheet)]
        if not local:
            return
        if not made:  # when the first page is written; all are copied by then
            names = [str(sheet.filename) for sheet in local]
            Path(app.outdir, FILE_NAME).write_text(joined(Path(app.outdir), names), "utf-8")
            made.add(FILE_NAME)
        one = type(local[0])(FILE_NAME, priority=200)
        context["css_files"] = [one, *(sheet for sheet in sheets if sheet not in local)]

    app.connect("write-started", begin)
    app.connect("html-page-context", join, priority=950)  # after those that add style sheets
    app.connect("build-finished", _remove_other_formats)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _deferred(script: Any) -> Any:
    attributes = dict(getattr(script, "attributes", {}))
    if not getattr(script, "filename", None) or attributes.keys() & {"async", "defer", "type"}:
        return script
    made = attributes | {"defer": "defer"}
    return type(script)(script.filename, priority=script.priority, **made)


def joined(root: Path, names: list[str]) -> str:
    """The style sheets *names* below *root* as one in :data:`FILE_NAME`."""
    parts = []
    for name in names:
        text = (root / name).read_text(encoding="utf-8").removeprefix('@charset "UTF-8";')
        folder = posixpath.dirname(name)
        parts.append(_URL.sub(lambda match, folder=folder: _moved(match, folder), only_woff2(text)))
    return "\n".join(parts)


def only_woff2(text: str) -> str:
    """A style sheet whose fonts have no other format, where there is a woff2."""
    return _FACE.sub(lambda face: _one_source(face[0]), text)


def _one_source(face: str) -> str:
    sources = [part.strip() for found in _SOURCE.findall(face) for part in found.split(",")]
    wanted = [source for source in sources if "woff2" in source]
    if not wanted:
        return face
    rest = _SOURCE.sub("", face).rstrip("} \n")
    return f"{rest}{'' if rest.endswith((';', '{')) else ';'}src:{wanted[0]}}}"


def _moved(match: re.Match[str], folder: str) -> str:
    """A ``url(…)`` as it is written from the folder of the joined style sheet."""
    path = posixpath.relpath(posixpath.join(folder, match[2]), posixpath.dirname(FILE_NAME))
    return f'url("{path}")'


def _can_be_joined(sheet: Any) -> bool:
    name = str(getattr(sheet, "filename", ""))
    attributes = getattr(sheet, "attributes", {})
    return name.startswith("_static/") and set(attributes) <= {"rel", "type"}


def _remove_other_formats(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    static = Path(app.outdir, "_static")
    for path in static.rglob("*"):
        if path.suffix in _OTHER_FORMATS and path.with_suffix(".woff2").is_file():
            path.unlink()
        elif path.suffix == ".css":
            text = path.read_text(encoding="utf-8")
            if (lean := only_woff2(text)) != text:
                path.write_text(lean, encoding="utf-8")
