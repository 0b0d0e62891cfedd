"""Every name of sphinx-gallery that the engine uses or replaces, each checked on start.

sphinx-gallery has no interface for recording. Only this module imports it. Functions are replaced
during a call (:func:`replaced`) and then restored.
"""

import contextlib
import functools
import gc
import inspect
import itertools
import logging
import os
import posixpath
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from textwrap import indent
from time import perf_counter
from types import FunctionType
from typing import Any

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

__all__ = ["Block", "LoggingTee", "check", "version"]

#: The base class of the object that replaces ``sys.stdout`` while sphinx-gallery executes code.
LoggingTee: Any = getattr(gen_rst, "_LoggingTee", object)

#: The names that the engine relies on: module, name, first parameters, and purpose.
_NAMES: list[tuple[Any, str, str, str]] = [
    (gen_gallery, "get_subsections", "srcdir examples_dir gallery_conf check_for_header", "read"),
    (gen_gallery, "_expected_failing_examples", "gallery_conf", "read"),
    (gen_gallery, "DEFAULT_GALLERY_CONF", "", "read"),
    (gen_gallery, "_import_matplotlib", "", "replace"),
    (gen_gallery, "_has_pypandoc", "", "replace"),
    (gen_gallery, "generate_gallery_rst", "app", "render"),
    (gen_gallery, "write_computation_times", "gallery_conf target_dir costs", "replace"),
    (gen_rst, "_get_callables", "gallery_conf key src_dir", "read"),
    (gen_rst, "_get_gallery_header", "dir_ gallery_conf raise_error", "read"),
    (gen_rst, "executable_script", "src_file gallery_conf", "read"),
    (gen_rst, "extract_intro_and_title", "filename docstring", "read"),
    (py_source_parser, "split_code_and_text_blocks", "source_file return_node", "replace"),
    (py_source_parser, "remove_config_comments", "code_block", "read"),
    (py_source_parser, "extract_file_config", "content", "read"),
    (utils, "_collect_gallery_files", "examples_dirs gallery_conf", "read"),
    (gen_rst, "generate_file_rst", "fname target_dir src_dir gallery_conf", "replace"),
    (gen_rst, "execute_script", "script_blocks script_vars gallery_conf file_conf", "replace"),
    (gen_rst, "handle_exception", "exc_info src_file script_vars gallery_conf", "replace"),
    (gen_rst, "execute_code_block", "compiler block example_globals script_vars", "replace"),
    (gen_rst, "_get_last_repr", "capture_repr ___", "replace"),
    (
        *(gen_rst, "_get_code_output"),
        *("is_last_expr example_globals gallery_conf logging_tee images_rst", "replace"),
    ),
    *((gen_rst, name, "", "render") for name in ("CODE_OUTPUT", "HTML_HEADER")),
    (gen_rst, "codestr2rst", "codestr lang", "render"),
    (scrapers, "figure_rst", "figure_list sources_dir fig_titles srcsetpaths", "render"),
    *((scrapers, f"HLIST_{name}", "", "render") for name in ("HEADER", "IMAGE_MATPLOTLIB")),
    (gen_rst, "time", "", "replace"),
    (gen_rst, "_get_call_memory_and_base", "gallery_conf", "run"),
    *((LoggingTee, n, "self", "replace") for n in ("set_std_and_reset_position", "restore_std")),
    (gen_rst, "clean_modules", "gallery_conf fname when", "render"),
    (scrapers, "matplotlib_scraper", "block block_vars gallery_conf", "draw"),
    (scrapers, "_matplotlib_fig_titles", "fig", "draw"),
    (utils, "scale_image", "in_fname out_fname max_width max_height", "draw"),
    (gen_rst, "md5sum_is_current", "src_file mode", "replace"),
    (gen_rst, "_replace_md5", "fname_new fname_old", "replace"),
    (gen_rst, "identify_names", "script_blocks ref_regex global_variables node", "replace"),
    (backreferences, "_make_ref_regex", "default_role", "link"),
    (gen_rst, "jupyter_notebook", "script_blocks gallery_conf target_dir", "replace"),
    (notebook, "add_code_cell", "work_notebook code", "replace"),
    (gen_rst, "rst_blocks", "script_blocks output_blocks file_conf gallery_conf", "replace"),
    (gen_rst, "save_rst_example", "example_rst example_file time_elapsed memory_used", "replace"),
    (downloads, "zip_files", "file_list zipname relative_to extension", "replace"),
]


def check() -> None:
    """Raise ExtensionError if sphinx-gallery lacks one of these names."""
    changed = []
    for module, name, needed, why in _NAMES:
        function = getattr(module, name, None)
        if name in _WRAPPED:
            function = _unwrapped(name)
        found = [*inspect.signature(function).parameters] if function and needed else []
        if function is None or found[: len(needed.split())] != needed.split():
            has = f"takes ({', '.join(found)})" if function else "does not exist"
            wanted = ", ".join(needed.split())
            changed.append(f"{module.__name__}.{name} {has}; to {why}, it must take ({wanted})")
    if changed:
        raise ExtensionError(
            f"gallery_recorder does not support sphinx-gallery {version}: {'; '.join(changed)}. "
            "Install a newer gallery_recorder, or a sphinx-gallery that its dependencies permit."
        )


#: The functions that conf.py may wrap; the engine works inside the wrappers.
_WRAPPED = ("generate_file_rst", "execute_script")


def _unwrapped(name: str) -> Any:
    """The function *name* of ``sphinx_gallery.gen_rst``, without wrappers of conf.py."""
    found, own = getattr(gen_rst, name, None), vars(gen_rst)
    if found is None or getattr(found, "__globals__", None) is own:
        return found
    alive = (thing for thing in gc.get_objects() if isinstance(thing, FunctionType))
    return next((f for f in alive if f.__globals__ is own and f.__name__ == name), found)


#: The modules that call replaced functions.
_CALLERS = (gen_rst, gen_gallery, notebook, downloads, py_source_parser, sorting)

#: Their functions before anything is replaced.
ORIGINAL: dict[str, Any] = {n: getattr(m, n, None) for m, n, *_ in _NAMES if m in _CALLERS}
ORIGINAL |= {name: _unwrapped(name) for name in _WRAPPED}


@contextlib.contextmanager
def replaced(**functions: Any) -> Iterator[None]:
    """Replace sphinx-gallery's *functions* in all modules that call them, and restore them after.

    A function that conf.py has replaced meanwhile is not restored.
    """

    def put_back(module: Any, name: str, before: Any) -> None:
        if vars(module)[name] is functions[name]:
            setattr(module, name, before)

    with contextlib.ExitStack() as back:
        for name, function in functions.items():
            for module in (module for module in _CALLERS if name in vars(module)):
                back.callback(put_back, module, name, vars(module)[name])
                setattr(module, name, function)
        yield


# --- reading a gallery ----------------------------------------------------------------------------


def galleries(app: Sphinx) -> list[tuple[Path, str]]:
    """The folder of each gallery's scripts, and the folder of its pages below the source."""
    conf = app.config.sphinx_gallery_conf
    said = (conf["examples_dirs"], conf["gallery_dirs"])
    both = (value if isinstance(value, list | tuple) else [value] for value in said)
    return [
        (Path(os.path.normpath(Path(app.srcdir, folder))), posixpath.normpath(pages))
        for folder, pages in zip(*both, strict=False)
    ]


def default(name: str) -> Any:
    """The default of sphinx-gallery's setting *name*."""
    return gen_gallery.DEFAULT_GALLERY_CONF[name]


def split(path: Path) -> tuple[dict[str, Any], list[Block], Any]:
    """The settings in the script *path*, its blocks, and its syntax tree if it is valid Python."""
    return py_source_parser.split_code_and_text_blocks(path, return_node=True)


def title(path: Path, docstring: str) -> str:
    """The title of a script's page; ExtensionError if it has none."""
    return gen_rst.extract_intro_and_title(str(path), docstring)[1]


def without_settings(code: str) -> str:
    """A block's code without ``# sphinx_gallery_…`` comments."""
    return py_source_parser.remove_config_comments(code)


def settings_in(code: str) -> dict[str, Any]:
    """The settings in the ``# sphinx_gallery_…`` comments of a block."""
    return py_source_parser.extract_file_config(code)


def scripts_in(folder: Path, gallery_conf: dict[str, Any]) -> list[Path]:
    """The files of one folder of a gallery, in the order of their pages."""
    order = gen_rst._get_callables(gallery_conf, "within_subsection_order", str(folder))[0]
    names = utils._collect_gallery_files([folder], gallery_conf)

    def place(name: str) -> tuple[Any, ...]:
        with contextlib.suppress(Exception):  # the order may read an unreadable file
            return (0, order(name), name)
        return (1, name)

    return [folder / name for name in sorted(names, key=place)]


def subsections(folder: Path, source: Path, gallery_conf: dict[str, Any]) -> list[str]:
    """The names of the folders below *folder* that are part of its gallery, in their order."""
    header = gen_rst._get_gallery_header(folder, gallery_conf, raise_error=False)
    needed = header is not None or not (folder / "index.rst").is_file()
    return gen_gallery.get_subsections(str(source), str(folder), gallery_conf, needed)


def is_executed(path: Path, gallery_conf: dict[str, Any]) -> bool:
    """Whether sphinx-gallery would execute the script *path*."""
    return bool(gen_rst.executable_script(str(path), gallery_conf))


def is_expected_to_fail(path: Path, gallery_conf: dict[str, Any]) -> bool:
    """Whether conf.py expects the script *path* to fail."""
    return str(path) in gen_gallery._expected_failing_examples(gallery_conf)


def expect_no_failure(paths: Container[str], gallery_conf: dict[str, Any]) -> None:
    """Make sphinx-gallery's summary not expect the scripts *paths* to fail."""
    expected = gen_gallery._expected_failing_examples(gallery_conf)
    gallery_conf["expected_failing_examples"] = {path for path in expected if path not in paths}


def only_reading(pandoc: Any = None) -> contextlib.AbstractContextManager[None]:
    """Keep sphinx-gallery from importing matplotlib and looking for *pandoc* in conf.py."""
    found = ORIGINAL["_has_pypandoc"] if pandoc else lambda: (True, "")
    return replaced(_import_matplotlib=lambda: (None, None), _has_pypandoc=found)


def import_matplotlib() -> None:
    """Import matplotlib, as sphinx-gallery does after it has read conf.py."""
    with contextlib.suppress(ImportError, ValueError):
        gen_gallery._import_matplotlib()


# --- executing a script ---------------------------------------------------------------------------


class _Executed(BaseException):
    """Leaves ``generate_file_rst`` after execution."""


def execute(
    path: Path, pages: Path, gallery_conf: dict[str, Any], hooks: Any, tee: Callable[[str], Any]
) -> None:
    """Execute the script *path* as sphinx-gallery does for a page in the folder *pages*.

    If conf.py wraps ``generate_file_rst`` or ``execute_script``, this happens inside the wrapper.
    The methods of *hooks*: ``begin``; ``block`` gets the index of each block, the script's
    variables and a function that executes the block; ``raised`` an exception of a block; ``value``
    the text of a last expression; ``drawn`` the markup of figures; ``end``; ``fail``. *tee* creates
    the object that collects printed text.
    """
    numbers, inner = itertools.count(), gen_rst.execute_script
    is_wrapped = gen_rst.generate_file_rst is not ORIGINAL["generate_file_rst"]

    def script(blocks: Any, script_vars: dict[str, Any], conf: Any, file_conf: Any) -> Any:
        try:
            hooks.begin()
            outputs, seconds = inner(blocks, script_vars, conf, file_conf)
            hooks.end(seconds, script_vars, file_conf)
        except BaseException as error:
            hooks.fail(error)
            raise
        if not is_wrapped:
            raise _Executed
        return outputs, seconds

    def block(*arguments: Any) -> str:
        one = functools.partial(ORIGINAL["execute_code_block"], *arguments)
        return hooks.block(next(numbers), arguments[3], one)

    def exception(exc_info: Any, *rest: Any) -> str:
        hooks.raised(exc_info[1])
        return ORIGINAL["handle_exception"](exc_info, *rest)

    def last_repr(capture_repr: Any, last: Any) -> Any:
        text, method = ORIGINAL["_get_last_repr"](capture_repr, last)
        return (hooks.value(text, method), method) if text and method else (text, method)

    def code_output(*arguments: Any) -> str:
        hooks.drawn(arguments[4])
        return ORIGINAL["_get_code_output"](*arguments)

    own: dict[str, Any] = {"execute_script": script, "execute_code_block": block}
    own |= {"_get_code_output": code_output}
    own |= {"_get_last_repr": last_repr, "handle_exception": exception, "_LoggingTee": tee}
    # Unlike time(), perf_counter() never jumps.
    with replaced(time=perf_counter, **own), contextlib.suppress(_Executed):
        gen_rst.generate_file_rst(path.name, str(pages), str(path.parent), gallery_conf)


def current(name: str) -> Any:
    """The function *name* of ``sphinx_gallery.gen_rst``, which conf.py may have wrapped."""
    return getattr(gen_rst, name)


def wrapper(name: str) -> str:
    """Name and place of the function that wraps ``gen_rst``'s function *name*; empty if none."""
    found = current(name)
    if found is ORIGINAL[name]:
        return ""
    code = getattr(found, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{getattr(found, '__qualname__', found)}{where}"


def code_objects(path: Path, gallery_conf: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The objects that the script *path* names, resolved with its global variables *names*."""
    _, blocks, node = split(path)
    regex = backreferences._make_ref_regex(gallery_conf["default_role"])
    names = names if gallery_conf["inspect_global_variables"] else {}
    return ORIGINAL["identify_names"](blocks, regex, names, node)


def memory_base(gallery_conf: dict[str, Any]) -> float | None:
    """The memory in MB before the script; None if memory is not measured."""
    measure = gen_rst._get_call_memory_and_base
    return measure(gallery_conf)[1] if gallery_conf["show_memory"] else None


def draw_matplotlib(*arguments: Any, **options: Any) -> str:
    """Call sphinx-gallery's scraper of matplotlib figures with options for ``savefig``."""
    return scrapers.matplotlib_scraper(*arguments, **options)


def figure_titles(figure: Any) -> str:
    """The titles of a matplotlib figure."""
    return scrapers._matplotlib_fig_titles(figure)


def scale_image(image: Path, thumbnail: Path, size: tuple[int, int]) -> None:
    """Write a *thumbnail* of at most *size* pixels."""
    utils.scale_image(str(image), str(thumbnail), *size)


# --- the markup of outputs ------------------------------------------------------------------------


def image_markup(paths: dict[float, str], alt: str, classes: Sequence[str]) -> str:
    """The markup of an image; *paths* are its files below the source folder, by scale.

    The directive writes *alt* into HTML as it is, so it must be HTML without tags.
    """
    sources = {scale: f"/{path}" for scale, path in paths.items()}
    markup = scrapers.figure_rst([sources[0]], "/", alt, [sources])
    if not classes:
        return markup
    before, _, after = markup.rpartition("sphx-glr-single-img")
    return f"{before}{' '.join(classes)}{after}"


def side_by_side(items: Sequence[str]) -> str:
    """The markup of several *items*, such as images, in one row."""
    listed = [scrapers.HLIST_IMAGE_MATPLOTLIB + indent(item, " " * 6) for item in items]
    return scrapers.HLIST_HEADER + "".join(listed)


def printed_markup(text: str) -> str:
    """The markup of printed text and a value as text."""
    return gen_rst.CODE_OUTPUT.format(indent(text, " " * 4)) if text.strip() else ""


def html_markup(html: str) -> str:
    """The markup of a value as HTML."""
    return gen_rst.HTML_HEADER.format(indent(html, " " * 4))


def exception_markup(text: str) -> str:
    """The markup of a traceback."""
    return f".. rst-class:: sphx-glr-script-out\n\n{gen_rst.codestr2rst(text, lang='pytb')}"


# --- making the pages -----------------------------------------------------------------------------


def summarize(text: str) -> None:
    """Replace the text of sphinx-gallery's next summary of executed scripts."""
    log = logging.getLogger("sphinx.sphinx-gallery")

    def instead(record: logging.LogRecord) -> bool:
        if "successfully executed" in str(record.msg):
            record.msg, record.args = f"Sphinx-Gallery: {text}", ()
            log.removeFilter(instead)
        return True

    log.addFilter(instead)


def app_of(env: BuildEnvironment) -> Sphinx:
    """The application of a build; Sphinx 9 renamed the attribute."""
    return env._app if hasattr(env, "_app") else env.app


def before_writing(app: Sphinx, function: Callable[[Sphinx], None]) -> None:
    """Let Sphinx call *function* before it writes pages; before 7.4, only if it read pages."""
    known = "write-started" in app.events.events
    app.connect("write-started" if known else "env-check-consistency", lambda app, _: function(app))


def generate_with(app: Sphinx, function: Callable[[Sphinx], None]) -> None:
    """Let Sphinx call *function* instead of sphinx-gallery's own listener."""
    listeners, own = app.events.listeners["builder-inited"], gen_gallery.generate_gallery_rst
    listeners[:] = [i._replace(handler=function) if i.handler is own else i for i in listeners]


def generate(app: Sphinx) -> None:
    """Let sphinx-gallery make the pages."""
    gen_gallery.generate_gallery_rst(app)
