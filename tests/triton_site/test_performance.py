"""The performance page: its numbers come from the CSV files, and recordings are no markup."""

from __future__ import annotations

import json

from tests.fixtures import fixture_gallery
from triton_site.numbers.performance import compare_providers

HEAD = "M,N,provider,unit,median,p20,p80\n"


def compared(tmp_path, *rows):
    path = tmp_path / "b.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return compare_providers(path)


def test_each_kernel_is_compared_with_the_others_of_its_suffix(tmp_path):
    size, found = compared(
        tmp_path,
        "7,256,triton,TFLOPS,4,4,4",
        "7,256,cublas,TFLOPS,2,2,2",
        "7,256,triton + relu,TFLOPS,3,3,3",
        "7,256,cublas + relu,TFLOPS,1,1,1",
        '7,256,"triton, one step",TFLOPS,1,1,1',
        "7,256,1 a first step,TFLOPS,1,1,1",
        "7,512,triton,TFLOPS,1,1,1",
        "7,512,cublas,TFLOPS,2,2,2",
    )
    assert size == "N"
    plain, relu = found
    assert (plain.provider, plain.against, plain.role) == ("triton", "cublas", "ceiling")
    assert (relu.provider, relu.against) == ("triton + relu", "cublas + relu")
    assert (plain.sizes, plain.ratios) == ([{"N": 256}, {"N": 512}], [2.0, 0.5])
    assert (plain.min, plain.min_at, plain.max, plain.max_at) == (0.5, "N = 512", 2.0, "N = 256")
    assert plain.geometric_mean == 1.0


def test_less_time_is_faster_and_columns_that_are_always_equal_are_one(tmp_path):
    rows = [
        f"{n},{n},{who},ms,{t},{t},{t}" for n in (4, 8) for who, t in (("triton", 2), ("torch", 6))
    ]
    size, (found,) = compared(tmp_path, *rows)
    assert (size, found.sizes) == ("M = N", [{"M = N": 4}, {"M = N": 8}])
    assert (found.ratios, found.role) == ([3.0, 3.0], "alternative")


def test_the_page_and_its_data_show_recordings_of_gpus_as_text(tmp_path):
    evil = '`a <javascript:alert(1)>`__ |x| **b** <script>alert("c")</script> :raw-html:`d`'
    root = fixture_gallery.make_gallery(tmp_path / "gallery")
    (root / "docs" / "index.rst").write_text(
        fixture_gallery.INDEX + "\n.. gallery-headlines::\n\n.. gallery-performance::\n"
    )
    quoted = evil.replace('"', '""')
    speed = "size,provider,unit,median,p20,p80\n" + "".join(
        f"{size},{provider},GB/s,{rate},1,3\n"
        for size in (4, 8)
        for provider, rate in (("triton", 3), ("torch", 2), (f'"{quoted}"', 1))
    )
    fixture_gallery.make_recording(root, "02-second", "interpreter")
    folder = fixture_gallery.make_recording(root, "01-first", speed=speed)
    fixture_gallery.change(folder, title=f"Title {evil}")
    fixture_gallery.render(root)
    page = (root / "build" / "html" / "index.html").read_text()
    assert "<script>alert" not in page
    assert "javascript:alert" not in page.replace("&lt;javascript:alert", "")
    assert "alert(&quot;c&quot;)" in page
    assert "<strong>1.50</strong>" in page
    assert page.count('class="gallery-chart"') == 1
    (benchmark,) = json.loads((root / "build/html/_static/performance.json").read_text())[
        "benchmarks"
    ]
    assert benchmark["device"] == "NVIDIA H200"
    assert [c["geometric_mean"] for c in benchmark["comparisons"]] == [1.5, 3.0]
