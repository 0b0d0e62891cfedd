"""Give recordings to sphinx-gallery instead of executing examples.

sphinx-gallery executes an example in one function, ``execute_script``. While it makes the
galleries, :class:`Replay` replaces this function and returns recorded outputs. Layout, thumbnails,
indexes and notebooks remain sphinx-gallery's own. Files of unchanged pages are not touched.
"""

import glob
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from sphinx.errors import ExtensionError
from sphinx.util import logging

from gallery_recorder import seam
from gallery_recorder.project.script import NO_CODE, CodeBlock, load_script
from gallery_recorder.render import markup, notebook
from gallery_recorder.render.downloads import Archive, write
from gallery_recorder.render.selection import Page
from gallery_recorder.store.format import Block, Image, Item, files_shown

logger = logging.getLogger(__name__)

#: A page's own files lie in a folder of this name below a folder named after the page. Neither
#: Sphinx nor sphinx-gallery looks for sources in a folder with this name.
_OWN_FILES = "_sources"

#: Views have no links to services that execute the notebook.
_NO_SERVICES: dict[str, Any] = {"binder": {}, "jupyterlite": None}


def splitting(current: dict[str, Page]) -> Callable[..., tuple[Any, ...]]:
    """A function that splits each script only once.

    For the *current* pages, by script, sphinx-gallery gets only the introduction.
    """
    split = cache(seam.ORIGINAL["split_code_and_text_blocks"])

    def once(source_file: Any, return_node: bool = False) -> tuple[Any, ...]:
        page = current.get(str(source_file))
        if page and return_node:
            return dict(page.script.settings), list(page.script.blocks[:1]), None
        settings, blocks, node = split(str(source_file), True)
        found = (dict(settings), list(blocks))
        return (*found, node) if return_node else found

    return once


class Replay:
    """Replaces functions of sphinx-gallery while it makes the sources of *pages*.

    Documents in *current* are left unchanged. Afterwards, ``archives`` has the zip files for
    download and ``failed`` the documents whose example failed when it was recorded.
    """

    def __init__(self, source: Path, pages: dict[str, Page], current: set[str]) -> None:
        self._pages = {f"{source / docname}.py": page for docname, page in pages.items()}
        self._current = {f"{source / docname}.py" for docname in current}
        self._page: Page | None = None
        self._make = seam.current("generate_file_rst")
        self._is_here = True
        self._views: list[tuple[Page, list[str]]] = []
        self._bodies: list[tuple[Page, str]] = []
        self.archives: dict[Path, Archive] = {}
        self.failed: set[str] = set()

    def functions(self) -> dict[str, Any]:
        """The replacements by name."""
        names = ["execute_script", "identify_names", "jupyter_notebook", "md5sum_is_current"]
        names += ["_replace_md5", "rst_blocks", "save_rst_example", "zip_files"]
        names += ["generate_file_rst", "write_computation_times"]
        return {name: getattr(self, name) for name in names}

    def generate_file_rst(self, *arguments: Any) -> Any:
        """Make a page by the function that conf.py wraps, unless that uses another process."""
        self._is_here = False
        target = os.path.normpath(Path(arguments[1], arguments[0]))
        images = Path(target).parent / "images/thumb"
        with _keeping_times(*images.glob(f"sphx_glr_{glob.escape(Path(target).stem)}_thumb.*")):
            made = self._make(*arguments)
            if not self._is_here:
                self._make = seam.ORIGINAL["generate_file_rst"]
                made = self._make(*arguments)
        page = self._pages.get(target)
        if page and page.shown and target in self._current:  # not replayed, but its time is known
            run = page.recording.run
            cost = (run.seconds if run.timed else 0.0, run.memory or 0.0)
            made = (*made[:2], cost, *made[3:])
        return made

    def md5sum_is_current(self, src_file: Any, mode: str = "b") -> bool:
        """Whether the page of the script copied to *src_file* is current."""
        del mode
        self._is_here = True
        return str(src_file) in self._current

    def write_computation_times(self, gallery_conf: Any, target_dir: Any, costs: Any) -> None:
        """Write the page of execution times."""
        with _keeping_times(Path(target_dir or gallery_conf["src_dir"], "sg_execution_times.rst")):
            seam.ORIGINAL["write_computation_times"](gallery_conf, target_dir, costs)

    def _replace_md5(self, fname_new: Any, fname_old: Any = None, **how: Any) -> bool:
        """Copy a script beside its page, unless the page is current and the copy is there."""
        if str(fname_old) in self._current and os.path.isfile(fname_old):
            return False
        return bool(seam.ORIGINAL["_replace_md5"](fname_new, fname_old, **how))

    def execute_script(self, blocks: Any, names: Any, conf: Any, file_conf: Any) -> Any:
        """Return a string of reStructuredText per block, and the seconds, from the recording.

        For examples that it does not execute, sphinx-gallery's own function is called.
        """
        self._views, self._bodies = [], []
        target, source = Path(names["target_file"]), Path(conf["src_dir"])
        self._page = page = self._pages.get(os.path.normpath(target))
        if target.suffix != ".py" or (
            page is None and load_script(Path(names["src_file"])).key != NO_CODE
        ):
            names["execute_script"] = False  # it cannot be recorded
        if page is None or not names["execute_script"]:
            return seam.ORIGINAL["execute_script"](blocks, names, conf, file_conf)
        names.update(memory_delta=0.0, example_globals={}, passing=True)
        if page.shown is None:
            if page.later:
                self._report_failure(page, page.later.text, names, conf)
            return ["\n"] * len(blocks), 0.0
        made = page.recording
        outputs = outputs_of(page, blocks, target, source)
        self._views = [(view, outputs_of(view, blocks, target, source)) for view in page.views]
        _choose_thumbnail(page, target, file_conf, names["image_path_iterator"], source)
        names["memory_delta"] = made.run.memory or 0.0
        if failed := next((block for block in made.blocks if not block.passed), None):
            text = failed.exception or failed.failure or "It failed when it was recorded.\n"
            self._report_failure(page, text, names, conf)
        return outputs, made.run.seconds if made.timed else 0.0

    def _report_failure(self, page: Page, text: str, names: Any, conf: Any) -> None:
        """Report that an example failed when it was recorded, as sphinx-gallery does."""
        del names["passing"]
        names.update(formatted_exception=text, execute_script=False)
        self.failed.add(page.docname)
        if conf["abort_on_example_error"]:
            raise ExtensionError(f"{page.script.path} failed when it was recorded:\n\n{text}")
        if not seam.is_expected_to_fail(page.script.path, conf):
            message = f"{page.script.path} unexpectedly failed to execute correctly:\n\n{text}"
            logger.warning("%s", message, type="sphinx_gallery", subtype="example_error")

    def rst_blocks(self, script_blocks: Any, output_blocks: Any, *rest: Any, **named: Any) -> str:
        """Put outputs below code, on the page and on its views."""
        make, count = seam.ORIGINAL["rst_blocks"], len(script_blocks)
        self._bodies = [
            (view, make(script_blocks, outputs[:count], *rest, **named))
            for view, outputs in self._views
        ]
        return make(script_blocks, output_blocks, *rest, **named)

    def save_rst_example(
        self, body: str, file: Any, seconds: float, memory: float, conf: Any, **named: Any
    ) -> None:
        """Write the source of the page, and those of its views."""
        for view, text in self._bodies:
            run, own = view.recording.run, Path(file).with_name(f"{Path(view.docname).name}.py")
            shown = conf | _NO_SERVICES | {"show_memory": conf["show_memory"] and run.memory}
            seam.ORIGINAL["save_rst_example"](
                text, own, run.seconds, run.memory or 0.0, shown, **named
            )
        shown = conf | {"show_memory": conf["show_memory"] and memory}  # 0 was not measured
        seam.ORIGINAL["save_rst_example"](body, file, seconds, memory, shown, **named)

    def jupyter_notebook(self, *arguments: Any) -> dict[str, Any]:
        """Make a notebook with marked code cells."""
        return (notebook.marked if self._page else seam.ORIGINAL["jupyter_notebook"])(*arguments)

    def zip_files(
        self, file_list: Any, zipname: Any, relative_to: Any, extension: str | None = None
    ) -> str:
        """Make a reproducible archive."""
        files, path = [Path(name) for name in file_list], Path(zipname)
        if extension is not None:  # of a whole gallery
            files = [file.with_suffix(extension) for file in files]
        self._archive(path, relative_to, files)
        raw = path.with_suffix(".ipynb")
        for view, _ in () if extension else self._views:
            own = path.with_name(f"{path.stem}.{view.view}.ipynb")
            if raw in files:
                shutil.copyfile(raw, own)
            members = [own if file == raw else file for file in files]
            self._archive(own.with_suffix(".zip"), relative_to, members)
        return str(zipname)

    def _archive(self, path: Path, base: Any, files: list[Path]) -> None:
        self.archives[path] = archive = Archive(Path(base), tuple(sorted(files)))
        archive.write(path, {})

    def identify_names(self, blocks: Any, regex: Any, names: Any = None, node: Any = "") -> Any:
        """The recorded names, which were found with the script's variables at hand."""
        if self._page and self._page.shown and self._page.recording.backreferences:
            return self._page.recording.backreferences
        return seam.ORIGINAL["identify_names"](blocks, regex, None, node)


def outputs_of(page: Page, script_blocks: list[Any], target: Path, source: Path) -> list[str]:
    """The markup of each block's outputs; writes their files beside the sources."""
    outputs = ["\n"] * len(script_blocks)
    lines = {block.lineno: number for number, block in enumerate(script_blocks)}
    for code, block in page.outputs:
        made = output(page, block, target, source) if block else ""
        changed = _changed(code, block) if page.is_stale else ""
        outputs[lines[code.block.lineno]] = f"{changed}{made}"
    # Sphinx reads a page again when its source changes, so the source names its recordings.
    outputs[lines[page.script.code[0].block.lineno]] += f"\n.. recorded: {page.stamp}\n\n"
    return outputs


def _changed(code: CodeBlock, block: Block | None) -> str:
    """The notice between a changed block and the output of its older code; empty if unchanged."""
    if block is None:
        return "\n.. rst-class:: gallery-changed\n\nThis new block has not been executed.\n\n"
    if block.key == code.key:
        return ""
    both = block.code.splitlines(), code.block.content.splitlines()
    text = "This block has changed. The output below is of the older code:"
    head = f"\n.. rst-class:: gallery-changed\n\n{text}\n"
    if not block.code:
        return head + markup.code("The recording's older format does not contain the code.", "none")
    diff = [line for line in unified_diff(*both, n=1, lineterm="") if line[:2] != "@@"][2:]
    return head + markup.code("\n".join(diff), "diff")


def output(page: Page, block: Block, target: Path, source: Path) -> str:
    """The markup of a code block's outputs; writes their files beside the sources."""
    folder = page.folder
    assert folder is not None
    places: dict[str, str] = {}
    data = source / page.docname / _OWN_FILES
    for name in files_shown(block):
        place = _place_of(name, page, target, source)
        places[name] = place.relative_to(source).as_posix()
        write(place, (folder / name).read_bytes())
    for name in block.data:
        places[name] = (data / name).relative_to(source).as_posix()
        write(data / name, (folder / name).read_bytes())
    sizes = {name: (folder / name).stat().st_size for name in block.data}
    pages = target.parent.relative_to(source).as_posix()
    return markup.output(_only_own_scraped(block, target), places.__getitem__, pages, sizes)


def _only_own_scraped(block: Block, target: Path) -> Block:
    """The *block*, in which only images named after the script *target* count as scraped.

    sphinx-gallery copies a scraped image to the site under its own name, where it could replace an
    image of another page. Sphinx gives a name of its own to any other image.
    """
    own = re.compile(rf"sphx_glr_{re.escape(target.stem)}_\d{{3,}}(_\d+_\d+x)?\.\w+")

    def checked(item: Item) -> Item:
        if not isinstance(item, Image) or not item.scraped:
            return item
        names = (item.file, *item.sources.values())
        if all(own.fullmatch(Path(name).name) for name in names):
            return item
        return msgspec.structs.replace(item, scraped=False, sources={})

    figures = []
    for figure in block.figures:
        items = tuple(checked(item) for item in figure.items)
        figures.append(msgspec.structs.replace(figure, items=items))
    return msgspec.structs.replace(block, figures=tuple(figures))


def _place_of(name: str, page: Page, target: Path, source: Path) -> Path:
    """The path beside the sources for the file *name* that the page of the script *target* shows.

    A site has all images in one folder, where none may replace a file of another example, of
    another recording or of the project.
    """
    inside = name.removeprefix("source/")
    place = (source if inside != name else target.parent) / inside
    stem = re.escape(target.stem)
    own = re.compile(rf"images/(?!.*sphx_glr_(?!{stem}_(\d{{3}}|thumb)))", re.IGNORECASE)
    if page.view:
        with_view = Path(name).with_name(f"{page.view}-{place.name}")
        return source / page.docname / _OWN_FILES / with_view
    if not own.match(name):
        return source / page.docname / _OWN_FILES / name
    return place


@contextmanager
def _keeping_times(*paths: Path) -> Iterator[None]:
    """Let files keep their times if they are written with the bytes that they have.

    Sphinx reads the pages again that depend on a newer file.
    """
    before = {path: (path.read_bytes(), path.stat()) for path in paths if path.is_file()}
    yield
    for path, (content, state) in before.items():
        if path.is_file() and path.read_bytes() == content:
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def _choose_thumbnail(
    page: Page, target: Path, file_conf: dict[str, Any], numbers: Any, source: Path
) -> None:
    """Let sphinx-gallery choose the thumbnail as in a first build.

    It counts negative thumbnail numbers from the last image of *numbers*.
    """
    made, images = page.recording, target.parent / "images"
    drawn = {Path(name).name for block in made.blocks for name in files_shown(block)}
    for path in _images_of(target.with_suffix("")):
        if path.name not in drawn:
            path.unlink()
    pattern = re.compile(rf"sphx_glr_{re.escape(target.stem)}_(\d{{3,}})\.\w+")
    found = [int(match[1]) for name in drawn if (match := pattern.fullmatch(name))]
    for _ in range(max(found, default=0)):
        next(numbers)
    if made.thumbnail:
        assert page.folder is not None
        image = images / f"sphx_glr_{target.stem}_000{Path(made.thumbnail).suffix}"
        write(image, (page.folder / made.thumbnail).read_bytes())
        file_conf.pop("thumbnail_number", None)
        file_conf["thumbnail_path"] = image.relative_to(source).as_posix()


def _images_of(page: Path) -> list[Path]:
    """The images and thumbnails of a *page*, a path without suffix."""
    own = re.compile(rf"sphx_glr_{re.escape(page.name)}_(\d{{3,}}(_\d+_\d+x)?|thumb)\.\w+")
    found = page.parent.glob(f"images/**/sphx_glr_{glob.escape(page.name)}_*")
    return [path for path in found if own.fullmatch(path.name)]


#: The beginnings of sphinx-gallery's pages and indexes.
_GENERATED = ("THIS FILE WAS AUTOMATICALLY GENERATED BY SPHINX-GALLERY", ".. _sphx_glr_")


#: What sphinx-gallery writes beside a page, besides the copy of its script.
_BESIDE = (".rst", ".ipynb", ".zip", ".cost.json", ".codeobj.json")


def left_over(root: Path, pages: set[Path], script_suffixes: Iterable[str]) -> list[Path]:
    """Files that earlier builds generated below *root* for pages not in *pages*.

    They are named one by one: the files of a page ``plot_v1.2`` begin with ``plot_v1.``, too.
    """
    suffixes = [*_BESIDE]
    for suffix in script_suffixes:
        suffixes += [suffix, f"{suffix}.md5"]
    kept = {*pages, root / "index", *(f / "index" for page in pages for f in page.parents)}
    found: list[Path] = []
    for path in root.rglob("*.rst"):
        page = path.with_suffix("")
        if page in kept:
            continue
        with path.open(encoding="utf-8", errors="replace") as file:
            head = file.read(400)
        if any(mark in head for mark in _GENERATED):
            beside = [page.with_name(page.name + suffix) for suffix in suffixes]
            found += [page, *beside, *_images_of(page)]
    return found
