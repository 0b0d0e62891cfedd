"""CSV files and X-rays with any value changed: refused in one line, or shown without an error."""

import contextlib
import gzip
import json
import os
import random
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from gallery_recorder.api import ReadingError, RecordedFiles
from gallery_recorder.testing import hostile
from triton_site import xray, xray_data
from triton_site.kernels import occupancy, xray_pages
from triton_site.numbers import benchmarks, csv_files, performance, releases, tables
from triton_site.numbers.quantities import Numbers, QuantityError, load

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "recordings" / "nvidia-h100-80gb-hbm3" / "triton-3.9.0" / "tutorials"
#: The number of mutants of each file that are tried, in a random order.
TRIED = int(os.environ.get("HOSTILE_MUTANTS", "300"))

#: Rows of a table that are changed; the others are left out.
MOST_ROWS = 20

CELLS = (
    *hostile.MARKUP,
    *(str(value) for value in hostile.EDGES),
    "nan",
    "inf",
    "-inf",
    "1e-320",
    "1e29",
    "9" * 70,
    "1_000",
    "٣",
    "²",
    " 1",
    "triton",
    "triton + relu",
    "copy",
    "12 step",
    "=",
    "a, b",
    "0",
    "1",
)


def mutants_of_csv(text):
    """The table *text* with a cell, a row or its shape changed, and what was changed."""
    rows = [line.split(",") for line in text.splitlines()]
    for row, column in product(range(len(rows)), range(len(rows[0]))):
        for cell in CELLS:
            changed = [[*cells] for cells in rows]
            changed[row][column] = '"' + cell.replace('"', '""') + '"'
            yield f"row {row}, column {column} = {cell!r:.60}", _joined(changed)
    for row in range(len(rows)):
        yield f"without row {row}", _joined(rows[:row] + rows[row + 1 :])
        yield f"row {row} twice", _joined(rows[: row + 1] + rows[row:])
        yield f"row {row} cut", _joined([*rows[:row], rows[row][:-1], *rows[row + 1 :]])
        yield f"row {row} longer", _joined([*rows[:row], [*rows[row], "1"], *rows[row + 1 :]])
    for column in range(len(rows[0])):
        yield f"without column {column}", _joined([r[:column] + r[column + 1 :] for r in rows])
    yield "one quote", text + '"'
    yield "one line", text.replace("\n", "")
    yield "null characters", text.replace("1", "\0")
    yield "a long line", text + "1," * 100_000
    yield "quotes", text + '"' * 100_001


def _joined(rows):
    return "".join(f"{','.join(cells)}\n" for cells in rows)


TABLES = sorted(
    path
    for name in ("02-fused-softmax", "03-matrix-multiplication", "06-fused-attention")
    for path in (RECORDINGS / name).glob("*.csv")
)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_a_table_with_any_change_is_refused_in_one_line_or_shown(tmp_path, path):
    page = path.parent.name
    for other in path.parent.glob("*.csv"):
        (tmp_path / other.name).write_bytes(other.read_bytes())
    changed = tmp_path / path.name
    numbers = load(ROOT / "tutorials" / "numbers.toml")[page]
    before = benchmarks.read(path)
    rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    mutants = list(mutants_of_csv("".join(rows[:MOST_ROWS])))
    random.Random(1).shuffle(mutants)
    for what, mutant in mutants[:TRIED]:
        changed.write_text(mutant, encoding="utf-8", newline="")
        refusal = refused(csv_files.check, changed)
        if refusal is not None:
            assert refusal.startswith(str(changed)), what
            assert "\n" not in refusal, what
            continue
        show_benchmark(changed, before, what)
        show_numbers(tmp_path, page, numbers)


def refused(check, *arguments):
    """The message by which *check* refuses the *arguments*; None if it accepts them."""
    try:
        check(*arguments)
    except ReadingError as error:
        return str(error)
    return None


def show_benchmark(path, before, what):
    """What pages show of a benchmark; any exception is a fault."""
    for comparison in performance.compare_providers(path):
        assert comparison.verdict in ("faster", "slower", "even"), what
        performance._numbers(comparison)
        performance._shares(comparison)
        performance.in_words(comparison.provider)
    list(performance.above_ceilings(path))
    measured = benchmarks.read(path)
    older = SimpleNamespace(content=SimpleNamespace(data=[path.name]), folder=path.parent)
    list(releases.changed(older, older))
    if measured and before:
        list(releases.compare_benchmark(path.name, before, measured))
    tables.table(["Provider"], [[provider] for provider in measured])


def show_numbers(folder, page, definitions):
    """The numbers of a page; only an error that its callers expect may end one."""
    files = RecordedFiles(folder, frozenset(path.name for path in folder.iterdir()))
    numbers = Numbers(files, page, definitions)
    for name in definitions:
        with contextlib.suppress(QuantityError):
            quantity = numbers[name]
            assert quantity.text
            assert isinstance(quantity.held, bool)
            numbers.unit_of(name)


def test_an_xray_with_any_change_is_refused_in_one_line_or_shown(tmp_path):
    recorded = RECORDINGS / "02-fused-softmax"
    probes = json.loads((recorded / "recording.json").read_text())["probes"]
    code = json.loads(gzip.decompress((recorded / xray_data.FILE_NAME).read_bytes()))
    small = {
        "kernels": probes[xray_data.PROBE]["kernels"][:2],
        "launched": probes[xray_data.PROBE].get("launched", {}),
        "code": {name: one | shortened(one) for name, one in code.items()},
    }
    small["launched"] = {
        name: launch
        for name, launch in small["launched"].items()
        if launch["kernel"] is None or launch["kernel"] < 2
    }
    mutants = list(hostile.mutants(json.dumps(small).encode()))
    random.Random(1).shuffle(mutants)
    for what, mutant in mutants[:TRIED]:
        found = json.loads(mutant)
        if not isinstance(found, dict):
            continue
        packed = gzip.compress(json.dumps(found.pop("code", {})).encode(), 1)
        (tmp_path / xray_data.FILE_NAME).write_bytes(packed)
        made = SimpleNamespace(probes={xray_data.PROBE: found}, files={xray_data.FILE_NAME: ""})
        refusal = refused(xray.kernels.check, tmp_path, made)
        if refusal is not None:
            assert "\n" not in refusal, what
            continue
        show_xray(RecordedFiles(tmp_path, frozenset(made.files)), made.probes)


def shortened(kernel):
    """The beginnings of the codes of a *kernel*."""
    return {kind: kernel.get(kind, "")[:1000] for kind in ("ttgir", "ptx")}


def show_xray(files, probes):
    """What a page shows of an X-ray; any exception is a fault."""
    facts, code = xray_data.read(files, probes)
    launched = xray_data.launches(probes)
    for name in {one.name for one in facts}:
        variants = [one for one in facts if one.name == name]
        shape, of_launch = launched.get(name, ("", None))
        assert xray_pages.fold_of(name, variants, shape, of_launch)
        assert xray_pages.is_trivial(variants[0]) in (True, False)
        for one in variants:
            occupancy._cells(one)
    for name, kernel in code.items():
        json.dumps(
            xray_pages.viewed(
                name, kernel, f"def {name}():\n    pass\n" if name.isidentifier() else ""
            )
        )
