"""Kernels with wrong addresses: the watch must name what is wrong, and where.

``@names(…)`` lists what the report must contain: its kind, the argument, the index, the cause.
"""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder
from triton.tools.tensor_descriptor import TensorDescriptor

B = 128


def names(*words):
    """Give a function the words that its report must contain."""

    def with_words(function):
        function.words = words
        return function

    return with_words


OUT = "out of bounds"


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, L: tl.constexpr, S: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if L:
        x, y = (
            tl.load(x_ptr + offsets, mask=offsets < n),
            tl.load(y_ptr + offsets, mask=offsets < n),
        )
    else:
        x = tl.load(x_ptr + offsets)
        y = tl.load(y_ptr + offsets)
    if S:
        tl.store(out_ptr + offsets, x + y, mask=offsets < n)
    else:
        tl.store(out_ptr + offsets, x + y)


def add(n, programs, claimed=None, load=True, store=True):
    x, y = torch.randn(2, n)
    out = torch.empty(n)
    more = {"BLOCK": B, "L": load, "S": store}
    add_kernel[(programs,)](x.clone(), y.clone(), out, claimed or n, **more)
    return out.sum()


@names(
    OUT,
    "a store",
    "index:    1000 of `out_ptr`, which has 1000 elements",
    "no mask",
    "program:  7,",
)
def no_mask_at_the_store():
    add(1000, 8, store=False)


@names(OUT, "a load", "1000 of `x_ptr`", "24 of 128", "no mask", "x = tl.load(x_ptr + offsets)")
def no_mask_at_the_loads():
    add(1000, 8, load=False)


@names(OUT, "1000 of `x_ptr`", "another tensor")
def a_mask_with_another_length():
    add(1000, 8, claimed=1010)


@names(OUT, "1024 of `x_ptr`", "too many programs", "program:  8, in a grid of 9")
def a_grid_that_is_too_large():
    add(1024, 9, load=False)


@names(OUT, "999 of `y_ptr`", "999 elements")
def a_shorter_second_input():
    x, y = torch.randn(1000), torch.randn(999)
    add_kernel[(8,)](x, y, torch.empty(1000), 1000, BLOCK=B, L=True, S=True)


@names(OUT, "-1 of `x_ptr`", "below zero")
def an_index_below_zero():
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        left = tl.load(x_ptr + offsets - 1, mask=offsets < n)
        tl.store(out_ptr + offsets, left, mask=offsets < n)

    kernel[(1,)](torch.randn(50), torch.empty(50), 50, BLOCK=64)


@triton.jit
def rows_kernel(x_ptr, out_ptr, step, column_step, N, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * step + columns * column_step, mask=columns < N, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


@names(OUT, "`x_ptr`", "view", "strides (1, 30)")
def strides_of_a_transposed_matrix_not_passed():
    x = torch.randn(20, 30).T
    rows_kernel[(30,)](x[:, :10], torch.empty(30), 20, 1, 10, BLOCK=16)


@names(OUT, "`x_ptr`", "600 of", "shape (20, 30)")
def strides_exchanged():
    x = torch.randn(20, 30)
    rows_kernel[(20,)](x, torch.empty(20), 1, 30, 30, BLOCK=32)


@names(OUT, "`x_ptr`", "expanded")
def an_expanded_tensor_read_as_contiguous():
    x = torch.randn(20, 1).expand(20, 30)
    rows_kernel[(20,)](x, torch.empty(20), 30, 1, 30, BLOCK=32)


@names(OUT, "`x_ptr`", "reaches over")
def behind_a_view_although_inside_its_memory():
    whole = torch.randn(1000)
    rows_kernel[(1,)](whole[100:400:3], torch.empty(1), 0, 3, 128, BLOCK=128)


@names(OUT, "100 of `out_ptr`, which has 100 elements")
def behind_a_part_of_a_larger_tensor():
    whole = torch.zeros(1000)
    x = torch.randn(100)
    add_kernel[(1,)](x, x, whole[:100], 100, BLOCK=B, L=True, S=False)


@names(OUT, "-2147483648 of", "wraps around", ".to(tl.int64)", "`x_ptr`")
def offsets_of_32_bits():
    x = torch.zeros(2**31 + 2**21, dtype=torch.int8)
    rows_kernel[(1025,)](x, torch.empty(1025), 2**21, 1, 16, BLOCK=16)


@names("integer overflow", "`x_ptr`", "wraps around", ".to(tl.int64)", "program:  1,")
def offsets_that_wrap_into_the_tensor():
    @triton.jit
    def kernel(x_ptr, out_ptr, step, BLOCK: tl.constexpr):
        row, columns = tl.program_id(0), tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * step * BLOCK + columns)
        tl.store(out_ptr + row * BLOCK + columns, x)

    kernel[(2,)](torch.randn(64), torch.empty(2, 16), 2**28, BLOCK=16)


@names(OUT, "`x_ptr`", "descriptor")
def a_descriptor_with_another_shape():
    @triton.jit
    def kernel(x_ptr, out_ptr, M, N, T: tl.constexpr):
        x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [T, T])
        out = tl.make_tensor_descriptor(out_ptr, [T, T], [T, 1], [T, T])
        out.store([0, 0], x.load([16, 0]))

    kernel[(1,)](torch.randn(20, 16), torch.empty(16, 16), 32, 16, T=16)


@names(OUT, "320 of `out`, which has 320 elements", "descriptor")
def a_descriptor_as_an_argument_with_another_shape():
    @triton.jit
    def kernel(x, out, T: tl.constexpr):
        i = tl.program_id(0) * T
        out.store([i, 0], x.load([i, 0]))

    x, out = torch.randn(32, 16), torch.empty(20, 16)
    given = TensorDescriptor.from_tensor(x, [16, 16])
    wrong = TensorDescriptor(out, [32, 16], [16, 1], [16, 16])
    kernel[(2,)](given, wrong, T=16)


@names(OUT, "`x_ptr`", "boundary_check")
def a_block_pointer_without_a_check():
    if not hasattr(InterpreterBuilder, "create_make_block_ptr"):
        pytest.skip("this Triton has no block pointers")

    @triton.jit
    def kernel(x_ptr, out_ptr, N, T: tl.constexpr):
        x = tl.make_block_ptr(x_ptr, (N,), (1,), (tl.program_id(0) * T,), (T,), (0,))
        tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x), axis=0))

    kernel[(2,)](torch.randn(20), torch.empty(2), 20, T=16)


@names(OUT, "shape (33,)", "33 of")
def behind_a_tensor_from_a_table():
    @triton.jit
    def kernel(table_ptr, out_ptr, BLOCK: tl.constexpr):
        pid, offsets = tl.program_id(0), tl.arange(0, BLOCK)
        x = tl.load(tl.load(table_ptr + pid).to(tl.pointer_type(tl.float32)) + offsets)
        tl.store(out_ptr + pid, tl.sum(x, axis=0))

    parts = [torch.randn(64), torch.randn(33)]
    kernel[(2,)](torch.tensor([x.data_ptr() for x in parts]), torch.empty(2), BLOCK=64)


@names(OUT, "address", "0x0", "place is empty")
def an_empty_place_in_a_table():
    @triton.jit
    def kernel(table_ptr, out_ptr):
        pid = tl.program_id(0)
        x_ptr = tl.load(table_ptr + pid).to(tl.pointer_type(tl.float32))
        tl.store(out_ptr + pid, tl.load(x_ptr))

    x = torch.randn(3)
    kernel[(2,)](torch.tensor([x.data_ptr(), 0]), torch.empty(2))


@names(OUT, "update", "`counts_ptr`")
def a_bin_that_does_not_exist():
    @triton.jit
    def kernel(x_ptr, counts_ptr, BLOCK: tl.constexpr):
        tl.atomic_add(counts_ptr + tl.load(x_ptr + tl.arange(0, BLOCK)), 1)

    kernel[(1,)](torch.arange(8), torch.zeros(7, dtype=torch.int32), BLOCK=8)


@names(OUT, "`x_ptr`", "0 elements", "is empty")
def an_empty_tensor():
    @triton.jit
    def kernel(x_ptr, out_ptr):
        tl.store(out_ptr, tl.load(x_ptr))

    kernel[(1,)](torch.randn(0), torch.empty(1))


@names(OUT, "16 of `x_ptr`", "square_of")
def a_function_of_a_kernel():
    kernel_of_a_function[(1,)](torch.randn(16), torch.empty(1), BLOCK=32)


@triton.jit
def square_of(x_ptr, offsets):
    x = tl.load(x_ptr + offsets)  # square_of
    return x * x


@triton.jit
def kernel_of_a_function(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.sum(square_of(x_ptr, tl.arange(0, BLOCK)), axis=0))


@names(OUT, "`b_ptr`", "program:  (0, 1), in a grid of (2, 2)")
def a_tile_without_its_second_mask():
    @triton.jit
    def kernel(a_ptr, b_ptr, c_ptr, M, N, K: tl.constexpr, T: tl.constexpr):
        rows = tl.program_id(0) * T + tl.arange(0, T)
        columns = tl.program_id(1) * T + tl.arange(0, T)
        depth = tl.arange(0, K)
        a = tl.load(a_ptr + rows[:, None] * K + depth[None, :], mask=rows[:, None] < M, other=0.0)
        b = tl.load(b_ptr + depth[:, None] * N + columns[None, :])
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(c_ptr + rows[:, None] * N + columns[None, :], tl.dot(a, b), mask=mask)

    kernel[(2, 2)](
        torch.randn(20, 16), torch.randn(16, 20), torch.empty(20, 20), 20, 20, K=16, T=16
    )


@names(OUT, "16 of `x_ptr`", "8 of 16")
def elements_counted_as_bytes():
    @triton.jit
    def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr.to(tl.pointer_type(tl.float64)) + offsets))

    kernel[(1,)](torch.randn(16), torch.empty(16).double(), BLOCK=16)


@names(OUT, "5 of `scale_ptr`", "16 of 32")
def a_group_that_is_rounded_up():
    @triton.jit
    def kernel(weight_ptr, scale_ptr, out_ptr, n, GROUP: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        scale = tl.load(scale_ptr + offsets // GROUP)
        w = tl.load(weight_ptr + offsets)
        tl.store(out_ptr + offsets, w * scale, mask=offsets < n)

    w, scales, out = torch.randn(72), torch.randn(5), torch.empty(72)
    kernel[(3,)](w, scales, out, 72, GROUP=16, BLOCK=32)


@names(OUT, "5 of `x_ptr`, which is none of its elements", "(20, 5)", "strides (10, 1)")
def a_part_of_rows_read_as_contiguous():
    rows_kernel[(20,)](torch.randn(20, 10)[:, :5], torch.empty(20), 5, 1, 5, BLOCK=8)


@names(OUT, "a store", "1 of `out_ptr`, which is none of its elements")
def a_store_between_the_elements_of_a_view():
    x = torch.randn(16)
    add_kernel[(1,)](x, x, torch.zeros(32)[::2], 16, BLOCK=16, L=True, S=True)


@names("integer overflow", "`x_ptr`", "of 8 bits wraps around")
def indices_of_8_bits():
    @triton.jit
    def kernel(x_ptr, index_ptr, out_ptr, N: tl.constexpr):
        row, columns = tl.program_id(0), tl.arange(0, N)
        index = tl.load(index_ptr + row)
        x = tl.load(x_ptr + 512 + index * N + columns)
        tl.store(out_ptr + row * N + columns, x)

    index = torch.tensor([1, 9], dtype=torch.int8)
    kernel[(2,)](torch.randn(1024), index, torch.empty(2, 16), N=16)


@names(OUT, "a gather", "-1 of a block which has 16 elements")
def a_gather_below_zero():
    @triton.jit
    def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.gather(tl.load(x_ptr + offsets), offsets - 1, 0))

    kernel[(1,)](torch.randn(16), torch.empty(16), BLOCK=16)
