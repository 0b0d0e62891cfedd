"""A project as its conf.py describes it: the galleries, their scripts, and how to record them.

conf.py is read by Sphinx and sphinx-gallery themselves, up to the moment at which galleries would
be generated. That happens in a process of its own, so what conf.py does reaches nobody else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError, SphinxError

from gallery_recorder import seam
from gallery_recorder.source import settings
from gallery_recorder.source.script import Script, ScriptError, load_script
from gallery_recorder.source.settings import Settings, SettingsError

_Value = TypeVar("_Value")

_EXTENSION = "sphinx_gallery.gen_gallery"

#: Where conf.py is looked for, and where its source folder, from the folder that it is in.
_PLACES = (".", "doc", "docs", "doc/source", "docs/source", "source")


class ProjectError(Exception):
    """A project that cannot be recorded; says what is wrong with it."""


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
    def source(self) -> str:
        """The path that messages and outputs give: the same on every machine."""
        return f"{self.gallery}/{self.name}{self.path.suffix}"

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
        return example.name if len(twins) == 1 else f"{example.gallery}/{example.name}"

    @property
    def top(self) -> Path:
        """The folder that everything of the project is in."""
        folders = [example.path.parent for example in self.examples]
        folders += [path for path in (self.where.conf, self.where.source) if path]
        common = Path(os.path.commonpath([os.path.abspath(folder) for folder in folders]))
        return next((p for p in (common, *common.parents) if (p / ".git").exists()), common)


def select(project: Project, names: Sequence[str]) -> list[Example]:
    """The scripts of *project* that *names* mean; all that are executed where *names* is empty.

    A name is a path below a gallery, with or without the gallery, a file's name, each with or
    without suffix, or the number that a file's name begins with.

    Raises:
        ScriptError: a name means no script.
    """
    if not names:
        return project.recorded
    chosen: set[Path] = set()
    for name in names:
        wanted = name.strip("/")
        wanted = wanted.rsplit(".", 1)[0] if wanted.endswith(".py") else wanted
        found = _meant(project.recorded, wanted)
        if not found:
            known = ", ".join(example.name for example in project.recorded) or "none"
            raise ScriptError(f"no script is called {name!r}. Those that are executed: {known}.")
        chosen.update(example.path for example in found)
    return [example for example in project.recorded if example.path in chosen]


def _meant(examples: list[Example], wanted: str) -> list[Example]:
    for matches in (
        lambda e: wanted in (e.name, f"{e.gallery}/{e.name}"),
        lambda e: e.path.stem == wanted,
        lambda e: "/" not in e.name and _number(e.name) == wanted,
    ):
        if found := [example for example in examples if matches(example)]:
            return found
    return []


def _number(name: str) -> str:
    digits = len(name) - len(name.lstrip("0123456789"))
    return name[:digits]


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
    if conf is None or not (conf / "conf.py").is_file():
        raise ProjectError(
            f"{given}: has no conf.py"
            if given
            else "no conf.py was found from here. Give the folder that it is in with --conf DIR, "
            "or a folder of scripts with --tutorials DIR --recordings DIR."
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
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)


# --- reading it ---------------------------------------------------------------------------------


def read(where: Where) -> Project:
    """Read the project in a process of its own.

    Raises:
        ProjectError: conf.py cannot be read, or is about no gallery.
    """
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch, "project.json")
        made = subprocess.run(
            [sys.executable, "-P", "-m", __name__, encode(where).decode(), answer],
            env=os.environ | {"PYTHONPATH": python_path()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            check=False,
        )
        if made.returncode == 0:
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


class _Read(BaseException):
    """Leaves Sphinx before galleries are generated."""


class _Reader(Sphinx):
    """Sphinx, up to the moment at which galleries would be generated."""

    missing: list[str]

    def setup_extension(self, extname: str) -> None:
        """Load an extension; one that is not installed, or that renders recordings, is left out."""
        if not hasattr(self, "missing"):
            self.missing = []
            settings.register(self)
            # sphinx-gallery finishes its settings at 10 and generates at 500.
            self.connect("builder-inited", _leave, priority=11)
        if extname.split(".")[0] == (__package__ or "").split(".")[0]:
            extname = _EXTENSION  # which it loads, where conf.py does not
        try:
            super().setup_extension(extname)
        except ExtensionError as error:
            if not isinstance(error.__cause__ or error.orig_exc, ModuleNotFoundError):
                raise
            self.missing.append(extname)


def _leave(app: Sphinx) -> None:
    raise _Read


def read_app(where: Where, scratch: Path) -> Sphinx:
    """The application that a build of the project would begin with; nothing is generated.

    Raises:
        SphinxError: conf.py cannot be read.
    """
    seam.check()
    # No page is read here. Looking for pages would follow every link below the source, and where
    # recordings are kept there, into the folders of scripts that are being executed, without end.
    overrides: dict[str, Any] = {"exclude_patterns": ["**"]}
    if where.folders:
        pages = [f"gallery-{number}" for number, _ in enumerate(where.folders)]
        overrides["sphinx_gallery_conf.examples_dirs"] = [str(path) for path in where.folders]
        overrides["sphinx_gallery_conf.gallery_dirs"] = pages
        overrides["sphinx_gallery_conf.filename_pattern"] = ""
        overrides["sphinx_gallery_conf.ignore_pattern"] = r"^_|^conftest\.py$"
        overrides["sphinx_gallery_conf.within_subsection_order"] = "FileNameSortKey"
    empty = scratch / "empty"
    empty.mkdir(exist_ok=True)
    if where.conf is None:
        overrides["extensions"] = [_EXTENSION]
        if not _is_installed("matplotlib"):
            overrides["sphinx_gallery_conf.image_scrapers"] = ()
            overrides["sphinx_gallery_conf.reset_modules"] = ()
    app: Any = _Reader.__new__(_Reader)
    try:
        app.__init__(
            srcdir=where.source or empty,
            confdir=where.conf or None,
            outdir=scratch / "build",
            doctreedir=scratch / "doctrees",
            buildername="dummy",
            confoverrides=overrides,
            status=None,
            warning=None,
        )
    except _Read:
        if "sphinx_gallery_conf" not in app.config:
            raise ExtensionError(
                f"{where.conf}/conf.py: sphinx-gallery is not among its extensions"
            ) from None
        return app
    raise ExtensionError("Sphinx did not start as gallery_recorder expects")


def _is_installed(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def describe(app: Any, where: Where) -> Project:
    """What *app*, an application with sphinx-gallery's settings complete, says of the project.

    Raises:
        SettingsError: a value in conf.py means nothing.
    """
    return Project(
        where=where,
        examples=tuple(examples_of(app)),
        settings=settings.read(app.config, where.conf or Path.cwd()),
        missing=tuple(getattr(app, "missing", ())),
    )


def examples_of(app: Any) -> list[Example]:
    """The files of all galleries, in the order of their pages."""
    conf, source = app.config.sphinx_gallery_conf, Path(app.srcdir)
    pairs = list(zip(_as_list(conf["examples_dirs"]), _as_list(conf["gallery_dirs"]), strict=False))
    roots = [Path(os.path.normpath(source / folder)) for folder, _ in pairs]
    found = []
    for root, (_, pages), gallery in zip(roots, pairs, unique_names(roots), strict=True):
        sections = ["", *seam.subsections(root, source, conf)] if root.is_dir() else []
        for section in sections:
            folder = root / section
            found += [
                Example(
                    path=path,
                    gallery=gallery,
                    name=_name(path, root),
                    pages=Path(os.path.normpath(Path(pages, section))).as_posix(),
                    recorded=path.suffix == ".py" and seam.is_executed(path, conf),
                    may_fail=seam.may_fail(path, conf),
                )
                for path in seam.scripts_in(folder, conf)
            ]
    return found


def unique_names(folders: Sequence[Path]) -> list[str]:
    """A name for each of *folders*: its last part, or where two share that, the way to it.

    The way begins where the ways of all part, so that it is the same on every machine.
    """
    common = Path(os.path.commonpath([*folders, *(f.parent for f in folders)]) if folders else "/")
    last = [folder.name for folder in folders]
    return [
        folder.name
        if last.count(folder.name) == 1
        else "-".join(folder.relative_to(common).parts) or str(number)
        for number, folder in enumerate(folders)
    ]


def _name(path: Path, root: Path) -> str:
    """The path below *root* without suffix, where no folder has that name."""
    below = path.relative_to(root)
    return (below if path.with_suffix("").is_dir() else below.with_suffix("")).as_posix()


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _main() -> int:
    where = decode(sys.argv[1].encode(), Where)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with seam.without_matplotlib():
                project = describe(read_app(where, Path(scratch)), where)
        except (SphinxError, SettingsError) as error:
            print(error)
            return 1
    Path(sys.argv[2]).write_bytes(encode(project))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
