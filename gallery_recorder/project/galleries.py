"""A project as its conf.py describes it; ``reader`` reads it."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gallery_recorder.errors import RecorderError
from gallery_recorder.project import commands
from gallery_recorder.project.script import Script, ScriptError, load_script
from gallery_recorder.project.settings import Settings

_Value = TypeVar("_Value")

#: The remedy for a script that sphinx-gallery does not execute.
EXECUTED = "filename_pattern and plot_gallery in conf.py select the scripts that are executed"

#: Places of conf.py below the working directory, and of the source folder below conf.py's.
_PLACES = (".", "doc", "docs", "doc/source", "docs/source", "source")


class ProjectError(RecorderError):
    """A project that cannot be recorded."""

    status = 2


class Example(msgspec.Struct, frozen=True):
    """A file of a gallery.

    Attributes:
        gallery, name: of its recordings; the name is its path below the gallery, without suffix.
        pages: the folder of its page, below the documentation's source folder.
        recorded: whether sphinx-gallery executes it.
        may_fail: whether conf.py expects it to fail, or only warns of failures.
    """

    path: Path
    gallery: str
    name: str
    pages: str
    recorded: bool
    may_fail: bool

    @property
    def label(self) -> str:
        """Gallery and name, which no other script of the project has."""
        return f"{self.gallery}/{self.name}"

    @property
    def source(self) -> str:
        """The path in messages and outputs, the same on every machine."""
        return f"{self.label}{self.path.suffix}"

    def load(self) -> Script:
        """Read and split it; ScriptError also if it is not valid Python and may not fail."""
        script = load_script(self.path, self.source)
        if script.broken and not self.may_fail:
            raise ScriptError(script.broken)
        return replace(script, gallery=self.gallery, name=self.name)


class Where(msgspec.Struct, frozen=True):
    """The folder of a project's conf.py and its source folder, or folders of scripts; absolute.

    ``overrides`` and ``tags`` are the options ``-D`` and ``-t`` of Sphinx.
    """

    conf: Path | None
    source: Path | None
    folders: tuple[Path, ...] = ()
    overrides: dict[str, str] = {}
    tags: tuple[str, ...] = ()


class Project(msgspec.Struct, frozen=True):
    """Galleries and settings of a conf.py; ``missing`` are extensions that are not installed."""

    where: Where
    examples: tuple[Example, ...]
    settings: Settings
    missing: tuple[str, ...] = ()

    @property
    def recorded(self) -> list[Example]:
        """The scripts that sphinx-gallery executes."""
        return [example for example in self.examples if example.recorded]

    def label(self, example: Example) -> str:
        """The name of *example* in messages, with its gallery if another gallery has that name."""
        twins = [e for e in self.examples if e.name == example.name]
        return example.name if len(twins) == 1 else example.label

    @property
    def top(self) -> Path:
        """The folder that holds the whole project, also in a source distribution."""
        folders = [example.path.parent for example in self.examples]
        at = self.where
        folders += [path for path in (at.conf, at.source, *at.folders) if path]
        common = Path(os.path.commonpath(folders))
        marks, above = (".git", "pyproject.toml", "setup.py"), (common, *common.parents)
        return next((p for mark in marks for p in above if (p / mark).exists()), common)


def select(project: Project, names: Sequence[str]) -> list[Example]:
    """The scripts of *project* with these *names*; all that are executed if there are none.

    A name is the path of a file, ``<gallery>/<name>``, ``<name>`` or a file's name, with or without
    suffix, or the number at the beginning of a file's name, such as ``03b``. ScriptError if no
    script has it, or several have the number.
    """
    chosen: set[Path] = set()
    for name in names:
        found = _meant(project.examples, name)
        if not found:
            listing = f"`{commands.command()} status` lists the names"
            raise ScriptError(f"no script has the name {name!r}; {listing}.")
        chosen.update(example.path for example in found)
        if not any(example.recorded for example in found):
            raise ScriptError(f"{name} is not executed: {EXECUTED}.")
    return [example for example in project.recorded if example.path in chosen or not names]


def _meant(examples: Sequence[Example], name: str) -> list[Example]:
    path, wanted = os.path.abspath(name), name.removesuffix(".py")
    number = rf"{wanted}[-_.][^/]*" if re.fullmatch(r"\d+[a-z]*", wanted) else ""
    numbered = [example for example in examples if re.fullmatch(number, example.name)]
    found = (
        [example for example in examples if str(example.path) == path]
        or [example for example in examples if wanted in (example.name, example.label)]
        or [example for example in examples if example.path.stem == wanted]
    )
    if not found and len(numbered) > 1:
        names = ", ".join(example.label for example in numbered)
        raise ScriptError(f"{len(numbered)} scripts have the number {name}: {names}. Name one.")
    return found or numbered


def encode(value: Any) -> bytes:
    """*value*, which may contain paths, as JSON."""
    return msgspec.json.encode(value, enc_hook=str)


def decode(content: bytes, kind: type[_Value]) -> _Value:
    """The structure of this *kind* that :func:`encode` made JSON of."""
    return msgspec.json.decode(content, type=kind, dec_hook=lambda path, text: path(text))


# --- where it is --------------------------------------------------------------------------------


def find(conf: Path | None, source: Path | None, folders: Sequence[Path]) -> Where:
    """The project for the options of a command line; ProjectError if there is none."""
    scripts = tuple(folder.resolve() for folder in folders)
    if conf is None and folders:
        return Where(None, None, scripts)
    place = conf or find_conf(Path.cwd())
    if place is None or not os.path.isfile(place / "conf.py"):
        raise ProjectError(
            f"{conf or 'this folder'}: has no conf.py. Name its folder with --conf DIR, or a "
            "folder of scripts with --tutorials DIR --recordings DIR."
        )
    return Where(place.resolve(), (source or _source_of(place)).resolve(), scripts)


def find_conf(folder: Path) -> Path | None:
    """The folder of conf.py: *folder*, or a usual place below it."""
    return next((folder / p for p in _PLACES if (folder / p / "conf.py").is_file()), None)


def _source_of(conf: Path) -> Path:
    """The documentation's source folder: the folder of conf.py, or one beside it with pages."""
    for place in _PLACES:
        if any((conf / place).glob("index.*")):
            return conf / place
    return conf
