"""Read a project: Sphinx and sphinx-gallery read conf.py, up to the generation of galleries."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError, SphinxError

from gallery_recorder import seam
from gallery_recorder.project import settings
from gallery_recorder.project.galleries import Example, Project, Where, decode, encode
from gallery_recorder.project.settings import SettingsError

_EXTENSION = "sphinx_gallery.gen_gallery"


class _Read(BaseException):
    """Leaves Sphinx before it generates galleries."""


class _Reader(Sphinx):
    """Sphinx, up to the generation of galleries; ``missing`` are extensions not installed."""

    def setup_extension(self, extname: str) -> None:
        """Load an extension, unless it is not installed or renders recordings."""
        if not hasattr(self, "missing"):
            self.missing: list[str] = []
            settings.register(self)
            # sphinx-gallery completes its settings at priority 10 and generates at 500; listeners
            # of conf.py between them are called, too.
            self.connect("builder-inited", _leave, priority=499)
        if extname.split(".")[0] == (__package__ or "").split(".")[0]:
            extname = _EXTENSION  # the engine loads it if conf.py does not
        try:
            super().setup_extension(extname)
        except ExtensionError as error:
            if not isinstance(error.__cause__ or error.orig_exc, ModuleNotFoundError):
                raise
            self.missing.append(extname)


def _leave(app: Sphinx) -> None:
    raise _Read


def read_app(where: Where, scratch: Path, warnings: IO[str] | None = None) -> Sphinx:
    """The application of a build before it generates galleries; SphinxError for a wrong conf.py.

    Sphinx and its extensions write warnings to *warnings*.
    """
    seam.check()
    conf: dict[str, Any] = {}
    if where.folders:
        conf = {
            "examples_dirs": [str(path) for path in where.folders],
            "gallery_dirs": [f"gallery-{number}" for number, _ in enumerate(where.folders)],
            "filename_pattern": "",
            "ignore_pattern": r"^_|^conftest\.py$",
            "within_subsection_order": "FileNameSortKey",
        }
    if where.conf is None and find_spec("matplotlib") is None:
        conf |= {"image_scrapers": (), "reset_modules": ()}
    overrides = {f"sphinx_gallery_conf.{name}": value for name, value in conf.items()}
    # No page is read here, and Sphinx need not look for pages in folders of recordings.
    overrides["exclude_patterns"] = ["**"]
    if where.conf is None:
        overrides["extensions"] = [_EXTENSION]
    empty = scratch / "empty"
    empty.mkdir(exist_ok=True)
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
            warning=warnings,
        )
    except _Read:
        if "sphinx_gallery_conf" in app.config:
            return app
    raise ExtensionError(f"{where.conf}/conf.py: sphinx-gallery is not among its extensions")


def examples_of(app: Any) -> list[Example]:
    """The files of all galleries, in the order of their pages."""
    conf, source = app.config.sphinx_gallery_conf, Path(app.srcdir)
    galleries = seam.galleries(app)
    names = unique_names([root for root, _ in galleries])
    found = []
    for (root, pages), gallery in zip(galleries, names, strict=True):
        if not root.is_dir():
            raise ExtensionError(
                f"{root}: is not a folder. Correct --tutorials, or examples_dirs of conf.py, which "
                f"is relative to the source folder {source} (or --source DIR)."
            )
        for section in ("", *seam.subsections(root, source, conf)):
            found += [
                Example(
                    path=path,
                    gallery=gallery,
                    name=_name(path, root),
                    pages=Path(os.path.normpath(Path(pages, section))).as_posix(),
                    recorded=path.suffix == ".py" and seam.is_executed(path, conf),
                    may_fail=conf["only_warn_on_example_error"]
                    or seam.is_expected_to_fail(path, conf),
                )
                for path in seam.scripts_in(root / section, conf)
            ]
    return found


def unique_names(folders: Sequence[Path]) -> list[str]:
    """A name for each of *folders*, the same on every machine: its last part, if it is unique."""
    common = os.path.commonpath([folder.parent for folder in folders]) if folders else ""
    last = [folder.name for folder in folders]
    return [
        name if last.count(name) == 1 else "-".join(folder.relative_to(common).parts)
        for name, folder in zip(last, folders, strict=True)
    ]


def _name(path: Path, root: Path) -> str:
    """The path below *root*, without suffix unless a folder has that name."""
    below = path.relative_to(root)
    return (below if path.with_suffix("").is_dir() else below.with_suffix("")).as_posix()


def _main() -> int:
    where = decode(sys.argv[1].encode(), Where)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with seam.only_reading():
                app: Any = read_app(where, Path(scratch))
                said = settings.read(app.config, where.conf or Path.cwd())
                project = Project(where, tuple(examples_of(app)), said, tuple(app.missing))
        except (SphinxError, SettingsError, OSError) as error:
            print(error)
            return 1
    Path(sys.argv[2]).write_bytes(encode(project))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
