"""The performance page: its numbers come from the CSV files, and nothing on it looks empty."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from tests.fixtures import fixture_gallery
from triton_site.numbers import charts, performance

HEAD = "M,N,provider,unit,median,p20,p80\n"


def write(path: Path, *rows: str) -> Path:
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


def test_each_kernel_is_compared_with_the_others_of_its_suffix(tmp_path):
    path = write(
        tmp_path / "b.csv",
        "7,256,triton,TFLOPS,4,4,4",
        "7,256,cublas,TFLOPS,2,2,2",
        "7,256,triton + relu,TFLOPS,3,3,3",
        "7,256,cublas + relu,TFLOPS,1,1,1",
        '7,256,"triton, one step",TFLOPS,1,1,1',
        "7,256,1 a first step,TFLOPS,1,1,1",
        "7,512,triton,TFLOPS,1,1,1",
        "7,512,cublas,TFLOPS,2,2,2",
    )
    size, found = performance.compare_providers(path)
    assert size == "N"
    assert [(c.provider, c.against, c.role) for c in found] == [
        ("triton", "cublas", "ceiling"),
        ("triton + relu", "cublas + relu", "ceiling"),
    ]
    plain = found[0]
    assert (plain.sizes, plain.ratios) == ([{"N": 256}, {"N": 512}], [2.0, 0.5])
    assert (plain.min, plain.min_at, plain.max, plain.max_at) == (0.5, "N = 512", 2.0, "N = 256")
    assert plain.geometric_mean == 1.0


def test_sizes_that_are_always_equal_are_one(tmp_path):
    path = write(tmp_path / "b.csv", "4,4,triton,ms,2,2,2", "4,4,torch,ms,6,6,6")
    with open(path, "a") as file:
        file.write("8,8,triton,ms,2,2,2\n8,8,torch,ms,6,6,6\n")
    size, (found,) = performance.compare_providers(path)
    assert (size, found.sizes) == ("M = N", [{"M = N": 4}, {"M = N": 8}])


def test_two_sizes_that_vary_are_told_apart(tmp_path):
    rows = [
        f"{m},{n},{provider},GB/s,{rate},1,9"
        for m in (64, 128)
        for n in (1, 2, 4)
        for provider, rate in (("triton", m * n), ("torch", 64))
    ]
    size, (found,) = performance.compare_providers(write(tmp_path / "b.csv", *rows))
    assert size == "M, N"
    assert len(found.ratios) == 6
    assert (found.min_at, found.max_at) == ("M = 64, N = 1", "M = 128, N = 4")
    assert found.ratios == [1.0, 2.0, 4.0, 2.0, 4.0, 8.0]


def test_less_time_is_faster(tmp_path):
    path = write(tmp_path / "b.csv", "7,1,triton,ms,2,2,2", "7,1,torch,ms,6,6,6")
    _, (found,) = performance.compare_providers(path)
    assert found.ratios == [3.0]
    assert found.role == "alternative"


def test_a_table_of_something_else_is_no_benchmark(tmp_path):
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    assert performance.compare_providers(tmp_path / "b.csv") == ("", [])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A site with a performance page, of a gallery with a recording of one tutorial."""
    root = fixture_gallery.make_gallery(tmp_path_factory.mktemp("performance") / "g")
    (root / "docs" / "performance.rst").write_text(
        "Performance\n===========\n\n.. gallery-headlines::\n\n.. gallery-performance::\n"
    )
    index = root / "docs" / "index.rst"
    index.write_text(index.read_text() + "   performance\n")
    fixture_gallery.make_recording(root, "02-second", "interpreter")
    fixture_gallery.make_recording(
        root,
        "01-first",
        speed="size,provider,unit,median,p20,p80\n4,triton,GB/s,3,1,9\n4,torch,GB/s,2,1,9\n",
    )
    fixture_gallery.render(root)
    return root / "build" / "html"


def test_page_shows_ratios_and_chart(site):
    html = (site / "performance.html").read_text()
    assert "<strong>1.50</strong>" in html
    assert "NVIDIA H200" in html
    assert html.count('class="gallery-chart"') == 1
    assert 'href="tutorials/01-first.html"' in html


def test_the_interpreter_is_no_benchmark(site):
    assert "the interpreter" not in (site / "performance.html").read_text()


def test_data_follows_its_schema(site):
    data = json.loads((site / "_static" / "performance.json").read_text())
    schema = json.loads((site / "_static" / "performance.schema.json").read_text())
    jsonschema.validate(data, schema)
    (benchmark,) = data["benchmarks"]
    assert benchmark["device"] == "NVIDIA H200"
    assert [c["geometric_mean"] for c in benchmark["comparisons"]] == [1.5]


@pytest.mark.parametrize(
    "sizes",
    [(5,), (256, 384), tuple(2**i for i in range(12, 28)), tuple(128 * i for i in range(2, 100))],
)
def test_charts_are_whole_within_their_frame(sizes):
    line = charts.Line("a <b> & c", sizes, [0.5 + i / len(sizes) for i in range(len(sizes))])
    html = charts.line_chart([line, line], "Title & more", "size")
    figure = ElementTree.fromstring(html)
    for polyline in figure.iter("polyline"):
        for point in polyline.get("points").split():
            x, y = map(float, point.split(","))
            assert 46 <= x <= 644
            assert 12 <= y <= 228
    assert "\n" not in html


def test_a_line_that_differs_little_has_an_axis_that_shows_it():
    sizes = range(256, 1280, 128)
    wide, narrow = (charts.Line(n, sizes, [1.0, *[y] * 7]) for n, y in (("a", 5.0), ("b", 1.04)))
    figure = ElementTree.fromstring(charts.line_chart([wide, narrow], "t", "N"))
    for polyline in figure.iter("polyline"):
        places = [float(point.split(",")[1]) for point in polyline.get("points").split()]
        assert max(places) - min(places) > 100
    labels = {text.text for text in figure.iter("text")}
    assert {"4", "1.02"} <= labels
    alike = charts.line_chart([wide, wide], "t", "N")
    assert alike.count("chart-even") == 1


def test_a_sparkline_says_its_values():
    line = charts.Line("a", [256, 384, 512], [1.5, 0.75, 1.25])
    spark = ElementTree.fromstring(charts.sparkline(line, 1, "N"))
    assert [text.text for text in spark.iter("text")] == ["0.75", "1.50"]
    assert spark.get("aria-label") == "1.50 at N = 256; 0.75 at N = 384; 1.25 at N = 512"


def test_a_size_of_zero_has_a_chart():
    chart = charts.line_chart([charts.Line("a", [0, 1, 2, 99], [1.0, 1.0, 1.0, 2.0])], "t", "x")
    ElementTree.fromstring(chart)


def test_markup_in_a_table_or_a_title_is_text(tmp_path):
    """What a recording says is shown, and is no reStructuredText and no HTML of the page."""
    evil = '`a <javascript:alert(1)>`__ |x| **b** <script>alert("c")</script> :raw-html:`d`'
    root = fixture_gallery.make_gallery(tmp_path / "gallery", names=("01-first",))
    (root / "docs" / "index.rst").write_text(
        fixture_gallery.INDEX + "\n.. gallery-headlines::\n\n.. gallery-performance::\n"
    )
    quoted = evil.replace('"', '""')
    speed = "size,provider,unit,median,p20,p80\n" + "".join(
        f"{size},{provider},GB/s,2,1,3\n"
        for size in (4, 8)
        for provider in ("triton", f'"triton + {quoted}"', f'"torch + {quoted}"', f'"{quoted}"')
    )
    folder = fixture_gallery.make_recording(root, "01-first", speed=speed)
    fixture_gallery.change(folder, title=f"Title {evil}")
    fixture_gallery.render(root)
    page = (root / "build" / "html" / "index.html").read_text()
    assert "<script>alert" not in page
    assert "javascript:alert" not in page.replace("&lt;javascript:alert", "")
    assert "alert(&quot;c&quot;)" in page
