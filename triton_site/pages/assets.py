"""Scripts and style sheets only on pages that use them, and code in few elements.

An extension that has a script for its node says so with :func:`load_where`. The files of other
extensions, which are added to every page, are chosen here. In code, tokens that no rule of ours
colors have no element: that is two thirds of a lesson's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from docutils import nodes
from pygments.formatters import HtmlFormatter
from pygments.token import Name, Operator, Punctuation, Text, Whitespace
from sphinx.application import Sphinx

#: Files that no page needs: our rules color code, and nothing uses jQuery or Sphinx's search.
_UNUSED = {
    "pygments.css",
    "sg_gallery.css",
    "sg_gallery-binder.css",
    "sg_gallery-dataframe.css",
    "sg_gallery-rendered-html.css",
    "sg-tags.js",
    "gallery_recorder.css",
    "jquery.js",
    "_sphinx_javascript_frameworks_compat.js",
    "doctools.js",
    "sphinx_highlight.js",
}
#: Files for the buttons that copy code.
_FOR_CODE = {"copybutton.css", "clipboard.min.js", "copybutton.js", "documentation_options.js"}
#: Sphinx draws text of these kinds in the color of the text around it.
_PLAIN = {Name, Operator, Punctuation, Whitespace}
#: Their classes, in blocks in which sphinx-gallery has linked names.
_PLAIN_CLASSES = (["n"], ["o"], ["p"], ["w"])


class PlainFormatter(HtmlFormatter[str]):
    """Writes code without elements around tokens that have no color."""

    def format(self, tokensource: Any, outfile: Any) -> None:
        """Write the tokens; adjacent plain ones become one piece of text."""
        super().format(_without_kinds(tokensource), outfile)


def _without_kinds(tokens: Any) -> Iterator[tuple[Any, str]]:
    for kind, text in tokens:
        yield (Text if kind in _PLAIN else kind, text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Choose after all others have added their files."""
    app.connect("builder-inited", _use_formatter)
    app.connect("doctree-resolved", _simplify_linked_code, priority=900)
    app.connect("html-page-context", _choose, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def load_where(app: Sphinx, script: str, used: Callable[[nodes.Node], bool]) -> None:
    """Load *script* on the pages that have a node for which *used* is true."""

    def load(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
        del page, template, context
        if doctree is not None and next(doctree.findall(used), None) is not None:
            app.add_js_file(script, loading_method="defer", priority=850)  # after site.js

    app.connect("html-page-context", load)


def is_a(*kinds: type[nodes.Node]) -> Callable[[nodes.Node], bool]:
    """A condition for :func:`load_where`: the node is of one of the *kinds*."""
    return lambda node: isinstance(node, kinds)


def _use_formatter(app: Sphinx) -> None:
    if app.builder.format == "html":
        app.builder.highlighter.formatter = PlainFormatter  # type: ignore[attr-defined]


def _simplify_linked_code(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the elements of plain tokens by their text, where names are linked."""
    del app, docname
    for block in doctree.findall(is_linked_code):
        for token in list(block.findall(nodes.inline)):
            if token["classes"] in _PLAIN_CLASSES:
                token.parent.replace(token, nodes.Text(token.astext()))


def is_linked_code(node: nodes.Node) -> bool:
    """Whether *node* is a code block in which sphinx-gallery has linked names."""
    return isinstance(node, nodes.Element) and "lang" in node


def _has_code(doctree: nodes.document | None) -> bool:
    if doctree is None:
        return False
    blocks = doctree.findall(lambda n: isinstance(n, nodes.literal_block) or is_linked_code(n))
    return next(blocks, None) is not None


def _choose(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    del app, pagename, template
    unused = _UNUSED if _has_code(doctree) else _UNUSED | _FOR_CODE
    for kind in ("css_files", "script_files"):
        files = context.get(kind, ())
        context[kind] = [_deferred(file) for file in files if _name(file) not in unused]


def _name(file: Any) -> str:
    return str(file.filename).partition("?")[0].rpartition("/")[2]


def _deferred(file: Any) -> Any:
    """A script that waits until the page is drawn; a style sheet as it is."""
    if not _name(file).endswith(".js") or {"defer", "async"} & file.attributes.keys():
        return file
    made = type(file)  # of Sphinx
    return made(file.filename, priority=file.priority, **file.attributes | {"defer": ""})
