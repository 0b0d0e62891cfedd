"""Numbers that somebody typed are found before a reader finds them wrong."""

import pytest

from gallery_recorder.project.script import load_script
from triton_site.numbers import typed


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("It reaches 3070 GB/s here.", ["3070 GB/s"]),
        ("It takes 3.5 µs, and is 2.5 times as fast.", ["3.5 µs", "2.5 times as"]),
        ("It reaches 98\n% of it, 94 percent.", ["98 %", "94 percent"]),
        ("At 1980 MHz and 400 W, 1.4× faster.", ["1980 MHz", "400 W", "1.4× faster"]),
        ("990 TFLOP/s in 3 us, 40 microseconds.", ["990 TFLOP/s", "3 us", "40 microseconds"]),
        (
            "**3070** GB/s, 31 GiB/s, 3 GB per second, 98 per cent.",
            ["3070** GB/s", "31 GiB/s", "3 GB per second", "98 per cent"],
        ),
        ("1.4x, 60 °C, 12 usec.", ["1.4x", "60 °C", "12 usec"]),
        ("It reaches :measured:`rate` GB/s and ``5 ms`` of :math:`3 ms`.", []),
        ("Tiles of 64 × 64, 12 bytes, 128 threads, 8 times, 4x unrolled, 0x1f.", []),
    ],
)
def test_a_measured_number_that_is_typed_into_prose_is_found(tmp_path, words, found):
    path = tmp_path / "one.py"
    path.write_text(f'"""\nOne\n===\n\n{words}\n"""\nrate = "5 GB/s"\n')
    said = list(typed.in_prose(load_script(path)))
    assert [one.split("'")[1] for one in said] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("size 131072, n=65536, 4096", ["131072", "65536"]),
        ("Of 131072. -65536, [-32768]", ["131072", "-65536", "-32768"]),
        ("20-12345 and 12345.txt and a-12345", []),
        ("131,072 and 0000110000 and 0.123456 and x10000 and #12345 and 1e10000", []),
    ],
)
def test_a_printed_count_without_separators_is_found(text, found):
    assert list(typed.in_output(text)) == found


def test_pages_written_by_hand_state_no_number_either(tmp_path):
    page = tmp_path / "docs/index.rst"
    page.parent.mkdir()
    code = ".. code-block:: python\n\n   a = 3 % 2\n\n>>> 7 % 2\n"
    page.write_text(f"Home\n====\n\nIt differs by 2 %.\n\n{code}\nIt reaches 3070 GB/s.\n")
    (tmp_path / "docs/getting-started/tutorials").mkdir(parents=True)
    (tmp_path / "docs/getting-started/tutorials/made.rst").write_text("5 GB/s")
    found = [*typed.in_pages(tmp_path)]
    assert found == ["docs/index.rst: '3070 GB/s' is typed; make it a :measured: number"]
