"""Recordings of each schema that was ever written, as they lie in ``stored``, are read for ever."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from gallery_recorder.store import markup, migrations, recording
from gallery_recorder.store.format import SCHEMA, Figure, Image
from gallery_recorder.testing.projects import Room

STORED = Path(__file__).parent / "stored"
SCHEMAS = range(2, SCHEMA + 1)
NAMES = [f"images/sphx_glr_everything_00{n}.png" for n in (1, 2, 3)]


def image(number, alt):
    return Image(NAMES[number], alt, {"2.00": NAMES[number].replace(".png", "_2_00x.png")})


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_recording_of_each_schema_has_all_outputs_as_data(schema):
    folder = STORED / f"schema-{schema}" / "examples" / "everything"
    assert json.loads((folder / "recording.json").read_text())["schema"] == schema
    made = recording.load(folder)
    both, text, html, figure, two, failed, never = made.blocks
    assert (both.stdout, both.stderr) == ("printed by Python\n", "an error\n")
    assert both.shown == "printed by Python\nan error\n"
    assert (text.stdout, text.shown, text.value) == ("before\n", None, {"text/plain": "{'a': 1}"})
    assert html.value == {"text/html": "<table><tr><td>cell</td></tr></table>"}
    assert figure.figures == (Figure((image(0, "A line"),)),)
    assert (figure.stdout, figure.data) == ("drawn\n", ("speed.csv",))
    assert two.figures == (Figure((image(1, "everything"), image(2, "everything"))),)
    assert two.value == {"text/plain": "<Figure size 100x100 with 0 Axes>"}
    assert failed.exception.endswith("ValueError: as expected\n")
    assert (failed.figures, never.stdout) == ((), "")


def test_a_page_of_an_old_recording_is_as_it_was():
    """The markup that schema 2 kept, but for blank lines."""
    folder = STORED / "schema-2" / "examples" / "everything"
    kept = json.loads((folder / "recording.json").read_text())["blocks"]

    def lines(rst):
        return [line.replace("@@gallery@@", "g") for line in rst.splitlines() if line.strip()]

    for block, before in zip(recording.load(folder).blocks, kept, strict=True):
        made = markup.output(
            block,
            lambda name: f"g/everything/{name}" if name.endswith(".csv") else f"g/{name}",
            *("g", {"speed.csv": 8}),
        )
        assert lines(made) == lines(before.get("rst", ""))


def test_what_a_scraper_of_a_project_returned_stays_as_it_is():
    own = "\n.. raw:: html\n\n   <img src='/@@gallery@@/images/a.png'>\n"
    assert markup.figure_of(own, {"images/a.png"}) == Figure(rst=own)
    drawn = ".. image:: /@@gallery@@/images/a.png\n   :alt: A\n\nA caption.\n"
    assert markup.figure_of(drawn, {"images/a.png"}) == Figure(rst=drawn)
    drawn = drawn.partition("\n\n")[0] + "\n   :class: own\n"
    assert markup.figure_of(drawn, {}) == Figure(rst=drawn)  # of a file that is not recorded
    made = Figure((Image("images/a.png", "A", options={"class": "own"}),))
    assert markup.figure_of(drawn, {"images/a.png"}) == made


def test_each_step_is_taken_once_and_in_order(monkeypatch):
    content = (STORED / "schema-3/examples/everything/recording.json").read_bytes()
    old = json.dumps(json.loads(content) | {"schema": 5}).encode()
    taken = []
    steps = {number: lambda made, number=number: taken.append(number) for number in (5, 6, 7)}
    monkeypatch.setattr(migrations, "_STEPS", steps)
    monkeypatch.setattr(migrations, "SCHEMA", 8)
    assert migrations.read(old).schema == 8
    assert taken == [5, 6, 7]


def test_standard_error_with_a_box_of_its_own_keeps_it():
    """As schema 2 kept it with ``gallery_stderr = "apart"``."""
    box = "\n.. rst-class:: sphx-glr-script-out{}\n\n .. code-block:: none\n\n    {}\n\n\n"
    kept = json.loads((STORED / "schema-2/examples/everything/recording.json").read_text())
    rst = box.format("", "printed by Python") + box.format(" gallery-stderr", "an error")
    kept["blocks"][0]["rst"] = rst
    block = migrations.read(json.dumps(kept).encode()).blocks[0]
    assert (block.shown, block.stdout, block.stderr) == (None, "printed by Python\n", "an error\n")
    shown = markup.output(block, str, "g", {})
    assert [line for line in shown.splitlines() if line] == [
        line for line in rst.splitlines() if line
    ]


def test_migrate_writes_the_current_schema_and_changes_nothing_else(tmp_path):
    room = Room(tmp_path)
    for schema in SCHEMAS:
        shutil.copytree(STORED / f"schema-{schema}", room.recordings / f"cpu-{schema}")
    (room.put_recording("damaged") / "recording.json").write_text("{")
    folders = {s: room.recordings / f"cpu-{s}" / "examples" / "everything" for s in SCHEMAS}
    before = {s: (recording.load(f), digests(f)) for s, f in folders.items()}
    made = room.run("migrate")
    assert made.returncode == 1
    assert f"{len(SCHEMAS) - 1} migrated, 1 already of schema" in made.stdout
    assert "damaged/recording.json: is not valid JSON" in made.stderr
    for schema, folder in folders.items():
        assert json.loads((folder / "recording.json").read_text())["schema"] == SCHEMA
        was, files = before[schema]
        assert recording.load(folder) == was
        now = digests(folder)
        assert now["recording.json"] == files["recording.json"] or schema != SCHEMA
        assert now | {"recording.json": ""} == files | {"recording.json": ""}


def digests(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
