"""Every name of sphinx-gallery that the engine uses or replaces, each checked on start.

sphinx-gallery has no interface for this, so nothing outside this module imports from it. What the
engine relies on: that ``execute_script`` executes the blocks of one script, each through
``execute_code_block``, and returns one reStructuredText for each block and the seconds.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import posixpath
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from time import perf_counter
from typing import Any

from pygments.lexers import get_lexer_by_name
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx_gallery import __version__ as version
from sphinx_gallery import (
    backreferences,
    downloads,
    gen_gallery,
    gen_rst,
    notebook,
    py_source_parser,
    scrapers,
    sorting,
    utils,
)
from sphinx_gallery.py_source_parser import Block

try:
    from sphinx_gallery import _doctree_links
except ImportError:  # before 0.22, links were put into finished pages
    _doctree_links = None

__all__ = ["Block", "LoggingTee", "check", "version"]

#: Where sphinx-gallery is installed.
FOLDER = str(Path(gen_rst.__file__).parent)

#: What sphinx-gallery's executor puts in the place of ``sys.stdout``; a class to derive from.
LoggingTee: Any = getattr(gen_rst, "_LoggingTee", object)

#: When sphinx-gallery puts links into code.
CODE_LINKS_PRIORITY = 5

#: What the engine counts on: module, name, the parameters that come first, and what it is for;
#: to *replace*, while the engine is at work, by a function of its own.
_NAMES: list[tuple[Any, str, str, str]] = [
    (gen_gallery, "get_subsections", "srcdir examples_dir gallery_conf check_for_header", "read"),
    (gen_gallery, "_expected_failing_examples", "gallery_conf", "read"),
    (gen_gallery, "_import_matplotlib", "", "replace"),
    (gen_gallery, "_has_pypandoc", "", "replace"),
    (gen_gallery, "generate_gallery_rst", "app", "render"),
    (gen_rst, "_get_callables", "gallery_conf key src_dir", "read"),
    (gen_rst, "_get_gallery_header", "dir_ gallery_conf raise_error", "read"),
    (gen_rst, "executable_script", "src_file gallery_conf", "read"),
    (gen_rst, "extract_intro_and_title", "filename docstring", "read"),
    (gen_rst, "_get_parser", "fname gallery_conf", "read"),
    (py_source_parser, "split_code_and_text_blocks", "source_file return_node", "replace"),
    (py_source_parser, "remove_config_comments", "code_block", "read"),
    (py_source_parser, "extract_file_config", "content", "read"),
    (utils, "_collect_gallery_files", "examples_dirs gallery_conf", "read"),
    (gen_rst, "generate_file_rst", "fname target_dir src_dir gallery_conf", "run"),
    (gen_rst, "execute_script", "script_blocks script_vars gallery_conf file_conf", "replace"),
    (gen_rst, "execute_code_block", "compiler block example_globals script_vars", "replace"),
    (gen_rst, "save_figures", "block block_vars gallery_conf", "replace"),
    (gen_rst, "_get_last_repr", "capture_repr ___", "replace"),
    (gen_rst, "time", "", "replace"),
    (gen_rst, "_get_call_memory_and_base", "gallery_conf", "run"),
    (LoggingTee, "set_std_and_reset_position", "self", "replace"),
    (LoggingTee, "restore_std", "self", "replace"),
    (gen_rst, "clean_modules", "gallery_conf fname when", "render"),
    (scrapers, "matplotlib_scraper", "block block_vars gallery_conf", "draw"),
    (scrapers, "_matplotlib_fig_titles", "fig", "draw"),
    (utils, "scale_image", "in_fname out_fname max_width max_height", "draw"),
    (gen_rst, "md5sum_is_current", "src_file mode", "replace"),
    (gen_rst, "_replace_md5", "fname_new fname_old", "replace"),
    (gen_rst, "identify_names", "script_blocks ref_regex global_variables node", "replace"),
    (backreferences, "_make_ref_regex", "default_role", "link"),
    (utils, "_read_json", "json_fname", "render"),
    (gen_rst, "jupyter_notebook", "script_blocks gallery_conf target_dir", "replace"),
    (notebook, "add_code_cell", "work_notebook code", "replace"),
    (gen_rst, "rst_blocks", "script_blocks output_blocks file_conf gallery_conf", "replace"),
    (gen_rst, "save_rst_example", "example_rst example_file time_elapsed memory_used", "replace"),
    (downloads, "zip_files", "file_list zipname relative_to extension", "replace"),
]
if hasattr(backreferences, "_sanitize_backref"):  # since 0.22
    _NAMES.append((backreferences, "_sanitize_backref", "backref", "render"))
if _doctree_links:
    _NAMES += [
        (_doctree_links, "_load_code_obj", "env docname", "link"),
        (_doctree_links, "_lexer_name", "lang code", "link"),
        (_doctree_links, "_pygments_class", "ttype", "link"),
        (_doctree_links, "_Resolver", "env builder docname gallery_conf", "link"),
        (_doctree_links, "_tokenize_and_link", "code lexer_name code_obj resolver", "link"),
        (_doctree_links, "_token_node", "ttype text", "replace"),
        (_doctree_links, "get_lexer_by_name", "", "replace"),
    ]


def check() -> None:
    """Refuse to go on where sphinx-gallery is not one that this was written for.

    Raises:
        ExtensionError: a name is gone or has other parameters.
    """
    changed = []
    for module, name, needed, why in _NAMES:
        function = getattr(module, name, None)
        found = [*inspect.signature(function).parameters] if function and needed else []
        if function is None or found[: len(needed.split())] != needed.split():
            says = f"takes ({', '.join(found)})" if function else "does not exist"
            wanted = ", ".join(needed.split())
            changed.append(f"{module.__name__}.{name} {says}; to {why}, it must take ({wanted})")
    if changed:
        raise ExtensionError(
            f"gallery_recorder does not know this sphinx-gallery, {version}: {'; '.join(changed)}. "
            "Install a release of sphinx-gallery that it names in its dependencies, or a newer "
            "gallery_recorder."
        )


#: Where a replaced function is called from.
_CALLERS = (gen_rst, gen_gallery, notebook, downloads, py_source_parser, sorting, _doctree_links)

#: What stands in them before anything is replaced.
ORIGINAL: dict[str, Any] = {n: getattr(m, n, None) for m, n, *_ in _NAMES if m in _CALLERS}


@contextlib.contextmanager
def replaced(**functions: Any) -> Iterator[None]:
    """For a while, *functions* stand in the place of sphinx-gallery's, wherever it calls them."""
    before = [(m, n, vars(m)[n]) for n in functions for m in _CALLERS if m and n in vars(m)]
    for module, name, _ in before:
        setattr(module, name, functions[name])
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


# --- reading a gallery ----------------------------------------------------------------------------


def galleries(app: Sphinx) -> list[tuple[Path, str]]:
    """The folder of each gallery's scripts, and that of its pages below the source."""
    conf = app.config.sphinx_gallery_conf
    folders, pages = (
        list(value) if isinstance(value, list | tuple) else [value]
        for value in (conf["examples_dirs"], conf["gallery_dirs"])
    )
    return [
        (Path(os.path.normpath(Path(app.srcdir, folder))), posixpath.normpath(target))
        for folder, target in zip(folders, pages, strict=False)
    ]


def split(path: Path) -> tuple[dict[str, Any], list[Block], Any]:
    """The settings in the Python script *path*, its blocks, and its syntax tree if it has one."""
    return py_source_parser.split_code_and_text_blocks(path, return_node=True)


def title(path: Path, docstring: str) -> str:
    """The title that sphinx-gallery gives the page of a script.

    Raises:
        ExtensionError: there is none.
    """
    return gen_rst.extract_intro_and_title(str(path), docstring)[1]


def without_settings(code: str) -> str:
    """A block's code without ``# sphinx_gallery_…`` comments."""
    return py_source_parser.remove_config_comments(code)


def settings_in(code: str) -> dict[str, Any]:
    """What the ``# sphinx_gallery_…`` comments of a block say."""
    return py_source_parser.extract_file_config(code)


def scripts_in(folder: Path, gallery_conf: dict[str, Any]) -> list[Path]:
    """The files of one folder of a gallery, in the order of their pages."""
    order = gen_rst._get_callables(gallery_conf, "within_subsection_order", str(folder))[0]
    names = utils._collect_gallery_files([folder], gallery_conf)

    def place(name: str) -> tuple[Any, ...]:
        with contextlib.suppress(Exception):  # an order that reads the file, which cannot be read
            if (folder / name).is_file():
                return (0, order(name), name)
        return (1, name)

    return [folder / name for name in sorted(names, key=place)]


def subsections(folder: Path, source: Path, gallery_conf: dict[str, Any]) -> list[str]:
    """The names of the folders below *folder* that are part of its gallery, in their order."""
    header = gen_rst._get_gallery_header(folder, gallery_conf, raise_error=False)
    own_index = header is None and (folder / "index.rst").is_file()
    return gen_gallery.get_subsections(
        str(source), str(folder), gallery_conf, check_for_header=not own_index
    )


def is_executed(path: Path, gallery_conf: dict[str, Any]) -> bool:
    """Whether sphinx-gallery would execute the script *path*."""
    return bool(gen_rst.executable_script(str(path), gallery_conf))


def is_expected_to_fail(path: Path, gallery_conf: dict[str, Any]) -> bool:
    """Whether conf.py names the script *path* among those that fail."""
    return str(path) in gen_gallery._expected_failing_examples(gallery_conf)


def only_reading(pandoc: Any = None) -> contextlib.AbstractContextManager[None]:
    """While conf.py is read, sphinx-gallery need not import matplotlib, nor look for *pandoc*."""
    found = ORIGINAL["_has_pypandoc"] if pandoc else lambda: (True, "")
    return replaced(_import_matplotlib=lambda: (None, None), _has_pypandoc=found)


# --- executing a script ---------------------------------------------------------------------------


class _Executed(BaseException):
    """Leaves ``generate_file_rst`` when the script is executed: its outputs, time and variables."""


def execute(
    path: Path,
    pages: Path,
    gallery_conf: dict[str, Any],
    around_block: Callable[[int, dict[str, Any], Callable[[], str]], str],
    around_figures: Callable[[], contextlib.AbstractContextManager[None]],
    tee: Callable[[str], Any],
    value: Callable[[str, str], str],
) -> tuple[list[str], float, dict[str, Any], dict[str, Any]]:
    """Execute the script *path* as sphinx-gallery does for a page in the folder *pages*.

    *around_block* gets the index of each block, the variables of the script and a function that
    executes the block; within *around_figures* its figures are drawn; *tee* makes what catches
    printed text; *value* gets the text of a last expression and the method that made it, and gives
    what is shown.

    Returns one reStructuredText a block, the seconds, the variables, and the settings of the file.
    """
    settings: dict[str, Any] = {}
    count = -1

    def script(blocks: Any, script_vars: dict[str, Any], conf: Any, file_conf: Any) -> Any:
        settings.update(file_conf)
        outputs, seconds = ORIGINAL["execute_script"](blocks, script_vars, conf, file_conf)
        settings.update(file_conf)  # a scraper may have chosen the thumbnail
        raise _Executed(outputs, seconds, script_vars)

    def block(compiler: Any, block: Any, names: Any, script_vars: Any, *rest: Any) -> str:
        nonlocal count
        count += 1
        one = functools.partial(
            ORIGINAL["execute_code_block"], compiler, block, names, script_vars, *rest
        )
        return around_block(count, script_vars, one)

    def _sg_call_memory(*arguments: Any) -> str:  # a name that it leaves out of tracebacks
        with around_figures():
            return ORIGINAL["save_figures"](*arguments)

    def last_repr(capture_repr: Any, last: Any) -> Any:
        text, method = ORIGINAL["_get_last_repr"](capture_repr, last)
        return (value(text, method), method) if text and method else (text, method)

    # The clock on the wall may be set meanwhile, this one not.
    own = {"save_figures": _sg_call_memory, "_get_last_repr": last_repr, "time": perf_counter}
    with replaced(execute_script=script, execute_code_block=block, _LoggingTee=tee, **own):
        try:
            gen_rst.generate_file_rst(path.name, str(pages), str(path.parent), gallery_conf)
        except _Executed as done:
            return (*done.args, settings)
    raise ExtensionError(f"{path}: sphinx-gallery {version} did not execute it")


def code_objects(path: Path, gallery_conf: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The objects that the code of *path* names, resolved with the global *names* that it left."""
    _, blocks, node = split(path)
    if not gallery_conf["inspect_global_variables"]:
        names = {}
    regex = backreferences._make_ref_regex(gallery_conf["default_role"])
    return ORIGINAL["identify_names"](blocks, regex, names, node)


def memory_base(gallery_conf: dict[str, Any]) -> float | None:
    """The memory in MB that was in use before the script, None where memory is not measured."""
    if not gallery_conf["show_memory"]:
        return None
    return gen_rst._get_call_memory_and_base(gallery_conf)[1]


def draw_matplotlib(block: Any, block_vars: Any, gallery_conf: Any, **options: Any) -> str:
    """What sphinx-gallery's scraper of matplotlib's figures does, with options of ``savefig``."""
    return scrapers.matplotlib_scraper(block, block_vars, gallery_conf, **options)


def figure_titles(figure: Any) -> str:
    """The titles in a figure of matplotlib."""
    return scrapers._matplotlib_fig_titles(figure)


def scale_image(image: Path, thumbnail: Path, size: tuple[int, int]) -> None:
    """Make a *thumbnail* of at most *size* pixels."""
    utils.scale_image(str(image), str(thumbnail), *size)


# --- making the pages -----------------------------------------------------------------------------


def app_of(env: BuildEnvironment) -> Sphinx:
    """The application of a build; Sphinx 9 renamed what gives it, and warns of the old name."""
    return env._app if hasattr(env, "_app") else env.app


def generate_with(app: Sphinx, function: Callable[[Sphinx], None]) -> None:
    """Where sphinx-gallery would make the pages, before or after others' work, call *function*."""
    listeners, own = app.events.listeners["builder-inited"], gen_gallery.generate_gallery_rst
    listeners[:] = [i._replace(handler=function) if i.handler is own else i for i in listeners]


def generate(app: Sphinx) -> None:
    """Have sphinx-gallery make the pages, and forget names that no script uses any more.

    It writes the lists of examples of names that scripts use, and leaves the others as they were.
    """
    gen_gallery.generate_gallery_rst(app)
    folder = Path(app.srcdir, app.config.sphinx_gallery_conf["backreferences_dir"] or "")
    # Before 0.22, the file of a name was called as the name is.
    file_of = getattr(backreferences, "_sanitize_backref", str)
    try:
        names = {file_of(name) for name in utils._read_json(folder / "backreferences_all.json")}
    except (OSError, ValueError):
        return
    for path in folder.glob("*.examples"):
        if path.name.removesuffix(".examples") not in names and path.stat().st_size:
            path.unlink()


# --- links in code --------------------------------------------------------------------------------

#: The class of a token and its text, or the tag of a link and the tokens in it.
Token = tuple[str, Any]

_lexer = functools.cache(get_lexer_by_name)


class CodeLinks:
    """The code of one page in tokens, in which names that are documented are links.

    It is a resolver to sphinx-gallery, whose links are HTML in the place of nodes.
    """

    def __init__(self, names: dict[str, Any], resolver: Any) -> None:
        self._names, self._resolver = names, resolver
        self.resolve = resolver.resolve
        self.tokens = functools.cache(self._tokens)

    def reference(self, link: Any, tokens: list[Token]) -> Token:
        """A link around the *tokens* of a dotted name."""
        node = self._resolver.reference(link, [])
        kind = "internal" if node.get("internal") else "external"
        address = node["refuri"] if "refuri" in node else f"#{node['refid']}"
        tag = f'<a class="{" ".join(node["classes"])} reference {kind}" href="{escape(address)}"'
        return f'{tag} title="{escape(node["reftitle"])}">', tokens

    def _tokens(self, language: str, code: str) -> list[Token]:
        """The tokens of *code*; nothing if it is not Python."""
        lexer = _doctree_links._lexer_name(language, code)
        if lexer is None:
            return []
        with replaced(
            _token_node=lambda kind, text: (_doctree_links._pygments_class(kind), text),
            get_lexer_by_name=_lexer,
        ):
            return list(_doctree_links._tokenize_and_link(code, lexer, self._names, self))


@functools.lru_cache(maxsize=1)  # a page's views come right after it, with the same code
def code_links(env: BuildEnvironment, docname: str) -> CodeLinks | None:
    """The links of the gallery page *docname*; None where it is none, or its code has no names."""
    names = _doctree_links._load_code_obj(env, docname) if _doctree_links else None
    if not names:
        return None
    builder, conf = app_of(env).builder, env.config.sphinx_gallery_conf
    return CodeLinks(names, _doctree_links._Resolver(env, builder, docname, conf))
