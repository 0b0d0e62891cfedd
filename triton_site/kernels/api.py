"""The public API of several versions of Triton, read out of the installed package into one file.

    python -m triton_site.kernels.api [FILE]   # adds or replaces the installed version

The reference pages are rendered from that file (see :mod:`triton_site.kernels.reference`), so that
rendering needs no Triton: its wheel is about 200 MB and exists for Linux alone. Reading several
versions also tells since when a name exists and whose signature has changed, which no single
installed version can. ``make api`` reads every version that the project supports. What several
versions say alike is in the file once.

Only what Triton says of itself is there: names, signatures, docstrings. Triton is imported in
:func:`extract` and nowhere else; PyTorch is not needed.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

#: The version of the structures below; raise it when one of them changes.
SCHEMA = 2

#: The file, seen from the project's root.
FILE = Path("docs/python-api/triton.json")

#: The modules whose public names are read. An object that several of them offer is described
#: under the first.
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

#: What the compiler passes to a function of the language by itself.
_HIDDEN = ("_semantic", "_generator", "_builder")

#: Annotations that tell a reader something; the others name types of the compiler's own.
_ANNOTATIONS = {"bool", "float", "int", "str", "constexpr"}


class ApiError(Exception):
    """A file of the API that cannot be used; says what is wrong, where, and what to do."""


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file: never changed once made, and nothing in it goes unnamed."""


class Overload(_Struct):
    """One type that a function of a device library takes: the library's own function for it."""

    backend: Literal["cuda", "hip"]
    arguments: str
    result: str
    symbol: str


class Member(_Struct):
    """A method, a property or a data attribute of a class."""

    name: str
    kind: Literal["method", "property"]
    signature: str = ""
    doc: str = ""


class Entry(_Struct):
    """A public name.

    Attributes:
        name: the name, with its module: ``triton.language.load``.
        kind: what it is.
        defined: the module that defines it, which may be a private one.
        runs: where a function can be called: in kernels, on the host or in both.
        signature: its parameters in parentheses, without those that the compiler passes.
        doc: its docstring, as it stands in Triton.
        method: whether it is also a method of ``triton.language.tensor``.
        same_as: an earlier name of the same object, which then has the description.
        value: what a constant or a data type is.
        bases: the classes that a class is made from, those of Triton and of Python's exceptions.
        members: what a class offers.
        overloads: the types that a function of a device library takes.
    """

    name: str
    kind: Literal["function", "class", "exception", "data", "module"]
    defined: str = ""
    runs: Literal["", "kernel", "host", "both"] = ""
    signature: str = ""
    doc: str = ""
    method: bool = False
    same_as: str = ""
    value: str = ""
    bases: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    overloads: tuple[Overload, ...] = ()


class Api(_Struct):
    """The public names of one version of Triton."""

    triton: str
    entries: tuple[Entry, ...]


class Distinct(_Struct):
    """An entry, and the versions that have it like this, separated by spaces."""

    versions: str
    entry: Entry


class _File(_Struct):
    schema: int
    versions: tuple[str, ...]
    entries: tuple[Distinct, ...]


# --- reading and writing the file ----------------------------------------------------------------


def load(path: Path) -> list[Api]:
    """Read every version in *path*, oldest first, and check the file against the schema.

    Raises:
        ApiError: the file is missing, damaged or of another schema.
    """
    remedy = "take it back from git, or read it out again with: make api"
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise ApiError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except msgspec.ValidationError as error:
        raise ApiError(f"{path}: {error}; {remedy}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(f"{path}: is not whole JSON ({error}); {remedy}") from error
    if content.schema != SCHEMA:
        raise ApiError(
            f"{path}: `schema` is {content.schema}, but this version reads {SCHEMA}; {remedy}"
        )
    if not content.versions:
        raise ApiError(f"{path}: holds no version of Triton; {remedy}")
    return [
        Api(
            version,
            tuple(item.entry for item in content.entries if version in item.versions.split()),
        )
        for version in sorted(content.versions, key=version_key)
    ]


def save(apis: Iterable[Api], path: Path) -> None:
    """Write *apis* to *path*: each distinct entry once, in the order of modules and names."""
    versions: dict[Entry, list[str]] = {}
    apis = sorted(apis, key=lambda api: version_key(api.triton))
    for item in apis:
        for entry in item.entries:
            versions.setdefault(entry, []).append(item.triton)
    entries = sorted(versions, key=lambda e: (_module_number(e.name), e.name))
    content = _File(
        SCHEMA,
        tuple(item.triton for item in apis),
        tuple(Distinct(" ".join(versions[entry]), entry) for entry in entries),
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def _module_number(name: str) -> int:
    module = name.rpartition(".")[0]
    return MODULES.index(module) if module in MODULES else len(MODULES)


def version_key(version: str) -> tuple[int, ...]:
    """``3.10.0`` as ``(3, 10, 0)``, to sort by."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


# --- reading the installed Triton ----------------------------------------------------------------


def extract() -> Api:
    """Describe the Triton that is installed."""
    triton = importlib.import_module("triton")
    described: dict[int, str] = {}
    entries = []
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name, value in public_names(module):
            entry = _describe(f"{module_name}.{name}", value)
            if entry.kind in ("function", "class", "exception") or _is_dtype(value):
                first = described.setdefault(id(value), entry.name)
                if first != entry.name:
                    entry = Entry(entry.name, entry.kind, entry.defined, same_as=first)
            entries.append(entry)
    return Api(triton.__version__, tuple(entries))


def public_names(module: types.ModuleType) -> list[tuple[str, Any]]:
    """The public names of *module* and their values, by name.

    Public is what ``__all__`` lists, and what ``dir()`` shows without a leading underscore if it
    is Triton's own: not ``os``, nor another module of Triton that is merely imported there.
    """
    listed = set(getattr(module, "__all__", ()))
    found = []
    for name in sorted(listed | {name for name in dir(module) if not name.startswith("_")}):
        try:
            value = getattr(module, name)
        except AttributeError:  # `__all__` names what does not exist
            continue
        if name in listed or _is_own(module, name, value):
            found.append((name, value))
    return found


def _is_own(module: types.ModuleType, name: str, value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__ == f"{module.__name__}.{name}"
    home = getattr(value, "__module__", None) or ""
    if isinstance(value, TypeVar):
        return False
    if module.__spec__.submodule_search_locations:  # a package collects names from its modules
        return home.startswith("triton.")
    return home == module.__name__


def _describe(name: str, value: Any) -> Entry:
    home = getattr(value, "__module__", None) or ""
    defined = home if isinstance(home, str) else ""
    if isinstance(value, types.ModuleType):
        return Entry(name, "module", value.__name__)
    if _is_dtype(value):
        return Entry(name, "data", defined, value=str(value))
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
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
        return Entry(
            name,
            "function",
            defined,
            runs=_runs(value),
            signature=_signature(function),
            doc=_doc(value) or _doc(function),
            method=_is_method(name),
            overloads=_overloads(name),
        )
    return Entry(name, "data", defined, value=_constant(value))


def _is_dtype(value: Any) -> bool:
    core = sys.modules["triton.language.core"]
    return isinstance(value, core.dtype)


def _runs(value: Any) -> Literal["", "kernel", "host", "both"]:
    """Whether a function is one of the language, of Python, or usable in both."""
    kind = type(value).__name__
    if kind == "ConstexprFunction":
        return "both"
    language = kind == "JITFunction" or getattr(value, "__triton_builtin__", False)
    home = getattr(value, "__module__", "")
    if language or home == "triton.language.extra.libdevice":
        return "kernel"
    return "" if home.startswith("triton.language") else "host"


def _is_method(name: str) -> bool:
    module, _, name = name.rpartition(".")
    tensor = sys.modules["triton.language.core"].tensor
    return module == "triton.language" and hasattr(tensor, name)


def _doc(value: Any) -> str:
    """The object's own docstring, and not what it inherits from its type or its bases."""
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    if not isinstance(own, str) or own in (type(value).__doc__, object.__init__.__doc__):
        return ""
    if inspect.isclass(value) and own.startswith(f"{value.__name__}("):
        return ""  # a dataclass without a docstring gets its signature for one
    return inspect.cleandoc(own)


def _constant(value: Any) -> str:
    return repr(value) if isinstance(value, int | float | str) else type(value).__name__


def _members(cls: type) -> tuple[Member, ...]:
    """What *cls* offers, by name; without what it has from bases that are described themselves."""
    language = sys.modules["triton.language"]
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        described = base is not cls and getattr(language, base.__name__, None) is base
        if base.__module__.startswith("triton.") and not described:
            found |= vars(base)
    members = []
    for name, value in sorted(found.items()):
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            members.append(Member(name, "property", doc=_doc(value)))
            continue
        function = getattr(value, "__func__", value)
        function = getattr(function, "fn", function)
        if inspect.isroutine(function):
            static = isinstance(value, staticmethod)
            signature = _signature(function, drop_first=not static)
            members.append(Member(name, "method", signature, _doc(function)))
    return tuple(members)


# --- signatures ----------------------------------------------------------------------------------


def _signature(function: Any, drop_first: bool = False) -> str:
    """The parameters in parentheses, in plain Python; empty where they cannot be known."""
    if isinstance(function, enum.EnumType):  # calling an enumeration is of no use to anybody
        return ""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return ""
    parameters = [p for p in signature.parameters.values() if p.name not in _HIDDEN]
    if drop_first:
        parameters = parameters[1:]
    text = str(
        inspect.Signature(
            [p.replace(annotation=_annotation(p), default=_Default.of(p)) for p in parameters]
        )
    )
    ast.parse(f"def f{text}: pass")
    return text


#: What programs call the data types whose own names are short.
_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}


class _Default:
    """A default value that is written as it would be in a program."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, parameter: inspect.Parameter) -> Any:
        value = parameter.default
        if value is parameter.empty:
            return value
        if type(value).__name__ == "constexpr":
            value = value.value
        if isinstance(value, bool | int | float | str | tuple | list | dict | None):
            return cls(repr(value))
        if inspect.isclass(value) or inspect.isroutine(value):
            return cls(value.__name__)
        if _is_dtype(value):
            return cls(_DTYPES.get(str(value), str(value)))
        return cls(str(value).replace("PROPAGATE_NAN", "PropagateNan"))


def _annotation(parameter: inspect.Parameter) -> Any:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    name = name.rpartition(".")[2].strip("'\"")
    # A class of this name prints as the bare name.
    return type(name, (), {"__module__": "builtins"}) if name in _ANNOTATIONS else parameter.empty


# --- device libraries ----------------------------------------------------------------------------


def _overloads(name: str) -> tuple[Overload, ...]:
    """For a function of libdevice, the types that it takes, from the back ends' tables."""
    module, _, function = name.rpartition(".")
    if module != "triton.language.extra.libdevice":
        return ()
    return tuple(
        Overload(backend, *overload)
        for backend in ("cuda", "hip")
        for overload in _table(f"triton.language.extra.{backend}.libdevice").get(function, ())
    )


_tables: dict[str, dict[str, list[tuple[str, str, str]]]] = {}


def _table(module_name: str) -> dict[str, list[tuple[str, str, str]]]:
    """``{function: [(argument types, result type, symbol)]}``, read from the module's source."""
    if module_name not in _tables:
        tree = ast.parse(Path(importlib.import_module(module_name).__file__).read_text("utf-8"))
        table = _tables[module_name] = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                dicts = (item for item in ast.walk(node) if isinstance(item, ast.Dict))
                table[node.name] = [
                    overload
                    for item in dicts
                    for key, value in zip(item.keys, item.values, strict=True)
                    if (overload := _read_overload(key, value))
                ]
    return _tables[module_name]


def _read_overload(key: Any, value: Any) -> tuple[str, str, str] | None:
    """``(core.dtype("fp32"),): ("__nv_sinf", core.dtype("fp32"))`` in parts."""
    if not (isinstance(key, ast.Tuple) and isinstance(value, ast.Tuple)):
        return None
    symbol, result = value.elts
    return ", ".join(map(_dtype_name, key.elts)), _dtype_name(result), ast.literal_eval(symbol)


def _dtype_name(node: ast.expr) -> str:
    """``core.dtype("fp32")`` and ``core.float32`` as ``fp32``."""
    if isinstance(node, ast.Call):
        return ast.literal_eval(node.args[0])
    name = ast.unparse(node).rpartition(".")[2]
    return name.replace("bfloat", "bf").replace("float", "fp")


def main(arguments: list[str]) -> int:
    """Put the installed Triton into the file that is named."""
    path = Path(arguments[0]) if arguments else FILE
    if not path.parent.is_dir():
        print(f"{path}: there is no folder {path.parent}; name the file to write.")
        return 2
    try:
        api = extract()
        others = [item for item in load(path) if item.triton != api.triton] if path.exists() else []
    except ModuleNotFoundError as error:
        print(f"Triton cannot be imported ({error}). Install it first: pip install triton")
        return 1
    except ApiError as error:
        print(error)
        return 1
    save([*others, api], path)
    print(f"{path}: {len(api.entries)} names of Triton {api.triton}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
