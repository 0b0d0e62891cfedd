"""Kernels with races, and with values that nobody wrote: the watch must name them."""

import torch
import triton
import triton.language as tl
from wrong_access_kernels import B, add, add_kernel, names

RACE, TWICE = "a race", "several values for one element"
NEW, UNDEFINED, GAPS = "uninitialized memory", "an undefined value", "no program has written"


@names(GAPS, "`out_ptr`: 104 of 1000", "first is at 896", "too few programs")
def a_grid_rounded_down():
    add(1000, 1000 // B)


@names(GAPS, "200 of 1000", "first is at 800")
def a_mask_that_is_too_narrow():
    add(1000, 8, claimed=800)


@names(RACE, "0 of `total_ptr`", "program:  1,", "program 0 has", "atomic_add")
def a_total_without_atomics():
    @triton.jit
    def kernel(x_ptr, total_ptr, BLOCK: tl.constexpr):
        x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
        tl.store(total_ptr, tl.load(total_ptr) + tl.sum(x, axis=0))

    kernel[(4,)](torch.randn(512), torch.zeros(1), BLOCK=B)


@names(RACE, "128 of `x_ptr`", "program 0 has loaded or stored")
def moved_in_place():
    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets + 1, mask=offsets + 1 < n)
        tl.store(x_ptr + offsets, x, mask=offsets + 1 < n)

    kernel[(4,)](torch.randn(512), 512, BLOCK=B)


@names(RACE, "127 of `x_ptr`", "program 0 has written")
def reads_what_the_neighbor_wrote():
    @triton.jit
    def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        pid = tl.program_id(0)
        offsets = pid * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + offsets, offsets)
        if pid > 0:
            tl.store(out_ptr + pid, tl.load(x_ptr + pid * BLOCK - 1))

    kernel[(4,)](torch.zeros(512).int(), torch.zeros(4).int(), BLOCK=B)


@names(RACE, "`out_ptr`", "stores another value", "overlap")
def blocks_that_overlap():
    @triton.jit
    def kernel(out_ptr, BLOCK: tl.constexpr):
        pid = tl.program_id(0)
        tl.store(out_ptr + pid * (BLOCK - 1) + tl.arange(0, BLOCK), pid)

    kernel[(4,)](torch.empty(4 * B).int(), BLOCK=B)


@names(RACE, "`out_ptr`", "updates")
def zero_by_the_first_program_and_atomics_by_all():
    @triton.jit
    def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        pid = tl.program_id(0)
        if pid == 0:
            tl.store(out_ptr, 0.0)
        tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + pid * BLOCK + tl.arange(0, BLOCK)), axis=0))

    kernel[(4,)](torch.randn(512), torch.ones(1), BLOCK=B)


@names(RACE, "0 of `total_ptr`", "updates the element, which program 0 has loaded")
def reads_a_total_before_all_have_added():
    @triton.jit
    def kernel(x_ptr, total_ptr, out_ptr):
        pid = tl.program_id(0)
        tl.atomic_add(total_ptr + tl.arange(0, 2), tl.load(x_ptr + pid))
        tl.store(out_ptr + pid, tl.load(x_ptr + pid) / tl.load(total_ptr))

    x = torch.rand(4)
    total = torch.zeros(2)
    kernel[(4,)](x, total, torch.zeros(4))


@names(RACE, "`parts_ptr`")
def a_counter_without_an_order():
    @triton.jit
    def kernel(parts_ptr, count_ptr, out_ptr, PROGRAMS: tl.constexpr):
        pid = tl.program_id(0)
        tl.store(parts_ptr + pid, pid)
        before = tl.atomic_add(count_ptr, 1, sem="relaxed")
        if before == PROGRAMS - 1:
            tl.store(out_ptr, tl.sum(tl.load(parts_ptr + tl.arange(0, PROGRAMS)), axis=0))

    kernel[(4,)](torch.empty(4).int(), torch.zeros(1).int(), torch.empty(1).int(), PROGRAMS=4)


@names(RACE, "`parts_ptr`")
def stores_after_the_counter():
    @triton.jit
    def kernel(parts_ptr, count_ptr, out_ptr, PROGRAMS: tl.constexpr):
        pid = tl.program_id(0)
        before = tl.atomic_add(count_ptr, 1)
        tl.store(parts_ptr + pid, pid + 1)
        if before == PROGRAMS - 1:
            tl.store(out_ptr, tl.sum(tl.load(parts_ptr + tl.arange(0, PROGRAMS)), axis=0))

    kernel[(4,)](torch.zeros(4).int(), torch.zeros(1).int(), torch.empty(1).int(), PROGRAMS=4)


@names(NEW, "0 of `total_ptr`", "torch.zeros")
def a_total_that_begins_with_anything():
    @triton.jit
    def kernel(x_ptr, total_ptr, BLOCK: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, BLOCK))
        tl.store(total_ptr, tl.load(total_ptr) + tl.sum(x, axis=0))

    kernel[(1,)](torch.randn(128), torch.empty(1), BLOCK=B)


@names(NEW, "`total_ptr`")
def atomics_on_new_memory():
    @triton.jit
    def kernel(x_ptr, total_ptr, BLOCK: tl.constexpr):
        x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
        tl.atomic_add(total_ptr, tl.sum(x, axis=0))

    kernel[(4,)](torch.randn(512), torch.empty_like(torch.zeros(1)), BLOCK=B)


@names(NEW, "256 of `x_ptr`", "earlier kernel")
def a_first_kernel_that_leaves_elements_out():
    x, work, out = torch.randn(300), torch.randn(1).new_empty(300), torch.empty(300)
    add_kernel[(2,)](x, x, work, 300, BLOCK=B, L=True, S=True)
    add_kernel[(3,)](work, x, out, 300, BLOCK=B, L=True, S=True)


@names(NEW, "100 of `x_ptr`")
def only_a_part_filled_by_pytorch():
    x = torch.empty(300)
    x[:100] = 1.0
    add_kernel[(3,)](x, torch.zeros(300), torch.empty(300), 300, BLOCK=B, L=True, S=True)


@names(NEW, "`x_ptr`")
def new_bytes():
    x = torch.empty(300, dtype=torch.uint8)
    add_kernel[(3,)](x, x, torch.empty_like(x), 300, BLOCK=B, L=True, S=True)


@names(UNDEFINED, "the value of a store", "other=")
def a_sum_over_what_the_mask_left_out():
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(out_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n), axis=0) / n)

    kernel[(1,)](torch.randn(100), torch.empty(1), 100, BLOCK=B)


@names(UNDEFINED, "the address")
def an_undefined_index():
    @triton.jit
    def kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        index = tl.load(index_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, tl.load(x_ptr + index), mask=offsets < n)

    kernel[(1,)](torch.randn(100), torch.randint(0, 100, (60,)), torch.empty(60), 60, BLOCK=64)


@names(UNDEFINED, "the value of a store")
def a_product_over_undefined_columns():
    @triton.jit
    def kernel(a_ptr, out_ptr, K, T: tl.constexpr):
        i = tl.arange(0, T)
        places = i[:, None] * K + i[None, :]
        a = tl.load(a_ptr + places, mask=i[None, :] < K)
        tl.store(out_ptr + i[:, None] * T + i[None, :], tl.dot(a, tl.trans(a)))

    kernel[(1,)](torch.randn(16, 10), torch.empty(16, 16), 10, T=16)


@names(UNDEFINED, "the mask")
def a_mask_from_undefined_elements():
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, 1.0, mask=x > 0)

    kernel[(1,)](torch.randn(100), torch.zeros(B), 100, BLOCK=B)


@names(TWICE, "0 of `out_ptr`", "stride of 0")
def a_store_with_a_stride_of_zero():
    @triton.jit
    def kernel(x_ptr, out_ptr, step, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets * step, tl.load(x_ptr + offsets))

    kernel[(1,)](torch.randn(16), torch.empty(1).expand(16), 0, BLOCK=16)


@names(GAPS, "`out_ptr`: 15 of 30")
def single_bytes_that_are_left_out():
    @triton.jit
    def kernel(out_ptr):
        tl.store(out_ptr + 2 * tl.program_id(0), 7)

    out = torch.empty(30, dtype=torch.int8)
    kernel[(15,)](out)
    assert out.sum() == 7 * 30


@names(UNDEFINED, "the value of an update", "program:  1,")
def an_update_with_what_the_mask_left_out():
    @triton.jit
    def kernel(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_add(total_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n), axis=0))

    kernel[(2,)](torch.randn(50), torch.zeros(1), 50, BLOCK=32)


@triton.jit
def counts_kernel(count_ptr, out_ptr, n, WAY: tl.constexpr):
    pid = tl.program_id(0)
    count, total = tl.load(count_ptr + pid, mask=pid < n), 0
    if WAY == "branch":
        if count > 1:
            total = 1
    elif WAY == "while":
        while total < count:
            total += 1
    else:
        for i in range(count):
            total += i
    tl.store(out_ptr + pid, total)


@names(UNDEFINED, "a branch or a loop", "if count > 1", "program:  2,")
def a_branch_by_an_undefined_element():
    counts = torch.tensor([3, 1], dtype=torch.int32)
    counts_kernel[(3,)](counts, torch.empty(3).int(), 2, WAY="branch")


@names(UNDEFINED, "a branch or a loop", "while total < count")
def a_loop_by_an_undefined_element():
    counts = torch.tensor([3, 1], dtype=torch.int32)
    counts_kernel[(3,)](counts, torch.empty(3).int(), 2, WAY="while")


@names(UNDEFINED, "a branch or a loop", "for i in range(count)")
def a_range_of_undefined_length():
    counts = torch.tensor([3, 1], dtype=torch.int32)
    counts_kernel[(3,)](counts, torch.empty(3).int(), 2, WAY="range")
