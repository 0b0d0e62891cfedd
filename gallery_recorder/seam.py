"""Every name of sphinx-gallery that the engine uses or replaces, each checked on start.

sphinx-gallery has no interface for this, so nothing outside this module imports from it. What the
engine relies on: that ``execute_script`` executes the blocks of one script, each through
``execute_code_block``, and returns one reStructuredText for each block and the seconds.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError
from sphinx_gallery import __version__ as version
from sphinx_gallery import backreferences, gen_gallery, gen_rst, py_source_parser, scrapers, utils
from sphinx_gallery.py_source_parser import Block

__all__ = ["Block", "LoggingTee", "check", "version"]

#: Where sphinx-gallery is installed.
FOLDER = str(Path(gen_rst.__file__).parent)

#: What sphinx-gallery's executor puts in the place of ``sys.stdout``; a class to derive from.
LoggingTee = gen_rst._LoggingTee

#: The functions that the engine calls or replaces, and the parameters that it counts on.
_FUNCTIONS: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    f"{module.__name__}.{name}": (module, name, tuple(parameters.split()))
    for module, name, parameters in (
        (gen_rst, "execute_script", "script_blocks script_vars gallery_conf file_conf"),
        (
            gen_rst,
            "execute_code_block",
            "compiler block example_globals script_vars gallery_conf file_conf",
        ),
        (gen_rst, "save_figures", "block block_vars gallery_conf"),
        (gen_rst, "generate_file_rst", "fname target_dir src_dir gallery_conf"),
        (gen_rst, "executable_script", "src_file gallery_conf"),
        (gen_rst, "extract_intro_and_title", "filename docstring"),
        (gen_rst, "_get_last_repr", "capture_repr ___"),
        (gen_rst, "_get_parser", "fname gallery_conf"),
        (gen_rst, "_get_callables", "gallery_conf key src_dir"),
        (gen_rst, "_get_call_memory_and_base", "gallery_conf"),
        (gen_rst, "_get_gallery_header", "dir_ gallery_conf raise_error"),
        (gen_gallery, "get_subsections", "srcdir examples_dir gallery_conf check_for_header"),
        (gen_gallery, "_expected_failing_examples", "gallery_conf"),
        (gen_gallery, "_import_matplotlib", ""),
        (gen_gallery, "generate_gallery_rst", "app"),
        (backreferences, "identify_names", "script_blocks ref_regex global_variables node"),
        (backreferences, "_make_ref_regex", "default_role"),
        (py_source_parser, "remove_config_comments", "code_block"),
        (py_source_parser, "split_code_and_text_blocks", "source_file return_node"),
        (scrapers, "matplotlib_scraper", "block block_vars gallery_conf"),
        (scrapers, "_matplotlib_fig_titles", "fig"),
        (utils, "_collect_gallery_files", "examples_dirs gallery_conf"),
        (utils, "scale_image", "in_fname out_fname max_width max_height"),
    )
}


def check() -> None:
    """Refuse to go on where sphinx-gallery is not one that this was written for.

    Raises:
        ExtensionError: a name is gone or has other parameters.
    """
    changed = []
    for full, (module, name, needed) in _FUNCTIONS.items():
        function = getattr(module, name, None)
        if function is None:
            changed.append(f"{full} does not exist")
            continue
        found = tuple(inspect.signature(function).parameters)
        if found[: len(needed)] != needed:
            changed.append(f"{full} takes ({', '.join(found)}), not ({', '.join(needed)})")
    for method in ("set_std_and_reset_position", "restore_std"):
        if not hasattr(LoggingTee, method):
            changed.append(f"sphinx_gallery.gen_rst._LoggingTee has no {method}")
    if changed:
        raise ExtensionError(
            f"gallery_recorder does not know this sphinx-gallery, {version}: {'; '.join(changed)}. "
            "Install a release of sphinx-gallery that it names in its dependencies, or a newer "
            "gallery_recorder."
        )


# --- reading a gallery ----------------------------------------------------------------------------


def split(path: Path) -> tuple[dict[str, Any], list[Block], Any]:
    """The settings in the Python script *path*, its blocks, and its syntax tree if it has one."""
    return py_source_parser.split_code_and_text_blocks(path, return_node=True)


def title(path: Path, docstring: str) -> str:
    """The title that sphinx-gallery gives the page of a script.

    Raises:
        ExtensionError: there is none.
    """
    return gen_rst.extract_intro_and_title(str(path), docstring)[1]


def scripts_in(folder: Path, gallery_conf: dict[str, Any]) -> list[Path]:
    """The files of one folder of a gallery, in the order of their pages."""
    order = gen_rst._get_callables(gallery_conf, "within_subsection_order", str(folder))[0]
    names = utils._collect_gallery_files([folder], gallery_conf)

    def place(name: str) -> tuple[Any, ...]:
        try:
            return (0, order(name), name)
        except Exception:  # an order that reads the file, and one that cannot be read: it is last
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


def may_fail(path: Path, gallery_conf: dict[str, Any]) -> bool:
    """Whether the script *path* is expected to fail, or may."""
    expected = gen_gallery._expected_failing_examples(gallery_conf)
    return str(path) in expected or bool(gallery_conf["only_warn_on_example_error"])


@contextlib.contextmanager
def without_matplotlib() -> Iterator[None]:
    """While conf.py is only read, sphinx-gallery need not import matplotlib to set it up."""
    with replaced(gen_gallery, "_import_matplotlib", lambda: (None, None)):
        yield


# --- executing a script ---------------------------------------------------------------------------


@contextlib.contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """For a while, the function *name* of a module of sphinx-gallery is *value*."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


class _Executed(BaseException):
    """Leaves ``generate_file_rst`` when the script is executed; it holds what that returned."""

    def __init__(self, outputs: list[str], seconds: float, script_vars: dict[str, Any]) -> None:
        self.outputs = outputs
        self.seconds = seconds
        self.script_vars = script_vars


def execute(
    path: Path,
    pages: Path,
    gallery_conf: dict[str, Any],
    around_block: Callable[[int, dict[str, Any], Callable[[], str]], str],
    around_figures: Callable[[Callable[[], str]], str],
    tee: Callable[[str], Any],
    value: Callable[[str, str], None],
) -> tuple[list[str], float, dict[str, Any], dict[str, Any]]:
    """Execute the script *path* as sphinx-gallery does for a page in the folder *pages*.

    *around_block* gets the index of each block, the variables of the script and a function that
    executes the block; *around_figures* one that draws its figures; *tee* makes what catches
    printed text; *value* is told the text of a last expression and the method that made it.

    Returns one reStructuredText a block, the seconds, the variables, and the settings of the file.
    """
    execute_script, execute_block = gen_rst.execute_script, gen_rst.execute_code_block
    save_figures, get_last_repr = gen_rst.save_figures, gen_rst._get_last_repr
    settings: dict[str, Any] = {}
    count = -1

    def script(blocks: Any, script_vars: dict[str, Any], conf: Any, file_conf: Any) -> Any:
        settings.update(file_conf)
        outputs, seconds = execute_script(blocks, script_vars, conf, file_conf)
        settings.update(file_conf)  # a scraper may have chosen the thumbnail
        raise _Executed(outputs, seconds, script_vars)

    def block(compiler: Any, block: Any, names: Any, script_vars: Any, *rest: Any) -> str:
        nonlocal count
        count += 1
        one = functools.partial(execute_block, compiler, block, names, script_vars, *rest)
        return around_block(count, script_vars, one)

    def figures(*arguments: Any) -> str:
        return around_figures(functools.partial(save_figures, *arguments))

    def last_repr(capture_repr: Any, last: Any) -> Any:
        text, method = get_last_repr(capture_repr, last)
        if text and method:
            value(text, method)
        return text, method

    with (
        replaced(gen_rst, "execute_script", script),
        replaced(gen_rst, "execute_code_block", block),
        replaced(gen_rst, "save_figures", figures),
        replaced(gen_rst, "_get_last_repr", last_repr),
        replaced(gen_rst, "_LoggingTee", tee),
    ):
        try:
            gen_rst.generate_file_rst(path.name, str(pages), str(path.parent), gallery_conf)
        except _Executed as done:
            return done.outputs, done.seconds, done.script_vars, settings
    raise ExtensionError(f"{path}: sphinx-gallery {version} did not execute it")


def code_objects(
    path: Path, gallery_conf: dict[str, Any], names: dict[str, Any]
) -> dict[str, list[dict[str, Any]]]:
    """The objects that the code of *path* names, resolved with the global *names* that it left."""
    _, blocks, node = split(path)
    if not gallery_conf["inspect_global_variables"]:
        names = {}
    regex = backreferences._make_ref_regex(gallery_conf["default_role"])
    return backreferences.identify_names(blocks, regex, names, node)


def memory_base(gallery_conf: dict[str, Any]) -> float | None:
    """The memory in MB that was in use before the script, None where memory is not measured."""
    return gen_rst._get_call_memory_and_base(gallery_conf)[1] if measures(gallery_conf) else None


def measures(gallery_conf: dict[str, Any]) -> bool:
    """Whether the memory of scripts is measured."""
    return bool(gallery_conf["show_memory"])


def draw_matplotlib(block: Any, block_vars: Any, gallery_conf: Any, **options: Any) -> str:
    """What sphinx-gallery's scraper of matplotlib's figures does, with options of ``savefig``."""
    return scrapers.matplotlib_scraper(block, block_vars, gallery_conf, **options)


def figure_titles(figure: Any) -> str:
    """The titles in a figure of matplotlib."""
    return scrapers._matplotlib_fig_titles(figure)


def scale_image(image: Path, thumbnail: Path, size: tuple[int, int]) -> None:
    """Make a *thumbnail* of at most *size* pixels."""
    utils.scale_image(str(image), str(thumbnail), *size)
