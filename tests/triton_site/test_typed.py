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
        ("It reaches :measured:`rate` GB/s and ``5 ms`` of :math:`3 ms`.", []),
        ("Tiles of 64 × 64, 12 bytes, 128 threads, 8 times.", []),
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
        ("131,072 and 0000110000 and 0.123456 and x10000 and #12345 and 1e10000", []),
    ],
)
def test_a_printed_count_without_separators_is_found(text, found):
    assert list(typed.in_output(text)) == found
