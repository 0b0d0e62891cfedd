"""Every name of sphinx-gallery that rendering uses beyond its documented ones, checked on start.

Another version of sphinx-gallery may have moved or changed them; :func:`check` says then which,
before anything is built.
"""

from __future__ import annotations

import inspect
from html import escape
from typing import Any

from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx_gallery import __version__ as sphinx_gallery_version
from sphinx_gallery import gen_gallery, gen_rst, py_source_parser, utils

try:
    from sphinx_gallery import _doctree_links
except ImportError:  # before 0.22, links were put into finished pages
    _doctree_links = None  # type: ignore[assignment]

#: What each replaced or borrowed function takes.
_PARAMETERS = {
    (gen_rst, "execute_script"): ("script_blocks", "script_vars", "gallery_conf", "file_conf"),
    (gen_rst, "jupyter_notebook"): ("script_blocks", "gallery_conf", "target_dir"),
    (gen_rst, "zip_files"): ("file_list", "zipname", "relative_to", "extension"),
    (gen_gallery, "generate_gallery_rst"): ("app",),
    (utils, "zip_files"): ("file_list", "zipname", "relative_to", "extension"),
    (utils, "get_md5sum"): ("src_file", "mode"),
    (py_source_parser, "split_code_and_text_blocks"): ("source_file", "return_node"),
}
if _doctree_links:
    _PARAMETERS |= {
        (_doctree_links, "_load_code_obj"): ("env", "docname"),
        (_doctree_links, "_lexer_name"): ("lang", "code"),
        (_doctree_links, "_pygments_class"): ("ttype",),
        (_doctree_links, "_Resolver"): ("env", "builder", "docname", "gallery_conf"),
    }

#: When sphinx-gallery puts links into code.
CODE_LINKS_PRIORITY = 5


def check() -> None:
    """Refuse to go on where sphinx-gallery is not the one this was written for.

    Raises:
        ExtensionError: a function is gone or takes other parameters; names it.
    """
    for (module, name), wanted in _PARAMETERS.items():
        function = getattr(module, name, None)
        found = tuple(inspect.signature(function).parameters) if function else None
        if found != wanted:
            raise ExtensionError(
                f"gallery_recorder: {module.__name__}.{name} "
                + (f"takes ({', '.join(found)})" if found is not None else "does not exist")
                + f" in sphinx-gallery {sphinx_gallery_version}, but replaying needs "
                f"({', '.join(wanted)}). Install a version of sphinx-gallery that "
                "gallery-recorder supports."
            )


# --- links in code --------------------------------------------------------------------------------


class CodeLinks:
    """Where the names of one page's code lead."""

    def __init__(self, env: BuildEnvironment, docname: str, names: dict[str, Any]) -> None:
        self._names = names
        builder = env._app.builder  # type: ignore[attr-defined]
        self._resolver = _doctree_links._Resolver(
            env, builder, docname, env.config.sphinx_gallery_conf
        )
        self._tags: dict[str, str] = {}

    def opening_tag(self, name: str) -> str:
        """The ``<a …>`` of a dotted name as written; nothing where it is not documented."""
        if name not in self._names:
            return ""
        if name not in self._tags:
            self._tags[name] = self._tag(name)
        return self._tags[name]

    def _tag(self, name: str) -> str:
        link = self._resolver.resolve(self._names[name])
        if link is None:
            return ""
        node = self._resolver.reference(link, [])
        kind = "internal" if node.get("internal") else "external"
        address = node["refuri"] if "refuri" in node else f"#{node['refid']}"
        return (
            f'<a class="{" ".join(node["classes"])} reference {kind}" href="{escape(address)}" '
            f'title="{escape(node["reftitle"])}">'
        )


def code_links(env: BuildEnvironment, docname: str) -> CodeLinks | None:
    """The links of the gallery page *docname*; None where it is none, or its code has no names."""
    names = _doctree_links._load_code_obj(env, docname) if _doctree_links else None
    return CodeLinks(env, docname, names) if names else None


def lexer_of(language: str, code: str) -> str | None:
    """The name of the lexer for a block of Python; None for another language."""
    return _doctree_links._lexer_name(language, code)


def token_class(kind: Any) -> str:
    """The class that Pygments gives a token; empty for plain text."""
    return _doctree_links._pygments_class(kind)
