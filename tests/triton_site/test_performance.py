"""The performance page: its numbers come from the CSV files, and recordings are no markup."""

import pytest

from tests.fixtures import site_gallery
from triton_site.numbers.performance import (
    Comparison,
    above_ceilings,
    compare_providers,
    sizes_in_words,
)

HEAD = "M,N,provider,unit,median,p20,p80\n"


def compared(tmp_path, *rows):
    path = tmp_path / "b.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return compare_providers(path)


def test_each_kernel_is_compared_with_the_others_of_its_suffix_on_the_gpu(tmp_path):
    plain, relu = compared(
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
    n = "N\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
    assert plain == Comparison("triton", "cublas", {f"{n}256": 2.0, f"{n}512": 0.5})
    assert (plain.mean, plain.least, plain.largest) == (1.0, (0.5, f"{n}512"), (2.0, f"{n}256"))
    assert (relu.provider, relu.against) == ("triton + relu", "cublas + relu")


def test_a_step_is_no_rival_and_the_last_one_is_the_kernel(tmp_path):
    steps = ["256,256,2 b,GB/s,2,2,2", "256,256,10 c,GB/s,4,4,4", "256,256,torch,GB/s,1,1,1"]
    (found,) = compared(tmp_path, *steps)
    assert (found.provider, found.against, found.least[0]) == ("10 c", "torch", 4.0)
    (found,) = compared(tmp_path, *steps, "256,256,triton,GB/s,8,8,8")
    assert (found.provider, found.against, found.least[0]) == ("triton", "torch", 8.0)


def test_a_variant_after_a_comma_has_a_rival_of_the_same_variant(tmp_path):
    rows = [
        f'{n},256,"{who}, blocks of 128",GB/s,{n},1,1'
        for n in (4, 8)
        for who in ("triton", "cublas")
    ]
    (found,) = compared(tmp_path, *rows, "4,256,cublas,GB/s,1,1,1", "8,256,cublas,GB/s,1,1,1")
    assert (found.against, found.rival, found.variant) == (
        "cublas, blocks of 128",
        "cuBLAS",
        ", blocks of 128",
    )


def test_less_time_is_faster(tmp_path):
    rows = [
        f"{n},{n},{who},ms,{t},{t},{t}" for n in (4, 8) for who, t in (("triton", 2), ("torch", 6))
    ]
    (found,) = compared(tmp_path, *rows)
    assert list(found.ratios.values()) == pytest.approx([3.0, 3.0])


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (["size=4", "size=65536"], ["4 elements", "2¹⁶ elements"]),
        (["M=4,N=4,K=4", "M=8,N=8,K=8"], ["M = N = K = 4", "M = N = K = 8"]),
        (["B=7,N=4,causal=0", "B=7,N=4,causal=1"], ["not causal", "causal"]),
        (["N=4"], ["N = 4"]),
        (["format=e5m2", "format=int8"], ["format = e5m2", "format = int8"]),
    ],
)
def test_sizes_are_words_and_powers(sizes, words):
    found = sizes_in_words([size.replace(",", ", ") for size in sizes]).values()
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in found] == words


def test_the_page_shows_recordings_of_gpus_as_text(tmp_path):
    evil = '`a <javascript:alert(1)>`__ |x| **b** <script>alert("c")</script> :raw-html:`d`'
    root = site_gallery.make_gallery(tmp_path / "gallery")
    (root / "docs" / "index.rst").write_text(site_gallery.INDEX + "\n.. gallery-performance::\n")
    quoted = evil.replace('"', '""')
    speed = "size,provider,unit,median,p20,p80\n" + "".join(
        f"{size},{provider},GB/s,{rate},1,3\n"
        for size in (4, 8)
        for provider, rate in (
            *(("triton", 3), ("torch", 2), (f'"{quoted}"', 1)),
            *(("copy", 2.9), ("read", 1)),  # what is exceeded by far is no limit
        )
    )
    site_gallery.make_recording(root, "02-second", "interpreter")
    folder = site_gallery.make_recording(root, "01-first", speed=speed)
    site_gallery.change(folder, title=f"Title {evil}")
    site_gallery.render(root)
    page = (root / "build" / "html" / "index.html").read_text()
    assert "<script>alert" not in page
    assert "javascript:alert" not in page.replace("&lt;javascript:alert", "")
    assert "&lt;script&gt;alert(" in page
    assert "<strong>1.50</strong>" in page
    assert "<strong>3.00</strong>" in page
    assert "Of 2 comparisons: 2 faster, 0 even, 0 slower." in page
    assert "a copy of the same bytes" in page
    assert "one read of the same bytes" not in page


def test_a_kernel_faster_than_the_limit_of_the_hardware_is_told(tmp_path):
    path = tmp_path / "b.csv"
    rows = ["7,256,triton,GB/s,106,1,1", "7,256,copy,GB/s,100,1,1", "7,256,torch,GB/s,10,1,1"]
    path.write_text(HEAD + "\n".join(rows) + "\n")
    assert list(above_ceilings(path)) == [
        "b.csv: triton reaches 1.06 of copy at N\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}256"
    ]
    path.write_text(path.read_text().replace("106", "104"))
    assert not list(above_ceilings(path))


def test_a_copy_that_is_slow_itself_limits_nothing(tmp_path):
    path = tmp_path / "b.csv"
    rows = ["7,256,triton,GB/s,300,1,1", "7,256,copy,GB/s,100,1,1"]
    rows += ["7,8192,triton,GB/s,900,1,1", "7,8192,copy,GB/s,1000,1,1"]
    path.write_text(HEAD + "\n".join(rows) + "\n")
    assert not list(above_ceilings(path))
    path.write_text(path.read_text().replace(",900,", ",1100,"))
    assert len(list(above_ceilings(path))) == 1


def test_a_limit_that_lacks_a_size_limits_the_others(tmp_path):
    path = tmp_path / "b.csv"
    rows = ["7,256,triton,GB/s,106,1,1", "7,256,copy,GB/s,100,1,1", "7,8192,triton,GB/s,900,1,1"]
    path.write_text(HEAD + "\n".join(rows) + "\n")
    assert len(list(above_ceilings(path))) == 1
    assert not compare_providers(path)  # a page compares at all sizes
