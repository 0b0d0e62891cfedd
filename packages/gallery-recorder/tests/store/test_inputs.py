"""Which changes of versions, variables and settings make a recording stale, and which are told."""

import msgspec
import pytest

from gallery_recorder.project.inputs import InputRules
from gallery_recorder.project.script import load_script
from gallery_recorder.project.settings import Settings
from gallery_recorder.store import inputs, status
from gallery_recorder.store.format import Inputs
from gallery_recorder.store.inputs import Here
from gallery_recorder.testing.projects import Room

VERSIONS = {"My.Lib": "1.0", "other": "2.0", "absent": "3.0"}


@pytest.fixture
def script(tmp_path):
    room = Room(tmp_path)
    return load_script(room.write("a", "x = 1"))


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """The distributions that are installed here."""
    found = {"My.Lib": "1.1", "other": "2.0"}
    monkeypatch.setattr(inputs, "_version", found.get)
    return found


def changes(script, recorded, outputs=None, rules=None, **settings):
    said = msgspec.convert(settings, Settings)
    here = Here(rules or InputRules(), said, outputs or {})
    return here.changes(recorded, "cpu", script)


def test_another_version_is_told_and_is_stale_only_where_the_project_asks(script):
    recorded = Inputs(versions=VERSIONS)
    told = changes(script, recorded)
    assert told.stale == ()
    assert told.different == (
        "My.Lib was 1.0 and is 1.1",
        "not installed here, not compared: absent",
    )
    asked = changes(script, recorded, refresh=["my_lib", "absent", "other"])
    assert asked.stale == ("My.Lib was 1.0 and is 1.1",)


def test_a_variable_is_told_and_is_stale_only_where_the_project_asks(script, monkeypatch):
    monkeypatch.setenv("MODE", "fast")
    monkeypatch.setenv("NEW_ONE", "1")
    recorded = Inputs(variables={"MODE": "slow", "NEW_GONE": "2"})
    told = changes(script, recorded, variables=["MODE", "NEW_*"])
    assert told.stale == ()
    assert told.different == (
        "$MODE was 'slow' and is 'fast'",
        "$NEW_GONE was '2' and is not set",
        "$NEW_ONE was not set and is '1'",
    )
    asked = changes(script, recorded, variables=["MODE", "NEW_*"], refresh=["$MODE"])
    assert asked.stale == ("$MODE was 'slow' and is 'fast'",)
    assert changes(script, recorded).different == ()  # conf.py names them no longer


def test_variables_are_those_that_an_example_would_get(script, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("MODE", "of this terminal")
    monkeypatch.setenv("MY_TOKEN", "secret")
    recorded = Inputs(variables={"TZ": "UTC", "MODE": "fast"})
    chosen = {"cpu": {"MODE": "fast"}}
    told = changes(script, recorded, variables=["TZ", "M*"], environment=chosen)
    assert (told.stale, told.different) == ((), ())


def test_a_setting_that_changes_outputs_makes_a_recording_stale(script):
    recorded = Inputs(settings={"image_srcset": "[]", "gallery_launcher": "[]"})
    assert changes(script, recorded, {"image_srcset": "[]"}).stale == ()
    changed = changes(script, recorded, {"image_srcset": "[2.0]"}, launcher=["srun"])
    assert changed.stale == (
        "image_srcset was [] and is [2.0]",
        "gallery_launcher was [] and is ['srun']",
    )


@pytest.mark.parametrize(
    ("comment", "is_stale"),
    [
        ("", False),
        ("# sphinx_gallery_capture_repr_block = ('__str__',)", True),
        ("# sphinx_gallery_capture_repr = ('__str__',)", True),
        # The page of the recording is made without the value.
        ("# sphinx_gallery_capture_repr_block = ()", False),
    ],
)
def test_a_block_that_shows_its_value_in_another_way_is_stale(tmp_path, comment, is_stale):
    script = load_script(Room(tmp_path).write("a", f"x = 1\n{comment}\nx"))
    recorded = Inputs(capture_repr=("['__repr__']",) * 2)
    changed = changes(script, recorded, {"capture_repr": "['__repr__']"})
    assert bool(changed.stale) is is_stale


def test_a_recording_names_no_file_outside_of_the_folders_of_the_project(script, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("1")
    recorded = Inputs(files={"../secret": "0" * 64, "../doc/../../secret": "0" * 64})
    rules = InputRules(base=tmp_path / "doc", folders=("../examples", "."))
    assert changes(script, recorded, rules=rules).stale == ()


def test_a_recording_of_an_older_engine_is_compared_by_its_code_alone(tmp_path):
    room = Room(tmp_path)
    room.write("a", "x = 1")
    room.put_recording("a")
    rows = [row for row in status.rows(room.project(), room.recordings) if row.made]
    assert [(row.state, row.why) for row in rows] == [("stale", "2 of 2 code blocks have changed")]
    assert rows[0].made.inputs is None
