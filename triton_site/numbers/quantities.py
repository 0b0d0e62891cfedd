"""Quantities: the numbers that pages state, computed from the CSV files of a recording.

``tutorials/numbers.toml`` names them, page by page::

    ["02-fused-softmax".faster]
    value = "geomean(softmax-performance: triton / torch)"
    at_least = 1.3

A value is arithmetic on numbers, on other quantities of the page, and on these terms:

``geomean(FILE: PROVIDER)``
    The geometric mean of the medians of one provider in ``FILE.csv``. Also ``mean``, ``median``,
    ``min``, ``max``, and ``only``, for exactly one row.
``geomean(FILE: PROVIDER / PROVIDER)``
    The same of the quotients of two providers, at the sizes that both have.
``geomean(FILE: PROVIDER; N >= 1024 and causal = 1)``
    The same of the rows that meet all conditions.
``geomean(FILE@RELEASE: PROVIDER)``
    The same of the recording of this code with another release of Triton, on the same GPU.
``value(NAME)``
    The value of the row ``NAME`` in ``PAGE-values.csv``, with the columns ``name, unit, value``.

A page says *at least* before a minimum and *at most* before a maximum. So a value of ``min(…)``, or
of ``100 * min(…)``, is rounded down, and a value of ``max(…)`` up. ``rounded = "down"`` or ``"up"``
is for other bounds, such as the largest error that a script has written. All other values are
rounded to the nearest number.

A provider, a name or a text that has other characters than letters, digits, ``_``, ``-`` and ``.``
stands in single quotes.
"""

from __future__ import annotations

import ast
import csv
import decimal
import io
import math
import operator
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from gallery_recorder.api import RecordedFiles, RecorderError, reading, recording
from triton_site.numbers import benchmarks

#: Bytes of ``numbers.toml`` and of a file of values.
_MAX_FILE = 1_000_000

_REDUCTIONS: dict[str, Callable[[list[float]], float]] = {
    "geomean": statistics.geometric_mean,
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
    "only": lambda values: values[0],
}
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
#: Units of what is counted, not measured: such a number has no decimals and is not rounded.
_COUNTED = frozenset(
    {
        "M",
        "batch sizes",
        "bytes",
        "columns",
        "different results",
        "elements",
        "masks",
        "numbers",
        "registers",
        "rows",
        "sizes",
        "tokens",
    }
)
_COMPARISONS: dict[str, Callable[[float | str, float | str], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: What a formula can raise: IndexError and RecursionError where it is no formula at all.
_FAULTS = (ValueError, ArithmeticError, IndexError, RecursionError)
_WORD = r"(?:'[^']*'|[\w.-]+)"
_TERM = re.compile(rf"({'|'.join(_REDUCTIONS)}|value)\(((?:'[^']*'|[^()'])*)\)")
_BOUND = re.compile(rf"\s*(?:[\d.]+\s*\*\s*)?{_TERM.pattern}\s*")
_ROUNDING = {
    "down": decimal.ROUND_FLOOR,
    "nearest": decimal.ROUND_HALF_EVEN,
    "up": decimal.ROUND_CEILING,
}
_ROWS = re.compile(rf"\s*({_WORD}(?:@[\w.]+)?)\s*:\s*({_WORD})(?:\s*/\s*({_WORD}))?\s*(?:;(.*))?")
_CONDITION = re.compile(rf"\s*(\w+)\s*([!<>]?=|[<>])\s*({_WORD})\s*")


class QuantityError(Exception):
    """A quantity that cannot be computed; the message names it and the reason."""


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One quantity of ``numbers.toml``: its formula, its rounding, and the limit of a page."""

    value: str
    at_least: float | None = None
    at_most: float | None = None
    rounded: Literal["down", "nearest", "up"] | None = None

    @property
    def limit(self) -> float | None:
        """The limit, if there is one."""
        return self.at_most if self.at_least is None else self.at_least

    @property
    def rounding(self) -> Literal["down", "nearest", "up"]:
        """Where the value is rounded to: a minimum down, a maximum up, if nothing else is said."""
        if self.rounded:
            return self.rounded
        bound = _BOUND.fullmatch(self.value)
        match bound and bound[1]:
            case "min":
                return "down"
            case "max":
                return "up"
        return "nearest"


@dataclass(frozen=True)
class Quantity:
    """A computed quantity."""

    value: float
    definition: Definition
    is_count: bool = False

    @property
    def held(self) -> bool:
        """Whether the value keeps its limit; a quantity without a limit always does."""
        least, most = self.definition.at_least, self.definition.at_most
        return (least is None or self.value >= least) and (most is None or self.value <= most)

    @property
    def limit_text(self) -> str:
        """The limit in words, such as ``at least 1.3``; empty without one."""
        if self.definition.limit is None:
            return ""
        kind = "at most" if self.definition.at_least is None else "at least"
        return f"{kind} {separated(f'{self.definition.limit:.12g}')}"

    @property
    def text(self) -> str:
        """A count as it is; else three significant digits, more if they contradict the limit."""
        if self.is_count:
            return separated(f"{self.value:.0f}")
        limit = self.definition.limit
        for digits in range(3, 9):
            shown = significant(self.value, digits, self.definition.rounding)
            if limit is None or _side(float(shown), limit) == _side(self.value, limit):
                break
        return separated(shown)


def separated(number: str) -> str:
    """*number* with commas between groups of three digits, if it has more than four, as in tables.

    More than nine digits are a power of ten: 1.41 × 10¹⁴.
    """
    whole, dot, fraction = number.partition(".")
    digits = whole.lstrip("-")
    if len(digits) > 9:
        power = str(len(digits) - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{float(number) / 10 ** (len(digits) - 1):.3g} × 10{power}"
    if len(digits) > 4:
        whole = f"{int(whole):,}"
    return whole + dot + fraction


def significant(
    value: float, digits: int = 3, rounding: Literal["down", "nearest", "up"] = "nearest"
) -> str:
    """*value* with so many significant digits, without an exponent: 4310, 52.1, 0.980."""
    # Twelve digits are exact: 100 * 0.947 is 94.7, although its last bits say a little less.
    context = decimal.Context(prec=digits, rounding=_ROUNDING[rounding])
    rounded = context.create_decimal(f"{value:.12g}")
    decimals = max(0, digits - 1 - rounded.adjusted())
    return f"{rounded:.{decimals}f}"


def _side(value: float, limit: float) -> int:
    """Whether *value* is below *limit* (-1), is the limit (0), or is above it (1)."""
    return (value > limit) - (value < limit)


def load(path: Path) -> dict[str, dict[str, Definition]]:
    """The definitions in ``numbers.toml``, by page and name.

    Raises:
        QuantityError: the file is not as described above.
    """
    try:
        content = reading.read_file(path, _MAX_FILE)
        found = msgspec.toml.decode(content, type=dict[str, dict[str, Definition]])
    except (reading.ReadingError, ValueError) as error:
        raise QuantityError(f"{path}: {error}") from error
    for page, definitions in found.items():
        for name, definition in definitions.items():
            if not name.isidentifier():
                raise QuantityError(f"{path}: {page}: {name!r} must be a word, such as `faster`")
            if None not in (definition.at_least, definition.at_most):
                raise QuantityError(f"{path}: {page}.{name} has two limits; leave one out")
    return found


class Numbers:
    """The quantities of one page, computed from the *files* that a recording lists."""

    def __init__(
        self, files: RecordedFiles, page: str, definitions: Mapping[str, Definition]
    ) -> None:
        """Nothing is read before it is asked for."""
        self._recorded = files
        self._page = page
        self._definitions = definitions
        self._files: dict[str, dict[str, dict[str, benchmarks.Measurement]]] = {}
        self._under_way: list[str] = []

    def __getitem__(self, name: str) -> Quantity:
        """The quantity *name*.

        Raises:
            QuantityError: it is not defined, or cannot be computed.
        """
        definition = self._definitions.get(name)
        if definition is None:
            known = ", ".join(self._definitions) or "none"
            raise QuantityError(f"{self._page}.{name} is not in numbers.toml; there: {known}")
        if name in self._under_way:
            raise QuantityError(f"{self._page}.{name} depends on itself")
        self._under_way.append(name)
        try:
            value = self._computed(definition.value)
            if not math.isfinite(value):
                raise ValueError(f"the result is {value}")
        except (*_FAULTS, benchmarks.BenchmarkError) as error:
            raise QuantityError(f"{self._page}.{name} = {definition.value}: {error}") from error
        finally:
            self._under_way.pop()
        return Quantity(value, definition, value.is_integer() and self.unit_of(name) in _COUNTED)

    def unit_of(self, name: str) -> str:
        """The unit of the quantity *name*: that of its rows; *times* for a quotient, % for a share.

        Raises:
            QuantityError: it is not defined, or its file is missing.
        """
        text = self._definitions[name].value
        if text.startswith("100 *"):
            return "%"
        if "/" in text:
            return "times"
        terms = _TERM.findall(text)
        if len(terms) != 1:
            return ""
        function, inside = terms[0]
        try:
            if function == "value":
                return self._row(_unquoted(inside.strip())).get("unit") or ""
            parts = _ROWS.fullmatch(inside)
            assert parts
            file, provider = (_unquoted(part) for part in parts.group(1, 2))
            self._medians(file, provider, [])
            return next(iter(self._files[file][provider].values())).unit
        except (ValueError, benchmarks.BenchmarkError) as error:
            raise QuantityError(f"{self._page}.{name}: {error}") from error

    def _computed(self, text: str) -> float:
        terms: list[float] = []

        def computed(match: re.Match[str]) -> str:
            terms.append(self._term(match[1], match[2]))
            return f"_term_{len(terms) - 1}"

        arithmetic = _TERM.sub(computed, text)
        try:
            tree = ast.parse(arithmetic.strip(), mode="eval").body
        except SyntaxError:
            raise ValueError(f"cannot read {arithmetic!r}") from None
        return self._arithmetic(tree, terms)

    def _arithmetic(self, node: ast.expr, terms: list[float]) -> float:
        match node:
            case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
                one, other = self._arithmetic(left, terms), self._arithmetic(right, terms)
                return _OPERATORS[type(op)](one, other)
            case ast.UnaryOp(ast.USub(), operand):
                return -self._arithmetic(operand, terms)
            case ast.Constant(int() | float() as number):
                return float(number)
            case ast.Name(name) if name.startswith("_term_"):
                return terms[int(name.removeprefix("_term_"))]
            case ast.Name(name):
                return self[name].value
        raise ValueError(f"cannot compute {ast.unparse(node)!r}")

    def _term(self, function: str, inside: str) -> float:
        if function == "value":
            return self._written(_unquoted(inside.strip()))
        parts = _ROWS.fullmatch(inside)
        if not parts:
            raise ValueError(f"cannot read {inside!r}; expected FILE: PROVIDER / PROVIDER; N = 1")
        file, one, other = (_unquoted(part) for part in parts.group(1, 2, 3))
        conditions = [_condition(text) for text in (parts[4] or "").split(" and ") if text.strip()]
        found = self._medians(file, one, conditions)
        if other:
            below = self._medians(file, other, conditions)
            found = {size: found[size] / below[size] for size in found if size in below}
        if not found:
            raise ValueError(f"{file}.csv has no such rows")
        if function == "only" and len(found) > 1:
            raise ValueError(f"{file}.csv has {len(found)} such rows, not one")
        return _REDUCTIONS[function](list(found.values()))

    def _medians(
        self, file: str, provider: str, conditions: list[Callable[[dict[str, str]], bool]]
    ) -> dict[str, float]:
        """The medians of *provider* by size, at the sizes that meet all *conditions*."""
        if file not in self._files:
            name, _, release = file.partition("@")
            files = self._other(release) if release else self._recorded
            path = files.path(f"{name}.csv")
            if path is None:
                raise ValueError(f"{files.folder} lists no {name}.csv")
            self._files[file] = benchmarks.read(path)
        if provider not in self._files[file]:
            raise ValueError(f"{file}.csv has no provider {provider!r}")
        return {
            size: measured.median
            for size, measured in self._files[file][provider].items()
            if all(
                keeps(dict(part.split("=") for part in size.split(", "))) for keeps in conditions
            )
        }

    def _other(self, release: str) -> RecordedFiles:
        """The files of the recording of the same code with *release* of Triton."""
        own = recording.load(self._recorded.folder)
        above, _, below = str(self._recorded.folder).rpartition(own.variant or "no variant")
        folder = Path(f"{above}triton-{release}{below}")
        if not folder.is_dir():
            raise ValueError(f"{folder} is missing: record it with {release}")
        try:
            other = recording.load(folder)
        except RecorderError as error:
            raise ValueError(f"{error}; or record it with {release}") from error
        if other.key != own.key:
            raise ValueError(f"{folder} is of other code: record it with {release}")
        return recording.files_of(folder, other)

    def _written(self, name: str) -> float:
        return float(self._row(name).get("value") or "nan")

    def _row(self, name: str) -> dict[str, str]:
        path = self._recorded.path(f"{self._page}-values.csv")
        if path is None:
            raise ValueError(f"{self._recorded.folder} lists no {self._page}-values.csv")
        try:
            text = reading.read_file(path, _MAX_FILE).decode("utf-8-sig")
        except (reading.ReadingError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
        for row in csv.DictReader(io.StringIO(text, newline="")):
            if row.get("name") == name:
                return row
        raise ValueError(f"{path.name} has no row {name!r}")


def _unquoted(word: str | None) -> str:
    return (word or "").removeprefix("'").removesuffix("'")


def _condition(text: str) -> Callable[[dict[str, str]], bool]:
    """Whether the sizes of a row, by column, meet the condition *text*."""
    parts = _CONDITION.fullmatch(text)
    if not parts:
        raise ValueError(f"cannot read the condition {text.strip()!r}; expected N >= 1024")
    column, compare, wanted = parts[1], _COMPARISONS[parts[2]], _unquoted(parts[3])

    def keeps(sizes: dict[str, str]) -> bool:
        if column not in sizes:
            raise ValueError(f"there is no column {column!r}; there: {', '.join(sizes)}")
        try:
            return compare(float(sizes[column]), float(wanted))
        except ValueError:
            return compare(sizes[column], wanted)

    return keeps
