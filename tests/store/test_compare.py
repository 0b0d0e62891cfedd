"""Two recordings' benchmarks: which way is better, and what counts as lost."""

from __future__ import annotations

import msgspec
import pytest

from gallery_recorder.store import benchmarks, compare, recording
from gallery_recorder.store.format import slug
from tests.fixtures import forked
from tests.fixtures.room import Room

HEAD = "M,N,provider,unit,median,p20,p80\n"


def rows(provider, values, unit="GB/s", spread=0.01):
    """Lines of a benchmark file: a median a size, and its spread to both sides."""
    return "".join(
        f"4096,{128 * n},{provider},{unit},{v},{v * (1 - spread)},{v * (1 + spread)}\n"
        for n, v in enumerate(values, 1)
    )


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def put(room, name, text, device="NVIDIA H200", version="a"):
    """A recording of *name* with the benchmark *text*; return its folder."""
    folder = room.put_recording(name)
    made = recording.load(folder)
    (folder / "data.csv").write_text(text)
    made = msgspec.structs.replace(
        made,
        files={"data.csv": recording.digest(folder / "data.csv")},
        variant="triton-3.6.0",
        provenance=msgspec.structs.replace(made.provenance, device=device, kind="gpu"),
    )
    target = room.folder / version / slug(device) / "triton-3.6.0" / "tutorials" / name
    recording.save(made, folder, target)
    return target


def compared(room, old, new):
    before = put(room, "01-a", HEAD + old, version="a")
    after = put(room, "01-a", HEAD + new, version="b")
    return compare.compare(before, after)


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        (rows("triton", [100, 200]), rows("triton", [100, 200]), False),
        (rows("triton", [100, 200]), rows("triton", [150, 300]), False),
        (rows("triton", [100, 200]), rows("triton", [80, 160]), True),
        # 6 % slower, but the spreads of 1 % make it 4 % at the least
        (rows("triton", [100, 200]), rows("triton", [94, 188]), False),
        (rows("triton", [100, 200]), rows("triton", [92, 184]), True),
        # noisy: 20 % slower within a spread of 15 % to both sides
        (rows("triton", [100], spread=0.15), rows("triton", [80], spread=0.15), False),
        # one size of many lost a little more: the mean decides
        (rows("triton", [100] * 9), rows("triton", [100] * 8 + [80]), False),
        (rows("triton", [100] * 2), rows("triton", [100, 80]), True),
        # a time is better when it is less
        (rows("triton", [1.0], "ms"), rows("triton", [1.2], "ms"), True),
        (rows("triton", [1.2], "ms"), rows("triton", [1.0], "ms"), False),
        # another provider lost
        (
            rows("triton", [100]) + rows("torch", [90]),
            rows("triton", [100]) + rows("torch", [70]),
            True,
        ),
        # sizes and providers that only one of them has are left out
        (rows("triton", [100]), rows("triton", [100, 1]) + rows("new", [1]), False),
    ],
)
def test_what_is_lost(room, old, new, lost):
    found = compared(room, old, new)
    assert found.lost == lost
    assert ("LOST" in found.text()) == lost


def test_the_table(room):
    found = compared(room, rows("triton", [100, 200]), rows("triton", [90, 220]))
    assert found.text().splitlines() == [
        "Ratios say how many times as fast the new recording is; above 1 is better.",
        "",
        "tutorials/01-a: NVIDIA H200, triton-3.6.0, 2026-01-02 "
        "→ NVIDIA H200, triton-3.6.0, 2026-01-02",
        "  data  triton   0.995 over 2 sizes, worst 0.900 (M=4096, N=128)",
        "  data.csv",
        "    2 of 2 values differ",
        "     triton, M=4096, N=128, GB/s: 100 → 90 (× 0.9)",
        "     triton, M=4096, N=256, GB/s: 200 → 220 (× 1.1)",
    ]


def test_folders_are_matched_by_device_and_tutorial(room):
    for device in ("NVIDIA H200", "NVIDIA A100"):
        for name, value in (("01-a", 100), ("02-b", 50)):
            put(room, name, HEAD + rows("triton", [value]), device, "old")
            put(room, name, HEAD + rows("triton", [2 * value]), device, "new")
    put(room, "03-new", HEAD + rows("triton", [1]), version="new")
    found = compare.compare(room.folder / "old", room.folder / "new")
    assert not found.lost
    assert found.text().count("2.000 over 1 sizes") == 4
    assert found.text().endswith("In one of the two only: tutorials/03-new.")


def test_another_gpu_is_compared_but_nothing_is_lost(room):
    put(room, "01-a", HEAD + rows("triton", [100]), "NVIDIA H200", "old")
    put(room, "01-a", HEAD + rows("triton", [40]), "NVIDIA A100", "new")
    found = compare.compare(room.folder / "old", room.folder / "new")
    text = found.text()
    assert not found.lost
    assert "The GPUs differ" in text
    assert "0.400 over 1 sizes" in text
    assert "LOST" not in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "1,2,triton,GB/s,fast,1,1\n", r"data\.csv:2: cannot be read .*could not convert"),
        (HEAD + "1,2,triton,GB/s,0,0,0\n", r"that is more than 0"),
        (HEAD + "1,2,triton,GB/s,nan,1,1\n", r"that is more than 0"),
        (HEAD + "1,2,triton\n", r"data\.csv:2: cannot be read"),
        (HEAD + rows("triton", [1], "parsecs"), r"the unit 'parsecs' is not known"),
    ],
)
def test_a_benchmark_that_cannot_be_read(room, text, message):
    before = put(room, "01-a", text, version="a")
    after = put(room, "01-a", text, version="b")
    with pytest.raises(benchmarks.BenchmarkError, match=message):
        compare.compare(before, after)


def test_nothing_to_compare(room):
    put(room, "03-c", "a,b\n1,2\n", version="other")  # a file, but no benchmark
    text = compare.compare(*[room.folder / "other"] * 2).text()
    assert text.endswith("in common: tutorials/03-c.\n\nUnchanged: tutorials/03-c.")
    put(room, "01-a", HEAD, version="old")
    put(room, "02-b", HEAD, version="new")
    with pytest.raises(benchmarks.BenchmarkError, match="no recording of the same script"):
        compare.compare(room.folder / "old", room.folder / "new")
    with pytest.raises(benchmarks.BenchmarkError, match="there is no such"):
        compare.compare(room.folder / "none", room.folder / "new")
    found = compare.compare(room.folder / "old", room.folder / "old")
    assert "\n\nWithout a benchmark in common: tutorials/01-a.\n\n" in found.text()
    assert not found.lost


@pytest.mark.parametrize(("value", "returned"), [(100, 0), (50, 1)])
def test_the_command(room, value, returned):
    before = put(room, "01-a", HEAD + rows("triton", [100]), version="old")
    after = put(room, "01-a", HEAD + rows("triton", [value]), version="new")
    command = [*room.command("compare")[:4], str(before), str(after)]
    assert forked.run(command).returncode == returned


#: Tables that look like a benchmark and cannot be read as one, and what is said of them.
NO_BENCHMARKS = {
    "size-with-a-unit": (HEAD + "4096,4k,triton,GB/s,1,1,1\n", r":2: .*invalid literal.*'4k'"),
    "no-size": (HEAD + "4096,none,triton,GB/s,1,1,1\n", r":2: .*'none'"),
    "no-column-of-a-size": ("provider,unit,median,p20,p80\na,GB/s,1,1,1\n", "no column of a size"),
    "a-text-for-a-number": (HEAD + "4096,1,triton,GB/s,fast,1,1\n", r":2: .*'fast'"),
    "not-a-number": (HEAD + "4096,1,triton,GB/s,nan,1,1\n", "more than 0"),
    "endless": (HEAD + "4096,1,triton,GB/s,1e999,1,1\n", "more than 0"),
    "huge": (HEAD + f"4096,{'9' * 400},triton,GB/s,1,1,1\n", "too large"),
    "very-huge": (HEAD + f"4096,{'9' * 9000},triton,GB/s,1,1,1\n", "digits|too large"),
    "other-digits": (HEAD + "4096,٣,triton,GB/s,1,1,1\n", ":2: .*other digits"),
    "other-digits-measured": (HEAD + "4096,1,triton,GB/s,१.५,1,1\n", ":2: .*other digits"),
    "twice": (HEAD + "1,1,t,GB/s,1,1,1\n2,1,t,GB/s,1,1,1\n1,1,t,GB/s,2,2,2\n", ":4: .*twice at"),
    "short-row": (HEAD + "4096,1,triton\n", "fewer values than columns"),
    "long-row": (HEAD + "4096,1,triton,GB/s,1,1,1,1\n", "more or fewer values"),
    "nobody": (HEAD + "4096,1,,GB/s,1,1,1\n", "names no provider"),
    "unit": (HEAD + "4096,1,triton,parsecs,1,1,1\n", "unit 'parsecs' is not known"),
    "not-utf-8": (HEAD.encode() + b"4096,1,triton\xff,GB/s,1,1,1\n", "utf-8"),
    "nul": (HEAD.encode() + b"4096,1,tri\x00ton,GB/s,1,1,1\n", "NUL|provider"),
    "odd-column": ("M=N," + HEAD[2:] + "1,1,triton,GB/s,1,1,1\n", "its name is odd"),
    "long-field": (HEAD + f'4096,1,"{"x" * 200_000}",GB/s,1,1,1\n', "field larger"),
}


@pytest.mark.parametrize("kind", NO_BENCHMARKS)
def test_a_table_that_is_no_benchmark_is_told_with_its_file_and_line(tmp_path, kind):
    text, words = NO_BENCHMARKS[kind]
    path = tmp_path / "speed.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(benchmarks.BenchmarkError, match=words) as error:
        compare.read(path)
    assert str(error.value).startswith(f"{path}:")


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b"a,b\n1,\xff\n", b"provider,unit\nx,y\n", b"\x00" * 99, b"a\x00,b"],
)
def test_any_other_table_holds_no_benchmark(tmp_path, content):
    (tmp_path / "data.csv").write_bytes(content)
    assert compare.read(tmp_path / "data.csv") == {}


def test_a_benchmark_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "speed.csv").write_text("\ufeff" + HEAD + rows("triton", [1]))
    assert list(compare.read(tmp_path / "speed.csv")["triton"]) == ["M=4096, N=128"]
