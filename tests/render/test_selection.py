"""Which of several recordings a page shows: the preferred device's, of the highest variant."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from gallery_recorder.render.selection import ListedRecording, best
from gallery_recorder.store.recording import Location


def seen(device: str, variant: str | None, recorded: str, key: str = "k", timed: bool = True):
    place = "/".join(filter(None, (device, variant)))
    location = SimpleNamespace(device=device, variant=variant, place=place)
    return SimpleNamespace(location=location, recorded=recorded, key=key, timed=timed, failed=False)


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ([("fast", "v-3.9.0", "1"), ("fast", "v-3.6.0", "2")], "fast/v-3.9.0"),
        ([("fast", "v-3.9.0", "1"), ("fast", "v-3.10.0", "0")], "fast/v-3.10.0"),
        ([("slow", "v-4.0.0", "2"), ("fast", "v-3.6.0", "1")], "fast/v-3.6.0"),
        ([("fast", "v-3.9.0", "1", "old"), ("fast", "v-3.6.0", "0")], "fast/v-3.6.0"),
        ([("fast", "v-3.9.0", "1", "k", False), ("slow", "v-3.6.0", "0")], "slow/v-3.6.0"),
        ([("a", None, "1"), ("b", None, "2")], "b"),
        ([("fast", "v-3.9.0", "1", "old")], ""),
    ],
)
def test_the_highest_variant_of_the_preferred_device_is_shown(found, shown):
    chosen = best(SimpleNamespace(key="k"), [seen(*item) for item in found], ["fast"])
    assert (chosen.location.place if chosen else "") == shown


def test_scripts_with_similar_names_have_records_of_their_own():
    labels = set()
    for gallery, name in (("ex", "sub/plot"), ("ex", "sub-plot"), ("ex-sub", "plot")):
        location = Location(Path("recordings"), "fast", None, gallery, name)
        labels.add(ListedRecording("", location, "", "", "", "", True).label)
    assert len(labels) == 3
