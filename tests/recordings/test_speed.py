"""The committed recordings of the reference GPU reach what the tutorials promise.

The numbers are ratios within one recorded run. Nothing is timed here: this reads CSV files.
"""

import csv
import statistics
from pathlib import Path

import pytest

from gallery_recorder.store import recording
from gallery_recorder.store.format import FILE_NAME, slug
from triton_site.references import REFERENCES, SOFTWARE

ROOT = Path(__file__).parents[2] / "recordings"


def shown(name):
    """The folder of the recording of a tutorial that conf.py prefers."""
    places = (ROOT / place / "tutorials" / name for place in REFERENCES)
    return next(place for place in places if place.is_dir())


#: The columns that follow those of sizes.
MEASURED = ("provider", "unit", "median", "p20", "p80")

#: Recording and file, the other provider, floors of the geometric mean and of the least ratio of
#: our speed to its, and the sizes for which they hold. `make check` proves those of numbers.toml.
FLOORS = [
    ("07-math-functions/gelu-performance", "copy", 0.0, 0.95, {}),
    ("10-cross-entropy/cross-entropy-performance", "compile", 0.0, 1.6, {}),
    ("10-cross-entropy/cross-entropy-performance", "copy", 0.0, 0.85, {}),
    ("solutions/06-decode/decode-attention", "cudnn", 0.0, 0.90, {}),
]


@pytest.mark.parametrize(("file", "theirs", "mean", "least", "ranges"), FLOORS)
def test_the_speed_is_what_the_tutorial_promises(file, theirs, mean, least, ranges):
    ours = "triton" + theirs[len(theirs.split()[0]) :]  # with the same suffix
    medians: dict[str, dict[tuple, float]] = {ours: {}, theirs: {}}
    name, _, table = file.rpartition("/")
    with open(shown(name) / f"{table}.csv", newline="") as rows:
        for row in csv.DictReader(rows):
            sizes = [*row.items()][: -len(MEASURED)]
            if row["provider"] in medians and all(
                int(row[name]) in range_ for name, range_ in ranges.items()
            ):
                medians[row["provider"]][tuple(sizes)] = float(row["median"])
    found = [medians[ours][size] / rate for size, rate in medians[theirs].items()]
    assert min(found) >= least
    assert statistics.geometric_mean(found) >= mean


def test_time_to_record():
    names = ("01-vector-add", "02-fused-softmax", "03-matrix-multiplication", "03b-full-waves",
             "04-low-memory-dropout")  # fmt: skip
    assert sum(recording.load(shown(name)).run.seconds for name in names) <= 150


@pytest.mark.parametrize("folder", sorted(p.parent for p in ROOT.rglob(FILE_NAME)))
def test_recording_is_whole_and_says_where_it_was_made(folder):
    content = recording.load(folder)
    where = content.provenance
    assert slug(where.device) == folder.relative_to(ROOT).parts[0]
    assert where.commit
    assert where.gpu is not None
    assert where.gpu.driver
    assert where.gpu.compute_capability
    assert content.probe(SOFTWARE)["torch"]
    assert where.before is not None
    assert where.after is not None
    # The address of a function says nothing to a reader.
    values = [block.value.get("text/plain", "") for block in content.blocks if block.value]
    assert not [value for value in values if value.startswith("<function")]
    # Tensor cores at full speed take all the power that the board may draw; heat is another matter.
    assert set(where.after.throttling) <= {"power cap"}
