"""Reads a project: conf.py, by Sphinx and sphinx-gallery themselves, and the galleries in it.

They are let go on up to the moment at which galleries would be generated.
"""

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
    """Leaves Sphinx before galleries are generated."""


class _Reader(Sphinx):
    """Sphinx, up to the moment at which galleries would be generated."""

    missing: list[str]

    def setup_extension(self, extname: str) -> None:
        """Load an extension; one that is not installed, or that renders recordings, is left out."""
        if not hasattr(self, "missing"):
            self.missing = []
            settings.register(self)
            # sphinx-gallery finishes its settings at 10 and generates at 500; what conf.py does
            # between them is done here, too.
            self.connect("builder-inited", _leave, priority=499)
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


def read_app(where: Where, scratch: Path, warnings: IO[str] | None = None) -> Sphinx:
    """The application that a build of the project would begin with; nothing is generated.

    Sphinx and its extensions write to *warnings* from then on.

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
        if find_spec("matplotlib") is None:
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
            warning=warnings,
        )
    except _Read:
        if "sphinx_gallery_conf" not in app.config:
            raise ExtensionError(
                f"{where.conf}/conf.py: sphinx-gallery is not among its extensions"
            ) from None
        return app
    raise ExtensionError("Sphinx did not start as gallery_recorder expects")


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
    galleries = seam.galleries(app)
    names = unique_names([root for root, _ in galleries])
    found = []
    for (root, pages), gallery in zip(galleries, names, strict=True):
        if not root.is_dir():
            raise ExtensionError(
                f"{root}: is among examples_dirs in conf.py, and is no folder. It is looked for "
                f"from the source folder, {source}; if that is another, name it with --source DIR."
            )
        for section in ("", *seam.subsections(root, source, conf)):
            folder = root / section
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


def _main() -> int:
    where = decode(sys.argv[1].encode(), Where)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with seam.only_reading():
                found = encode(describe(read_app(where, Path(scratch)), where))
        except UnicodeEncodeError as error:
            print(f"{error.object!r}: is a name that is not UTF-8. Rename it.")
            return 1
        except (SphinxError, SettingsError, OSError) as error:
            print(error)
            return 1
    Path(sys.argv[2]).write_bytes(found)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
