"""Paged attention, in the interpreter, against float64."""

import math

import pytest
import torch
from torch.testing import assert_close


def problem(lengths, page=16, heads=8, kv_heads=2, d=32, dtype=torch.float16, spare=2):
    counts = [-(-n // page) for n in lengths]
    order = torch.randperm(sum(counts) + spare).int()
    table = torch.zeros(len(lengths), max(1, *counts), dtype=torch.int32)
    for row, own in zip(table, order[: sum(counts)].split(counts), strict=True):
        row[: len(own)] = own
    q = torch.randn(len(lengths), heads, d).to(dtype)
    k, v = torch.randn(2, len(order), page, kv_heads, d).to(dtype)
    return q, k, v, table, torch.tensor(lengths, dtype=torch.int32)


def assert_right(out, q, k_pages, v_pages, table, lengths, scale=None):
    """Allow one rounding of the weights and one of the result to the dtype."""
    assert (out.shape, out.dtype) == (q.shape, q.dtype)
    eps = max(torch.finfo(q.dtype).eps, 2**-20)
    for i, n in enumerate(lengths.tolist()):
        tokens = torch.arange(n)
        rows = table[i, tokens // k_pages.shape[1]].long(), tokens % k_pages.shape[1]
        for head in range(q.shape[1]):
            kv = head // (q.shape[1] // k_pages.shape[2])
            scores = k_pages[*rows, kv].double() @ q[i, head].double()
            weights = (scores * (scale or q.shape[2] ** -0.5)).softmax(0)
            expected = weights @ v_pages[*rows, kv].double()  # zeros for a length of 0
            assert_close(out[i, head].double(), expected, rtol=eps, atol=eps)


DTYPES = [torch.float16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize(("size", "dtype"), [(1, DTYPES[0]), (16, DTYPES[1]), (24, DTYPES[2])])
def test_lengths_around_a_page_and_a_chunk(page, size, dtype):
    """Sequences of 63 to 65 and 129 tokens end before, at and behind a chunk of 64."""
    lengths = [0, 1, size - 1, size, size + 1, 63, 64, 65, 129]
    given = problem(lengths, size, 4, 2, 16, dtype)
    assert_right(page["paged_attention"](*given), *given)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "d"), [(1, 1, 16), (5, 5, 64), (7, 1, 32), (40, 2, 16), (16, 2, 128)]
)
def test_groups_that_do_not_fill_a_tile(page, heads, kv_heads, d):
    given = problem([33, 0, 150], heads=heads, kv_heads=kv_heads, d=d)
    assert_right(page["paged_attention"](*given, 0.2), *given, 0.2)


def test_one_long_sequence_is_split_and_combined(page):
    given = problem([1000], kv_heads=1)
    assert page["plan_of"](*given[:4], None)[0].grid[1] > 1
    given[0][:] *= 8  # a few keys decide
    assert_right(page["paged_attention"](*given), *given)


def test_a_wide_page_table_does_not_make_too_many_programs(page):
    q, k, v, table, lengths = problem([40, 3])
    given = q, k, v, torch.cat([table, torch.full((2, 5000), -1, dtype=torch.int32)], 1), lengths
    assert page["plan_of"](*given[:4], None)[0].grid[1] <= 128
    assert_right(page["paged_attention"](*given), *given)


def test_sequences_share_pages(page):
    given = problem([60, 50, 77])
    given[3][1:, :3] = given[3][0, :3]
    assert_right(page["paged_attention"](*given), *given)


def test_nothing_behind_the_length_is_used(page):
    """Neither the rest of the last page, nor pages that no sequence has, nor unused entries."""
    q, k, v, table, lengths = problem([5, 0, 100], spare=3)
    right = page["paged_attention"](q, k, v, table, lengths)
    used = torch.zeros(k.shape[:2], dtype=torch.bool)
    for n, row in zip(lengths.tolist(), table, strict=True):
        used[row[: n // 16]] = True
        used[row[n // 16], : n % 16] = True
        row[-(-n // 16) :] = -7
    k[~used], v[~used] = math.nan, math.inf
    assert torch.equal(page["paged_attention"](q, k, v, table, lengths), right)


def test_views(page):
    """Keys and values of one tensor, heads of a wider one, a table and queries with other rows."""
    _, k, _, table, lengths = problem([30, 70])
    both = torch.randn(len(k), 16, 2, 4, 32).half()
    k, v = both[:, :, 0, 1:3], both[:, :, 1, 2:]
    wide = torch.cat([table, table], 1)[:, : table.shape[1]]
    q = torch.randn(2, 24, 32).half()[:, 8:16]
    for given in ((q, k, v, wide, lengths), (q, k, v.contiguous(), wide, lengths)):
        assert_right(page["paged_attention"](*given), *given)


@pytest.mark.parametrize("entry", [-1, -(2**31), 4, 2**31 - 1])
def test_a_page_that_does_not_exist(page, entry):
    """It is refused where the CPU sees it. A GPU reads no other memory."""
    q, k, v, table, lengths = problem([20, 33], spare=0)
    k, v = k[:4], v[:4]
    table[:] = torch.tensor([[0, 1, entry], [2, 3, entry]])
    with pytest.raises(ValueError, match=r"page_table must be from 0 to 3, but is \["):
        page["paged_attention"](q, k, v, table, lengths)
    shorter = q, k, v, table, lengths - 1  # these entries are not used
    assert_right(page["paged_attention"](*shorter), *shorter)
    grid, numbers, constants = page["arguments_of"](q, k, v, table)
    out = torch.full_like(q, math.nan)
    page["attention_kernel"][grid](q, k, v, table, lengths, out, out, *numbers, **constants)
    assert_right(out, q, k, v, table.clamp(0, 3), lengths)


def test_a_kernel_reads_no_more_than_the_table_has(page):
    """A GPU does not check lengths."""
    *given, _ = problem([32, 20])
    out = page["simple"](*given, torch.tensor([1000, -5]).int())
    assert_right(out, *given, torch.tensor([32, 0]))


@pytest.mark.parametrize("size", [16, 32])
def test_the_plain_function(plain, size):
    given = problem([0, 1, size, size + 1, 100], size, heads=6, kv_heads=2)
    assert_right(plain("11-paged-attention").paged_attention(*given), *given)


def far_apart(pages, page, heads, d, apart):
    """Return random keys whose heads lie *apart* elements from each other, as views of one storage.

    The memory between them is never touched, so it costs nothing.
    """
    size = (heads - 1) * apart + pages * page * d
    keys = torch.empty(0, dtype=torch.float16)
    keys.set_(torch.UntypedStorage(2 * size), 0, (pages, page, heads, d), (page * d, d, apart, 1))
    return keys.copy_(torch.randn(keys.shape))


@pytest.mark.parametrize("function", ["paged_attention", "window_attention"])
def test_heads_far_apart(page, tutorial, function):
    """Each stride fits into 32 bits, and twice the stride does not."""
    q, k, _, table, lengths = problem([20, 33], heads=3, kv_heads=3, d=16)
    pages = far_apart(len(k), 16, 3, 16, 2**30 + 64)
    if function == "paged_attention":
        out = page[function](q, pages, pages, table, lengths)
    else:
        out = tutorial("solutions/11-window")[function](q, pages, pages, table, lengths, 1000)
    assert_right(out, q, pages, pages, table, lengths)


def test_lengths_whose_sign_is_still_to_be_changed(page):
    """Two kernels read the lengths."""
    given = problem([600, 40], heads=4, kv_heads=2, d=16)
    *tensors, lengths = given
    out = page["paged_attention"](*tensors, torch._neg_view(-lengths))
    assert_right(out, *given)


def test_a_default_device_is_not_asked(page):
    given = problem([20, 33], heads=4, kv_heads=2, d=16)
    with torch.device("meta"):
        out = page["paged_attention"](*given)
    assert_right(out, *given)
