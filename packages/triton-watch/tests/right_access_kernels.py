"""Kernels whose addresses are right, as different as possible: the watch must find nothing.

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

    links, out = torch.tensor([4, -1, 1, 2, 3]).int(), torch.empty(1, dtype=torch.int32)
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


def half_precision_and_integers():
    for dtype in (torch.float16, torch.int8, torch.int16, torch.int64, torch.float64, torch.bool):
        x = torch.randint(0, 2, (300,)).to(dtype)
        copy(x, torch.empty_like(x))


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
