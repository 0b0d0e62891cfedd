"""One style sheet for all pages, one script that nothing waits for, and fonts as woff2 alone.

The theme, sphinx-gallery and this site bring a dozen style sheets, each of which a browser waits
for before it draws anything, and as many scripts. They become one file of each kind, in their
order; the script runs when the page has been drawn. The theme's own script and jQuery, on which
it stands, are left out: ``menu.js`` does what they did here. Every browser that the theme still
knows reads woff2, so the other formats, four fifths of the fonts' bytes, are left out, too. Rules
of the theme that only an icon, a form or a layout that reStructuredText never makes could match are
left out by the names of their classes, so that the sheet does not depend on what the pages say.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tinycss2
from sphinx.application import Sphinx

from gallery_recorder.render import downloads

#: The style sheet and the script that the others become, below the site's root.
FILE_NAME = "_static/site.css"
SCRIPT_NAME = "_static/site.js"

#: Scripts that no page of this site has a use for: jQuery with what brings old names back to it,
#: and sphinx-gallery's choice of tutorials by tag.
UNUSED = frozenset({"jquery.js", "_sphinx_javascript_frameworks_compat.js", "sg-tags.js"})

#: Classes and elements of the theme's rules that no page has; a test looks for them on all pages.
UNUSED_STYLES = re.compile(
    r"\.(fa-(?!bars\b)|icon-(?!home\b)|wy-(?:alert|btn|checkbox|control|dropdown|form-|help|inline|input"
    r"|menu-horiz|plain|radio|switch|table-(?!responsive\b)|text|tray)|btn-|pull-|switch-menus|rst-badge"
    r"|writer-html4|toctree-l(?:[5-9]|1\d))|(?<![\w.#-])tt(?![\w-])"
)

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
        sheets = sorted(context["css_files"], key=lambda sheet: sheet.priority)
        styles = [sheet for sheet in sheets if _can_be_joined(sheet)]
        scripts = [script for script in context["script_files"] if _can_be_joined(script)]
        used = [s for s in scripts if posixpath.basename(str(s.filename)) not in UNUSED]
        if not made:  # when the first page is written; all are copied by then
            root = Path(app.outdir)
            made.add(FILE_NAME)
            for name, files, parts in ((FILE_NAME, styles, joined), (SCRIPT_NAME, used, in_order)):
                text = parts(root, [str(file.filename) for file in files])
                downloads.write(root / name, text.encode())
        if styles:
            one = type(styles[0])(FILE_NAME, priority=200)
            context["css_files"] = [one, *(sheet for sheet in sheets if sheet not in styles)]
        if used:
            one = type(used[0])(SCRIPT_NAME, defer="defer")
            rest = [script for script in context["script_files"] if script not in scripts]
            context["script_files"] = [one, *rest]

    app.connect("write-started", begin)
    app.connect("html-page-context", join, priority=950)  # after those that add style sheets
    app.connect("build-finished", _remove_other_formats)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def joined(root: Path, names: list[str]) -> str:
    """The style sheets *names* below *root* as one in :data:`FILE_NAME`."""
    parts = []
    for name in names:
        text = (root / name).read_text(encoding="utf-8").removeprefix('@charset "UTF-8";')
        if posixpath.basename(name) == "theme.css":
            text = pruned(text)
        folder = posixpath.dirname(name)
        parts.append(_URL.sub(lambda match, folder=folder: _moved(match, folder), only_woff2(text)))
    return "\n".join(parts)


def pruned(text: str) -> str:
    """A style sheet without the selectors that :data:`UNUSED_STYLES` finds."""
    return "".join(_pruned(tinycss2.parse_stylesheet(text, True, True)))


def _pruned(rules: list[Any]) -> Iterator[str]:
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = tinycss2.serialize(rule.prelude).split(",")  # the theme's have none inside
            if used := [part for part in selectors if not UNUSED_STYLES.search(part)]:
                yield f"{','.join(used)}{{{tinycss2.serialize(rule.content)}}}"
        elif rule.type == "at-rule" and rule.lower_at_keyword == "media":
            inner = "".join(_pruned(tinycss2.parse_rule_list(rule.content, True, True)))
            if inner:
                yield f"@media{tinycss2.serialize(rule.prelude)}{{{inner}}}"
        else:
            yield rule.serialize()


def in_order(root: Path, names: list[str]) -> str:
    """The scripts *names* below *root* as one; a missing semicolon at an end does no harm."""
    return "\n;\n".join((root / name).read_text(encoding="utf-8") for name in names)


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


def _can_be_joined(file: Any) -> bool:
    name = str(getattr(file, "filename", ""))
    attributes = getattr(file, "attributes", {})
    return name.startswith("_static/") and set(attributes) <= {"rel", "type", "defer"}


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
