"""Kernels that are right, as different as possible: the watch must find nothing.

Each function launches kernels and checks their result, or asserts nothing where PyTorch has no
counterpart.
"""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder
from triton.tools.tensor_descriptor import TensorDescriptor

B = 128
FLOAT = tl.float32


def cdiv(a, b):
    return -(-a // b)


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def strided_kernel(x_ptr, out_ptr, n, x_step, out_step, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_step, mask=offsets < n)
    tl.store(out_ptr + offsets * out_step, x, mask=offsets < n)


def backward_with_a_negative_stride():
    x = torch.randn(300)
    out = torch.empty_like(x)

    @triton.jit
    def kernel(x_ptr, out_ptr, n, step, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + (n - 1) + offsets * step, mask=mask)
        tl.store(out_ptr + offsets, x, mask=mask)

    kernel[(1,)](x, out, 300, -1, BLOCK=512)
    assert torch.equal(x.flip(0), out)


def copy(x, out, programs=None):
    """Copy *x*, with as many programs as are needed or with *programs*."""
    grid = (cdiv(x.numel(), B),) if programs is None else programs
    copy_kernel[grid](x, out, x.numel(), BLOCK=B)
    assert torch.equal(x, out)


def stride(x, out, x_step, out_step):
    strided_kernel[(cdiv(len(x), B),)](x, out, len(x), x_step, out_step, BLOCK=B)
    assert torch.equal(x, out)


@triton.jit
def rows_kernel(x_ptr, out_ptr, row_step, column_step, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_step + columns * column_step, mask=columns < N, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


def rows(x):
    out = torch.empty(len(x))
    block = triton.next_power_of_2(x.shape[1])
    rows_kernel[(len(x),)](x, out, *x.stride(), x.shape[1], BLOCK=block)
    assert torch.allclose(out, x.sum(dim=1), atol=1e-4)


#: Tensors that are read and written by the kernels above.
HOST = {
    "a vector that no block divides": lambda: copy(torch.randn(1000), torch.empty(1000)),
    "more programs than needed": lambda: copy(torch.randn(300), torch.empty(300), (50,)),
    "a grid from a function": lambda: copy(
        torch.randn(300), torch.empty(300), lambda meta: (triton.cdiv(300, meta["BLOCK"]),)
    ),
    "one tensor as two arguments": lambda: copy(*2 * [torch.randn(300)]),
    "two halves of one tensor": lambda: copy(*torch.randn(512).split(256)),
    "a tensor without axes": lambda: copy(torch.tensor(3.0), torch.empty(())),
    "an empty grid": lambda: copy(torch.empty(0), torch.empty(0)),
    "an empty tensor behind a mask": lambda: copy(torch.empty(0, 5), torch.zeros(0, 5), (1,)),
    "every second element": lambda: stride(torch.randn(600)[::2], torch.zeros(900)[1::3], 2, 3),
    "a diagonal": lambda: stride(torch.randn(17, 17).diagonal(), torch.empty(17), 18, 1),
    "a part of a matrix": lambda: rows(torch.randn(20, 50)[3:11, 7:40]),
    "a transposed matrix": lambda: rows(torch.randn(33, 12).T),
    "an expanded row": lambda: rows(torch.randn(1, 30).expand(9, 30)),
    "an expanded column": lambda: rows(torch.randn(9, 1).expand(9, 30)),
    "overlapping windows": lambda: rows(torch.randn(40).as_strided((10, 8), (3, 1))),
}


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


def wild_addresses_behind_a_mask():
    @triton.jit
    def kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        index = tl.load(index_ptr + offsets)
        mask = (index >= 0) & (index < n)
        tl.store(out_ptr + offsets, tl.load(x_ptr + index, mask=mask, other=-1.0))

    x, out = torch.randn(50), torch.empty(8)
    index = torch.tensor([3, -(2**40), 2**60, 49, 50, -1, 0, 2**62])
    kernel[(1,)](x, index, out, 50, BLOCK=8)
    assert out.tolist() == [x[3], -1, -1, x[49], -1, -1, x[0], -1]


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


@triton.jit
def sum_kernel(x_ptr, out_ptr, n):
    total = 0.0
    for i in range(n):
        total += tl.load(x_ptr + i)
    tl.store(out_ptr + tl.program_id(0), total)


def a_loop_over_scalars():
    x, out = torch.randn(37), torch.empty(1)
    sum_kernel[(1,)](x, out, 37)
    assert torch.allclose(out, x.sum(), atol=1e-4)


def a_loop_that_ends_by_data():
    @triton.jit
    def kernel(next_ptr, out_ptr, start):
        place, steps = start, 0
        while place >= 0:
            place = tl.load(next_ptr + place)
            steps += 1
        tl.store(out_ptr, steps)

    links, out = torch.tensor([4, -1, 1, 2, 3]), torch.empty(1, dtype=torch.int32)
    kernel[(1,)](links, out, 0)
    assert out.item() == 5


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x + 1, mask=offsets < n)


def autotuned():
    x = torch.randn(300)
    out = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](x, out, 300)
    assert torch.equal(out, x + 1)


@triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"])})
@triton.jit
def chosen_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x, mask=offsets < n)


def a_block_by_heuristics():
    x = torch.randn(77)
    out = torch.empty_like(x)
    chosen_kernel[(1,)](x, out, 77)
    assert torch.equal(x, out)


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


def half_precision_and_integers():
    for dtype in (torch.float16, torch.int8, torch.int16, torch.int64, torch.float64, torch.bool):
        x = torch.randint(0, 2, (300,)).to(dtype)
        copy(x, torch.empty_like(x))


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


def a_descriptor_made_in_the_kernel():
    @triton.jit
    def kernel(x_ptr, out_ptr, M, N, T: tl.constexpr):
        x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [T, T])
        out = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [T, T])
        i, j = tl.program_id(0) * T, tl.program_id(1) * T
        out.store([i, j], x.load([i, j]) * 2)

    x = torch.randn(37, 40)
    out = torch.empty_like(x)
    kernel[(3, 3)](x, out, 37, 40, T=16)
    assert torch.equal(out, 2 * x)


def a_descriptor_as_an_argument():
    @triton.jit
    def kernel(x, out, T: tl.constexpr):
        i = tl.program_id(0) * T
        out.store([i, 0], x.load([i, 0]))

    x = torch.randn(37, 16)
    out = torch.empty_like(x)
    one, two = (TensorDescriptor.from_tensor(t, [16, 16]) for t in (x, out))
    kernel[(3,)](one, two, T=16)
    assert torch.equal(out, x)


def block_pointers():
    if not hasattr(InterpreterBuilder, "create_make_block_ptr"):
        pytest.skip("this Triton has no block pointers")

    @triton.jit
    def kernel(x_ptr, out_ptr, M, N, T: tl.constexpr):
        x = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (0, 0), (T, T), (1, 0))
        out = tl.make_block_ptr(out_ptr, (M,), (1,), (0,), (T,), (0,))
        total = tl.zeros((T,), dtype=tl.float32)
        for _ in range(0, N, T):
            block = tl.load(x, boundary_check=(0, 1), padding_option="zero")
            total += tl.sum(block, axis=1)
            x = tl.advance(x, (0, T))
        tl.store(out, total, boundary_check=(0,))

    x, out = torch.randn(13, 37), torch.empty(13)
    kernel[(1,)](x, out, 13, 37, T=16)
    assert torch.allclose(out, x.sum(dim=1), atol=1e-4)


def pointers_from_memory():
    @triton.jit
    def kernel(table_ptr, lengths_ptr, out_ptr, BLOCK: tl.constexpr):
        pid, offsets = tl.program_id(0), tl.arange(0, BLOCK)
        x_ptr = tl.load(table_ptr + pid).to(tl.pointer_type(tl.float32))
        x = tl.load(x_ptr + offsets, mask=offsets < tl.load(lengths_ptr + pid), other=0.0)
        tl.store(out_ptr + pid, tl.sum(x, axis=0))

    parts = [torch.randn(n) for n in (5, 33, 64)] + [torch.randn(100)[7:20]]
    table = torch.tensor([x.data_ptr() for x in parts])
    lengths, out = torch.tensor([len(x) for x in parts]), torch.empty(4)
    kernel[(4,)](table, lengths, out, BLOCK=64)
    assert torch.allclose(out, torch.stack([x.sum() for x in parts]), atol=1e-4)


def one_of_two_pointers():
    @triton.jit
    def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        from_x = offsets < n
        places = tl.where(from_x, x_ptr + offsets, y_ptr + offsets - n)
        tl.store(out_ptr + offsets, tl.load(places))

    x, y, out = torch.randn(10), torch.randn(22), torch.empty(32)
    kernel[(1,)](x, y, out, 10, BLOCK=32)
    assert torch.equal(out, torch.cat([x, y]))


def another_type_for_the_same_memory():
    @triton.jit
    def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        words = tl.load(x_ptr.to(tl.pointer_type(tl.int32)) + offsets)
        tl.store(out_ptr.to(tl.pointer_type(tl.int32)) + offsets, words)

    x, out = torch.randn(32).half(), torch.empty(32).half()
    kernel[(1,)](x, out, BLOCK=16)
    assert torch.equal(x, out)


def arguments_in_tuples():
    @triton.jit
    def kernel(inputs, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        a = tl.load(inputs[0] + offsets, mask=offsets < n)
        b = tl.load(inputs[1] + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, a + b, mask=offsets < n)

    a, b, out = torch.randn(30), torch.randn(30), torch.empty(30)
    kernel[(1,)]((a, b), out, 30, BLOCK=32)
    assert torch.equal(out, a + b)


def an_optional_argument():
    @triton.jit
    def kernel(x_ptr, bias_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        if bias_ptr is not None:
            x += tl.load(bias_ptr)
        tl.store(out_ptr + offsets, x, mask=offsets < n)

    x = torch.randn(30)
    for bias in (None, torch.tensor([2.0])):
        out = torch.empty(30)
        kernel[(1,)](x, bias, out, 30, BLOCK=32)
        assert torch.equal(out, x if bias is None else x + 2)


def a_hash_as_an_index():
    @triton.jit
    def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        place = ((offsets + 7) * 1664525 * 22695477 + 1013904223) & 15
        tl.store(out_ptr + offsets, tl.load(x_ptr + place))

    x, out = torch.randn(16), torch.empty(32)
    kernel[(1,)](x, out, BLOCK=32)
    assert set(out.tolist()) <= set(x.tolist())


def offsets_of_64_bits():
    @triton.jit
    def kernel(x_ptr, out_ptr, step, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        columns = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * step + columns)
        tl.store(out_ptr + row * BLOCK + columns, x)

    # Pages that nobody writes take no memory.
    x, out = torch.zeros(3 * 2**30 + 64, dtype=torch.int8), torch.empty(4, 64, dtype=torch.int8)
    x[2**30] = x[3 * 2**30] = 5
    kernel[(4,)](x, out, 2**30, BLOCK=64)
    assert out[:, 0].tolist() == [0, 5, 0, 5]


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
