"""Which of several recordings a page shows: the preferred device's, of the highest variant."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from gallery_recorder.render.selection import ListedRecording, Page, best
from gallery_recorder.store.format import Block
from gallery_recorder.store.recording import Location


def seen(device: str, variant: str | None, recorded: str, key: str = "k", timed: bool = True):
    place = "/".join(filter(None, (device, variant)))
    location = SimpleNamespace(device=device, variant=variant, place=place)
    return ListedRecording("", location, "", key, device, recorded, timed)


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


def test_a_block_among_new_ones_keeps_the_output_of_the_most_similar_code(monkeypatch):
    def code(text):
        return SimpleNamespace(key=text, block=SimpleNamespace(content=text))

    texts = ["print('first')", "x = 2\nprint('second', x)"]
    old = SimpleNamespace(blocks=[Block(1, text, 0.0, code=text) for text in texts])
    new = ["print('first')", "print('added')", "x = 2\ny = 3\nprint('second', x)"]
    monkeypatch.setattr(Page, "recording", old)
    page = Page("page", None, SimpleNamespace(code=[code(text) for text in new]), "")
    found = [block and block.key for _, block in page.outputs]
    assert found == [texts[0], None, texts[1]]


def test_scripts_with_similar_names_have_records_of_their_own():
    labels = set()
    for gallery, name in (("ex", "sub/plot"), ("ex", "sub-plot"), ("ex-sub", "plot")):
        location = Location(Path("recordings"), "fast", None, gallery, name)
        labels.add(ListedRecording("", location, "", "", "", "", True).label)
    assert len(labels) == 3
