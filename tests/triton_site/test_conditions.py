"""`make check` sees what went wrong where a recording was made."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from gallery_recorder.project.script import load_script
from triton_site.numbers import conditions, launched
from triton_site.numbers.recorded import Recorded
from triton_site.xray_data import PROBE

SCRIPT = '''"""
First
=====

Words.
"""

import matplotlib.pyplot as plt


def draw():
    plt.show()


# %%
# A figure.

{setting}
if True:
    draw()
'''


#: What is known of the GPU of a good recording.
GPU = {
    "gpu": SimpleNamespace(driver="580.1", compute_capability="9.0"),
    "before": SimpleNamespace(throttling=[]),
    "after": SimpleNamespace(throttling=["power cap"]),
}


def recorded(folder: Path, setting: str = "", commit: str | None = None, **block: object):
    folder.joinpath("01-first.py").write_text(SCRIPT.format(setting=setting))
    script = load_script(folder / "01-first.py")
    script = SimpleNamespace(name="01-first", code=script.code, key=script.key)
    facts = {"stdout": "", "stderr": "", "exception": None, "images": (), "shown": None}
    facts["value"] = {}
    first, last = (
        SimpleNamespace(**facts),
        SimpleNamespace(**facts | {"images": ("a.svg",)} | block),
    )
    content = SimpleNamespace(
        files={"01-first-values.csv": "0" * 64},
        gallery="tutorials",
        name="01-first",
        key=script.key,
        blocks=(first, last),
        provenance=SimpleNamespace(commit=commit, **GPU),
        run=SimpleNamespace(seconds=10.0),
        probes={},
    )
    return Recorded(folder, content, script)


def said(item: Recorded, root: Path) -> list[str]:
    return [text.partition(": ")[2] for text in conditions.remarks([item], root)]


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "tutorials/shared").mkdir(parents=True)
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide/text").write_text("git keeps no empty folder")
    recorded(tmp_path / "tutorials")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    done = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return tmp_path, done.stdout.strip()


def test_a_commit_proves_itself_by_its_code(repository):
    root, commit = repository
    folder = root / "tutorials"
    assert said(recorded(folder, commit=commit), root) == []
    dirty = "recorded from a tree that was not committed"
    assert said(recorded(folder, commit=f"{commit}-dirty"), root) == [dirty]
    assert said(recorded(folder, commit=None), root) == [dirty]
    assert said(recorded(folder, commit="1" * 40), root) == [
        "the commit 111111111111 that it names has no such script"
    ]
    other = recorded(folder, setting="print(1)", commit=commit)
    assert said(other, root) == [f"the commit {commit[:12]} has other code"]


@pytest.mark.parametrize(
    ("block", "remark"),
    [
        ({"stdout": "OSError: no file"}, "its output shows OSError"),
        ({"stderr": "No module named 'x'"}, "its output shows No module"),
        ({"stdout": "ptxas: cannot open x"}, "its output shows cannot open"),
        ({"stderr": "UserWarning: x\n" * 21}, "its output shows 21 lines of warnings"),
        ({"stderr": "W1126 21:57:38 x.py:1] x\n" * 21}, "its output shows 21 lines of warnings"),
        ({"stdout": "SystemExit: 1"}, "its output shows SystemExit"),
        ({"images": ()}, "its figure is missing"),
        ({"stdout": "zlib.error: x"}, "its output shows zlib.error"),
        (
            {"stdout": "UnsupportedLanguageConstruct"},
            "its output shows UnsupportedLanguageConstruct",
        ),
        ({"stderr": "x WARN y\n" * 21}, "its output shows 21 lines of warnings"),
        ({"value": {"text/plain": "KeyError(1)"}}, "its output shows KeyError"),
        ({"value": {"text/plain": "131072"}}, "it prints 131072 without separators"),
        ({"stdout": "The largest max_error is 0.1, its Failure rate 0, loss.error 1."}, None),
        ({"stderr": "UserWarning: x\n" * 20}, None),
    ],
)
def test_what_an_output_shows(repository, block, remark):
    root, commit = repository
    found = said(recorded(root / "tutorials", commit=commit, **block), root)
    assert found == ([f"line 19: {remark}"] if remark else [])


def test_an_error_on_purpose_is_named_by_its_block(repository):
    root, commit = repository
    text = "Traceback (most recent call last):\n  …\nOSError: gone\n"
    shows = '# sphinx_gallery_shows = "OSError"'
    assert len(said(recorded(root / "tutorials", "", commit, stdout=text), root)) == 2
    assert said(recorded(root / "tutorials", shows, commit, stdout=text), root) == []
    other = recorded(root / "tutorials", shows, commit, stdout="KeyError: 1")
    assert said(other, root) == ["line 19: its output shows KeyError"]


def test_many_warnings_on_purpose_are_named_by_their_block(repository):
    root, commit = repository
    shows = '# sphinx_gallery_shows = "lines of warnings"'
    text = "UserWarning: x\n" * 30
    assert said(recorded(root / "tutorials", shows, commit, stderr=text), root) == []


def test_plain_digits_are_no_traceback(repository):
    root, commit = repository
    text = "131072 Traceback (most recent call last)"
    shows = '# sphinx_gallery_shows = "plain digits"'
    found = said(recorded(root / "tutorials", shows, commit, stdout=text), root)
    assert found == ["line 19: its output shows a traceback"]


@pytest.mark.parametrize(
    ("cells", "draws"),
    [
        (["def f():\n    plt.show()", "f()", "def f():\n    pass", "f()"], [0, 1, 0, 0]),
        (["def f():\n    g()", "def g():\n    plt.show()", "f()"], [0, 0, 1]),
        (["import matplotlib.pyplot\nmatplotlib.pyplot.show()", "print(plt.show_all)"], [1, 0]),
    ],
)
def test_the_blocks_that_draw(cells, draws):
    code = [SimpleNamespace(block=SimpleNamespace(content=text)) for text in cells]
    assert conditions._drawing(SimpleNamespace(code=code)) == draws


FACTS = {"name": "tile", "line": 1, "constants": {}, "warps": 4, "stages": 3, "registers": 40,
         "spills": 0, "shared": 0, "bytes": 1, "occupancy": None, "instructions": {}}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "number", "problem"),
    [
        ("registers tile", 40, 0, None),
        ("registers tile 4096 × 8192", 40, 0, None),
        ("registers tile 4096 x 8192", 41, 0, "registers tile is 41, but the X-ray shows 40"),
        ("registers tile 4,096 × 8,192", 41, 0, "registers tile is 41, but the X-ray shows 40"),
        ("registers tile 64 × 64", 41, 0, None),  # another variant
        ("registers tile 40 × 968192", 41, 0, None),  # the same digits
        ("registers tile", 41, 0, "registers tile is 41, but the X-ray shows 40"),
        ("spills tile", 2, 0, "spills tile is 2, but the X-ray shows 0"),
        ("registers step", 1, 0, None),  # no kernel of the script has this name
        ("bytes", 1, None, "sphinx_gallery_xray names tile, which its cell does not launch"),
    ],
)
def test_what_a_page_says_of_a_kernel_is_what_its_xray_shows(
    tmp_path, name, value, number, problem
):
    item = recorded(tmp_path)
    item.content.probes[PROBE] = {
        "kernels": [FACTS],
        "launched": {"tile": {"shape": "4096 × 8192", "kernel": number}},
    }
    values = f'\ufeffname,unit,value\n"{name}",registers,{value}\n'
    (tmp_path / "01-first-values.csv").write_text(values)
    assert launched.of_launches(item) == ([f"01-first: {problem}"] if problem else [])


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({}, ""),
        ({"gpu": None}, "driver"),
        ({"gpu": SimpleNamespace(driver="", compute_capability="9.0")}, "driver"),
        ({"before": None}, "state"),
        ({"after": SimpleNamespace(throttling=["power cap", "heat"])}, "slowed down: heat"),
    ],
)
def test_an_unknown_or_slowed_gpu_is_told(change, remark):
    found = list(conditions._of_machine(SimpleNamespace(**GPU | change)))
    assert len(found) == bool(remark)
    assert remark in "".join(found)


def test_first_lessons_that_take_long_to_record_are_told(tmp_path):
    item = recorded(tmp_path)
    item.script.name = "01-vector-add"
    item.content.run.seconds = conditions.MOST_SECONDS + 1.0
    assert any("to record" in text for text in conditions.remarks([item], tmp_path))
    item.content.run.seconds = conditions.MOST_SECONDS - 1.0
    assert not any("to record" in text for text in conditions.remarks([item], tmp_path))
