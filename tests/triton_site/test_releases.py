"""What a release changed is told on the page; what was lost comes with a script that times it."""

from __future__ import annotations

import csv
import statistics
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from bs4 import BeautifulSoup

from gallery_recorder.store import benchmarks, recording
from gallery_recorder.store.compare import Line
from gallery_recorder.store.format import DECODER, FILE_NAME, encode
from tests.fixtures import two_devices
from tests.fixtures.two_devices import GALLERY, OLDER
from triton_site.numbers import releases
from triton_site.pages import reproduce
from triton_site.pages.assemble import assemble_script

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))
SAID = {
    "title": "A title", "benchmark": "a-benchmark", "device": "NVIDIA H200", "newer": "3.10.0",
    "older": "3.9.0", "ratio": 0.9, "unit": "GB/s", "name": "it.py", "page": "tutorials/01-it",
}  # fmt: skip

SCRIPT = '''"""A title"""

import torch
import triton

unused = 1

def measure(calls, rounds=2):
    return {name: [call() for _ in range(rounds)] for name, call in calls.items()}

def write_rows(path, columns, rows):
    with open(path, "w") as file:
        file.write("size,provider,unit,median,p20,p80\\n")
        file.writelines(",".join(map(str, row)) + "\\n" for row in rows)

def ours(x):
    return kernel(x) + LATE

def theirs(x):
    return x

@triton.jit
def kernel(x):
    return x

LATE = 1  # what a function needs may come after it
print("a word")

def benchmark(sizes):
    rows = []
    for n in sizes:
        calls = {"ours": lambda: ours(n)}
        calls["theirs"] = lambda: theirs(n)
        for name, ms in measure(calls).items():
            rows.append((n, name, "ms", ms[0], ms[0], ms[0]))
    return rows

ON_GPU = True
rows = benchmark([8, 16])
write_rows("a.csv", ["size"], rows)
print("the rest of the tutorial")
'''


def test_a_script_times_one_provider_alone(tmp_path):
    text = SCRIPT.replace("import torch\nimport triton\n", "import types\n").replace(
        "unused = 1", "triton = types.SimpleNamespace(jit=lambda f: f, __version__='3.10.0')"
    )
    recorded = {"size=8": (1.0, 2.0), "size=16": (3.0, 4.0)}
    made = reproduce.reproduction(text, "a.csv", "ours", recorded, SAID)
    assert "a word" not in made
    assert "rest of the tutorial" not in made
    assert "unused" not in made
    made = made.replace("\nimport triton\n", "\n")
    (tmp_path / "it.py").write_text(made)
    done = subprocess.run(
        [sys.executable, "it.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "ours: median GB/s with Triton 3.10.0, and as recorded with 3.9.0 and 3.10.0",
        "size=8: 9 1.0 2.0",
        "size=16: 17 3.0 4.0",
    ]


def test_who_calls_a_kernel_is_told_from_who_does_not():
    assert reproduce.has_kernel(SCRIPT, "a.csv", "ours")
    assert not reproduce.has_kernel(SCRIPT, "a.csv", "theirs")
    assert reproduce.has_kernel(SCRIPT, "a.csv", "a provider that the code does not name")


def test_a_file_that_nobody_writes_has_no_script():
    assert reproduce.reproduction(SCRIPT, "b.csv", "ours", {}, SAID) == ""
    assert reproduce.reproduction("1\n", "a.csv", "ours", {}, SAID) == ""


def test_what_a_recording_says_is_no_code():
    evil = 'x"""\nimport os\n{ON_GPU}\\'
    said = SAID | {"device": evil, "unit": evil, "title": evil}
    made = reproduce.reproduction(SCRIPT, "a.csv", evil, {evil: (1.0, 2.0)}, said)
    compile(made, "it.py", "exec")
    assert "\nimport os\n" not in made


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_scripts_of_all_tutorials_have_all_that_they_need(path, tmp_path):
    text = assemble_script(path.read_text(encoding="utf-8"), ROOT / "tutorials/shared")
    files = ROOT.glob(f"recordings/*/*/tutorials/{path.stem}/*.csv")
    found = {(file.name, provider) for file in files for provider in benchmarks.read(file)}
    for number, (name, provider) in enumerate(sorted(found)):
        made = reproduce.reproduction(text, name, provider, {"": (1.0, 1.0)}, SAID)
        (tmp_path / f"script-{number}.py").write_text(made)
        assert made, f"{name}: {provider}"
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,E9", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    if not found:
        pytest.skip("it was not recorded on a GPU yet")


@pytest.mark.parametrize(
    ("ratios", "lost"),
    [
        ((0.9, 0.9, 0.9), True),
        ((1.0, 0.05, 1.0), False),  # a disturbed measurement
        ((0.98, 0.98, 0.98), False),
        ((0.8, 0.9, 1.3), False),
    ],
)
def test_one_size_alone_that_fell_is_no_loss(ratios, lost):
    mean = statistics.geometric_mean(ratios)
    line = Line("b.csv", "triton", mean, mean, min(ratios), "N=1", len(ratios))
    recorded = {f"N={n}": (1000.0, 1000.0 * ratio) for n, ratio in enumerate(ratios)}
    assert releases.Change("b.csv", line, 0.02, "GB/s", recorded).lost is lost


# --- on the pages ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lost(tmp_path_factory) -> Path:
    """A site where a release that nobody has heard of lost a tenth of one kernel's rate."""
    folder = two_devices.project(tmp_path_factory.mktemp("lost") / "project")
    older = folder / "recordings" / OLDER / "tutorials" / "01-vector-add"
    for path in older.glob("*.csv"):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            for column in {"median", "p20", "p80"} & row.keys():
                if row["provider"] == "triton":
                    row[column] = f"{float(row[column]) / 0.9:.6g}"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    content = (older / FILE_NAME).read_bytes()
    made = DECODER.decode(content)
    files = {name: recording.digest(older / name) for name in made.files}
    made = msgspec.structs.replace(made, files=files)
    (older / FILE_NAME).write_bytes(encode(made))
    return two_devices.build(folder)


def section(site: Path, page: str) -> BeautifulSoup | None:
    html = (site / page).read_text(encoding="utf-8")
    return BeautifulSoup(html, "html.parser").find(id="what-a-release-changed")


def test_a_page_tells_what_the_newest_release_changed(lost):
    found = section(lost, f"{GALLERY}/01-vector-add.html")
    assert found.h2.text.startswith("What Triton 3.9.0 changed")
    assert "NVIDIA H200: Triton 3.9.0 over 3.6.0" in found.table.caption.text
    rows = {row.td.text: row.find_all("td")[1].text for row in found.select("tbody tr")}
    assert rows.keys() == {"triton", "torch", "copy"}
    assert rows["triton"].endswith(" lost")
    assert not rows["torch"].endswith(" lost")
    assert section(lost, f"{GALLERY}/02-fused-softmax.html") is None, "it has one release only"


def test_a_loss_comes_with_a_script_on_the_page_and_on_the_performance_page(lost):
    for page in (f"{GALLERY}/01-vector-add.html", "performance.html"):
        html = (lost / page).read_text(encoding="utf-8")
        (note,) = BeautifulSoup(html, "html.parser").select(".gallery-lost")
        assert "triton of vector-add-performance" in " ".join(note.text.split())
        script = (lost / page).parent / note.a["href"]
        text = script.read_text(encoding="utf-8")
        assert "ONLY = 'triton'" in text
        assert f"python {script.name}" in text
        compile(text, script.name, "exec")
