"""A CSV file as a benchmark."""

import pytest

from triton_site.numbers import benchmarks
from triton_site.numbers.benchmarks import BenchmarkError

HEAD = b"M,N,provider,unit,median,p20,p80\n"
ROW = b"4096,1,triton,GB/s,1,1,1\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEAD + b"4096,1,triton,GB/s,nan,1,1\n", "Expected `float` > "),
        (HEAD + b"4096,1,triton,GB/s,1e999,1,1\n", "out of range"),
        (HEAD + b"4096,1,triton\n", "line 2 .*got `null`"),
        (b"M,provider,unit,median,p20\n4096,triton,GB/s,1,1\n", "all columns of .* but p80"),
        (HEAD + ROW + ROW, "line 3 .*measured twice"),
        (HEAD + b"4096,1,,GB/s,1,1,1\n", " at .*provider"),
        (HEAD + b"4096,1,triton,parsecs,1,1,1\n", "Invalid enum value 'parsecs'"),
        (HEAD + b"4096,1,triton\xff,GB/s,1,1,1\n", "utf-8"),
        (b"provider,unit,median,p20,p80\na,GB/s,1,1,1\n", "length >= 1 - at .*sizes"),
        (HEAD + b'4096,1,"' + b"x" * 200_000 + b'",GB/s,1,1,1\n', "field larger"),
    ],
)
def test_a_damaged_benchmark_is_one_error_with_file_and_line(tmp_path, content, words):
    path = tmp_path / "speed.csv"
    path.write_bytes(content)
    with pytest.raises(BenchmarkError, match=words) as error:
        benchmarks.read(path)
    assert str(error.value).startswith(f"{path}: line ")


def test_a_benchmark_is_read_and_any_other_table_has_no_measurements(tmp_path):
    path = tmp_path / "speed.csv"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD + ROW)  # with a byte order mark
    measured = benchmarks.Measurement("GB/s", 1, 1, 1)
    assert benchmarks.read(path) == {"triton": {"M=4096, N=1": measured}}
    path.write_bytes(b"function,provider,unit,median,p20,p80\nadd backward,triton,GB/s,1,1,1\n")
    assert benchmarks.read(path) == {"triton": {"function=add backward": measured}}
    for content in (b"", b"a,b\n1,\xff\n", b"provider,unit\nx,y\n", b"\x00" * 99):
        path.write_bytes(content)
        assert benchmarks.read(path) == {}
