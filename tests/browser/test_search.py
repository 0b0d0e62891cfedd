"""What readers search for leads them to the place, among the first three."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import reader

T = "getting-started/tutorials/"
A = "python-api/triton"
G = "programming-guide/chapter-"

#: Words, and where one of the first three results has to lead. Beginnings of addresses, so that a
#: page may move a section.
SEARCHES = {
    "tl.load": f"{A}.language.html#triton.language.load",
    "tl.dot": f"{A}.language.html#triton.language.dot",
    "triton.language.store": f"{A}.language.html#triton.language.store",
    "do_bench": f"{A}.testing.html#triton.testing.do_bench",
    "device_print": f"{A}.language.html#triton.language.device_print",
    "TMA": f"{T}0",
    "nan": f"{A}.language.html",
    "past the end": f"{T}01-vector-add.html#past-the-end",
    "slow on small tensors": f"{T}01-vector-add.html",
    "print inside kernel": f"{G}3/debugging.html",
    "row stride": f"{T}02-fused-softmax.html",
    "rows that do not fit": f"{T}02-fused-softmax.html",
    "online softmax": f"{T}02-fused-softmax.html",
    "persistent kernel": f"{T}0",
    "leaky relu": f"{T}03-",
    "tensor descriptor": f"{T}03",
    "mixture of experts": f"{T}08-grouped-gemm.html",
    "race": f"{G}3/debugging.html#races",
    "out of bounds": f"{G}3/debugging.html",
    "illegal memory access": f"{G}3/debugging.html",
    "kernel hangs": f"{G}3/debugging.html",
    "register spill": f"{G}3/debugging.html",
    "compute-sanitizer": f"{G}3/debugging.html",
    "proton": f"{G}5/profiling.html#proton",
    "nsight compute": f"{G}5/profiling.html",
    "sectors a request": f"{G}5/profiling.html",
    "why is my kernel slow": f"{G}5/profiling.html",
    "uncoalesced": f"{G}5/profiling.html",
    "long scoreboard": f"{G}5/profiling.html",
    "no GPU": "getting-started/installation.html",
    "colab": "getting-started/installation.html",
    "type promotion": "python-api/semantics.html#type-promotion",
    # As strangers type them.
    "out of shared memory": "getting-started/installation.html#if-something-goes-wrong",
    "recompilation": f"{G}3/debugging.html#compiled-again-and-again",
    "launch overhead": f"{G}4/measuring.html#the-launch-has-a-price",
    "clock throttling": f"{G}4/measuring.html#the-clock-changes",
    "triton on amd": "getting-started/installation.html#amd-gpu",
    "how to install triton": "getting-started/installation.html",
    "memory bandwidth": f"{G}4/measuring.html#the-roofline",
    "softmax backward": f"{T}solutions/02-softmax-backward.html",
    "tl.arange must be power of 2": f"{A}.language.html#triton.language.arange",
    "race condition": f"{G}3/debugging.html#races",
    "TRITON_INTERPRET": f"{G}3/debugging.html#the-interpreter",
    "atomic add": f"{A}.language.html#triton.language.atomic_add",
    "rms norm": f"{T}05-layer-norm.html",
    "flash attention": f"{T}06-fused-attention.html",
    "causal mask": f"{T}06-fused-attention.html",
    "kv cache decode": f"{T}solutions/06-decode.html",
    "quantization": f"{T}09-fp8-matmul.html",
    "tanh approximation": f"{T}07-math-functions.html",
    "inline assembly": f"{A}.language.html#triton.language.inline_asm_elementwise",
    "libdevice": "glossary.html#term-libdevice",
    "tma descriptor": f"{T}0",
    "split k": f"{T}solutions/03-split-k.html",
    "num_stages": f"{A}.html#triton.Config",
    "label smoothing": f"{T}solutions/10-label-smoothing.html",
    "int64 overflow offset": f"{G}3/debugging.html#checks-on-the-gpu",
    "cumsum": f"{A}.language.html#triton.language.cumsum",
    "warmup": "glossary.html#term-warm-up",
    "gluon": "glossary.html#term-Gluon",
    "license": "index.html",
    "contribute recording": "contributing.html",
    "my own gallery sphinx": "your-gallery.html",
    "layernorm weight gradient": f"{T}05-layer-norm.html",
    "dropout seed": f"{T}04-low-memory-dropout.html",
    "deadlock": f"{G}3/debugging.html#a-kernel-that-does-not-end",
    "double buffering": f"{T}0",
    "wave quantization": "glossary.html#term-wave",
    # Slips, and words written together.
    "sofmax": f"{T}02-fused-softmax.html",
    "fused atention": f"{T}06-fused-attention.html",  # codespell:ignore atention
    "dropuot": f"{T}04-low-memory-dropout.html",
    "tl.debug_barier": f"{A}.language.html#triton.language.debug_barrier",
    "memmory coalescing": f"{G}1/introduction.html#coalescing",  # codespell:ignore memmory
    "layernorm": f"{T}05-layer-norm.html",
    "flashattention": f"{T}06-fused-attention.html",
    "uncoalesced access": f"{G}5/profiling.html#from-symptom-to-cause",
    # Messages, variables, and what has no page of its own.
    "should have M >= 1, N >= 1 and K >= 16": f"{T}03-matrix-multiplication.html#step-3",
    "libcuda.so cannot found": "getting-started/installation.html#if-something-goes-wrong",
    "MLIR_ENABLE_DUMP": f"{G}3/debugging.html#files",
    "TRITON_CACHE_AUTOTUNING": f"{T}03-matrix-multiplication.html#choosing-by-trying",
    "save autotune results": f"{T}03-matrix-multiplication.html#choosing-by-trying",
    "autotune in place wrong result": f"{T}03-matrix-multiplication.html#choosing-by-trying",
    "fp8e4nv": f"{A}.language.html#triton.language.float8e4nv",
    "T4": "getting-started/installation.html#nvidia-gpu",
    "intel gpu": "getting-started/installation.html",
    "int4": "which-kernel.html",
    "rope": "which-kernel.html",
    "welford": f"{T}05-layer-norm.html",
    "determinism": "glossary.html#term-deterministic",
    "recompile for every shape": f"{G}3/debugging.html#compiled-again-and-again",
    "benchmark noise": f"{G}4/measuring.html",
    "software pipelining": "glossary.html#term-pipelining",
    "tail effect": "glossary.html#term-wave",
    "bibtex": "index.html#how-to-cite",
    # What has another name, is written apart, or is said in two letters less.
    "prefix sum": f"{A}.language.html#triton.language.cumsum",
    "64 bit index": "glossary.html#term-64-bit-offset",
    "index overflow": f"{G}3/debugging.html#checks-on-the-gpu",
    "download all": "getting-started/installation.html#check-that-it-works",
    "release notes": "index.html#what-is-new",
    "what's new": "index.html#what-is-new",
    "deadlok": f"{G}3/debugging.html#a-kernel-that-does-not-end",  # codespell:ignore deadlok
    "mutex": f"{T}05-layer-norm.html#step-4-adding-up-with-atomics",
    "conv2d": "which-kernel.html",
    "mxfp8": f"{A}.language.html#triton.language.dot_scaled",
    "kv cache": f"{T}solutions/06-decode.html",
    "gqa": f"{T}solutions/06-grouped-heads.html",
    "apple silicon": "getting-started/installation.html#no-gpu",
    "soft max": f"{T}02-fused-softmax.html",
    "mat mul": f"{T}03-matrix-multiplication.html",
    "attn": f"{T}06-fused-attention.html",
    "masked load": f"{T}01-vector-add.html#past-the-end",
    "how to contribute": "contributing.html",
    # Symptoms, hardware, and questions that have no page of their own.
    "all outputs are zero": f"{G}3/debugging.html#where-is-it-wrong",
    "output is all zeros": f"{G}3/debugging.html#where-is-it-wrong",
    "infinite loop": f"{G}3/debugging.html#a-kernel-that-does-not-end",
    "kernel never returns": f"{G}3/debugging.html#a-kernel-that-does-not-end",
    "Loop-carried variable": f"{G}3/debugging.html#when-it-does-not-compile",
    "arange's range must be a power of 2": f"{G}3/debugging.html#when-it-does-not-compile",
    "device-side assert triggered": f"{G}3/debugging.html#checks-on-the-gpu",
    "cuda vs triton": f"{G}1/introduction.html#two-ways-to-say-it",
    "dark mode": "index.html#how-to-read-a-page",
    "multi gpu": "which-kernel.html",
    "multiple GPUs": "which-kernel.html",
    "grid sync": "glossary.html#term-grid-synchronization",
    "record on my gpu": "contributing.html",
    "custom op torch.compile": "which-kernel.html",
    "RTX 4090": "getting-started/installation.html#nvidia-gpu",
    "H100": "getting-started/installation.html#nvidia-gpu",
    "grouped query attention": f"{T}solutions/06-grouped-heads.html",
    "sparse JL": f"{T}solutions/04-sparse-johnson-lindenstrauss.html",
    "catastrophic cancellation": f"{T}05-layer-norm.html",
    "TL.LOAD": f"{A}.language.html#triton.language.load",
    "eviction_policy": f"{T}10-cross-entropy.html",
    "bank conflicts": "glossary.html#term-bank-conflict",
}


@pytest.fixture(scope="module")
def search_page(browser: Browser, address: str) -> Iterator[Page]:
    with reader(browser) as context:
        page = context.new_page()
        page.goto(f"{address}stable/search.html")
        yield page


@pytest.mark.parametrize(("words", "wanted"), SEARCHES.items())
def test_words_lead_to_their_place(search_page: Page, words: str, wanted: str) -> None:
    found = search_page.evaluate(
        "words => gallerySearch(words).slice(0, 3).map((s) => `${s.address}#${s.anchor}`)", words
    )
    assert any(place.startswith(wanted) for place in found), found


def test_letters_inside_a_word_are_no_match(search_page: Page) -> None:
    found = search_page.evaluate(
        "gallerySearch('max').filter((s) => s.kind !== 'page')"
        ".map((s) => `${s.title} ${s.prose} ${s.code} ${s.page}`.toLowerCase())"
    )
    assert found
    assert all(re.search(r"(?<![^\W_])max(?![^\W_])", text) for text in found)
    titles = search_page.evaluate("gallerySearch('TMA').slice(0, 10).map((s) => s.title)")
    assert not any("oftmax" in title for title in titles)


def test_the_page_shows_what_was_found(page: Page, address: str) -> None:
    page.goto(f"{address}stable/index.html")
    box = page.locator("#rtd-search-form input[name=q]")
    box.fill("past the end")
    box.press("Enter")
    first = page.locator("#search-results li a").first
    first.click()
    expect(page.locator("#past-the-end")).to_be_in_viewport()


def test_nothing_found_says_so(page: Page, address: str) -> None:
    page.goto(f"{address}stable/search.html?q=%3Cem%3Exyzzy%3C/em%3E")
    expect(page.locator("#search-results em")).to_have_count(0)
    page.goto(f"{address}stable/search.html?q=xyzzy")
    expect(page.get_by_role("status")).to_contain_text("No places found for “xyzzy”")
