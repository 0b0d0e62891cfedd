"""The engine's settings in conf.py: the values ``gallery_…``, their types and defaults."""

import contextlib
import inspect
import os
import pkgutil
import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta
from sphinx.application import Sphinx
from sphinx.config import Config

from gallery_recorder.errors import RecorderError

#: The kinds of device that a script can be executed on.
Kind = Literal["gpu", "cpu"]

_Limit = Literal["output", "file", "files", "warning", "seconds"]

#: The limits of one recording, unless ``gallery_limits`` has others: git keeps it for ever.
LIMITS: dict[_Limit, float] = {
    "output": 1_000_000,  # bytes that a block prints
    "file": 8_000_000,  # bytes of an image or a data file
    "files": 100,
    "warning": 20_000_000,  # bytes of all files, from which `record` warns
    "seconds": 600.0,  # for a script that has no timeout of its own
}

_Limits = dict[_Limit, Annotated[float, Meta(gt=0, le=1e15)]]
_Folder = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}\Z")]

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


class SettingsError(RecorderError):
    """A value in conf.py that is not allowed; the message names the setting."""


class Settings(msgspec.Struct, frozen=True):
    """The checked values; the documentation's table of settings is made of this.

    Attributes:
        recordings: folders of recordings, relative to ``conf.py``. New recordings go to the first;
            those of a kind of device in ``gallery_untimed`` go to the last.
        devices: the devices that a page prefers, best first: ``"nvidia-h200"``, or with a variant,
            ``"nvidia-h200/numpy-2"``. The first is the reference that ``status --check`` asks for.
        unrecorded: the result of an example that has no current recording: ``"error"``; ``"warn"``;
            ``"no-output"``, which is silent; or ``"stale"``, which shows the outputs of the latest
            older code, says so, and is an error for an example that has no recording at all.
            ``publish`` refuses a build with such outputs
        others: whether each other current recording of an example has a page of its own, linked
            under the title of the example's page
        menus: what the theme's menus show of other pages: their ``"sections"``, or their
            ``"titles"`` alone, and then a changed heading lets Sphinx write few pages
        probes: objects, or their dotted names, with ``provenance()``, ``before_block()`` or
            ``after_block()``, whose results are recorded under their name; a probe's
            ``check(folder, recording)`` raises ``ReadingError`` where its results are damaged
        environment: variables that examples get: ``{"cpu": {"NAME": "value"}, "gpu": {}}``
        variables: patterns of further variables that are kept in the provenance
        limits: the limits of one recording: bytes of ``output`` of a block, bytes of a ``file``,
            number of ``files``, ``seconds`` of the example; ``warning``: ``record`` warns of a
            recording with more bytes
        variant: a name, or a function that returns one, for recordings that are kept beside each
            other: a release of a library, for example
        untimed: kinds of device whose times mean nothing, and their names:
            ``{"cpu": "interpreter"}``
        data: patterns of files that examples write and readers may download: ``["*.csv"]``
        launcher: the command that starts the ranks of each example, such as
            ``["srun", "-n", "2"]``; an example may name its own, or ``""``, in the comment
            ``# sphinx_gallery_launcher``. Its page shows the output of rank 0
        seed: a number that seeds Python, NumPy and PyTorch before each example, so that outputs of
            examples that seed nothing repeat
        stderr: ``"apart"`` shows standard error in a box of its own
        filters: functions from text to text for recorded text: masking addresses, for example
    """

    recordings: Annotated[tuple[str, ...], Meta(min_length=1)] = ("recordings",)
    devices: tuple[str, ...] = ()
    unrecorded: Literal["error", "warn", "no-output", "stale"] = "warn"
    others: bool = False
    menus: Literal["sections", "titles"] = "sections"
    probes: tuple[str, ...] = ()
    environment: dict[Kind, dict[str, str]] = {}
    variables: tuple[str, ...] = ()
    limits: _Limits = msgspec.field(default_factory=LIMITS.copy)
    variant: _Folder | None = None
    untimed: dict[Kind, str] = {}
    data: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    seed: Annotated[int, Meta(ge=0, lt=2**32)] | None = None
    stderr: Literal["joined", "apart"] = "joined"
    filters: tuple[str, ...] = ()

    @property
    def reference(self) -> str | None:
        """The device, or device and variant, that a project prefers."""
        return next(iter(self.devices), None)

    @property
    def roots(self) -> list[Path]:
        """All folders of recordings, each once."""
        return [Path(folder) for folder in dict.fromkeys(self.recordings)]

    def root_for(self, kind: str) -> Path:
        """The folder for new recordings of a *kind* of device."""
        return Path(self.recordings[-1 if kind in self.untimed else 0])


#: The values whose change makes Sphinx read all pages again.
_PAGES = {"recordings", "devices", "unrecorded", "others", "untimed"}


def register(app: Sphinx) -> None:
    """Add the values and the events to an application that lacks them."""
    for name, default in msgspec.structs.asdict(Settings()).items():
        if f"gallery_{name}" not in app.config:
            types = {tuple: (list, tuple), type(None): ()}.get(type(default), (type(default),))
            default = [*default] if isinstance(default, tuple) else default  # for sphinx-build -D
            app.add_config_value(f"gallery_{name}", default, "env" if name in _PAGES else "", types)
    for name in ("gallery-facts", "gallery-notebook", "gallery-script"):
        if name not in app.events.events:
            app.add_event(name)


def read(config: Config, confdir: Path) -> Settings:
    """The values in *config*, with folders relative to *confdir*; SettingsError for a wrong one."""
    values = {name: getattr(config, f"gallery_{name}") for name in Settings.__struct_fields__}
    variant = values["variant"]
    if isinstance(variant, str) and _DOTTED.fullmatch(variant):
        variant = resolve(variant, "gallery_variant")
    values["variant"] = variant() if callable(variant) else variant
    try:
        said = msgspec.convert(msgspec.to_builtins(values, enc_hook=name_of), Settings)
    except msgspec.ValidationError as error:
        text = str(error).replace("$.", "gallery_")
        raise SettingsError(f"conf.py: {text}; correct the setting") from error
    return msgspec.structs.replace(
        said,
        recordings=tuple(os.path.normpath(confdir / path) for path in said.recordings),
        variables=(*said.variables, *(n for names in said.environment.values() for n in names)),
        limits=LIMITS | said.limits,
        environment={kind: said.environment.get(kind, {}) for kind in get_args(Kind)},
    )


def resolve(name: str, setting: str) -> Any:
    """The object with the dotted *name* in *setting*; an instance, if it is a class."""
    try:
        found = pkgutil.resolve_name(name)
    except Exception as error:
        raise SettingsError(f"conf.py: {setting}: cannot import {name!r} ({error})") from error
    return found() if inspect.isclass(found) else found


def name_of(thing: Any) -> str:
    """The dotted name of an object, a class or a function; text and paths as they are."""
    if isinstance(thing, str | Path):
        return str(thing)
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def objects(value: list[Any], setting: str) -> dict[str, Any]:
    """The objects in the value of *setting*, given themselves or by name, by their names."""
    return {
        name_of(thing): resolve(thing, setting) if isinstance(thing, str) else thing
        for thing in value
    }


def checks(said: Settings) -> list[Any]:
    """The functions ``check`` of the project's probes."""
    found = []
    for name in said.probes:
        with contextlib.suppress(SettingsError):  # it may need a library of the recording machine
            found.append(getattr(resolve(name, "gallery_probes"), "check", None))
    return [check for check in found if check]
