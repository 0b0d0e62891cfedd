"""The kernels of dropout by a seed. The lesson 04-low-memory-dropout explains them."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["seed", "threshold"])
def seeded_dropout_kernel(
    x_ptr, out_ptr, seed: "u64", n, threshold, scale, BLOCK: tl.constexpr  # noqa: F821
):  # fmt: skip
    """Keep element i if word i % 4 of Philox's counter i // 4 is at least the threshold.

    As 64 bits without a sign, whatever its value, a seed never needs a kernel of its own.
    """
    block = tl.program_id(0).to(tl.int64)
    offsets = block * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside).to(tl.float32)
    counters = block * (BLOCK // 4) + tl.arange(0, BLOCK // 4)  # [BLOCK // 4]
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))  # [BLOCK]
    keep = words.to(tl.uint32, bitcast=True) >= tl.cast(threshold, tl.uint32)
    tl.store(out_ptr + offsets, tl.where(keep, x * scale, 0.0), mask=inside)


@triton.jit(do_not_specialize=["threshold"])
def seed_in_memory_kernel(
    x_ptr, out_ptr, seed_ptr, n, threshold, scale, BLOCK: tl.constexpr
):  # fmt: skip
    """Do what seeded_dropout_kernel does, with a seed that it reads."""
    seeded_dropout_kernel(x_ptr, out_ptr, tl.load(seed_ptr), n, threshold, scale, BLOCK)
