"""The path: the one order of the lessons, which front page, menu, index and links follow.

A script names its level in a comment, ``# sphinx_gallery_level = "first hour"``. Within a level,
scripts follow each other by the names of their files, unless one says which it comes after::

    # sphinx_gallery_after = "09b-fp8-gluon"

``.. path:: first hour`` is a table of contents of a level.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.directives.other import TocTree
from sphinx.environment import BuildEnvironment

from gallery_recorder.api import domain_of, seam

#: The levels in their order, with the titles that readers see.
LEVELS = {
    "first hour": "First hour",
    "transformer": "A transformer's kernels",
    "further": "Further",
}


class PathError(Exception):
    """A script whose place on the path is not known; the message names it and the reason."""


def level_of(settings: Mapping[str, Any]) -> str:
    """The level that a script's *settings* name; empty for a script that is not on the path."""
    level = str(settings.get("level", ""))
    return "further" if level == "beyond" else level  # its name until 2026


def ordered(scripts: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """The names of the *scripts* of each level, in order; *scripts* are their settings by name.

    Raises:
        PathError: a level is unknown, or a script comes after one that is not of its level.
    """
    found: dict[str, list[str]] = {level: [] for level in LEVELS}
    for name in sorted(scripts):
        level = level_of(scripts[name])
        if level and level not in LEVELS:
            known = ", ".join(LEVELS)
            raise PathError(f"{name}: sphinx_gallery_level is {level!r}, not one of: {known}")
        if level:
            found[level].append(name)
    for names in found.values():
        for name in list(names):
            if after := str(scripts[name].get("after", "")):
                names.remove(name)
                if after not in names:
                    raise PathError(f"{name}: sphinx_gallery_after names {after!r}, which is not "
                                    "another script of its level")  # fmt: skip
                names.insert(names.index(after) + 1, name)
    return found


def path_of(env: BuildEnvironment) -> dict[str, list[str]]:
    """The documents of each level, in order."""
    pages = {p.docname: p for p in domain_of(env).selection.main}
    settings = {Path(name).name: page.script.settings for name, page in pages.items()}
    of = {Path(name).name: name for name, page in pages.items() if level_of(page.script.settings)}
    return {level: [of[name] for name in names] for level, names in ordered(settings).items()}


class PathSortKey:
    """sphinx-gallery's order of a folder: the scripts of the path, then others by name."""

    def __init__(self, src_dir: str) -> None:
        self._folder = src_dir

    def __call__(self, filename: str) -> tuple[int, str]:
        """The place of a file."""
        places = _places(Path(self._folder))
        return places.get(Path(filename).stem, len(places)), filename

    def __repr__(self) -> str:
        return "PathSortKey"


@cache
def _places(folder: Path) -> dict[str, int]:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    settings = {name: seam.settings_in(text) for name, text in texts.items() if "_level" in text}
    names = [name for level in ordered(settings).values() for name in level]
    return {name: number for number, name in enumerate(names)}


class PathDirective(TocTree):
    """``.. path:: LEVEL``: a table of contents with the level's title as its caption."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {"hidden": directives.flag}  # type: ignore[misc]

    def run(self) -> list[nodes.Node]:
        """Make the table of contents."""
        level = self.arguments[0]
        if level not in LEVELS:
            raise self.error(f"path: {level!r} is not one of: {', '.join(LEVELS)}")
        domain_of(self.env).depends("introductions")
        self.options["caption"] = LEVELS[level]
        self.content = [f"/{name}" for name in path_of(self.env)[level]]
        return super().run()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("path", PathDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
