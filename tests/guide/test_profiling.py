"""Chapter 5, in the interpreter: its kernels, and the readers of the profilers' files."""

import subprocess
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close


@pytest.fixture(scope="module")
def chapter(tutorial):
    return tutorial("profiling")


@pytest.mark.parametrize(("m", "n"), [(1, 1), (70, 45), (150, 80), (16, 3)])
def test_every_way_to_add_up_columns_agrees_with_float64(chapter, m, n):
    x = torch.randn(m, n)
    for way in (
        chapter["by_columns"],
        partial(chapter["by_strips"], BLOCK_M=16),
        partial(chapter["by_parts"], parts=3, BLOCK_M=16),
    ):
        out = torch.full((n + 3,), torch.nan)
        way(x, out[:n])
        # At most 150 numbers around 1: some roundings of a sum below 50.
        assert_close(out[:n].double(), x.double().sum(0), rtol=0, atol=1e-4)
        assert out[n:].isnan().all()


@pytest.mark.parametrize("wrong", [lambda x, out: out.copy_(x[:-1].sum(0)), lambda x, out: None])
def test_a_wrong_kernel_stops_the_page(chapter, wrong):
    with pytest.raises(AssertionError):
        chapter["check"](wrong)


def node(name, *children, **metrics):
    return {"frame": {"name": name}, "children": list(children), "metrics": metrics}


def test_the_tree_of_proton_is_summed_and_sorted(chapter):
    short = node("short", node("a", **{"time (ns)": 10, "count": 1}), bytes=300)
    long = node("long", node("b", **{"time (ns)": 20}), node("c", **{"time (ns)": 30}))
    rows = chapter["read_tree"](node("ROOT", short, long))
    assert [(depth, name, ns) for depth, name, _, ns, _ in rows] == [
        (0, "ROOT", 60), (1, "long", 50), (2, "c", 30), (2, "b", 20), (1, "short", 10), (2, "a", 10)
    ]  # fmt: skip
    assert rows[4][4] == 300


def counting(chapter, monkeypatch, stdout="", stderr="", status=0):
    """What ``count`` returns where ncu prints *stdout*, and the program that ncu was given."""
    seen = {}

    def run(command, cwd, env, **how):
        seen.update(command=command, text=Path(cwd, command[-1]).read_text())
        assert how["timeout"], "a profiler that hangs must end"
        return subprocess.CompletedProcess(command, status, stdout, stderr)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    functions = [chapter[name] for name in ("counted", "column_kernel", "by_columns")]
    return chapter["count"](*functions, main="by_columns(x, out)"), seen


def test_the_counters_of_ncu_are_read_for_each_launch(chapter, monkeypatch):
    names = list(chapter["COUNTERS"].values())
    lines = [["ID", *names], ["", *("unit" for _ in names)], ["0", *("1,000" for _ in names)]]
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    (launch,), seen = counting(chapter, monkeypatch, f"==PROF== Connected\n{text}\n")
    assert launch["waves"] == 1000
    assert launch["MB from memory"] == pytest.approx(0.001)
    assert launch["MB asked of the L2 cache"] == pytest.approx(0.032), "sectors of 32 bytes"
    assert seen["command"][0] == "ncu"
    compile(seen["text"], "target.py", "exec")
    assert "@triton.jit(launch_metadata=counted)" in seen["text"], "the kernel of the page"


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "only root may"),
        ("==ERROR== The application returned an error code (1).", "error code (1)"),
    ],
)
def test_a_failure_of_ncu_is_explained(chapter, monkeypatch, capsys, stderr, message):
    launches, _ = counting(chapter, monkeypatch, stderr=stderr, status=1)
    assert launches == []
    assert message in capsys.readouterr().out
