"""The part of the seam that rendering uses: names of sphinx-gallery, each checked on start.

Another version of sphinx-gallery may have moved or changed them; :func:`check` says then which,
before anything is built.
"""

from __future__ import annotations

import inspect
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx_gallery import (
    backreferences,
    downloads,
    gen_gallery,
    gen_rst,
    notebook,
    py_source_parser,
    sorting,
    utils,
)

from gallery_recorder import seam

try:
    from sphinx_gallery import _doctree_links
except ImportError:  # before 0.22, links were put into finished pages
    _doctree_links = None

Block = seam.Block
VERSION = seam.version

#: What each replaced or borrowed function takes.
_PARAMETERS = {
    (gen_rst, "identify_names"): ("script_blocks", "ref_regex", "global_variables", "node"),
    (gen_rst, "jupyter_notebook"): ("script_blocks", "gallery_conf", "target_dir"),
    (gen_rst, "zip_files"): ("file_list", "zipname", "relative_to", "extension"),
    (downloads, "zip_files"): ("file_list", "zipname", "relative_to", "extension"),
    (notebook, "add_code_cell"): ("work_notebook", "code"),
    (utils, "_read_json"): ("json_fname",),
    (utils, "get_md5sum"): ("src_file", "mode"),
}
#: The file of a name's examples; before 0.22, it was called as the name is.
_file_of = getattr(backreferences, "_sanitize_backref", str)
if _file_of is not str:
    _PARAMETERS[backreferences, "_sanitize_backref"] = ("backref",)
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
    seam.check()
    for (module, name), wanted in _PARAMETERS.items():
        function = getattr(module, name, None)
        found = tuple(inspect.signature(function).parameters) if function else None
        if found != wanted:
            raise ExtensionError(
                f"gallery_recorder: {module.__name__}.{name} "
                + (f"takes ({', '.join(found)})" if found is not None else "does not exist")
                + f" in sphinx-gallery {seam.version}, but replaying needs "
                f"({', '.join(wanted)}). Install a version of sphinx-gallery that "
                "gallery-recorder supports."
            )


def app_of(env: BuildEnvironment) -> Sphinx:
    """The application of a build; Sphinx 9 renamed what gives it, and warns of the old name."""
    return env._app if hasattr(env, "_app") else env.app


# --- making the pages -----------------------------------------------------------------------------


def galleries(app: Sphinx) -> list[tuple[Path, str]]:
    """The folder of each gallery's scripts, and that of its pages below the source."""
    conf = app.config.sphinx_gallery_conf
    folders, pages = (
        [value] if isinstance(value, str) else list(value)
        for value in (conf["examples_dirs"], conf["gallery_dirs"])
    )
    return [
        (Path(os.path.normpath(Path(app.srcdir, folder))), posixpath.normpath(target))
        for folder, target in zip(folders, pages, strict=False)
    ]


def leave_generating(app: Sphinx) -> None:
    """Keep sphinx-gallery from making the pages by itself: :func:`generate` has it do so."""
    for listener in list(app.events.listeners["builder-inited"]):
        if listener.handler is gen_gallery.generate_gallery_rst:
            app.disconnect(listener.id)


def generate(app: Sphinx) -> None:
    """Have sphinx-gallery make the pages."""
    gen_gallery.generate_gallery_rst(app)


#: The functions of sphinx-gallery that :func:`replaced` has others stand in for.
ORIGINAL: dict[str, Any] = {
    "add_code_cell": notebook.add_code_cell,
    "execute_script": gen_rst.execute_script,
    "identify_names": gen_rst.identify_names,
    "jupyter_notebook": gen_rst.jupyter_notebook,
    "split_code_and_text_blocks": py_source_parser.split_code_and_text_blocks,
}


@contextmanager
def replaced(**functions: Any) -> Iterator[None]:
    """Have *functions* stand in the place of sphinx-gallery's own, wherever it calls them."""
    before: list[tuple[Any, str, Any]] = []
    for name, function in functions.items():
        for module in (gen_rst, gen_gallery, notebook, downloads, py_source_parser, sorting):
            if name in vars(module):
                before.append((module, name, getattr(module, name)))
                setattr(module, name, function)
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def without_matplotlib(app: Sphinx) -> None:
    """Keep sphinx-gallery from importing matplotlib, which nothing here draws with."""
    real = gen_gallery._import_matplotlib

    def leave(*_: object) -> None:
        gen_gallery._import_matplotlib = real

    gen_gallery._import_matplotlib = lambda: None
    app.connect("config-inited", leave, priority=11)  # sphinx-gallery does it at 10


def is_current(source: Path, target: Path) -> bool:
    """Whether sphinx-gallery would not make the page of the script at *source* again."""
    md5 = target.with_name(f"{target.name}.md5")
    if not (md5.is_file() and target.with_suffix(".rst").is_file()):
        return False
    return md5.read_text(encoding="utf-8") == utils.get_md5sum(source, mode="t")


def forget(target: Path) -> None:
    """Have sphinx-gallery make the page of the script at *target* again."""
    target.with_name(f"{target.name}.md5").unlink(missing_ok=True)


def forget_backreferences(app: Sphinx) -> None:
    """Remove the lists of examples of names that, as of the last build, no script uses any more.

    sphinx-gallery writes those of names that scripts use, and leaves the others as they were.
    """
    conf = app.config.sphinx_gallery_conf
    if not conf["backreferences_dir"]:
        return
    folder = Path(app.srcdir, conf["backreferences_dir"])
    known = folder / "backreferences_all.json"
    try:
        names = {_file_of(name) for name in utils._read_json(known)}
    except (OSError, ValueError):
        return
    for path in folder.glob("*.examples"):
        if path.name.removesuffix(".examples") not in names and path.stat().st_size:
            path.unlink()


def expected_failures(gallery_conf: dict[str, Any]) -> set[str]:
    """The files of the scripts that are expected to fail."""
    return gen_gallery._expected_failing_examples(gallery_conf)


def without_settings(code: str) -> str:
    """A block's code without ``# sphinx_gallery_…`` comments."""
    return py_source_parser.remove_config_comments(code)


def write_md5(target: Path) -> None:
    """Have sphinx-gallery know that the page of the script at *target* is current."""
    md5 = utils.get_md5sum(target, mode="t")
    target.with_name(f"{target.name}.md5").write_text(md5, encoding="utf-8")


# --- links in code --------------------------------------------------------------------------------


class CodeLinks:
    """Where the names of one page's code lead."""

    def __init__(self, env: BuildEnvironment, docname: str, names: dict[str, Any]) -> None:
        self._names = names
        builder = app_of(env).builder
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
