"""What a project's conf.py says about recording: the values ``gallery_…``, with their defaults."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from gallery_recorder.errors import RecorderError

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

#: The kinds of device that a script can be executed on.
Kind = Literal["gpu", "cpu"]

_Limit = Literal["output", "file", "files", "seconds"]

#: What one recording may hold, unless ``gallery_limits`` says otherwise. A page with more than this
#: is no page to read, and git keeps every recording for ever.
LIMITS: dict[_Limit, float] = {
    "output": 1_000_000,  # bytes that a block prints
    "file": 8_000_000,  # bytes of an image or a data file
    "files": 100,
    "seconds": 600.0,  # that a script may take, unless it says so itself
}

#: The events that extensions of a project can connect to.
EVENTS = ("gallery-facts", "gallery-notebook")

# The descriptions say in messages what a value may be.
_List = Annotated[tuple[str, ...], Meta(description="a list of names, objects, paths or patterns")]
_Folders = Annotated[tuple[str, ...], Meta(min_length=1, description="a list of folders")]
_Limits = Annotated[
    dict[_Limit, Annotated[float, Meta(gt=0)]],
    Meta(description=f"a dictionary of numbers above 0 for {', '.join(LIMITS)}"),
]
_Variables = Annotated[
    dict[Kind, dict[str, Any]], Meta(description="variables for the kinds of device gpu and cpu")
]
_Variant = Annotated[
    Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}\Z")] | None,
    Meta(description="the name of a folder, of letters, digits, '.', '_', '+' and '-'"),
]
_Names = Annotated[dict[Kind, str], Meta(description="names for the kinds gpu and cpu")]
_Unrecorded = Annotated[
    Literal["error", "warn", "no-output"], Meta(description="error, warn or no-output")
]
_Yes = Annotated[bool, Meta(description="True or False")]
_Stderr = Annotated[Literal["joined", "apart"], Meta(description="joined or apart")]

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


class SettingsError(RecorderError):
    """A value in conf.py that means nothing; says which, and what it may be."""


class Settings(msgspec.Struct, frozen=True):
    """The values, checked; the table of settings in the documentation is made of this.

    Attributes:
        recordings: folders of recordings, relative to ``conf.py``. The first is written to; what a
            kind of device in ``gallery_untimed`` made goes to the last.
        devices: the devices that a page prefers, best first: ``"nvidia-h200"``, or with a variant,
            ``"nvidia-h200/numpy-2"``. The first is the reference that ``status --check`` asks for.
        unrecorded: what an example without a current recording is: ``"error"``, ``"warn"``, or
            ``"no-output"``
        others: whether a page is rendered as its other current recordings have it, too:
            ``gallery_recorder.render.others.bodies(app, docname)`` gives their HTML to a project's
            own extension while the page is written, for readers to choose from
        probes: objects, or their dotted names, with ``provenance()``, ``before_block()`` or
            ``after_block()``: what they return is kept in the recording under their name
        environment: variables that examples get: ``{"cpu": {"NAME": "value"}, "gpu": {}}``
        variables: patterns of further variables that are kept in the provenance
        limits: what one recording may hold: bytes of ``output`` that a block prints, bytes of a
            ``file``, number of ``files``, ``seconds`` that the example takes
        writable: paths outside of its folder that an example may write to
        variant: a name, or a function that returns one, for recordings to be kept beside each
            other: a release of a library, for example
        untimed: kinds of device whose times say nothing, and what to call them:
            ``{"cpu": "interpreter"}``
        data: patterns of files that examples write and readers may download: ``["*.csv"]``
        stderr: ``"apart"`` shows what goes to standard error in a box of its own
        filters: functions from text to text that recorded text goes through: masking addresses,
            for example
        plain_tokens: the classes of Pygments that look like plain text in the theme: code has no
            elements for them
    """

    recordings: _Folders = ("recordings",)
    devices: _List = ()
    unrecorded: _Unrecorded = "error"
    others: _Yes = False
    probes: _List = ()
    environment: _Variables = {}
    variables: _List = ()
    limits: _Limits = msgspec.field(default_factory=LIMITS.copy)
    writable: _List = ()
    variant: _Variant = None
    untimed: _Names = {}
    data: _List = ()
    stderr: _Stderr = "joined"
    filters: _List = ()
    plain_tokens: _List = ()

    @property
    def roots(self) -> list[Path]:
        """All folders of recordings, each once."""
        return [Path(folder) for folder in dict.fromkeys(self.recordings)]

    def root_for(self, kind: str) -> Path:
        """The folder that recordings made on a *kind* of device are written to."""
        return Path(self.recordings[-1 if kind in self.untimed else 0])


#: What each value may be, by its name without the prefix.
_TYPES = get_type_hints(Settings, include_extras=True)

#: What has to be made again when a value changes: pages are read, or written.
_REBUILT: dict[str, Literal["env", "html"]] = {
    **dict.fromkeys(("recordings", "devices", "unrecorded", "others", "untimed"), "env"),
    "plain_tokens": "html",
}


def register(app: Sphinx) -> None:
    """Add the values and the events to an application, which may have them."""
    for name, default in msgspec.structs.asdict(Settings()).items():
        if f"gallery_{name}" not in app.config:
            types = {tuple: (list, tuple), type(None): ()}.get(type(default), (type(default),))
            app.add_config_value(f"gallery_{name}", default, _REBUILT.get(name, ""), types)
    for name in EVENTS:
        if name not in app.events.events:
            app.add_event(name)


def read(config: Config, confdir: Path) -> Settings:
    """The values in *config*; *confdir* is what folders are relative to.

    Raises:
        SettingsError: a value means nothing.
    """
    names = vars(config).get("_raw_config", {})  # all that conf.py gives a value
    for name in names:
        near = get_close_matches(name, [f"gallery_{known}" for known in _TYPES], 1, 0.93)
        if near and name not in config and near[0] not in names:
            raise SettingsError(f"conf.py: {name} is no setting; did you mean {near[0]}?")
    said = {name: _said(name, getattr(config, f"gallery_{name}")) for name in _TYPES}
    environment = {
        kind: {name: str(value) for name, value in said["environment"].get(kind, {}).items()}
        for kind in get_args(Kind)
    }
    paths = [os.path.expanduser(os.path.expandvars(path)) for path in said["writable"]]
    return Settings(
        **said
        | {
            "recordings": tuple(os.path.normpath(confdir / path) for path in said["recordings"]),
            "environment": environment,
            "variables": (*said["variables"], *environment["gpu"], *environment["cpu"]),
            "limits": LIMITS | said["limits"],
            "writable": tuple(p for p in paths if "$" not in p),  # a variable that is not set
        }
    )


def resets(config: Config) -> list[Any]:
    """What conf.py has in ``reset_modules``, besides the libraries that sphinx-gallery resets."""
    conf = vars(config).get("_raw_config", {}).get("sphinx_gallery_conf", {})
    found = conf.get("reset_modules", ())
    found = found if isinstance(found, list | tuple) else [found]
    return [reset for reset in found if callable(reset) or "." in reset]


def _said(name: str, value: Any) -> Any:
    """What conf.py says, as plain values of the type that it has to be."""
    if name == "variant":
        if isinstance(value, str) and _DOTTED.fullmatch(value):
            value = resolve(value, "gallery_variant")
        value = value() if callable(value) else value
    try:
        return msgspec.convert(_plain(value), _TYPES[name])
    except msgspec.ValidationError as error:
        may_be = _TYPES[name].__metadata__[0].description
        raise SettingsError(f"conf.py: gallery_{name} is {value!r}; it may be {may_be}") from error


def _plain(value: Any) -> Any:
    """*value* with the names of objects, and paths as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    return value if value is None or isinstance(value, int | float) else name_of(value)


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
