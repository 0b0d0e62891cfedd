"""What readers search for leads them to the place, among the first three."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import reader

T = "getting-started/tutorials/"
A = "python-api/triton"
G = "programming-guide/chapter-"

#: Words, and where one of the first three results has to lead. Beginnings of addresses, so that a
#: page may move a section.
SEARCHES = {
    "tl.load": f"{A}.language.html#triton.language.load",
    "tl.dot": f"{A}.language.html#triton.language.dot",
    "do_bench": f"{A}.testing.html#triton.testing.do_bench",
    "TMA": f"{T}0",
    "past the end": f"{T}01-vector-add.html#checking-it",
    "slow on small tensors": f"{G}6/calls.html",
    "print inside kernel": f"{G}7/questions.html",
    "row stride": f"{T}02-fused-softmax.html",
    "online softmax": f"{T}06-fused-attention.html#the-online-softmax",
    "tensor descriptor": "glossary.html#term-tensor-descriptor",
    "mixture of experts": f"{T}08-grouped-gemm.html",
    "illegal memory access": f"{G}",
    "register spill": f"{G}3/slow.html#registers-and-spills",
    "compute-sanitizer": f"{G}3/",
    "nsight compute": f"{G}5/profiling.html",
    "why is my kernel slow": f"{G}5/profiling.html",
    "type promotion": "python-api/semantics.html#type-promotion",
    # As strangers type them.
    "out of shared memory": "glossary.html#term-shared-memory",
    "triton on amd": "getting-started/installation.html#amd-gpu",
    "race condition": f"{G}3/wrong.html#races",
    "TRITON_INTERPRET": f"{G}3/wrong.html#the-interpreter",
    "rms norm": f"{T}05-layer-norm.html",
    "flash attention": f"{T}06-fused-attention.html",
    "kv cache decode": f"{T}solutions/06-decode.html",
    "inline assembly": f"{A}.language.html#triton.language.inline_asm_elementwise",
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
    "libcuda.so cannot found": "getting-started/installation.html#if-something-goes-wrong",
    "MLIR_ENABLE_DUMP": f"{G}3/slow.html#compiled-again-and-again",
    "autotune in place wrong result": f"{T}03-matrix-multiplication.html#choosing-the-tile",
    "T4": "getting-started/installation.html#nvidia-gpu",
    "determinism": "glossary.html#term-deterministic",
    "software pipelining": "glossary.html#term-pipelining",
    "bibtex": "index.html#how-to-cite",
    # What has another name, is written apart, or is said in two letters less.
    "prefix sum": f"{A}.language.html#triton.language.cumsum",
    "download all": "getting-started/installation.html#check-that-it-works",
    "what's new": "index.html#what-is-new",
    "mxfp8": f"{A}.language.html#triton.language.dot_scaled",
    "kv cache": f"{T}solutions/06-decode.html",
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
