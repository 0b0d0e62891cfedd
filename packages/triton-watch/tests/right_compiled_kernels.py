"""Right kernels that use what a careless check of the source would refuse."""

import math

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(math.log2(math.e))
SIZES = (4, 8)


def next_size(n):
    """A Python function that the host calls."""
    return triton.next_power_of_2(n)


@triton.jit
def twice(x):
    return x + x


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def branches_kernel(x_ptr, bias_ptr, out_ptr, n, B: tl.constexpr, WAY: tl.constexpr):
    offsets = tl.arange(0, B)
    mask = (offsets >= 0) & (offsets < n)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + offsets, mask=mask, other=0.0)
    if WAY == "twice":
        x = twice(x)
    elif WAY == "exp":
        x = tl.exp2(x * LOG2E)
    else:
        # No release compiles this branch, and none has to.
        for i in range(n):
            if i > 3:
                break
    if n == 0:
        return
    tl.store(out_ptr + offsets, x, mask=mask)


@triton.jit
def early_return_kernel(lengths_ptr, out_ptr):
    row = tl.program_id(0)
    length = tl.load(lengths_ptr + row)
    if length == 0:
        tl.store(out_ptr + row, -1)
        return
    total = 0
    i = 0
    while i < length and total < 100:
        total += i
        i += 1
    tl.store(out_ptr + row, total)


@triton.jit
def tuple_kernel(pair, out_ptr, strides, B: tl.constexpr):
    a_ptr, b_ptr = pair
    offsets = tl.arange(0, B) * strides[0]
    tl.store(out_ptr + tl.arange(0, B), tl.load(a_ptr + offsets) + tl.load(b_ptr + offsets))


@triton.jit
def scan_kernel(x_ptr, sums_ptr, most_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(sums_ptr + i, tl.cumsum(x, axis=0))
    tl.store(most_ptr + i, tl.associative_scan(x, 0, larger))


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, B: tl.constexpr, EVEN: tl.constexpr = False):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    accumulator = tl.zeros((B, B), dtype=tl.float32)
    for start in tl.range(0, K, B, num_stages=2):
        ks = start + tl.arange(0, B)
        a_mask = (rows[:, None] < M) & (ks[None, :] < K)
        b_mask = (ks[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + ks[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * N + columns[None, :], mask=b_mask, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
    tl.static_assert(B >= 16)
    c_mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], accumulator, mask=c_mask)


@triton.jit
def lock_kernel(x_ptr, lock_ptr, total_ptr, B: tl.constexpr):
    x = tl.sum(tl.load(x_ptr + tl.program_id(0) * B + tl.arange(0, B)))
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(total_ptr, tl.load(total_ptr) + x)
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def assert_kernel(x_ptr, out_ptr, n, B: tl.constexpr):
    offsets = tl.arange(0, B)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.device_assert(x >= 0, "negative", mask=offsets < n)
    tl.store(out_ptr + offsets, tl.sqrt(x), mask=offsets < n)


@triton.autotune(
    [triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"], restore_value=["x_ptr"]
)
@triton.jit
def restored_kernel(x_ptr, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, x + 1, mask=offsets < n)


@triton.autotune([triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x + 1, mask=offsets < n)


@triton.autotune(
    [triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"], reset_to_zero=["sum_ptr"]
)
@triton.jit
def reset_kernel(x_ptr, sum_ptr, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(sum_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)))


@triton.jit(do_not_specialize=["threshold"])
def threshold_kernel(x_ptr, threshold, B: tl.constexpr):
    offsets = tl.arange(0, B)
    tl.store(x_ptr + offsets, offsets.to(tl.uint32) >= threshold.to(tl.uint32))


def an_argument_that_is_not_specialized():
    threshold_kernel[(1,)](torch.empty(16, dtype=torch.bool), 1, B=16)


def branch(way, bias):
    x, out = torch.randn(13), torch.empty(13)
    branches_kernel[(1,)](x, torch.randn(13) if bias else None, out, 13, B=next_size(13), WAY=way)


def branches_without_bias():
    branch("twice", False)


def branches_with_bias():
    branch("exp", True)


def an_early_return():
    early_return_kernel[(3,)](torch.tensor([0, 5, 9]).int(), torch.empty(3).int())


def tuples():
    tuple_kernel[(1,)]((torch.ones(16), torch.ones(16)), torch.empty(8), (2,), B=8)


def scans():
    scan_kernel[(1,)](torch.randn(32), torch.empty(32), torch.empty(32), N=32)


def a_product():
    a, b, c = torch.randn(20, 33), torch.randn(33, 18), torch.empty(20, 18)
    matmul_kernel[(2, 2)](a, b, c, 20, 18, 33, B=16, num_warps=4, num_stages=2)
    torch.testing.assert_close(c, a @ b)


def a_lock():
    lock_kernel[(4,)](torch.ones(64), torch.zeros(1).int(), torch.zeros(1), B=16)


def an_assertion_that_holds():
    assert_kernel[(1,)](torch.rand(13), torch.empty(13), 13, B=16)


def tuned_in_place():
    restored_kernel[lambda meta: (triton.cdiv(40, meta["B"]),)](torch.zeros(40), 40)


def tuned():
    tuned_kernel[lambda meta: (triton.cdiv(40, meta["B"]),)](torch.zeros(40), torch.empty(40), 40)


def tuned_sum():
    reset_kernel[lambda meta: (triton.cdiv(40, meta["B"]),)](torch.ones(40), torch.zeros(1), 40)


def half_precision():
    a, b = torch.randn(16, 16).half(), torch.randn(16, 16).half()
    matmul_kernel[(1, 1)](a, b, torch.empty(16, 16), 16, 16, 16, B=16)
