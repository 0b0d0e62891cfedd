"""Read a project: let Sphinx and sphinx-gallery read conf.py, and stop before they make pages."""

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError, SphinxError
from sphinx.util.docutils import docutils_namespace

from gallery_recorder import seam
from gallery_recorder.project import inputs, settings
from gallery_recorder.project.galleries import Example, Project, ProjectError, Where
from gallery_recorder.project.inputs import InputRules
from gallery_recorder.project.settings import Settings
from gallery_recorder.temporary import TemporaryFolder

_EXTENSION = "sphinx_gallery.gen_gallery"


class _Read(BaseException):
    """Leaves Sphinx before it generates galleries."""


class _Reader(Sphinx):
    """Sphinx up to the generation of galleries; ``missing`` extensions are not installed."""

    def setup_extension(self, extname: str) -> None:
        """Load an extension, unless it is not installed or is this engine's."""
        if not hasattr(self, "missing"):
            self.missing: list[str] = []
            settings.register(self)
        if extname.split(".")[0] == (__package__ or "").split(".")[0]:
            extname = _EXTENSION  # the engine loads it if conf.py does not
        try:
            super().setup_extension(extname)
            seam.generate_with(self, _leave)
        except ExtensionError as error:
            if not isinstance(error.__cause__ or error.orig_exc, ModuleNotFoundError):
                raise
            self.missing.append(extname)


def _leave(app: Sphinx) -> None:
    raise _Read


def _read_app(where: Where, scratch: Path) -> Sphinx:
    """The application of a build, before galleries; SphinxError if conf.py is wrong."""
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
    # No page is read, so Sphinx need not look for pages.
    overrides["exclude_patterns"] = ["**"]
    overrides |= where.overrides
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
            tags=where.tags,
            status=None,
            warning=None,
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
                    executed=path.suffix == ".py" and seam.is_executed(path, conf),
                    expected_to_fail=seam.is_expected_to_fail(path, conf),
                    failure_only_warns=bool(conf["only_warn_on_example_error"]),
                )
                for path in seam.scripts_in(root / section, conf)
            ]
    return found


def _unexecuted(config: Any) -> str:
    """Why sphinx-gallery executes no more examples than it does."""
    conf = config.sphinx_gallery_conf
    if not conf["plot_gallery"]:
        return "plot_gallery is False in conf.py"
    pattern = conf["filename_pattern"]
    return f"filename_pattern in conf.py is {pattern!r}; its path does not match"


def input_rules(app: Any, said: Settings, base: Path) -> InputRules:
    """Which files of the project can be inputs; *base* is the folder of conf.py."""
    copies = {
        inputs.relative(copy, base): inputs.relative(source, base)
        for copy, source in said.sources.items()
    }
    folders = [inputs.relative(root, base) for root, _ in seam.galleries(app)]
    folders += copies.values()
    named: list[str] = []
    patterns: list[str] = []
    for entry in said.inputs:
        is_folder = (base / entry).is_dir()
        (named if is_folder else patterns).append(inputs.relative(entry, base))
    never = {"conf", *app.config.extensions}
    for name in (*said.probes, *said.filters):
        parts = name.split(".")
        never |= {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return InputRules(
        base=base,
        folders=tuple(dict.fromkeys([*folders, *named])),
        named=tuple(named),
        copies=copies,
        patterns=tuple(patterns),
        never=tuple(sorted(never)),
    )


def unique_names(folders: Sequence[Path]) -> list[str]:
    """A name for each of *folders*, the same on every machine: its last part if that is unique."""
    common = os.path.commonpath([folder.parent for folder in folders]) if folders else ""
    last = [folder.name for folder in folders]
    return [
        name if last.count(name) == 1 else "-".join(folder.relative_to(common).parts)
        for name, folder in zip(last, folders, strict=True)
    ]


def _name(path: Path, root: Path) -> str:
    """The path below *root*, without suffix unless a folder has this name."""
    below = path.relative_to(root)
    return (below if path.with_suffix("").is_dir() else below.with_suffix("")).as_posix()


# --- reading a project ----------------------------------------------------------------------------


def load(where: Where, scratch: Path) -> tuple[Any, Project]:
    """The application before galleries, and the project; ProjectError if it cannot be read."""
    try:
        with seam.only_reading():
            app: Any = _read_app(where, scratch)
            said = settings.read(app.config, where.conf or Path.cwd())
            base = where.conf or Path(os.path.commonpath(where.folders or [Path.cwd()]))
            project = Project(
                where=where,
                examples=tuple(examples_of(app)),
                settings=said,
                missing=tuple(app.missing),
                inputs=input_rules(app, said, base),
                notes=tuple(settings.misspelt(app.config)),
                unexecuted=_unexecuted(app.config),
                changing_outputs=settings.changing_outputs(app.config.sphinx_gallery_conf),
            )
            return app, project
    except (Exception, SystemExit) as error:
        raise ProjectError(_reason(error, where)) from error


def read(where: Where) -> Project:
    """Read the project in this process; what conf.py prints goes to standard error."""
    # docutils_namespace() removes Sphinx's directives from the process afterwards.
    with (
        TemporaryFolder() as scratch,
        contextlib.redirect_stdout(sys.stderr),
        docutils_namespace(),
    ):
        return load(where, scratch)[1]


def _reason(error: BaseException, where: Where) -> str:
    """The message about *error*, with the line of conf.py if conf.py raised it."""
    conf = f"{where.conf}/conf.py"
    raised = error.__cause__ if isinstance(error, SphinxError) and error.__cause__ else error
    trace = raised.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != conf:
        trace = trace.tb_next
    lines = [f.lineno for f in traceback.extract_tb(trace) if f.filename == conf]
    if isinstance(raised, SyntaxError) and raised.filename == conf:
        lines = [raised.lineno]
    if not lines:
        place = where.conf or ", ".join(map(str, where.folders))
        return f"{place}: cannot be read: {error}"
    if isinstance(raised, ModuleNotFoundError):
        needed = f"{conf}:{lines[-1]}: imports {raised.name}, which is not installed"
        return f"{needed}; install it, or let conf.py do without it (try: … except ImportError)"
    text = "".join(traceback.format_exception(type(raised), raised, trace))
    cause = f"{conf}:{lines[-1]}: raised {type(raised).__name__}: {raised}\n{text}"
    if isinstance(raised, OSError):
        cause += f"conf.py is read in {os.getcwd()}: call the recorder where you call sphinx-build."
    return cause
