"""What a project's conf.py says about recording: the values ``gallery_…``, with their defaults."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

#: The kinds of device that a script can be executed on.
KINDS = ("gpu", "cpu")

#: What one recording may hold, unless ``gallery_limits`` says otherwise. A page with more than this
#: is no page to read, and git keeps every recording for ever.
LIMITS = {
    "output": 1_000_000,  # bytes that a block prints
    "file": 8_000_000,  # bytes of an image or a data file
    "files": 100,
    "seconds": 600.0,  # that a script may take, unless it says so itself
}

#: The events that extensions of a project can connect to.
EVENTS = ("gallery-facts", "gallery-notebook")

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")

#: Name, default, what has to be read again when it changes, and types.
_VALUES: tuple[tuple[str, Any, Literal["", "env", "html"], tuple[type, ...]], ...] = (
    ("gallery_recordings", ["recordings"], "env", (list, tuple)),
    ("gallery_devices", [], "env", (list, tuple)),
    ("gallery_unrecorded", "error", "env", (str,)),
    ("gallery_probes", [], "", (list, tuple)),
    ("gallery_environment", {}, "", (dict,)),
    ("gallery_variables", [], "", (list, tuple)),
    ("gallery_limits", {}, "", (dict,)),
    ("gallery_writable", [], "", (list, tuple)),
    ("gallery_variant", None, "", ()),
    ("gallery_untimed", {}, "env", (dict,)),
    ("gallery_data", [], "", (list, tuple)),
    ("gallery_stderr", "joined", "", (str,)),
    ("gallery_filters", [], "", (list, tuple)),
    ("gallery_plain_tokens", (), "html", (list, tuple)),
)


class SettingsError(Exception):
    """A value in conf.py that means nothing; says which, and what it may be."""


class Settings(msgspec.Struct, frozen=True):
    """The values, checked.

    Attributes:
        recordings: the folders of recordings; the first is written to, and the last where the
            kind of device is not timed.
        devices: the devices, or devices with variants, that a page prefers, best first.
        unrecorded: what a script without a recording is: ``error``, ``warn`` or ``no-output``.
        probes: the names of the probes.
        environment: the variables that a script gets on each kind of device.
        variables: patterns of the variables that the provenance keeps.
        limits: what one recording may hold, see :data:`LIMITS`.
        writable: the paths outside of its folder that a script may write to.
        variant: the variant that is recorded here, None where there are none.
        untimed: the kinds of device whose times say nothing, and what to call them.
        data: patterns of the files to keep that a script writes into its folder.
        stderr: ``joined`` with standard output, as sphinx-gallery shows it, or ``apart``.
    """

    recordings: list[str]
    devices: list[str]
    unrecorded: str
    probes: list[str]
    environment: dict[str, dict[str, str]]
    variables: list[str]
    limits: dict[str, float]
    writable: list[str]
    variant: str | None
    untimed: dict[str, str]
    data: list[str]
    stderr: str

    @property
    def roots(self) -> list[Path]:
        """All folders of recordings, each once."""
        return [Path(folder) for folder in dict.fromkeys(self.recordings)]

    def root_for(self, kind: str) -> Path:
        """The folder that recordings made on a *kind* of device are written to."""
        return Path(self.recordings[-1 if kind in self.untimed else 0])


def register(app: Sphinx) -> None:
    """Add the values and the events to an application, which may have them."""
    for name, default, rebuild, types in _VALUES:
        if name not in app.config:
            app.add_config_value(name, default, rebuild, types)
    for name in EVENTS:
        if name not in app.events.events:
            app.add_event(name)


def read(config: Config, confdir: Path) -> Settings:
    """The values in *config*; *confdir* is what folders are relative to.

    Raises:
        SettingsError: a value means nothing.
    """
    environment = _environment(config.gallery_environment)
    return Settings(
        recordings=_recordings(config.gallery_recordings, confdir),
        devices=[str(device) for device in config.gallery_devices],
        unrecorded=_one_of(
            "gallery_unrecorded", config.gallery_unrecorded, "error", "warn", "no-output"
        ),
        probes=[name_of(probe) for probe in config.gallery_probes],
        environment=environment,
        variables=[*map(str, config.gallery_variables), *environment["gpu"], *environment["cpu"]],
        limits=_limits(config.gallery_limits),
        writable=_writable(config.gallery_writable),
        variant=_variant(config.gallery_variant),
        untimed={_kind("gallery_untimed", k): str(v) for k, v in config.gallery_untimed.items()},
        data=[str(pattern) for pattern in config.gallery_data],
        stderr=_one_of("gallery_stderr", config.gallery_stderr, "joined", "apart"),
    )


def resolve(name: str, said_in: str) -> Any:
    """What the dotted *name* means; a class is called to have an object.

    Raises:
        SettingsError: it means nothing; *said_in* is the value that names it.
    """
    module, _, attribute = name.rpartition(".")
    try:
        if module and hasattr(imported := importlib.import_module(module), attribute):
            found = getattr(imported, attribute)
        else:
            found = importlib.import_module(name)
    except Exception as error:
        raise SettingsError(
            f"conf.py: {said_in} names {name!r}, which cannot be imported: {error}"
        ) from error
    return found() if inspect.isclass(found) else found


def name_of(thing: Any) -> str:
    """The dotted name of an object, class, function or module that conf.py gives."""
    if isinstance(thing, str):
        return thing
    if inspect.ismodule(thing):
        return thing.__name__
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def objects(value: list[Any], said_in: str) -> dict[str, Any]:
    """The objects that *value* gives, themselves or by name, by their names."""
    return {
        name_of(thing): resolve(thing, said_in) if isinstance(thing, str) else thing
        for thing in value
    }


def _recordings(value: Any, confdir: Path) -> list[str]:
    if not value or not all(isinstance(folder, str | Path) for folder in value):
        raise SettingsError(f"conf.py: gallery_recordings is {value!r}, not a list of folders")
    return [os.path.normpath(confdir / folder) for folder in value]


def _writable(value: Any) -> list[str]:
    paths = [os.path.expanduser(os.path.expandvars(str(path))) for path in value]
    return [path for path in paths if "$" not in path]  # a variable that is not set


def _environment(value: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for kind, variables in value.items():
        if not isinstance(variables, Mapping):
            raise SettingsError(
                f"conf.py: gallery_environment[{kind!r}] is no dictionary of variables"
            )
        found[_kind("gallery_environment", kind)] = {
            str(name): str(text) for name, text in variables.items()
        }
    return found


def _limits(value: Mapping[str, Any]) -> dict[str, float]:
    for name, limit in value.items():
        if name not in LIMITS:
            raise SettingsError(
                f"conf.py: gallery_limits has {name!r}; limits are {', '.join(LIMITS)}"
            )
        if isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0:
            raise SettingsError(
                f"conf.py: gallery_limits[{name!r}] is {limit!r}, not a number above 0"
            )
    return LIMITS | dict(value)


def _variant(value: Any) -> str | None:
    if isinstance(value, str) and _DOTTED.fullmatch(value):
        value = resolve(value, "gallery_variant")
    if callable(value):
        value = value()
    if value is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}", str(value)):
        raise SettingsError(
            f"conf.py: gallery_variant is {value!r}; a variant is the name of a folder, of "
            "letters, digits, '.', '_', '+' and '-'"
        )
    return None if value is None else str(value)


def _kind(name: str, kind: str) -> str:
    return _one_of(f"{name}: a kind of device", kind, *KINDS)


def _one_of(name: str, value: Any, *allowed: str) -> str:
    if value not in allowed:
        raise SettingsError(f"conf.py: {name} is {value!r}; it may be {' or '.join(allowed)}")
    return value
