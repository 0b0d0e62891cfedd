"""What two recordings differ in is told output by output; a stranger's does no harm."""

from __future__ import annotations

import gzip
import io
import json
import re

import msgspec
import pytest
from bs4 import BeautifulSoup
from PIL import Image

from gallery_recorder.store import compare, recording
from gallery_recorder.store.format import (
    SCHEMA,
    Block,
    Provenance,
    Recording,
    RunFacts,
    Value,
    slug,
)
from tests.fixtures import forked
from tests.fixtures.room import Room

SVG = '<svg xmlns="http://www.w3.org/2000/svg">\n<text>{}</text>\n<path d="M 0 0"/>\n</svg>\n'


def png(*red: int, size: int = 10) -> bytes:
    """A white image whose pixels at the numbers *red* are red."""
    image = Image.new("RGB", (size, size), "white")
    for number in red:
        image.putpixel((number % size, number // size), (255, 0, 0))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def make(room, version, files=None, *, keys=("1",), probes=None, name="01-a", **changes):
    """A recording with one block for each of *keys*, of which the last is as *changes* say."""
    staging = room.folder / "staging"
    staging.mkdir()
    for path, content in (files or {}).items():
        (staging / path).parent.mkdir(exist_ok=True)
        (staging / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    blocks = [Block(10 * n, key * 64, 1.0) for n, key in enumerate(keys, 1)]
    blocks[-1] = msgspec.structs.replace(
        blocks[-1],
        images=tuple(path for path in files or {} if path.startswith("images/")),
        data=tuple(path for path in files or {} if not path.startswith("images/")),
        **changes,
    )
    made = Recording(
        schema=SCHEMA,
        gallery="tutorials",
        name=name,
        title="A",
        key=recording.key_of(block.key for block in blocks),
        run=RunFacts("2026-01-02T03:04:05Z", 1.0),
        provenance=Provenance("NVIDIA H200", "gpu", "Linux", "3.12"),
        blocks=tuple(blocks),
        probes=probes or {},
        files={path: recording.digest(staging / path) for path in files or {}},
    )
    folder = room.folder / version / "nvidia-h200" / "tutorials" / name
    recording.save(made, staging, folder)
    return folder


def lines_of(room, old, new):
    """The differences of two recordings, each with its lines."""
    before, after = make(room, "old", **old), make(room, "new", **new)
    (pair,) = compare.compare(before, after).pairs
    return {difference.what: difference.lines for difference in pair.differences}


def test_printed_text_is_a_unified_difference_and_its_numbers_are_counted(room):
    found = lines_of(
        room,
        {"stdout": "rate 100\nsize 8\nlast 1\n"},
        {"stdout": "rate 150\nsize 8\nlast 1\n"},
    )
    assert found == {
        "block 1, line 10: stdout": [
            "1 of 3 numbers differ, the most 100 → 150 (× 1.5)",
            "@@ -1,3 +1,3 @@",
            "-rate 100",
            "+rate 150",
            " size 8",
            " last 1",
        ]
    }


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("stderr", "", "a warning\n"),
        ("exception", None, "ValueError: no\n"),
        ("value", None, Value("html", "<b>1</b>")),
    ],
)
def test_every_output_of_a_block_is_compared(room, field, old, new):
    found = lines_of(room, {field: old}, {field: new})
    assert list(found) == [f"block 1, line 10: {field}"]
    assert found[f"block 1, line 10: {field}"][-1].startswith("+")


def test_a_block_that_came_or_went_does_not_shift_the_others(room):
    found = lines_of(
        room,
        {"keys": "12", "stdout": "same\n"},
        {"keys": "132", "stdout": "same\n"},
    )
    assert found == {"code": ["+the block of line 20"]}


def test_a_table_is_compared_number_by_number(room):
    old, new = "a,b\n1,2\n3,4\n", "a,b\n1,2\n3,5\n"
    assert lines_of(room, {"files": {"t.csv": old}}, {"files": {"t.csv": new}}) == {
        "t.csv": ["1 of 4 values differ", " row 2 / b: 4 → 5 (× 1.25)"]
    }


def test_a_file_that_is_none_of_what_its_name_says_is_compared_all_the_same(room):
    files = {"t.csv": "\x00", "x.json": "{", "y.json.gz": b"\x1f\x8b\x08broken", "z.bin": b"\xff"}
    other = {
        "t.csv": "\x00\x00",
        "x.json": "[",
        "y.json.gz": b"\x1f\x8b\x08other",
        "z.bin": b"\xfe\xff",
    }
    found = lines_of(room, {"files": files}, {"files": other})
    assert set(found) == set(files)
    assert found["z.bin"] == ["1 → 2 bytes, no text"]


def test_a_file_that_only_one_of_them_has(room):
    assert lines_of(room, {"files": {"a.txt": "x"}}, {"files": {"b.txt": "x"}}) == {
        "a.txt": ["-the file"],
        "b.txt": ["+the file"],
    }


CLAIM = {"statement": "tiles beat rows", "value": 1.5, "held": True}


def test_claims_and_kernels_are_told_by_name(room):
    """Without knowing what they are: an entry of a list is called by its first text."""
    kernel = {"name": "row_kernel", "registers": 40}
    found = lines_of(
        room,
        {
            "files": {"claims.json": json.dumps([CLAIM])},
            "probes": {"site.xray": {"kernels": [kernel, kernel | {"registers": 99}]}},
        },
        {
            "files": {"claims.json": json.dumps([CLAIM | {"value": 0.9, "held": False}])},
            "probes": {
                "site.xray": {"kernels": [kernel | {"registers": 80}, kernel | {"registers": 99}]}
            },
        },
    )
    assert found == {
        "claims.json": [
            "2 of 3 values differ",
            " tiles beat rows / held: True → False",
            " tiles beat rows / value: 1.5 → 0.9 (× 0.6)",
        ],
        "site.xray": ["1 of 4 values differ", " kernels / row_kernel / registers: 40 → 80 (× 2)"],
    }


def test_listings_in_packed_json_are_compared_line_by_line(room):
    old, new = ({"k": {"ptx": f"mov\n{word}\nret"}} for word in ("ld", "cp"))
    found = lines_of(
        room,
        {"files": {"xray.json.gz": gzip.compress(json.dumps(old).encode())}},
        {"files": {"xray.json.gz": gzip.compress(json.dumps(new).encode())}},
    )
    assert found["xray.json.gz"][:2] == ["1 of 1 values differ", " k / ptx:"]
    assert {"-ld", "+cp"} <= set(found["xray.json.gz"])


def test_the_share_of_pixels_that_differ(room):
    found = lines_of(
        room, {"files": {"images/a.png": png(1)}}, {"files": {"images/a.png": png(1, 2, 3)}}
    )
    assert found == {"block 1, line 10: figure 1": ["2.00% of the pixels differ"]}


def test_figures_of_two_sizes(room):
    found = lines_of(
        room, {"files": {"images/a.png": png()}}, {"files": {"images/a.png": png(size=9)}}
    )
    assert found == {"block 1, line 10: figure 1": ["10×10 → 9×9 pixels"]}


def test_drawings_have_no_pixels_so_their_source_and_words_are_compared(room):
    found = lines_of(
        room,
        {"files": {"images/a.svg": SVG.format("4096")}},
        {"files": {"images/a.svg": SVG.format("8192")}},
    )
    assert found == {
        "block 1, line 10: figure 1": [
            "SVG: 25.0% of the lines of its source differ",
            "-4096",
            "+8192",
        ]
    }


def test_figures_stand_side_by_side_in_a_page_that_fetches_nothing(room):
    old = make(room, "old", {"images/a.png": png(1), "images/b.svg": SVG.format("a")})
    new = make(room, "new", {"images/a.png": png(2), "images/b.svg": SVG.format("b")})
    text = compare.compare(old, new).html()
    page = BeautifulSoup(text, "html.parser")
    assert [
        [f.img["src"].partition(";")[0] for f in grid("figure")] for grid in page(class_="figures")
    ] == [
        ["data:image/png", "data:image/png"],
        ["data:image/svg+xml", "data:image/svg+xml"],
    ]
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert not page("script")


EVIL = '</pre><script>alert(1)</script><img src=x onerror="alert(1)">\x1b[31m\u202e'


def test_a_stranger_s_recording_puts_nothing_into_the_page_or_onto_the_terminal(room):
    old = make(room, "old", {"a.json": "{}"}, stdout="fine\n")
    new = make(
        room,
        "new",
        {"a.json": json.dumps({EVIL: EVIL}), "images/<b>.svg": SVG.format("x")},
        probes={EVIL: {EVIL: EVIL}},
        stdout=EVIL,
        stderr=EVIL,
        exception=EVIL,
        value=Value("html", EVIL),
    )
    found = compare.compare(old, new)
    page = BeautifulSoup(found.html(), "html.parser")
    assert not page("script")
    assert all(set(image.attrs) == {"alt", "src"} for image in page("img"))
    assert all(image["src"].startswith("data:image/") for image in page("img"))
    assert not page("b")
    assert page.meta
    assert "\x1b" not in found.text()
    assert "\u202e" not in found.text()


def test_packed_json_that_grows_without_end_is_not_unpacked(room):
    bomb = gzip.compress(b"[" + b" " * 100_000_000)
    found = lines_of(
        room, {"files": {"x.json.gz": bomb}}, {"files": {"x.json.gz": gzip.compress(b"[1]")}}
    )
    assert found["x.json.gz"][0].endswith("bytes, no text")


def test_json_nested_as_deep_as_it_can_be(room):
    deep = "[" * 900 + "]" * 900
    found = lines_of(room, {"files": {"x.json": deep}}, {"files": {"x.json": "[1]"}})
    assert "x.json" in found


def test_a_new_device_is_compared_with_the_same_variant_of_another(room):
    for version, device, variant in (
        ("old", "NVIDIA H200", "triton-3.6.0"),
        ("old", "NVIDIA H200", "triton-3.9.0"),
        ("new", "NVIDIA A10", "triton-3.6.0"),
        ("new", "NVIDIA A10", "triton-3.10.0"),
    ):
        folder = make(room, f"{version}-made")
        made = recording.load(folder)
        made = msgspec.structs.replace(
            made,
            variant=variant,
            provenance=msgspec.structs.replace(made.provenance, device=device),
        )
        place = room.folder / version / slug(device) / variant / "tutorials" / "01-a"
        recording.save(made, folder, place)
    pairs = compare.compare(room.folder / "old", room.folder / "new").pairs
    assert {pair.new.variant: pair.old.variant for pair in pairs} == {
        "triton-3.6.0": "triton-3.6.0",
        "triton-3.10.0": "triton-3.9.0",
    }


def test_the_command_writes_a_page(room):
    old, new = make(room, "old", stdout="1\n"), make(room, "new", stdout="2\n")
    page = room.folder / "report.html"
    command = [*room.command("compare")[:4], str(old), str(new), "--html", str(page)]
    done = forked.run(command)
    assert done.returncode == 0, done.stderr
    assert "tutorials/01-a" in page.read_text()
    assert "1 of 1 numbers differ, the most 1 → 2 (× 2)" in done.stdout
    refused = forked.run([*command[:-1], str(room.folder)])
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
