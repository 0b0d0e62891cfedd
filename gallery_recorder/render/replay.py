"""What was recorded, handed to sphinx-gallery where it would execute a script.

sphinx-gallery executes a script in one function, ``execute_script``. While galleries are made,
:class:`Replay` stands in its place and hands back what was recorded. Everything else is
sphinx-gallery's own: the page's layout, thumbnails, index, notebook, downloads. Nothing is
executed, and a script whose page is current is not even looked at.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError
from sphinx.util import logging

from gallery_recorder import seam
from gallery_recorder.project.script import NO_CODE, load_script
from gallery_recorder.render import notebook, others
from gallery_recorder.render.downloads import Archive, write
from gallery_recorder.render.selection import Page
from gallery_recorder.store.format import GALLERY_FOLDER, Block, Recording

logger = logging.getLogger(__name__)

#: What a block without a recording shows.
_NO_OUTPUT = "\n"


def _last_image(made: Recording, stem: str) -> int:
    """The number of the last image, from which negative numbers of thumbnails count."""
    pattern = re.compile(rf"images/sphx_glr_{re.escape(stem)}_(\d{{3,}})\.\w+")
    found = (pattern.fullmatch(name) for block in made.blocks for name in block.images)
    return max((int(match.group(1)) for match in found if match), default=0)


def splitting(current: dict[str, Page]) -> Callable[..., tuple[Any, ...]]:
    """What splits each script once, whoever asks for it.

    Of a *current* one, by its file, the introduction is enough where pages are made; an order of
    pages may count its code.
    """
    split = cache(seam.ORIGINAL["split_code_and_text_blocks"])

    def once(source_file: Any, return_node: bool = False) -> tuple[Any, ...]:
        page = current.get(str(source_file))
        if page and return_node:
            return dict(page.settings), [seam.Block("text", page.introduction, 1)], None
        settings, blocks, node = split(str(source_file), True)
        found = (dict(settings), list(blocks))
        return (*found, node) if return_node else found

    return once


class Replay:
    """Stands in for sphinx-gallery's functions while it makes the pages of *pages*.

    *current* are the documents that are as they would be made again.
    """

    def __init__(self, source: Path, pages: dict[str, Page], current: set[str]) -> None:
        self._pages = {f"{source / docname}.py": page for docname, page in pages.items()}
        self._current = {f"{source / docname}.py" for docname in current}
        self._replayed: Recording | None = None
        self._marked = False
        self._views: list[tuple[Page, list[str]]] = []
        self._bodies: list[tuple[Page, str]] = []
        self._thumbnails: dict[Path, tuple[bytes, int]] = {}
        self._images_in = cache(images_in)
        self.archives: dict[Path, Archive] = {}
        self.failed: set[str] = set()

    def md5sum_is_current(self, src_file: Any, mode: str = "b") -> bool:
        """Whether the page is current of the script that was copied to *src_file*."""
        del mode
        return str(src_file) in self._current

    def _replace_md5(self, fname_new: Any, fname_old: Any = None, **how: Any) -> bool:
        """Copy a script beside its page, unless that is current and the copy is there."""
        if str(fname_old) in self._current and os.path.isfile(fname_old):
            return False
        return bool(seam.ORIGINAL["_replace_md5"](fname_new, fname_old, **how))

    def functions(self) -> dict[str, Any]:
        """What to put in the place of sphinx-gallery's functions of these names."""
        names = ["execute_script", "identify_names", "jupyter_notebook", "md5sum_is_current"]
        names += ["_replace_md5", "rst_blocks", "save_rst_example", "zip_files"]
        return {name: getattr(self, name) for name in names}

    def jupyter_notebook(
        self, script_blocks: Any, gallery_conf: Any, target_dir: Any
    ) -> dict[str, Any]:
        """Make a notebook in which each cell of code knows its block."""
        make = notebook.marked if self._marked else seam.ORIGINAL["jupyter_notebook"]
        return make(script_blocks, gallery_conf, target_dir)

    def rst_blocks(self, script_blocks: Any, output_blocks: Any, *rest: Any, **named: Any) -> str:
        """Put outputs below code; those of other recordings, too."""
        make, count = seam.ORIGINAL["rst_blocks"], len(script_blocks)
        self._bodies = [
            (view, make(script_blocks, outputs[:count], *rest, **named))
            for view, outputs in self._views
        ]
        return make(script_blocks, output_blocks, *rest, **named)

    def save_rst_example(
        self,
        example_rst: str,
        example_file: Any,
        time_elapsed: float,
        memory_used: float,
        gallery_conf: Any,
        **named: Any,
    ) -> None:
        """Write the page's source, and beside it that of each of its views."""
        source = Path(gallery_conf["src_dir"])

        def save(body: str, file: Any, seconds: float, memory: float, conf: Any) -> None:
            shown = {**conf, "show_memory": conf["show_memory"] and memory}  # 0 was not measured
            seam.ORIGINAL["save_rst_example"](body, file, seconds, memory, shown, **named)

        for view, body in self._bodies:
            run, root = view.recording.run, others.folder(source, view)
            file = root / Path(example_file).relative_to(source)
            file.parent.mkdir(parents=True)
            conf = {**gallery_conf, "src_dir": root}
            save(body, file, run.seconds, run.memory or 0.0, conf)
            others.finish_source(source, view)
        save(example_rst, example_file, time_elapsed, memory_used, gallery_conf)

    def keep_times(self) -> None:
        """Give thumbnails that are as before their time of before: Sphinx goes by it."""
        for path, (content, time) in self._thumbnails.items():
            if path.is_file() and path.read_bytes() == content:
                os.utime(path, ns=(time, time))

    def execute_script(
        self,
        script_blocks: list[Any],
        script_vars: dict[str, Any],
        gallery_conf: dict[str, Any],
        file_conf: dict[str, Any],
    ) -> tuple[list[str], float]:
        """Do what sphinx-gallery's function does, out of a recording.

        Returns one string of reStructuredText a block, and the seconds that the run took. What
        sphinx-gallery would not execute is left to it.
        """
        self._replayed, self._views, self._bodies = None, [], []
        target = Path(script_vars["target_file"])
        page = self._pages.get(os.path.normpath(target))
        self._marked = page is not None
        if target.suffix != ".py":
            script_vars["execute_script"] = False  # no recorder can execute it
        if not script_vars["execute_script"] or (
            page is None and load_script(Path(script_vars["src_file"])).key == NO_CODE
        ):
            return seam.ORIGINAL["execute_script"](
                script_blocks, script_vars, gallery_conf, file_conf
            )
        if page is None:
            raise ExtensionError(f"{script_vars['src_file']}: no recording was chosen for it.")
        script_vars.update(memory_delta=0.0, example_globals={})
        outputs = [_NO_OUTPUT] * len(script_blocks)
        if page.recorded is None:
            script_vars["passing"] = True
            drop_empty_blocks(script_blocks, outputs, gallery_conf)
            return outputs, 0.0
        made = self._replayed = page.recording
        place = Path(gallery_conf["src_dir"])
        others.forget(place, page)
        outputs = outputs_of(page, script_blocks, target, place)
        self._views = [(v, outputs_of(v, script_blocks, target, place)) for v in page.views]
        for _ in range(_last_image(made, target.stem)):
            next(script_vars["image_path_iterator"])
        drop_empty_blocks(script_blocks, outputs, gallery_conf, [o for _, o in self._views])
        self._clear_thumbnail(page, made, target, file_conf, place)
        script_vars["memory_delta"] = made.run.memory or 0.0
        failed = next((block for block in made.blocks if not block.passed), None)
        if failed is None:
            script_vars["passing"] = True
        else:
            self._tell_failure(page, failed, script_vars, gallery_conf)
        # The page changes when its recording does, also where the outputs are the same: a comment
        # makes sphinx-gallery write it, and so Sphinx read it, again.
        at = page.recorded.location.place
        outputs[-1] += f"\n.. recorded {made.run.recorded} on {at}, key {made.key}\n"
        outputs[-1] += (
            "".join(f".. also {i.location.place}, {i.digest}\n" for i in page.others) + "\n"
        )
        return outputs, made.run.seconds if made.timed else 0.0

    def identify_names(
        self, script_blocks: Any, ref_regex: str, global_variables: Any = None, node: Any = ""
    ) -> dict[str, Any]:
        """What was found when the variables of the script were there to look into."""
        if self._replayed and self._replayed.backreferences:
            return self._replayed.backreferences
        return seam.ORIGINAL["identify_names"](script_blocks, ref_regex, None, node)

    def zip_files(
        self, file_list: Any, zipname: Any, relative_to: Any, extension: str | None = None
    ) -> str:
        """Make an archive that is the same whenever it is made of the same files."""
        files = [Path(name) for name in file_list]
        if extension is not None:
            files = [path.with_suffix(extension) for path in files]
        self.archives[Path(zipname)] = archive = Archive(Path(relative_to), tuple(sorted(files)))
        archive.write(Path(zipname), {})
        return str(zipname)

    def _clear_thumbnail(
        self,
        page: Page,
        made: Recording,
        target: Path,
        file_conf: dict[str, Any],
        place: Path,
    ) -> None:
        """Let sphinx-gallery choose the thumbnail as if nothing had been drawn before."""
        images = target.parent / "images"
        drawn = {Path(name).name for block in made.blocks for name in block.images}
        for path in self._images_in(images).get(target.stem, ()):
            if path.name not in drawn:
                path.unlink(missing_ok=True)
        if made.thumbnail:
            assert page.folder is not None
            image = images / f"sphx_glr_{target.stem}_000{Path(made.thumbnail).suffix}"
            write(image, (page.folder / made.thumbnail).read_bytes())
            file_conf.pop("thumbnail_number", None)
            file_conf["thumbnail_path"] = image.relative_to(place).as_posix()
        for path in (images / "thumb").glob(f"sphx_glr_{glob.escape(target.stem)}_thumb.*"):
            self._thumbnails[path] = path.read_bytes(), path.stat().st_mtime_ns
            path.unlink()

    def _tell_failure(
        self, page: Page, failed: Block, script_vars: dict[str, Any], gallery_conf: dict[str, Any]
    ) -> None:
        """Say that a script failed when it was recorded, as sphinx-gallery would."""
        text = failed.exception or "It failed when it was recorded.\n"
        script_vars["formatted_exception"] = text
        script_vars["execute_script"] = False
        self.failed.add(page.docname)
        if gallery_conf["abort_on_example_error"]:
            raise ExtensionError(f"{page.path}: failed when it was recorded:\n\n{text}")
        if not seam.is_expected_to_fail(page.path, gallery_conf):
            logger.warning(
                "%s unexpectedly failed to execute correctly:\n\n%s",
                page.path,
                text,
                type="sphinx_gallery",
                subtype="example_error",
            )


def outputs_of(page: Page, script_blocks: list[Any], target: Path, source: Path) -> list[str]:
    """What each block did; its files are put in place."""
    outputs = [_NO_OUTPUT] * len(script_blocks)
    lines = {block.lineno: number for number, block in enumerate(script_blocks)}
    for code, block in zip(page.script.code, page.recording.blocks, strict=True):
        outputs[lines[code.block.lineno]] = output(page, block, target, source)
    return outputs


def output(page: Page, block: Block, target: Path, source: Path) -> str:
    """What a code block did, as sphinx-gallery wrote it down; its files are put in place."""
    folder = page.folder
    assert folder is not None
    pages = target.parent.relative_to(source).as_posix()
    rst = block.rst.replace(GALLERY_FOLDER, pages)
    data = others.folder(source, page)
    own = re.compile(rf"images/(?!.*sphx_glr_(?!{re.escape(target.stem)}_(\d{{3}}|thumb)))", re.I)
    for name in block.images:
        inside = name.removeprefix("source/")
        place = (source if inside != name else target.parent) / inside
        # A site has all pictures in one folder; and none replaces a file of another script, or of
        # the project.
        if page.view or not own.match(name):
            shown, place = place, data / (f"{page.view}-{place.name}" if page.view else name)
            there, here = (f"/{p.relative_to(source).as_posix()}" for p in (shown, place))
            rst = rst.replace(there, here)
        write(place, (folder / name).read_bytes())
    for name in block.data:
        write(data / name, (folder / name).read_bytes())
        link = f"/{target.stem}/{name}>"
        rst = rst.replace(link, f"{data.as_posix().removeprefix(target.parent.as_posix())}/{name}>")
    return rst


def drop_empty_blocks(
    script_blocks: list[Any],
    outputs: list[str],
    gallery_conf: dict[str, Any],
    views: Sequence[list[str]] = (),
) -> None:
    """Take away blocks that hold nothing but settings, which would show as empty boxes."""
    if not gallery_conf["remove_config_comments"]:
        return
    for index in reversed(range(len(script_blocks))):
        block = script_blocks[index]
        if (
            block.type == "code"
            and outputs[index] == _NO_OUTPUT
            and not seam.without_settings(block.content).strip()
        ):
            for blocks in (script_blocks, outputs, *views):
                del blocks[index]


def images_in(folder: Path) -> dict[str, list[Path]]:
    """The images of scripts in *folder*, by the script's name without suffix."""
    found: dict[str, list[Path]] = {}
    for path in folder.glob("sphx_glr_*"):
        if match := re.fullmatch(r"sphx_glr_(.+)_\d{3,}(_\d+_\d+x)?\.\w+", path.name):
            found.setdefault(match.group(1), []).append(path)
    return found


def left_over(root: Path, kept: set[Path]) -> list[Path]:
    """What sphinx-gallery made below *root* for pages that are not *kept*: paths without suffix."""
    found: list[Path] = []
    folders = {folder for page in kept for folder in page.parents} | {root}
    for path in root.rglob("*.rst"):
        page = path.with_suffix("")
        if page.name == "index":
            # That of a folder that has no scripts any more.
            gone = page.parent not in folders and ".. _sphx_glr_" in _head(path)
            found += [path] if gone else []
        elif page not in kept and _GENERATED in _head(path):
            name = re.escape(page.name)
            image = re.compile(rf"sphx_glr_{name}_(\d{{3,}}(_\d+_\d+x)?|thumb)\.\w+")
            found += [page, *page.parent.glob(f"{glob.escape(page.name)}.*")]
            found += [p for p in page.parent.glob("images/**/*") if image.fullmatch(p.name)]
    return found


#: What sphinx-gallery writes above the pages that it makes.
_GENERATED = "THIS FILE WAS AUTOMATICALLY GENERATED BY SPHINX-GALLERY"


def _head(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(400)
