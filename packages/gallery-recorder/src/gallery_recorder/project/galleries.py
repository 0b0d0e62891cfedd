"""A project as its conf.py describes it; :mod:`~gallery_recorder.project.reader` reads it."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gallery_recorder.errors import RecorderError
from gallery_recorder.project import commands
from gallery_recorder.project.inputs import InputRules
from gallery_recorder.project.script import Script, ScriptError, load_script
from gallery_recorder.project.settings import Settings

_Value = TypeVar("_Value")

#: Usual places of conf.py below the working directory, and of the sources below conf.py's folder.
_PLACES = (".", "doc", "docs", "doc/source", "docs/source", "source")


class ProjectError(RecorderError):
    """The project cannot be read or recorded."""

    status = 2


class Example(msgspec.Struct, frozen=True):
    """An example: a file of a gallery.

    Attributes:
        gallery: the gallery's name in recordings.
        name: the example's path below the gallery, without suffix.
        pages: the folder of its page, below the documentation's source folder.
        executed: whether sphinx-gallery executes it.
        expected_to_fail: whether ``expected_failing_examples`` in conf.py names it.
        failure_only_warns: whether a build goes on if it fails (``only_warn_on_example_error``).
    """

    path: Path
    gallery: str
    name: str
    pages: str
    executed: bool
    expected_to_fail: bool
    failure_only_warns: bool = False

    @property
    def label(self) -> str:
        """Gallery and name, which are unique in the project."""
        return f"{self.gallery}/{self.name}"

    @property
    def source(self) -> str:
        """The path in messages and outputs, the same on every machine."""
        return f"{self.label}{self.path.suffix}"

    def load(self) -> Script:
        """Load its script; ScriptError also for invalid Python, unless a build goes on after it."""
        script = load_script(self.path, self.source)
        if script.broken and not (self.expected_to_fail or self.failure_only_warns):
            raise ScriptError(script.broken)
        return replace(script, gallery=self.gallery, name=self.name)


class Where(msgspec.Struct, frozen=True):
    """The absolute folders of a project: of conf.py and sources, or of examples without conf.py.

    ``overrides`` and ``tags`` are Sphinx's options ``-D`` and ``-t``.
    """

    conf: Path | None
    source: Path | None
    folders: tuple[Path, ...] = ()
    overrides: dict[str, str] = {}
    tags: tuple[str, ...] = ()


class Project(msgspec.Struct, frozen=True):
    """The examples and settings of a conf.py.

    Attributes:
        missing: the extensions that are not installed here.
        inputs: which files are inputs of recordings.
        notes: messages about conf.py.
        unexecuted: why sphinx-gallery executes no other examples.
        changing_outputs: the settings of sphinx-gallery that change outputs, as texts.
    """

    where: Where
    examples: tuple[Example, ...]
    settings: Settings
    missing: tuple[str, ...] = ()
    inputs: InputRules = InputRules()
    changing_outputs: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    unexecuted: str = ""

    @property
    def executed(self) -> list[Example]:
        """The examples that sphinx-gallery executes."""
        return [example for example in self.examples if example.executed]

    def label(self, example: Example) -> str:
        """The name of *example* in messages, with its gallery where the name is not unique."""
        twins = [e for e in self.examples if e.name == example.name]
        return example.name if len(twins) == 1 else example.label

    @property
    def top(self) -> Path:
        """The folder that contains the whole project, with or without git."""
        folders = [example.path.parent for example in self.examples]
        at = self.where
        folders += [path for path in (at.conf, at.source, *at.folders) if path]
        common = Path(os.path.commonpath(folders))
        marks, above = (".git", "pyproject.toml", "setup.py"), (common, *common.parents)
        return next((p for mark in marks for p in above if (p / mark).exists()), common)


def select(project: Project, names: Sequence[str]) -> list[Example]:
    """The examples of *project* with these *names*; without names, all that are executed.

    A name is the path of a file, ``<gallery>/<name>``, ``<name>`` or the file's name, with or
    without suffix, or the number at its beginning, such as ``03b``. ScriptError if it matches no
    example, or if several have the number.
    """
    chosen: set[Path] = set()
    for name in names:
        found = _meant(project.examples, name)
        if not found:
            listing = f"`{commands.command()} status` lists the names"
            raise ScriptError(f"no example has the name {name!r}; {listing}.")
        chosen.update(example.path for example in found)
        if not any(example.executed for example in found):
            raise ScriptError(f"{name} is not executed: {project.unexecuted}.")
    return [example for example in project.executed if example.path in chosen or not names]


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
        raise ScriptError(f"{len(numbered)} examples have the number {name}: {names}. Name one.")
    return found or numbered


def encode(value: Any) -> bytes:
    """*value* as JSON; it may contain paths."""
    return msgspec.json.encode(value, enc_hook=str)


def decode(content: bytes, kind: type[_Value]) -> _Value:
    """The structure of this *kind* in the JSON of :func:`encode`."""
    return msgspec.json.decode(content, type=kind, dec_hook=lambda path, text: path(text))


# --- finding a project ---------------------------------------------------------------------------


def find(conf: Path | None, source: Path | None, folders: Sequence[Path]) -> Where:
    """The project's folders, from the options of a command; ProjectError if there is no conf.py."""
    scripts = tuple(folder.resolve() for folder in folders)
    if conf is None and folders:
        return Where(None, None, scripts)
    place = conf or find_conf(Path.cwd())
    if place is None or not os.path.isfile(place / "conf.py"):
        raise ProjectError(
            f"{conf or 'this folder'}: contains no conf.py. Give its folder with --conf DIR, or a "
            "folder of examples with --tutorials DIR --recordings DIR."
        )
    return Where(place.resolve(), (source or _source_of(place)).resolve(), scripts)


def find_conf(folder: Path) -> Path | None:
    """The folder of conf.py: *folder* or a usual place below it; None if there is no conf.py."""
    return next((folder / p for p in _PLACES if (folder / p / "conf.py").is_file()), None)


def _source_of(conf: Path) -> Path:
    """The source folder: the first usual place with an index page, or else conf.py's folder."""
    for place in _PLACES:
        if any((conf / place).glob("index.*")):
            return conf / place
    return conf
