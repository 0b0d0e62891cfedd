"""Chapter 5, in the interpreter: its kernels, and what reads the files of the profilers."""

import json
import os
import runpy
import subprocess
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

SCRIPT = Path(__file__).parents[2] / "guide" / "chapter-5" / "profiling.py"


@pytest.fixture(scope="module")
def chapter(tmp_path_factory):
    """Return the names that the script leaves behind, run without a GPU in an empty folder."""
    folder = tmp_path_factory.mktemp("profiling")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MPLBACKEND", "Agg")
        # Triton reads this when a kernel is decorated and again when it is launched, so it stays.
        os.environ["TRITON_INTERPRET"] = "1"
        names = runpy.run_path(str(SCRIPT))
    assert not list(folder.iterdir()), "nothing was measured, so there are no files"
    return names


# --- kernels --------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(m=st.integers(1, 150), n=st.integers(1, 80), seed=st.integers(0, 2**31), data=st.data())
def test_every_way_to_add_up_columns_agrees_with_float64(chapter, m, n, seed, data):
    x = torch.randn(m, n, generator=torch.Generator().manual_seed(seed))
    ways = [
        chapter["by_columns"],
        partial(chapter["by_strips"], BLOCK_M=data.draw(st.sampled_from([16, 64]))),
        partial(chapter["by_parts"], parts=data.draw(st.integers(1, 9)), BLOCK_M=16),
    ]
    for way in ways:
        out = torch.full((n + 3,), float("nan"))
        way(x, out[:n])
        # At most 150 numbers around 1: some roundings of a sum below 50.
        torch.testing.assert_close(out[:n].double(), x.double().sum(0), rtol=0, atol=1e-4)
        assert out[n:].isnan().all(), "written past the end"


def test_the_check_stops_at_a_wrong_kernel(chapter):
    with pytest.raises(AssertionError):
        chapter["check"](lambda x, out: out.copy_(x[:-1].sum(0)))
    with pytest.raises(AssertionError):
        chapter["check"](lambda x, out: None)


def test_a_launch_counts_what_it_must_move(chapter):
    class Kernel:
        name = "some_kernel"

    found = chapter["counted"]((4,), Kernel, {"M": 7, "N": 5})
    assert found == {"name": "some_kernel", "bytes": 4 * (7 * 5 + 5), "flops32": 35}


# --- Proton's files -------------------------------------------------------------------------------


def node(name, children=(), **metrics):
    return {"frame": {"name": name}, "children": list(children), "metrics": metrics}


def test_the_tree_adds_up_and_puts_the_longest_first(chapter):
    tree = node("ROOT", [
        node("short", [node("a", **{"time (ns)": 10, "count": 1})], bytes=300),
        node("long", [node("b", **{"time (ns)": 20, "count": 2}), node("c", **{"time (ns)": 30})]),
    ])  # fmt: skip
    rows = chapter["read_tree"](tree)
    assert [(depth, name, ns) for depth, name, _, ns, _ in rows] == [
        (0, "ROOT", 60), (1, "long", 50), (2, "c", 30), (2, "b", 20), (1, "short", 10), (2, "a", 10)
    ]  # fmt: skip
    assert rows[4][4] == 300


def test_turns_of_a_warp_are_drawn(chapter, monkeypatch):
    rows = [(name, 800.0 * i, 400.0) for i in range(40) for name in ("load", "add")]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a made-up GPU")
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()))
    chapter["draw_turns"]({1: {"program": rows}, 4: {"program": rows}})
    (figure,) = shown
    assert figure.get_figwidth() == 7
    assert "a made-up GPU" in figure.get_suptitle()
    plt.close("all")
    assert chapter["typical"]({"program": rows}, "add") == 400


# --- ncu ------------------------------------------------------------------------------------------


def counting(chapter, monkeypatch, stdout="", stderr="", status=0):
    """What ``count`` returns where ncu prints *stdout*, and the program that it was given."""
    seen = {}

    def run(command, cwd, env, **how):
        seen.update(command=command, text=Path(cwd, command[-1]).read_text(), env=env)
        assert how["timeout"], "a profiler that hangs must end"
        return subprocess.CompletedProcess(command, status, stdout, stderr)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    functions = [chapter[name] for name in ("counted", "column_kernel", "by_columns")]
    return chapter["count"](*functions, main="by_columns(x, out)"), seen


def test_counters_are_read_launch_by_launch(chapter, monkeypatch):
    names = list(chapter["COUNTERS"].values())
    lines = [["ID", *names], ["", *("unit" for _ in names)], ["0", *("1,000" for _ in names)]]
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    launches, seen = counting(chapter, monkeypatch, f"==PROF== Connected\n{text}\n")
    (launch,) = launches
    assert launch["waves"] == 1000
    assert launch["MB from memory"] == pytest.approx(0.001)
    assert launch["MB asked of the L2 cache"] == pytest.approx(0.032), "sectors of 32 bytes"
    assert seen["command"][0] == "ncu"
    compile(seen["text"], "target.py", "exec")
    assert "@triton.jit(launch_metadata=counted)" in seen["text"], "the kernel as it stands here"
    assert seen["text"].rstrip().endswith("by_columns(x, out)")


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "only root may"),
        ("==ERROR== The application returned an error code (1).", "error code (1)"),
    ],
)
def test_where_ncu_cannot_count_it_says_why(chapter, monkeypatch, capsys, stderr, said):
    launches, _ = counting(chapter, monkeypatch, stderr=stderr, status=1)
    assert launches == []
    assert said in capsys.readouterr().out


def test_where_ncu_is_missing_it_says_so(chapter, monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert chapter["count"](main="") == []
    assert "CUDA toolkit" in capsys.readouterr().out


def test_counters_are_a_table(chapter, capsys):
    launch = dict.fromkeys(chapter["COUNTERS"], 1234.5)
    chapter["show_counters"]({"one": launch, "two": launch})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["one", "two"]
    assert len(lines) == 2 + len(chapter["COUNTERS"])


def test_rates_are_no_benchmark_of_the_performance_page(chapter, tmp_path):
    from triton_site.numbers import performance

    path = tmp_path / "profiling-steps.csv"
    names = ("by_columns", "by_strips", "32 rows", "x.sum(0)")
    rows = [(64, 32, name, "GB/s", 3.0, 2.0, 4.0) for name in names]
    chapter["write_rows"](path, ["M", "N"], rows)
    assert performance.compare_providers(path)[1] == []
    assert json.dumps(rows)
