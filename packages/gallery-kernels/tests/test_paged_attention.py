"""Paged attention, against float64."""

import math

import pytest
import torch
from torch.testing import assert_close

from gallery_kernels import paged_attention

MODULE = __import__("sys").modules["gallery_kernels.paged_attention"]


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
            scores = k_pages[rows[0], rows[1], kv].double() @ q[i, head].double()
            weights = (scores * (scale or q.shape[2] ** -0.5)).softmax(0)
            expected = weights @ v_pages[rows[0], rows[1], kv].double()  # zeros for a length of 0
            assert_close(out[i, head].double(), expected, rtol=eps, atol=eps, equal_nan=True)


@pytest.mark.parametrize(
    ("size", "dtype"), [(1, torch.float16), (16, torch.float32), (24, torch.float32)]
)
def test_lengths_around_a_page_and_a_chunk(size, dtype):
    """Sequences of 63 to 65 and 129 tokens end before, at and behind a chunk of 64."""
    lengths = [0, 1, size - 1, size, size + 1, 63, 64, 65, 129]
    given = problem(lengths, size, 4, 2, 16, dtype)
    assert_right(paged_attention(*given), *given)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "d"),
    [(1, 1, 16), (5, 5, 64), (7, 1, 32), (40, 2, 16), (16, 2, 128), (4, 2, 80), (2, 1, 192)],
)
def test_groups_and_heads_that_do_not_fill_a_tile(heads, kv_heads, d):
    given = problem([33, 0, 150], heads=heads, kv_heads=kv_heads, d=d)
    assert_right(paged_attention(*given, 0.2), *given, 0.2)


def test_one_long_sequence_is_split_and_combined():
    given = problem([1000], kv_heads=1)
    assert MODULE.plan_for(*given[:4], None).combine is not None
    given[0][:] *= 8  # a few keys decide
    assert_right(paged_attention(*given), *given)


@pytest.mark.parametrize("hidden", [64, 65, 200])
def test_first_keys_whose_scores_are_minus_infinity(hidden):
    """Of one chunk, of a chunk of several, and of all keys, which gives NaN as in PyTorch."""
    for lengths in ([200], [70, 200]):
        q, k, v, table, n = problem(lengths, heads=2, kv_heads=1, dtype=torch.float32)
        q[..., 0], k[..., 0] = 1, 0
        own = table[-1].long()
        k[own[: hidden // 16], :, :, 0] = -math.inf
        k[own[hidden // 16 :][:1], : hidden % 16, :, 0] = -math.inf
        found = paged_attention(q, k, v, table, n)
        assert_right(found, q, k, v, table, n)
        assert bool(found[-1].isnan().any()) == (hidden == 200)


def test_a_wide_page_table_does_not_make_too_many_programs():
    q, k, v, table, lengths = problem([40, 3])
    given = q, k, v, torch.cat([table, torch.full((2, 5000), -1, dtype=torch.int32)], 1), lengths
    assert MODULE.plan_for(*given[:4], None).chunks.grid[1] <= MODULE.MOST_PARTS
    assert_right(paged_attention(*given), *given)


def test_sequences_share_pages():
    given = problem([60, 50, 77])
    given[3][1:, :3] = given[3][0, :3]
    assert_right(paged_attention(*given), *given)


def test_nothing_behind_the_length_is_used():
    """Neither the rest of the last page, nor pages that no sequence has, nor unused entries."""
    q, k, v, table, lengths = problem([5, 0, 100], spare=3)
    right = paged_attention(q, k, v, table, lengths)
    used = torch.zeros(k.shape[:2], dtype=torch.bool)
    for n, row in zip(lengths.tolist(), table, strict=True):
        used[row[: n // 16].long()] = True
        used[row[n // 16], : n % 16] = True
        row[-(-n // 16) :] = -7
    k[~used], v[~used] = math.nan, math.inf
    assert torch.equal(paged_attention(q, k, v, table, lengths), right)


def test_views():
    """Keys and values of one tensor, heads of a wider one, a table and queries with other rows."""
    _, k, _, table, lengths = problem([30, 70])
    both = torch.randn(len(k), 16, 2, 4, 32).half()
    k, v = both[:, :, 0, 1:3], both[:, :, 1, 2:]
    wide = torch.cat([table, table], 1)[:, : table.shape[1]]
    turned = table.T.contiguous().T
    q = torch.randn(2, 24, 32).half()[:, 8:16]
    for given in (
        (q, k, v, wide, lengths),
        (q, k, v.contiguous(), turned, lengths),
        (q, k, v, wide, lengths.repeat_interleave(2)[::2]),
    ):
        assert_right(paged_attention(*given), *given)


@pytest.mark.parametrize("entry", [-1, -(2**31), 4, 2**31 - 1])
def test_a_page_that_does_not_exist(entry):
    """It is refused where the CPU sees it. A GPU reads no other memory."""
    q, k, v, table, lengths = problem([20, 33], spare=0)
    k, v = k[:4].contiguous(), v[:4].contiguous()
    table[:] = torch.tensor([[0, 1, entry], [2, 3, entry]])
    with pytest.raises(ValueError, match=r"page_table must be from 0 to 3, but is \["):
        paged_attention(q, k, v, table, lengths)
    shorter = q, k, v, table, lengths - 1  # these entries are not used
    assert_right(paged_attention(*shorter), *shorter)
    out = MODULE.plan_for(q, k, v, table, None).run(q, k, v, table, lengths)
    assert_right(out, q, k, v, table.clamp(0, 3), lengths)


def test_a_kernel_reads_no_more_than_the_table_has():
    """A GPU does not check lengths."""
    *given, _ = problem([32, 20])
    wrong = torch.tensor([1000, -5]).int()
    out = MODULE.plan_for(*given, None).run(*given, wrong)
    assert_right(out, *given, torch.tensor([32, 0]))


def test_heads_far_apart():
    """Each stride fits into 32 bits, and twice the stride does not."""
    q, k, _, table, lengths = problem([20, 33], heads=3, kv_heads=3, d=16)
    apart, pages = 2**30 + 64, len(k)
    storage = torch.UntypedStorage(2 * (2 * apart + pages * 16 * 16))  # never touched between heads
    far = torch.empty(0, dtype=torch.float16)
    far.set_(storage, 0, (pages, 16, 3, 16), (16 * 16, 16, apart, 1))
    far.copy_(torch.randn(far.shape))
    assert_right(paged_attention(q, far, far, table, lengths), q, far, far, table, lengths)


def test_lengths_whose_sign_is_still_to_be_changed():
    """Two kernels read the lengths."""
    given = problem([600, 40], heads=4, kv_heads=2, d=16)
    *tensors, lengths = given
    assert_right(paged_attention(*tensors, torch._neg_view(-lengths)), *given)


def test_a_default_device_is_not_asked():
    given = problem([20, 33], heads=4, kv_heads=2, d=16)
    with torch.device("meta"):
        out = paged_attention(*given)
    assert_right(out, *given)


@pytest.mark.parametrize(("batch", "pages"), [(0, 3), (2, 0)])
def test_nothing_gives_nothing(batch, pages):
    q, k = torch.ones(batch, 8, 16), torch.ones(pages, 4, 2, 16)
    table, lengths = torch.zeros(batch, pages).int(), torch.zeros(batch).int()
    out = paged_attention(q, k, k, table, lengths)
    assert out.shape == q.shape
    assert not out.any()


PAGED = [torch.ones(2, 8, 16), *torch.ones(2, 3, 4, 2, 16)]  # q, k_pages, v_pages
TABLE, LENGTHS = torch.zeros(2, 3, dtype=torch.int32), torch.tensor([0, 12], dtype=torch.int32)
APART = PAGED[2].mT.contiguous().mT

REFUSALS = [
    (
        (*PAGED[:2], PAGED[2].half(), TABLE, LENGTHS),
        TypeError,
        "dtype of v_pages must be .*float32",
    ),
    ((*PAGED, TABLE.long(), LENGTHS), TypeError, "dtype of page_table must be torch.int32"),
    ((*PAGED, TABLE, LENGTHS.to("meta")), ValueError, "lengths must be on .* is on meta"),
    ((*PAGED, TABLE, LENGTHS.tolist()), TypeError, "lengths must be a torch.Tensor"),
    ((*PAGED[:2], APART, TABLE, LENGTHS), ValueError, "v_pages must have a last stride of 1"),
    ((*PAGED[:2], PAGED[2][1:], TABLE, LENGTHS), ValueError, "v_pages must have one shape"),
    ((PAGED[0][:, 1:], *PAGED[1:], TABLE, LENGTHS), ValueError, "a multiple of the heads"),
    ((PAGED[0][0], *PAGED[1:], TABLE, LENGTHS), ValueError, "q must have 3 dimensions"),
    ((PAGED[0][..., :8], *PAGED[1:], TABLE, LENGTHS), ValueError, "d must be a multiple of 8"),
    ((*PAGED, TABLE, LENGTHS[1:]), ValueError, "lengths must have one batch"),
    ((*PAGED, TABLE, LENGTHS + 1), ValueError, r"from 0 to 12, but are \[1, 13\]"),
    ((*PAGED, TABLE - 1, LENGTHS), ValueError, "page_table must be from 0 to 2"),
    ((*PAGED, TABLE, LENGTHS, 0.0), ValueError, "scale must be positive"),
    ((*PAGED, TABLE, LENGTHS, 2.0**127), ValueError, "scale must be positive and finite in fp32"),
    ((*PAGED, TABLE, LENGTHS, 10**400), ValueError, "scale must be positive and finite in fp32"),
    ((*PAGED, TABLE, LENGTHS, "1"), TypeError, "scale must be a number or None, but is a str"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_an_error_names_the_argument_before_and_after_a_right_call(arguments, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            paged_attention(*arguments)
        paged_attention(*PAGED, TABLE, LENGTHS)
