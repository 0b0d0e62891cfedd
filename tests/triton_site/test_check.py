"""`make check`: a number that breaks its limit stops a release."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from gallery_recorder.project import reader
from tests import galleries
from triton_site.numbers import conditions, measured
from triton_site.numbers.recorded import Recorded

ROOT = Path(__file__).parents[2]


@pytest.fixture
def check(tmp_path, capsys, monkeypatch):
    """The status and the problems of the check of one lesson; to check all takes seconds."""
    monkeypatch.chdir(ROOT)
    only = galleries.FILES["01-vector-add"]
    plan = msgspec.structs.replace(galleries.PROJECT, examples=(only,))
    monkeypatch.setattr(reader, "read", lambda where: plan)

    def run(limit=9000):
        value = f'{{ value = "max(vector-add-performance: triton)", at_most = {limit} }}'
        (tmp_path / "numbers.toml").write_text(f"[01-vector-add]\nrate = {value}\n")
        monkeypatch.setattr(measured, "FILE", tmp_path / "numbers.toml")
        return measured.main([]), capsys.readouterr().err

    return run


def test_a_number_that_breaks_its_limit_stops_the_check(check):
    assert check() == (0, "")
    status, problems = check(limit=1)
    assert status == 1
    assert "01-vector-add.rate is" in problems


def test_a_recording_of_a_tree_that_was_not_committed_stops_the_check(check, monkeypatch):
    real = measured.of_reference

    def dirty(roots):
        found = {}
        for name, (folder, content, script) in real(roots).items():
            made = msgspec.structs.replace(content.provenance, commit=None)
            content = msgspec.structs.replace(content, provenance=made)
            found[name] = Recorded(folder, content, script)
        return found

    monkeypatch.setattr(measured, "of_reference", dirty)
    dirty_tree = "01-vector-add: recorded from a tree that was not committed\n"
    assert check() == (1, dirty_tree)


def test_a_step_above_the_ceiling_of_its_table_is_told(tmp_path, monkeypatch):
    (tmp_path / "b.csv").write_text(
        "size,provider,unit,median,p20,p80\n1,copy,GB/s,100,1,1\n1,fast,GB/s,106,1,1\n"
    )
    values = "\n".join(f'{name} = {{ value = "only(b: {name})" }}' for name in ("copy", "fast"))
    (tmp_path / "numbers.toml").write_text(f"[one]\n{values}\n")
    monkeypatch.setattr(measured, "FILE", tmp_path / "numbers.toml")

    def said(option=""):
        text = f".. steps:: copy\n   :unit: GB/s\n{option}\n   copy: itself\n   fast: cut"
        blocks = [SimpleNamespace(type="text", content=text)]
        script = SimpleNamespace(name="one", blocks=blocks)
        content = SimpleNamespace(files={"b.csv": "0" * 64})
        return list(measured._above_steps(Recorded(tmp_path, content, script)))

    assert said() == ["one: fast is above its ceiling, copy"]
    assert said("   :of: a library\n") == []


def test_without_git_the_check_says_so_in_a_line(check, monkeypatch):
    conditions.keys_at.cache_clear()
    monkeypatch.setenv("PATH", "/nonexistent")
    status, said = check()
    assert status == 1
    assert said.endswith("No such file or directory: 'git'\n")
    assert said.count("\n") == 1
