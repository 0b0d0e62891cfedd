"""Kernels whose values are right, whoever comes first: the watch must find nothing."""

import torch
import triton
import triton.language as tl
from right_access_kernels import B, copy, copy_kernel, rows


def in_place_by_one_program_each():
    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(x_ptr + offsets, 2 * x, mask=offsets < n)
        again = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(x_ptr + offsets, again + 1, mask=offsets < n)

    x = torch.randn(300)
    expected = 2 * x + 1
    kernel[(3,)](x, 300, BLOCK=B)
    assert torch.equal(x, expected)


def all_programs_write_the_same():
    @triton.jit
    def kernel(flag_ptr, out_ptr):
        tl.store(flag_ptr, 1)
        tl.store(out_ptr + tl.program_id(0), tl.program_id(0))

    flag, out = torch.zeros(1, dtype=torch.int32), torch.empty(9, dtype=torch.int32)
    kernel[(9,)](flag, out)
    assert flag.item() == 1 and out.tolist() == list(range(9))


def a_histogram_by_atomics():
    @triton.jit
    def kernel(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.atomic_add(counts_ptr + x, 1, mask=offsets < n)

    x, counts = torch.randint(0, 10, (1000,)), torch.zeros(10, dtype=torch.int32)
    kernel[(8,)](x, counts, 1000, BLOCK=B)
    assert torch.equal(counts, x.bincount(minlength=10).int())


def the_largest_by_atomics():
    @triton.jit
    def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_max(out_ptr, tl.max(tl.load(x_ptr + offsets), axis=0))

    x, out = torch.randint(0, 10**6, (1024,), dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    kernel[(8,)](x, out, BLOCK=B)
    assert out.item() == x.max().item()


@triton.jit
def last_kernel(x_ptr, parts_ptr, count_ptr, out_ptr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    x = tl.load(x_ptr + pid * BLOCK + tl.arange(0, BLOCK))
    tl.store(parts_ptr + pid, tl.sum(x, axis=0))
    before = tl.atomic_add(count_ptr, 1)
    if before == PROGRAMS - 1:
        parts = tl.load(parts_ptr + tl.arange(0, PROGRAMS))
        tl.store(out_ptr, tl.sum(parts, axis=0))
        tl.store(count_ptr, 0)


def the_last_program_adds_the_parts():
    x, parts, count, out = torch.randn(1024), torch.empty(8), torch.zeros(1).int(), torch.empty(1)
    for _ in range(2):
        last_kernel[(8,)](x, parts, count, out, PROGRAMS=8, BLOCK=B)
    assert torch.allclose(out, x.sum(), atol=1e-4) and count.item() == 0


def a_lock():
    @triton.jit
    def kernel(x_ptr, sum_ptr, lock_ptr, BLOCK: tl.constexpr):
        columns = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + tl.program_id(0) * BLOCK + columns)
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
        tl.store(sum_ptr + columns, tl.load(sum_ptr + columns) + x)
        tl.debug_barrier()
        tl.atomic_xchg(lock_ptr, 0)

    x, total, lock = torch.randn(9, B), torch.zeros(B), torch.zeros(1, dtype=torch.int32)
    kernel[(9,)](x, total, lock, BLOCK=B)
    assert torch.allclose(total, x.sum(dim=0), atol=1e-4)


def work_from_a_counter():
    @triton.jit
    def kernel(next_ptr, out_ptr, n):
        item = tl.atomic_add(next_ptr, 1)
        while item < n:
            tl.store(out_ptr + item, item * item)
            item = tl.atomic_add(next_ptr, 1)

    counter, out = torch.zeros(1, dtype=torch.int32), torch.empty(40, dtype=torch.int32)
    kernel[(4,)](counter, out, 40)
    assert torch.equal(out, torch.arange(40).int() ** 2)


def an_index_that_a_mask_left_undefined():
    @triton.jit
    def kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        mask = offsets < n
        index = tl.load(index_ptr + offsets, mask=mask)
        large = (index > 3) & mask
        tl.store(out_ptr + offsets, tl.load(x_ptr + index, mask=mask), mask=mask)
        tl.store(out_ptr + offsets, 0.0, mask=large)

    x, index, out = torch.randn(50), torch.randint(0, 50, (5,)), torch.empty(5)
    kernel[(1,)](x, index, out, 5, BLOCK=8)
    assert torch.equal(out, torch.where(index > 3, 0, x[index]))


def undefined_elements_replaced_by_where():
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        x = tl.where(offsets < n, tl.exp(x) * 2, 0.0)
        tl.store(out_ptr, tl.sum(x, axis=0))

    x, out = torch.randn(100), torch.empty(())
    kernel[(1,)](x, out, 100, BLOCK=128)
    assert torch.allclose(out, 2 * x.exp().sum())


def undefined_elements_multiplied_with_a_mask():
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask)
        tl.store(out_ptr, tl.sum(x * mask.to(tl.float32), axis=0))

    x, out = torch.randn(100), torch.empty(())
    kernel[(1,)](x, out, 100, BLOCK=128)
    assert torch.allclose(out, x.sum(), atol=1e-4)


def launches_that_share_buffers():
    x, a, b = torch.randn(300), torch.empty(300), torch.empty(300)
    for one, other in ((x, a), (a, b), (b, x), (b, a)):
        copy(one, other)


CACHE = {}


def kept_by_a_cache():
    for _ in range(3):
        work = CACHE.setdefault("work", torch.empty(512))
        x, out = torch.randn(300), torch.empty(300)
        copy_kernel[(3,)](x, work, 300, BLOCK=B)
        copy_kernel[(3,)](work, out, 300, BLOCK=B)
        assert torch.equal(x, out)


def memory_that_is_used_again():
    for n in (300, 200, 300, 1000, 300):
        copy(torch.randn(n), torch.empty(n))


def filled_by_pytorch():
    x, y, z = torch.empty(300), torch.empty(300), torch.empty(300)
    x.fill_(2)
    y[:100] = 1
    y[100:].uniform_()
    torch.add(x, y, out=z)
    ints = torch.empty(300, dtype=torch.uint8)
    ints.copy_(torch.arange(300))
    for one in (x, y, z, ints):
        copy(one, torch.empty_like(one))


def filled_by_numpy():
    x = torch.empty(300)
    x.numpy()[:] = 7
    copy(x, torch.empty(300))


def a_part_filled_and_used():
    x, out = torch.empty(1000), torch.empty(1000)
    x[:300] = torch.randn(300)
    copy_kernel[(3,)](x, out, 300, BLOCK=B)
    assert torch.equal(x[:300], out[:300])


def results_of_unknown_length():
    @triton.jit
    def kernel(x_ptr, out_ptr, count_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=-1.0)
        keep = (x > 0).to(tl.int32)
        tl.store(out_ptr + tl.cumsum(keep, axis=0) - 1, x, mask=keep == 1)
        tl.store(count_ptr, tl.sum(keep, axis=0))

    x, out, count = torch.randn(100), torch.empty(100), torch.empty(1, dtype=torch.int32)
    kernel[(1,)](x, out, count, 100, BLOCK=128)
    assert torch.equal(out[: count.item()], x[x > 0])


def rows_with_gaps_between_groups():
    """Groups begin at multiples of 16, and nobody uses the rows between them."""
    x, out = torch.randn(20), torch.empty(48)
    for first, last, place in ((0, 5, 0), (5, 16, 16), (16, 20, 32)):
        copy_kernel[(1,)](x[first:last], out[place:], last - first, BLOCK=16)
    rows = torch.cat([torch.arange(0, 5), torch.arange(16, 27), torch.arange(32, 36)])
    assert torch.equal(out[rows], x)
    assert torch.equal(out.index_select(0, rows), x)


def a_product_whose_edges_are_undefined():
    """Rows that no mask lets through are undefined, and are not stored."""

    @triton.jit
    def kernel(a_ptr, b_ptr, c_ptr, M, K: tl.constexpr, T: tl.constexpr):
        rows, depth = tl.arange(0, T), tl.arange(0, K)
        a = tl.load(a_ptr + rows[:, None] * K + depth[None, :], mask=rows[:, None] < M)
        b = tl.load(b_ptr + depth[:, None] * K + depth[None, :])
        c = tl.dot(a, b)
        tl.store(c_ptr + rows[:, None] * K + depth[None, :], c, mask=rows[:, None] < M)

    a, b, c = torch.randn(9, 16), torch.randn(16, 16), torch.empty(9, 16)
    kernel[(1,)](a, b, c, 9, K=16, T=16)
    assert torch.allclose(c, a @ b, atol=1e-4)


def scans_and_a_sort():
    @triton.jit
    def kernel(x_ptr, sums_ptr, sorted_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(sums_ptr + offsets, tl.cumsum(x, axis=0), mask=offsets < n)
        x = tl.where(offsets < n, x, float("inf"))
        tl.store(sorted_ptr + offsets, tl.sort(x), mask=offsets < n)

    x, sums, ordered = torch.randn(50), torch.empty(50), torch.empty(50)
    kernel[(1,)](x, sums, ordered, 50, BLOCK=64)
    assert torch.allclose(sums, x.cumsum(0), atol=1e-4) and torch.equal(ordered, x.sort()[0])


def reductions_of_pairs():
    @triton.jit
    def kernel(x_ptr, best_ptr, where_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=-float("inf"))
        best, where = tl.max(x, axis=0, return_indices=True)
        tl.store(best_ptr, best)
        tl.store(where_ptr, where)

    x, best, where = torch.randn(50), torch.empty(1), torch.empty(1, dtype=torch.int32)
    kernel[(1,)](x, best, where, 50, BLOCK=64)
    assert best.item() == x.max() and where.item() == x.argmax()


def reshaped_and_transposed():
    @triton.jit
    def kernel(x_ptr, out_ptr, n, R: tl.constexpr, C: tl.constexpr):
        offsets = tl.arange(0, R * C)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        x = tl.trans(tl.reshape(x, (R, C)))
        places = tl.trans(tl.reshape(offsets, (R, C)))
        tl.store(out_ptr + places, x, mask=places < n)

    x, out = torch.randn(30), torch.empty(30)
    kernel[(1,)](x, out, 30, R=4, C=8)
    assert torch.equal(x, out)


def a_zero_for_what_the_mask_leaves_out():
    """The interpreter forgets an ``other`` of one element that is zero."""

    @triton.jit
    def kernel(count_ptr, out_ptr, n):
        pid = tl.program_id(0)
        count, total = tl.load(count_ptr + pid, mask=pid < n, other=0), 0
        for i in range(count):
            total += i
        tl.store(out_ptr + pid, total + count)

    out = torch.empty(3, dtype=torch.int32)
    kernel[(3,)](torch.tensor([3, 1], dtype=torch.int32), out, 2)
    assert out.tolist() == [6, 1, 0]


def a_histogram_of_what_the_mask_lets_through():
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        counts = tl.histogram(x, BINS, mask=offsets < n)
        tl.atomic_add(out_ptr + tl.arange(0, BINS), counts)

    x, out = torch.randint(0, 8, (100,), dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    kernel[(4,)](x, out, 100, BLOCK=32, BINS=8)
    assert torch.equal(out, x.bincount(minlength=8).int())


def bf16_as_on_a_gpu():
    """The interpreter alone adds and multiplies the bits as integers."""

    @triton.jit
    def kernel(a_ptr, b_ptr, out_ptr, T: tl.constexpr):
        i = tl.arange(0, T)
        places = i[:, None] * T + i[None, :]
        a, b = tl.load(a_ptr + places), tl.load(b_ptr + places)
        x = tl.dot(a, b).to(tl.bfloat16) + a
        tl.store(out_ptr + places, tl.where(x > b, x, -(x * b)))

    a, b = torch.randn(2, 16, 16).bfloat16()
    out = torch.empty(16, 16, dtype=torch.bfloat16)
    kernel[(1,)](a.clone(), b.clone(), out, T=16)
    x = (a.float() @ b.float()).bfloat16() + a
    expected = torch.where(x > b, x, -(x * b))
    assert torch.allclose(out.float(), expected.float(), rtol=2**-6, atol=2**-6)


def rows_in_a_wider_matrix():
    x, whole = torch.randn(20, 50), torch.empty(20, 64)
    out = whole[:, :50]
    for row in range(20):
        copy_kernel[(1,)](x[row], out[row], 50, BLOCK=64)
    rows(out)
    repr(out[:, :9].tolist())
