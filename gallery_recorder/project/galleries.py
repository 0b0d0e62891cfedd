"""A project as its conf.py describes it: the galleries, their scripts, and how to record them.

conf.py is read in a process of its own, by the module ``reader``, so what it does reaches nobody
else.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gallery_recorder.errors import RecorderError
from gallery_recorder.project import commands
from gallery_recorder.project.script import Script, ScriptError, load_script
from gallery_recorder.project.settings import Settings

_Value = TypeVar("_Value")

#: What to look at where sphinx-gallery does not execute a script.
EXECUTED = "filename_pattern and plot_gallery in conf.py say what is executed"

#: What reads a project; it is started as a program.
READER = "gallery_recorder.project.reader"

#: Where conf.py is looked for, and where its source folder, from the folder that it is in.
_PLACES = (".", "doc", "docs", "doc/source", "docs/source", "source")


class ProjectError(RecorderError):
    """A project that cannot be recorded."""

    status = 2


class Example(msgspec.Struct, frozen=True):
    """A file of a gallery.

    Attributes:
        path: the file.
        gallery: the gallery that its recordings are kept under: the name of its folder.
        name: its path below that folder, without suffix.
        pages: the folder of its page, below the source folder of the documentation.
        recorded: whether it is executed, so that there is something to record.
        may_fail: whether conf.py expects it to fail, or only wants a warning.
    """

    path: Path
    gallery: str
    name: str
    pages: str
    recorded: bool
    may_fail: bool

    @property
    def label(self) -> str:
        """What no other script of the project is called."""
        return f"{self.gallery}/{self.name}"

    @property
    def source(self) -> str:
        """The path that messages and outputs give: the same on every machine."""
        return f"{self.label}{self.path.suffix}"

    def load(self) -> Script:
        """Read and split it.

        Raises:
            ScriptError: as :func:`load_script`, or it is not valid Python and must not fail.
        """
        script = load_script(self.path, self.source)
        if script.broken and not self.may_fail:
            raise ScriptError(script.broken)
        return replace(script, gallery=self.gallery, name=self.name)


class Where(msgspec.Struct, frozen=True):
    """Which project: its conf.py's folder and source folder, or folders of scripts alone."""

    conf: Path | None
    source: Path | None
    folders: tuple[Path, ...] = ()

    @property
    def options(self) -> list[str]:
        """The options that a command needs to find it again from the working directory."""
        if self.conf is None:
            return [text for folder in self.folders for text in ("--tutorials", _short(folder))]
        found = find_conf(Path.cwd())
        if found and found.resolve() == self.conf.resolve():
            return []
        return ["--conf", _short(self.conf)]


class Project(msgspec.Struct, frozen=True):
    """What conf.py says. ``missing`` are extensions that it names and that are not installed."""

    where: Where
    examples: tuple[Example, ...]
    settings: Settings
    missing: tuple[str, ...] = ()

    @property
    def recorded(self) -> list[Example]:
        """The scripts that are executed, so that there is something to record."""
        return [example for example in self.examples if example.recorded]

    def label(self, example: Example) -> str:
        """What *example* is called: its name, with the gallery where two galleries have it."""
        twins = [e for e in self.examples if e.name == example.name]
        return example.name if len(twins) == 1 else example.label

    @property
    def top(self) -> Path:
        """The folder that everything of the project is in; of a source distribution, too."""
        folders = [example.path.parent for example in self.examples]
        folders += [path for path in (self.where.conf, self.where.source) if path]
        common = Path(os.path.commonpath([os.path.abspath(folder) for folder in folders]))
        marks, above = (".git", "pyproject.toml", "setup.py"), (common, *common.parents)
        return next((p for mark in marks for p in above if (p / mark).exists()), common)


def select(project: Project, names: Sequence[str]) -> list[Example]:
    """The scripts of *project* that *names* mean; all that are executed where *names* is empty.

    A name is a file, or a path below a gallery, with or without the gallery, a file's name, each
    with or without suffix, or the number that a file's name begins with.

    Raises:
        ScriptError: a name means no script, or one that is not executed.
    """
    if not names:
        return project.recorded
    chosen: set[Path] = set()
    for name in names:
        wanted = name.strip("/")
        wanted = wanted.rsplit(".", 1)[0] if wanted.endswith(".py") else wanted
        found = _meant(project.recorded, name, wanted)
        if not found and _meant(project.examples, name, wanted):
            raise ScriptError(f"{name} is not executed: {EXECUTED}.")
        if not found:
            raise ScriptError(f"no script is called {name!r}. {_nearest(project, wanted)}")
        chosen.update(example.path for example in found)
    return [example for example in project.recorded if example.path in chosen]


def _nearest(project: Project, wanted: str) -> str:
    """Which scripts *wanted*, the name of none, may mean, and what lists all of them."""
    scripts, wanted = project.recorded, wanted.lower()
    known = {name.lower(): e.name for e in scripts for name in (e.path.stem, e.name)}
    near = get_close_matches(wanted, known, 5) or [name for name in known if wanted in name]
    guess = ", ".join(dict.fromkeys(known[name] for name in near[:5]))
    listing = " ".join([commands.command(), "status", *project.where.options])
    return f"Perhaps {guess}? " * bool(guess) + f"`{listing}` lists the {len(scripts)} that are."


def _meant(examples: Sequence[Example], name: str, wanted: str) -> list[Example]:
    for matches in (
        lambda e: str(e.path) == os.path.abspath(name),
        lambda e: wanted in (e.name, e.label),
        lambda e: e.path.stem == wanted,
        lambda e: wanted.isdigit() and re.match(rf"{wanted}(?!\d)[^/]*$", e.name),
    ):
        if found := [example for example in examples if matches(example)]:
            return found
    return []


def encode(value: Any) -> bytes:
    """*value*, which may hold paths, as JSON."""
    return msgspec.json.encode(value, enc_hook=str)


def decode(content: bytes, kind: type[_Value]) -> _Value:
    """What :func:`encode` made, as a *kind* of structure."""
    return msgspec.json.decode(content, type=kind, dec_hook=lambda path, text: path(text))


# --- where it is --------------------------------------------------------------------------------


def find(conf: Path | None, source: Path | None, folders: Sequence[Path]) -> Where:
    """The project that a command line means.

    Raises:
        ProjectError: there is none, or it cannot be told which.
    """
    for folder in folders:
        if not folder.is_dir():
            raise ProjectError(f"{folder}: there is no such folder of scripts")
    if conf is None and folders:
        return Where(None, None, tuple(folder.resolve() for folder in folders))
    given, conf = conf, conf or find_conf(Path.cwd())
    if conf and conf.name == "conf.py":
        conf = conf.parent
    if conf is None or not (conf / "conf.py").is_file():
        where = f"{given}: has no conf.py" if given else "no conf.py was found from here"
        raise ProjectError(
            f"{where}. Give the folder that it is in with --conf DIR, or a folder of scripts with "
            "--tutorials DIR --recordings DIR."
        )
    return Where(
        conf.resolve(),
        (source or _source_of(conf)).resolve(),
        tuple(folder.resolve() for folder in folders),
    )


def find_conf(folder: Path) -> Path | None:
    """The folder of the conf.py that is found from *folder*."""
    return next((folder / p for p in _PLACES if (folder / p / "conf.py").is_file()), None)


def _source_of(conf: Path) -> Path:
    """The source folder of the documentation: that of conf.py, or the one beside it with pages."""
    for place in _PLACES:
        if any((conf / place).glob("index.*")):
            return conf / place
    return conf


def _short(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


# --- reading it ---------------------------------------------------------------------------------


def read(where: Where) -> Project:
    """Read the project in a process of its own.

    Raises:
        ProjectError: conf.py cannot be read, or is about no gallery.
    """
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch, "project.json")
        made = subprocess.run(
            [sys.executable, "-P", "-m", READER, encode(where).decode(), answer],
            env=os.environ | {"PYTHONPATH": python_path(), "PYTHONINSPECT": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            check=False,
        )
        if made.returncode == 0 and answer.exists():  # conf.py may end the process
            project = decode(answer.read_bytes(), Project)
            if not project.examples:
                raise ProjectError(
                    f"{where.conf or ', '.join(map(str, where.folders))}: there are no scripts in "
                    "its galleries"
                )
            return project
    raise ProjectError(f"{where.conf or 'the folders'}: cannot be read:\n{made.stdout.strip()}")


def python_path() -> str:
    """``PYTHONPATH`` for a process that shall import this package as this one does."""
    own = str(Path(__file__).resolve().parents[2])
    there = [str(Path(p or ".").resolve()) for p in sys.path if p in ("", os.getcwd())]
    there += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return os.pathsep.join(dict.fromkeys([*there, own]))
