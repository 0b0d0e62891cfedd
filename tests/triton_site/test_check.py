"""`make check`: a number that breaks its limit stops a release."""

from pathlib import Path

import msgspec
import pytest

from gallery_recorder.project import reader
from tests import galleries
from triton_site.numbers import measured

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("limit", "status"), [(9000, 0), (1, 1)])
def test_a_number_that_breaks_its_limit_stops_the_check(
    tmp_path, capsys, monkeypatch, limit, status
):
    monkeypatch.chdir(ROOT)
    only = galleries.FILES["01-vector-add"]  # to check all takes seconds
    plan = msgspec.structs.replace(galleries.PROJECT, examples=(only,))
    monkeypatch.setattr(reader, "read", lambda where: plan)
    value = f'{{ value = "max(vector-add-performance: triton)", at_most = {limit} }}'
    (tmp_path / "numbers.toml").write_text(f"[01-vector-add]\nrate = {value}\n")
    monkeypatch.setattr(measured, "FILE", tmp_path / "numbers.toml")
    assert measured.main([]) == status
    assert ("01-vector-add.rate is" in capsys.readouterr().err) is bool(status)
