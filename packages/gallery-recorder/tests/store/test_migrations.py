"""Recordings of each schema since 3, as they lie in ``stored``, are read for ever."""

import json
from pathlib import Path

import pytest

from gallery_recorder.store import migrations, recording
from gallery_recorder.store.format import SCHEMA, Figure, Html, Image
from gallery_recorder.store.reading import ReadingError

STORED = Path(__file__).parent / "stored"
SCHEMAS = range(3, SCHEMA + 1)
NAMES = [f"images/sphx_glr_everything_00{n}.png" for n in (1, 2, 3)]


def image(number, alt, kind):
    finer = {"2.00": NAMES[number].replace(".png", "_2_00x.png")}
    return Image(NAMES[number], alt, True, finer, (f"sphx-glr-{kind}-img",))


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
    assert figure.figures == (Figure((image(0, "A line", "single"),)),)
    assert (figure.stdout, figure.data) == ("drawn\n", ("speed.csv",))
    row = (image(1, "everything", "multi"), image(2, "everything", "multi"))
    assert two.figures == (Figure(row),)
    assert two.value == {"text/plain": "<Figure size 100x100 with 0 Axes>"}
    assert failed.exception.endswith("ValueError: as expected\n")
    assert (failed.figures, never.stdout) == ((), "")


def of_schema_3(*figures):
    """The content of a recording of schema 3 whose first block has these *figures*."""
    kept = json.loads((STORED / "schema-3/examples/everything/recording.json").read_text())
    kept["blocks"][0]["figures"] = [*figures]
    return json.dumps(kept).encode()


def test_images_of_schema_3_with_options_are_images_as_their_author_placed_them():
    options = {"width": "700", "class": "own other", "loading": "lazy", "target": "https://a.org/b"}
    content = of_schema_3({"images": [{"file": NAMES[0], "alt": "A", "options": options}]})
    (figure,) = migrations.read(content).blocks[0].figures
    shown = {"width": "700", "loading": "lazy", "link": "https://a.org/b"}
    assert figure == Figure((Image(NAMES[0], "A", classes=("own", "other"), **shown),))


def test_markup_of_a_scraper_in_schema_3_is_read_as_data():
    rst = f"\n.. raw:: html\n\n   <b>x</b>\n\n.. image:: /@@gallery@@/{NAMES[0]}\n"
    figures = migrations.read(of_schema_3({"rst": rst, "below": True})).blocks[0].figures
    assert figures == (Figure((Html("<b>x</b>"),), True), Figure((Image(NAMES[0]),), True))


@pytest.mark.parametrize(
    ("figure", "named"),
    [
        ({"rst": ".. plot::\n\n   import os\n"}, "plot"),
        ({"rst": f".. image:: /@@gallery@@/{NAMES[0]}\n   :target: javascript:x\n"}, "target|link"),
        ({"images": [{"file": NAMES[0], "options": {"target": "javascript:alert(1)"}}]}, "link"),
        ({"images": [{"file": NAMES[0], "options": {"onload": "x"}}]}, "onload"),
        ({"images": [{"file": NAMES[0], "options": {"width": "1\u2028"}}]}, "width"),
        ({"images": 5}, "schema 3"),
        ({"rst": ["a"]}, "schema 3"),
    ],
)
def test_other_markup_and_options_of_schema_3_are_refused_by_name(figure, named):
    with pytest.raises(ReadingError, match=named):
        migrations.read(of_schema_3(figure))


def test_each_function_is_called_once_and_in_order(monkeypatch):
    content = (STORED / "schema-4/examples/everything/recording.json").read_bytes()
    old = json.dumps(json.loads(content) | {"schema": 5}).encode()
    taken = []

    def step(number):
        def next_one(recording):
            taken.append(number)
            return recording

        return next_one

    monkeypatch.setattr(migrations, "_NEXT", {number: step(number) for number in (5, 6, 7)})
    monkeypatch.setattr(migrations, "SCHEMA", 8)
    assert migrations.read(old).schema == 8
    assert taken == [5, 6, 7]


def test_an_older_recording_is_read_without_a_change_on_the_disk():
    path = STORED / "schema-3" / "examples" / "everything" / "recording.json"
    before = path.read_bytes()
    recording.load(path.parent)
    assert path.read_bytes() == before
