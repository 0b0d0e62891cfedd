"""The engine's settings in conf.py, ``gallery_…``: their meanings, types and defaults."""

import contextlib
import difflib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta
from sphinx.application import Sphinx
from sphinx.config import Config

from gallery_recorder.errors import RecorderError

#: The kinds of device that execute examples.
Kind = Literal["gpu", "cpu"]

_Limit = Literal["output", "file", "files", "warning", "seconds"]

#: The default ``gallery_limits`` of one recording, since git keeps it for ever.
LIMITS: dict[_Limit, float] = {
    "output": 1_000_000,  # bytes that a block prints
    "file": 8_000_000,  # bytes of an image or a data file
    "files": 100,
    "warning": 20_000_000,  # bytes of all files, from which `record` warns
    "seconds": 600.0,  # for an example without its own timeout
}

_Limits = dict[_Limit, Annotated[float, Meta(gt=0, le=1e15)]]
_Folder = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}\Z")]

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


class SettingsError(RecorderError):
    """A value in conf.py is not allowed; the message names the setting."""


class Settings(msgspec.Struct, frozen=True):
    """The settings, named ``gallery_…`` in conf.py; docs/engine.rst describes each."""

    recordings: Annotated[tuple[str, ...], Meta(min_length=1)] = ("recordings",)
    devices: tuple[str, ...] = ()
    unrecorded: Literal["error", "warn", "no-output", "stale"] = "warn"
    others: bool = False
    notebooks: Literal["outputs", "plain"] = "outputs"
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
    inputs: tuple[str, ...] = ()
    sources: dict[str, str] = {}
    refresh: tuple[str, ...] = ()

    @property
    def reference(self) -> str | None:
        """The first of ``gallery_devices``; None if it is empty."""
        return next(iter(self.devices), None)

    @property
    def roots(self) -> list[Path]:
        """All folders of recordings, without duplicates."""
        return [Path(folder) for folder in dict.fromkeys(self.recordings)]

    def root_for(self, kind: str) -> Path:
        """The folder for new recordings of a *kind* of device."""
        return Path(self.recordings[-1 if kind in self.untimed else 0])


#: The settings whose change makes Sphinx read all pages again.
_PAGES = {"recordings", "devices", "unrecorded", "others", "untimed", "notebooks"}


def register(app: Sphinx) -> None:
    """Add the settings and the events to an application, unless it has them."""
    for name, default in msgspec.structs.asdict(Settings()).items():
        if f"gallery_{name}" not in app.config:
            types = {tuple: (list, tuple), type(None): ()}.get(type(default), (type(default),))
            default = [*default] if isinstance(default, tuple) else default  # for sphinx-build -D
            app.add_config_value(f"gallery_{name}", default, "env" if name in _PAGES else "", types)
    for name in ("gallery-facts", "gallery-notebook", "gallery-script"):
        if name not in app.events.events:
            app.add_event(name)


def read(config: Config, confdir: Path) -> Settings:
    """The settings in *config*, folders relative to *confdir*; SettingsError if one is wrong."""
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
        variables=tuple(_variables(said)),
        limits=LIMITS | said.limits,
        environment={kind: said.environment.get(kind, {}) for kind in get_args(Kind)},
    )


def _variables(said: Settings) -> Iterator[str]:
    """The patterns of the variables that a recording keeps."""
    yield from said.variables
    for names in said.environment.values():
        yield from names
    for name in said.refresh:
        if name.startswith("$"):
            yield name[1:]


#: The settings of sphinx-gallery that change recorded outputs.
_CHANGE_OUTPUTS = (
    "image_srcset",
    "image_scrapers",
    "matplotlib_animations",
    "reset_modules",
    "reset_modules_order",
    "ignore_repr_types",
    "capture_repr",
)


def changing_outputs(gallery_conf: dict[str, Any]) -> dict[str, str]:
    """The settings of sphinx-gallery that change outputs, as texts, the same on every machine."""
    found = {}
    for name in _CHANGE_OUTPUTS:
        if name in gallery_conf:
            value = gallery_conf[name]
            is_list = name in ("image_scrapers", "reset_modules")  # or its only item
            found[name] = plain([value] if is_list and isinstance(value, str) else value)
    return found


def plain(value: Any) -> str:
    """A setting as a text that is the same in every process; for an object, its dotted name."""
    if isinstance(value, dict):
        parts = [f"{plain(key)}: {plain(item)}" for key, item in value.items()]
        return f"{{{', '.join(sorted(parts))}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(plain, value)))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(plain, value))}]"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return name_of(value)


def misspelt(config: Config) -> list[str]:
    """A message about each ``gallery_…`` in conf.py that is nearly the name of a setting."""
    known = [f"gallery_{name}" for name in Settings.__struct_fields__]
    found = []
    for name in sorted(config._raw_config):
        if name.startswith("gallery_") and name not in config:
            near = difflib.get_close_matches(name, known, 1, _NEAR)
            if near:
                found.append(f"conf.py: {name} is no setting; {near[0]} is one")
    return found


_NEAR = 0.8  # how similar a misspelt name is to the name of a setting, from 0 to 1


def resolve(name: str, setting: str) -> Any:
    """The object with the dotted *name* in *setting*; for a class, an instance."""
    try:
        found = pkgutil.resolve_name(name)
    except Exception as error:
        raise SettingsError(f"conf.py: {setting}: cannot import {name!r} ({error})") from error
    return found() if inspect.isclass(found) else found


def name_of(thing: Any) -> str:
    """The dotted name of an object, a class or a function; texts and paths unchanged."""
    if isinstance(thing, str | Path):
        return str(thing)
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def objects(value: list[Any], setting: str) -> dict[str, Any]:
    """The objects in *setting*, where objects or names are allowed, by their dotted names."""
    return {
        name_of(thing): resolve(thing, setting) if isinstance(thing, str) else thing
        for thing in value
    }


def checks(said: Settings) -> list[Any]:
    """The ``check`` functions of the project's probes."""
    found = []
    for name in said.probes:
        with contextlib.suppress(SettingsError):  # its import may need a GPU library
            found.append(getattr(resolve(name, "gallery_probes"), "check", None))
    return [check for check in found if check]
