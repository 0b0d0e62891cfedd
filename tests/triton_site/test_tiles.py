"""The picture of waves is that of the tutorial's own order, and counts what the tutorial says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from triton_site.pages import tiles

SHARED = Path(__file__).resolve().parents[2] / "tutorials" / "shared" / "matmul.py"


@pytest.mark.parametrize(("size", "group"), [(9, 1), (9, 3), (9, 4), (5, 7), (1, 1)])
def test_the_order_is_the_tutorials(size: int, group: int) -> None:
    found = [n for n in ast.parse(SHARED.read_text()).body if isinstance(n, ast.FunctionDef)]
    names: dict = {"min": min}
    exec(compile(ast.Module(found[:1], []), "matmul", "exec"), names)
    ours = [tiles.position(tile, size, group) for tile in range(size * size)]
    assert ours == [names["tile_position"](tile, size, size, group) for tile in range(size * size)]
    assert len(set(ours)) == size * size


def test_nine_programs_read_90_tiles_row_by_row_and_54_in_groups() -> None:
    assert [tiles.read_by(tiles.waves(9, group, 9)[0], 9) for group in (1, 3)] == [90, 54]
    assert [len(wave) for wave in tiles.waves(9, 4, 16)] == [16] * 5 + [1]
