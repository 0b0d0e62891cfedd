"""What readers search for leads them to the place, among the first three."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import reader

T = "getting-started/tutorials/"
A = "python-api/triton"
G = "programming-guide/chapter-"

#: Words, and where one of the first three results has to lead. Beginnings of addresses, so that a
#: page may move a section.
SEARCHES = {
    "tl.load": f"{A}.language/memory.html#triton.language.load",
    "tl.dot": f"{A}.language/linear-algebra.html#triton.language.dot",
    "do_bench": f"{A}.testing.html#triton.testing.do_bench",
    "TMA": f"{T}0",
    "past the end": f"{T}01-vector-add.html#checking-it",
    "slow on small tensors": f"{G}6/calls.html",
    "print inside kernel": f"{G}7/questions.html",
    "row stride": f"{T}02-fused-softmax.html",
    "online softmax": (
        f"{T}06-fused-attention.html#the-online-softmax",
        "glossary.html#term-online-softmax",
    ),
    "tensor descriptor": "glossary.html#term-tensor-descriptor",
    "mixture of experts": f"{T}08-grouped-gemm.html",
    "illegal memory access": f"{G}",
    "register spill": (
        f"{G}3/slow.html#registers-and-spills",
        "glossary.html#term-register-spilling",
    ),
    "compute-sanitizer": f"{G}3/",
    "nsight compute": f"{G}5/profiling.html",
    "why is my kernel slow": (f"{G}5/profiling.html", f"{G}3/slow.html"),
    "type promotion": "python-api/semantics.html#type-promotion",
    # As strangers type them.
    "out of shared memory": "glossary.html#term-shared-memory",
    "triton on amd": "getting-started/installation.html#amd-gpu",
    "race condition": (f"{G}3/wrong.html#races", f"{G}3/wrong.html#"),
    "TRITON_INTERPRET": f"{G}3/wrong.html#the-interpreter",
    "rms norm": f"{T}05-layer-norm.html",
    "flash attention": f"{T}06-fused-attention.html",
    "kv cache decode": f"{T}solutions/06-decode.html",
    "inline assembly": (
        f"{A}.language/inline-assembly.html#triton.language.inline_asm_elementwise",
        f"{A}.language/inline-assembly.html",
    ),
    "libdevice": "glossary.html#term-libdevice",
    "num_stages": f"{A}.html#triton.Config",
    "label smoothing": f"{T}solutions/10-label-smoothing.html",
    "warmup": "glossary.html#term-warm-up",
    "gluon": "glossary.html#term-Gluon",
    "my own gallery sphinx": "your-gallery.html",
    "layernorm weight gradient": f"{T}05-layer-norm.html",
    # Slips, and words written together.
    "sofmax": f"{T}02-fused-softmax.html",
    "memmory coalescing": f"{G}1/introduction.html#coalescing",  # codespell:ignore memmory
    "layernorm": f"{T}05-layer-norm.html",
    # Messages, variables, and what has no page of its own.
    "should have M >= 1, N >= 1 and K >= 16": f"{T}03-matrix-multiplication.html#how-it-works",
    "libcuda.so cannot found": (
        "getting-started/installation.html#assertionerror-libcuda",
        "getting-started/installation.html#if-something-goes-wrong",
    ),
    "MLIR_ENABLE_DUMP": f"{G}3/slow.html#compiled-again-and-again",
    "autotune in place wrong result": f"{T}03-matrix-multiplication.html#choosing-the-tile",
    "T4": "getting-started/installation.html#nvidia-gpu",
    "determinism": "glossary.html#term-deterministic",
    "software pipelining": "glossary.html#term-pipelining",
    "bibtex": "index.html#how-to-cite",
    # What has another name, is written apart, or is said in two letters less.
    "prefix sum": f"{A}.language/scan-and-sort.html#triton.language.cumsum",
    "download all": "getting-started/installation.html#check-that-it-works",
    "what's new": "index.html#what-is-new",
    "mxfp8": f"{A}.language/linear-algebra.html#triton.language.dot_scaled",
    "kv cache": (f"{T}solutions/06-decode.html", "glossary.html#term-KV-cache"),
    "apple silicon": "getting-started/installation.html#no-gpu",
    "mat mul": f"{T}03-matrix-multiplication.html",
    "how to contribute": "contributing.html",
    # Symptoms, hardware, and questions that have no page of their own.
    "output is all zeros": f"{G}3/debugging.html#where-is-it-wrong",
    "infinite loop": f"{G}3/crash.html#a-kernel-that-does-not-end",
    "arange's range must be a power of 2": f"{G}3/crash.html#when-it-does-not-compile",
    "device-side assert triggered": f"{G}3/crash.html#checks-on-the-gpu",
    "cuda vs triton": f"{G}1/introduction.html#two-ways-to-say-it",
    "multi gpu": "contributing.html#several-gpus-several-machines",
    "custom op torch.compile": "which-kernel.html",
    "RTX 4090": "getting-started/installation.html#nvidia-gpu",
    "grouped query attention": f"{T}solutions/06-grouped-heads.html",
    "bank conflicts": "glossary.html#term-bank-conflict",
}

SHARED = ("glossary.html#term-shared-memory", f"{G}1/introduction.html#shared-memory")
#: Sixty more, as people of several languages type them: the first word of each answer.
MORE = {
    # Terms in other languages.
    "矩阵乘法": f"{T}03-matrix-multiplication.html",
    "Matrixmultiplikation": f"{T}03-matrix-multiplication.html",
    "행렬 곱셈": f"{T}03-matrix-multiplication.html",
    "注意力": f"{T}06",
    "어텐션": f"{T}06",
    "Kreuzentropie": f"{T}10",
    "交叉熵": f"{T}10",
    "共享内存": SHARED,
    "공유 메모리": SHARED,
    "gemeinsamer Speicher": SHARED,
    "Vektoraddition": f"{T}01-vector-add.html",
    "向量加法": f"{T}01-vector-add.html",
    "安装": "getting-started/installation.html",
    "설치": "getting-started/installation.html",
    "Fehlersuche": f"{G}3/",
    "调试": f"{G}3/",
    "掩码": "glossary.html#term-mask",
    "Speicherbandbreite": "glossary.html#term",
    "量化": "glossary.html#term-quantization",
    "드롭아웃": f"{T}04",
    # Without a GPU.
    "cpu": "getting-started/installation.html#no-gpu",
    "without gpu": "getting-started/installation.html#no-gpu",
    "run without a GPU": "getting-started/installation.html#no-gpu",
    "macOS": "getting-started/installation.html",
    "windows": "getting-started/installation.html",
    # Names of the API.
    "tl.store": f"{A}.language/memory.html#triton.language.store",
    "triton.language.atomic_add": f"{A}.language/atomics.html#triton.language.atomic_add",
    "tl.arange": f"{A}.language/creation.html#triton.language.arange",
    "triton.autotune": f"{A}.html#triton.autotune",
    "autotune": (f"{A}.html#triton.autotune", "glossary.html#term-autotuning"),
    "tl.constexpr": f"{A}.language/programming-model.html#triton.language.constexpr",
    "program_id": f"{A}.language/programming-model.html#triton.language.program_id",
    "tl.where": f"{A}.language/indexing.html#triton.language.where",
    "device_print": f"{A}.language/debug.html#triton.language.device_print",
    "TensorDescriptor": f"{A}.",
    "triton.jit": f"{A}.html#triton.jit",
    "tl.associative_scan": f"{A}.language/scan-and-sort.html#triton.language.associative_scan",
    "cdiv": f"{A}.",
    "assert_close": f"{A}.testing.html",
    # Messages, pasted whole.
    "RuntimeError: 0 active drivers ([]). There should only be one.": (
        "getting-started/installation.html#runtimeerror-0-active"
    ),
    "AssertionError: libcuda.so cannot found! Possible files are located at []": (
        "getting-started/installation.html#assertionerror-libcuda"
    ),
    "ValueError: arange's range must be a power of 2": (
        f"{G}3/crash.html",
        "python-api/semantics.html#shapes",
    ),
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262144, "
    "Hardware limit: 232448. Reducing block sizes or `num_stages` may help.": (
        "getting-started/installation.html#"
    ),
    "RuntimeError: CUDA error: an illegal memory access was encountered": f"{G}3/crash.html",
    "ValueError: Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)": (
        "getting-started/installation.html#"
    ),
    "CompilationError: at 5:11: Input shapes should have M >= 1, N >= 1 and K >= 16": (
        f"{T}03-matrix-multiplication.html"
    ),
    # Subjects.
    "softmax": f"{T}02-fused-softmax.html",
    "flash attention backward": f"{T}06b-attention-backward.html",
    "paged attention": f"{T}11-paged-attention.html",
    "top-p sampling": f"{T}13-sampling.html",
    "int4": f"{T}12-int4-weights.html",
    "fp8 matmul": f"{T}09-fp8-matmul.html",
    "gated delta rule": f"{T}14-gated-delta-rule.html",
    "linear attention": f"{T}14-gated-delta-rule.html",
    "group gemm": f"{T}08-grouped-gemm.html",
    "roofline": (f"{G}4/roofline.html", "glossary.html#term-roofline"),
    "cuda graph": f"{G}6/calls.html",
    "warp": "glossary.html#term-warp",
    "occupancy": "glossary.html#term-occupancy",
    "how do i slice a block": f"{G}7/questions.html#how-do-i-slice-a-block",
}


@pytest.fixture(scope="module")
def search_page(browser: Browser, address: str) -> Iterator[Page]:
    with reader(browser) as context:
        page = context.new_page()
        page.goto(f"{address}stable/search.html")
        yield page


def places(page: Page, words: str) -> list[str]:
    return page.evaluate(
        "words => gallerySearch(words).slice(0, 3).map((s) => `${s.address}#${s.anchor}`)", words
    )


@pytest.mark.parametrize(("words", "wanted"), (SEARCHES | MORE).items())
def test_words_lead_to_their_place(
    search_page: Page, words: str, wanted: str | tuple[str, ...]
) -> None:
    found = places(search_page, words)
    assert any(place.startswith(wanted) for place in found), found


def test_the_right_place_comes_first(search_page: Page) -> None:
    wrong = {
        words: first
        for words, wanted in (SEARCHES | MORE).items()
        if not (first := places(search_page, words)[0]).startswith(wanted)
    }
    assert len(wrong) <= 0.1 * len(SEARCHES | MORE), wrong


def test_little_is_loaded_before_the_first_result(site: Path) -> None:
    files = ("language_data.js", "search-index.js", "search.js")
    sizes = [len(gzip.compress((site / "_static" / name).read_bytes())) for name in files]
    assert sum(sizes) <= 150_000


@pytest.mark.parametrize(("typed", "offered"), [("sofmax", "softmax"), ("attenntion", "attention")])
def test_a_slip_is_a_question_and_no_match(page: Page, address: str, typed, offered) -> None:
    page.goto(f"{address}stable/index.html")
    page.keyboard.press("/")
    page.keyboard.type(typed)
    panel = page.locator(".gallery-results.gallery-found")
    expect(panel).to_contain_text(f"No result for “{typed}”. Did you mean {offered}?")
    expect(panel.locator("li")).to_have_count(0)
    panel.get_by_role("button", name=offered).click()
    expect(panel.locator("li").first).to_be_visible()


def test_results_come_as_one_types_and_lead_there_by_the_keyboard(page: Page, address: str) -> None:
    page.goto(f"{address}stable/{T}03-matrix-multiplication.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("softmax")
    panel = page.locator(".gallery-results.gallery-found")
    first = panel.locator("li").first
    expect(first).to_contain_text("Fused softmax")
    expect(first.locator("small")).to_have_text("lesson")
    expect(panel.locator("mark").first).to_have_text(re.compile("softmax", re.I))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("02-fused-softmax"))


def test_a_word_of_no_page_is_named(search_page: Page) -> None:
    assert search_page.evaluate("gallerySearch('softmax xyzzyq').unknown") == ["xyzzyq"]
    assert (
        search_page.evaluate("gallerySearch('GPTQ').filter((s) => s.title == 'GPT-2').length") == 0
    )


def test_letters_inside_a_word_are_no_match(search_page: Page) -> None:
    found = search_page.evaluate(
        "gallerySearch('max').filter((s) => s.kind !== 'page')"
        ".map((s) => `${s.title} ${s.prose} ${s.code} ${s.page}`.toLowerCase())"
    )
    assert found
    assert all(re.search(r"(?<![^\W_])max(?![^\W_])", text) for text in found)
    titles = search_page.evaluate("gallerySearch('TMA').slice(0, 10).map((s) => s.title)")
    assert not any("oftmax" in title for title in titles)
