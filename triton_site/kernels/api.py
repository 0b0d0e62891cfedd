"""The public API of several releases of Triton, read from installed packages into one file.

    python -m triton_site.kernels.api [FILE]  # adds or replaces the installed release

:mod:`triton_site.kernels.reference` renders the pages from that file, so rendering needs no
Triton. ``make api`` reads every release that the project supports; an entry that several releases
share is stored once.

Triton is imported, not parsed: decorators write the docstrings of ``exp``, ``sum``, ``atomic_add``
and some forty others, so a static reader such as griffe returns these without a description.
"""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

#: The file, relative to the root of the project.
FILE = Path("docs/python-api/triton.json")

#: The modules that are read. An object that several modules offer is described under the first.
MODULES = (
    "triton",
    "triton.language",
    "triton.testing",
    "triton.tools.tensor_descriptor",
    "triton.runtime",
    "triton.language.math",
    "triton.language.target_info",
    "triton.language.extra.libdevice",
    "triton.language.extra.cuda",
    "triton.language.extra.hip",
)

#: Parameters that the compiler passes.
_HIDDEN = ("_semantic", "_generator", "_builder")

#: Annotations worth showing; the others name the compiler's own types.
_ANNOTATIONS = {"bool", "float", "int", "str", "constexpr"}

#: Names of data types in programs, by Triton's short names.
_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}


class ApiError(Exception):
    """The file cannot be used; the message names the file, the reason and the remedy."""


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file."""


class Overload(_Struct, frozen=True):
    """The types of one overload of a function in a device library."""

    backend: Literal["cuda", "hip"]
    arguments: str
    result: str


class Member(_Struct, frozen=True):
    """A method or a property of a class."""

    name: str
    kind: Literal["method", "property"]
    signature: str = ""
    doc: str = ""


class Entry(_Struct, frozen=True):
    """A public name, such as ``triton.language.load``."""

    name: str
    kind: Literal["function", "class", "exception", "data", "module"]
    defined: str = ""  # the module that defines it, which may be private
    runs: Literal["", "kernel", "host", "both"] = ""
    signature: str = ""  # parameters in parentheses, without those that the compiler passes
    doc: str = ""
    method: bool = False  # `triton.language.tensor` has a method of this name
    same_as: str = ""  # an earlier name of the same object, which holds the description
    value: str = ""
    bases: tuple[str, ...] = ()  # those of Triton, and exceptions
    members: tuple[Member, ...] = ()
    overloads: tuple[Overload, ...] = ()


class _Stored(_Struct, frozen=True):
    """An entry, and the releases that have it in this form, separated by spaces."""

    versions: str
    entry: Entry


class _File(_Struct, frozen=True):
    schema: Literal[3]
    entries: Annotated[tuple[_Stored, ...], msgspec.Meta(min_length=1)]


# --- the file ------------------------------------------------------------------------------------


def load(path: Path) -> dict[str, tuple[Entry, ...]]:
    """The entries of each release in *path*, oldest release first.

    Raises:
        ApiError: the file is missing, damaged or of another schema.
    """
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_File).entries
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ApiError(
            f"{path}: {error}; restore it from git, or read the API again with: make api"
        ) from error
    versions = {version for item in stored for version in item.versions.split()}
    return {
        version: tuple(item.entry for item in stored if version in item.versions.split())
        for version in sorted(versions, key=_release_order)
    }


def save(apis: Mapping[str, tuple[Entry, ...]], path: Path) -> None:
    """Write *apis*, the entries of each release, sorted by module and name."""
    versions: dict[Entry, list[str]] = {}
    for version in sorted(apis, key=_release_order):
        for entry in apis[version]:
            versions.setdefault(entry, []).append(version)
    entries = sorted(versions, key=lambda entry: entry.name)
    content = _File(3, tuple(_Stored(" ".join(versions[entry]), entry) for entry in entries))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def _release_order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


# --- the installed Triton ------------------------------------------------------------------------


def extract() -> tuple[Entry, ...]:
    """Describe the installed Triton."""
    described: dict[int, str] = {}
    entries = []
    for module_name in MODULES:
        for name, value in _public_names(importlib.import_module(module_name)):
            entry = _describe(f"{module_name}.{name}", value)
            if entry.kind in ("function", "class", "exception") or _is_dtype(value):
                first = described.setdefault(id(value), entry.name)
                if first != entry.name:
                    entry = Entry(entry.name, entry.kind, entry.defined, same_as=first)
            entries.append(entry)
    return tuple(entries)


def _public_names(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """The names in ``__all__``, and those without an underscore that Triton itself defines."""
    listed = set(getattr(module, "__all__", ()))
    is_package = hasattr(module, "__path__")
    for name in sorted(listed | {name for name in dir(module) if not name.startswith("_")}):
        value = getattr(module, name, None)
        home = getattr(value, "__module__", None) or ""
        if isinstance(value, types.ModuleType):
            own = value.__name__ == f"{module.__name__}.{name}"
        elif is_package:  # it collects names from its modules
            own = home.startswith("triton.") and not isinstance(value, TypeVar)
        else:
            own = home == module.__name__ and not isinstance(value, TypeVar)
        if own or (name in listed and hasattr(module, name)):
            yield name, value


def _describe(name: str, value: Any) -> Entry:
    home = getattr(value, "__module__", None) or ""
    defined = home if isinstance(home, str) else ""
    if isinstance(value, types.ModuleType):
        return Entry(name, "module", value.__name__)
    if _is_dtype(value):
        return Entry(name, "data", defined, value=str(value))
    if inspect.isclass(value):
        kind: Any = "exception" if issubclass(value, BaseException) else "class"
        return Entry(
            name,
            kind,
            defined,
            signature=_signature(value),
            doc="\n\n".join(filter(None, (_doc(value), _doc(value.__init__)))),
            bases=tuple(
                base.__name__
                for base in value.__bases__
                if base.__module__.startswith("triton.") or issubclass(base, BaseException)
            ),
            members=() if kind == "exception" else _members(value),
        )
    function = getattr(value, "fn", value)
    if inspect.isroutine(function):
        module, _, bare = name.rpartition(".")
        tensor = sys.modules["triton.language.core"].tensor
        return Entry(
            name,
            "function",
            defined,
            runs=_runs(value),
            signature=_signature(function),
            doc=_doc(value) or _doc(function),
            method=module == "triton.language" and hasattr(tensor, bare),
            overloads=_overloads(bare) if module == "triton.language.extra.libdevice" else (),
        )
    constant = repr(value) if isinstance(value, int | float | str) else type(value).__name__
    return Entry(name, "data", defined, value=constant)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, sys.modules["triton.language.core"].dtype)


def _runs(value: Any) -> Literal["", "kernel", "host", "both"]:
    kind = type(value).__name__
    if kind == "ConstexprFunction":
        return "both"
    language = kind == "JITFunction" or getattr(value, "__triton_builtin__", False)
    home = getattr(value, "__module__", "")
    if language or home == "triton.language.extra.libdevice":
        return "kernel"
    return "" if home.startswith("triton.language") else "host"


def _doc(value: Any) -> str:
    """The object's own docstring, not one inherited from its type or a base."""
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    if not isinstance(own, str) or own in (type(value).__doc__, object.__init__.__doc__):
        return ""
    if inspect.isclass(value) and own.startswith(f"{value.__name__}("):
        return ""  # Python writes the signature of a dataclass that has no docstring
    return inspect.cleandoc(own)


def _members(cls: type) -> tuple[Member, ...]:
    """Methods and properties by name, without those of bases that have their own entry."""
    language = sys.modules["triton.language"]
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        described = base is not cls and getattr(language, base.__name__, None) is base
        if base.__module__.startswith("triton.") and not described:
            found |= vars(base)
    members = []
    for name, value in sorted(found.items()):
        function = getattr(value, "__func__", value)
        function = getattr(function, "fn", function)
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            members.append(Member(name, "property", doc=_doc(value)))
        elif inspect.isroutine(function):
            bound = not isinstance(value, staticmethod)
            signature = _signature(function, drop_first=bound)
            members.append(Member(name, "method", signature, _doc(function)))
    return tuple(members)


# --- signatures ----------------------------------------------------------------------------------


class _Text:
    """A default value that prints as a program would write it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _signature(function: Any, drop_first: bool = False) -> str:
    """The parameters in parentheses, as valid Python; empty where they are unknown."""
    if isinstance(function, enum.EnumMeta):  # nobody calls an enumeration
        return ""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return ""
    parameters = [p for p in signature.parameters.values() if p.name not in _HIDDEN]
    shown = [p.replace(annotation=_annotation(p), default=_default(p)) for p in parameters]
    text = str(inspect.Signature(shown[1:] if drop_first else shown))
    ast.parse(f"def f{text}: pass")
    return text


def _default(parameter: inspect.Parameter) -> Any:
    value = parameter.default
    if value is parameter.empty:
        return value
    if type(value).__name__ == "constexpr":
        value = value.value
    if isinstance(value, bool | int | float | str | tuple | list | dict | None):
        return value
    if inspect.isclass(value) or inspect.isroutine(value):
        return _Text(value.__name__)
    if _is_dtype(value):
        return _Text(_DTYPES.get(str(value), str(value)))
    return _Text(str(value).replace("PROPAGATE_NAN", "PropagateNan"))


def _annotation(parameter: inspect.Parameter) -> Any:
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    name = name.rpartition(".")[2].strip("'\"")
    # A class of this name prints as the bare name.
    return type(name, (), {"__module__": "builtins"}) if name in _ANNOTATIONS else parameter.empty


# --- device libraries ----------------------------------------------------------------------------


def _overloads(function: str) -> tuple[Overload, ...]:
    """The types that each back end's library has *function* for."""
    return tuple(
        Overload(backend, *types)
        for backend in ("cuda", "hip")
        for types in _library(f"triton.language.extra.{backend}.libdevice").get(function, ())
    )


@functools.cache
def _library(module: str) -> dict[str, list[tuple[str, str]]]:
    """``{function: [(argument types, result type), …]}``, from the dictionaries in the source."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return {
        function.name: [
            (", ".join(map(_dtype_name, key.elts)), _dtype_name(value.elts[1]))
            for table in ast.walk(function)
            if isinstance(table, ast.Dict)
            for key, value in zip(table.keys, table.values, strict=True)
            if isinstance(key, ast.Tuple) and isinstance(value, ast.Tuple)
        ]
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
    }


def _dtype_name(node: ast.expr) -> str:
    """``fp32`` for ``core.dtype("fp32")`` and ``core.float32``."""
    if isinstance(node, ast.Call):
        return ast.literal_eval(node.args[0])
    return ast.unparse(node).rpartition(".")[2].replace("bfloat", "bf").replace("float", "fp")


def main(arguments: list[str]) -> int:
    """Add the installed Triton to the file; 1 if the file is damaged."""
    path = Path(arguments[0]) if arguments else FILE
    version = importlib.import_module("triton").__version__
    try:
        apis = (load(path) if path.exists() else {}) | {version: extract()}
    except ApiError as error:
        print(error, file=sys.stderr)
        return 1
    save(apis, path)
    print(f"{path}: {len(apis[version])} names of Triton {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
