r"""
Decoding with split keys
========================

*Solution to the last exercise of* :doc:`../06-fused-attention`.

When a model generates text, each new token has **one query**. Its keys and values are those of all
tokens before it, in the **KV cache**. Each key and each value is used once for each head of its
group, a few operations per byte. So decoding is **memory-bound**, and a copy is the ceiling.

With one program for each head of keys, a small batch leaves most of the GPU idle. So the **keys are
split** between programs. Each program computes the attention over its part alone and stores the
log-sum-exp of its scores. A second kernel combines the parts.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import math
import os
from functools import partial

import torch
from tabulate import tabulate
from torch.nn.attention import SDPBackend, sdpa_kernel

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# The first kernel differs from the tutorial's in three points. Its tile of queries holds the heads
# of a group, padded to the 16 rows of a tensor core. It takes only its part of the keys. And
# it stores fp32, because the parts are added up. (``EARLY`` is explained below.)


@triton.jit
def part_kernel(
    q_ptr, k_desc, v_desc, part_ptr, lse_ptr, key_heads, keys, part, parts, scale,
    GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Compute attention of one group of heads over one part of the keys."""
    if EARLY:
        gdc_launch_dependents()
    batch, key_head = tl.program_id(0) // key_heads, tl.program_id(0) % key_heads
    rows, dims = tl.arange(0, ROWS), tl.arange(0, D)
    heads = tl.program_id(0).to(tl.int64) * GROUP + rows
    inside = rows < GROUP
    q = tl.load(q_ptr + heads[:, None] * D + dims[None, :], mask=inside[:, None], other=0.0)
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    z = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    start = tl.program_id(1) * part
    stop = min(keys, start + part)
    for col in range(start, stop, BLOCK_N):
        k = k_desc.load([batch, key_head, col, 0]).reshape(BLOCK_N, D)
        v = v_desc.load([batch, key_head, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = col + tl.arange(0, BLOCK_N) < stop
        s = tl.where(seen[None, :], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp2(s - m_new[:, None])
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        m = m_new
    to = heads * parts + tl.program_id(1)
    o = (acc / z[:, None]).to(part_ptr.dtype.element_ty)
    tl.store(part_ptr + to[:, None] * D + dims[None, :], o, mask=inside[:, None])
    tl.store(lse_ptr + to, m + tl.log2(z), mask=inside)


# %%
# Each part is a weighted mean of its values. The weight of a part is its share of the sum of all
# exponentials, :math:`2^{\mathrm{lse}}`, relative to the largest part. So the second kernel
# computes a softmax over the parts.
#
# This kernel is small, and its launch takes most of its time. On NVIDIA GPUs from Hopper on it is
# launched *early*: its programs may start when all programs of the first kernel have executed
# ``gdc_launch_dependents``, their first instruction. ``gdc_wait`` makes them wait until the first
# kernel has ended and its results are in memory. This is *programmatic dependent launch*.


@triton.jit
def combine_kernel(
    part_ptr, lse_ptr, o_ptr, parts, PARTS: tl.constexpr, D: tl.constexpr, EARLY: tl.constexpr
):
    """Combine the parts of one head."""
    if EARLY:
        gdc_wait()
    head = tl.program_id(0).to(tl.int64)
    rows, dims = tl.arange(0, PARTS), tl.arange(0, D)
    inside = rows < parts
    lse = tl.load(lse_ptr + head * parts + rows, mask=inside, other=-float("inf"))
    weight = tl.exp2(lse - tl.max(lse, axis=0))
    at = part_ptr + (head * parts + rows)[:, None] * D + dims[None, :]
    part = tl.load(at, mask=inside[:, None], other=0.0)
    o = tl.sum(part * weight[:, None], axis=0) / tl.sum(weight, axis=0)
    tl.store(o_ptr + head * D + dims, o.to(o_ptr.dtype.element_ty))


# %%
# The number of parts gives each multiprocessor one program; more parts would only cost more to
# combine. One program uses its multiprocessor's share of the bandwidth if it has enough loads in
# flight, and three stages of 128 keys and values are enough. If batch and heads fill the GPU
# already, one part is left, and the first kernel writes the output.

GPU = torch.get_device_module().get_device_properties(DEVICE) if ON_GPU else None
SMS = getattr(GPU, "multi_processor_count", 64)
SHARED_BYTES = getattr(GPU, "shared_memory_per_block_optin", 65536)
CAN_START_EARLY = ON_GPU and not torch.version.hip and GPU.major >= 9


def decode_attention(q, k, v, scale=None):
    """Return the attention of one query a head; a group of heads may share keys and values.

    Args:
        q: [batch, heads, 1, head_dim], fp16 or bf16; head_dim 16, 32, 64 or 128.
        k: [batch, key heads, keys, head_dim]; heads is a multiple of key heads.
        v: As k.
        scale: What scores are multiplied by, positive; head_dim ** -0.5 if None.
    """
    (batch, heads, queries, d), (_, key_heads, keys, _) = q.shape, k.shape
    if queries != 1:
        raise ValueError(f"q must have one query a head, but has {queries}")
    if k.shape != v.shape or k.shape[::3] != (batch, d) or heads % key_heads or keys == 0:
        raise ValueError(
            "k and v must have one shape, the batch and head_dim of q, heads that divide those of "
            f"q, and keys, but are {tuple(k.shape)} and {tuple(v.shape)}, and q {tuple(q.shape)}"
        )
    q, k, v = (x.resolve_neg().contiguous() for x in (q, k, v))
    block_n = 128
    stages = max(1, min(3, (SHARED_BYTES - 16384) // (2 * block_n * d * k.element_size())))
    parts = max(1, min(triton.cdiv(keys, block_n), SMS // (batch * key_heads)))
    part = triton.cdiv(triton.cdiv(keys, parts), block_n) * block_n  # whole tiles
    parts = triton.cdiv(keys, part)
    group = heads // key_heads
    early = CAN_START_EARLY and parts > 1
    o = torch.empty_like(q)
    part_o = o
    if parts > 1:
        part_o = torch.empty((batch * heads, parts, d), dtype=torch.float32, device=q.device)
    lse = torch.empty((batch * heads, parts), dtype=torch.float32, device=q.device)
    tiles = [TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, 128, d]) for x in (k, v)]
    part_kernel[batch * key_heads, parts](
        q, *tiles, part_o, lse, key_heads, keys, part, parts,
        (d**-0.5 if scale is None else scale) * math.log2(math.e),
        GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), BLOCK_N=block_n, D=d,
        EARLY=early, num_warps=4, num_stages=stages,
    )  # fmt: skip
    if parts > 1:
        combine_kernel[batch * heads,](
            part_o, lse, o, parts, PARTS=triton.next_power_of_2(parts), D=d, EARLY=early,
            **({"launch_pdl": True} if early else {}),
        )  # fmt: skip
    return o


# %%
# The check compares with float64, with lengths that no tile divides:


def check(batch, heads, key_heads, keys, d, dtype):
    """Raise AssertionError where ``decode_attention`` is not what float64 gives."""
    q = torch.randn(batch, heads, 1, d, device=DEVICE, dtype=dtype)
    k, v = torch.randn(2, batch, key_heads, keys, d, device=DEVICE, dtype=dtype)
    got, some = decode_attention(q, k, v), slice(0, 2)  # of the batch: float64 needs memory
    k, v = (x[some].double().repeat_interleave(heads // key_heads, 1) for x in (k, v))
    expected = (q[some].double() @ k.mT * d**-0.5).softmax(-1) @ v
    error = (got[some].double() - expected).norm() / expected.norm()
    assert error <= torch.finfo(dtype).eps, f"{error:.1e} for {keys} keys"
    assert got.isfinite().all()


torch.manual_seed(0)
CASES = [(1, 32768), (16, 8192), (64, 4096)]
if ON_GPU:
    for batch, keys in (*CASES, (3, 1000)):
        check(batch, 64, 8, keys, 128, torch.bfloat16)
else:
    for batch, heads, key_heads, keys in (
        (1, 8, 2, 1),
        (1, 6, 2, 700),
        (2, 4, 4, 129),
        (9, 2, 1, 50),
    ):
        check(batch, heads, key_heads, keys, 32, torch.float16)
print("decode_attention agrees with float64")

# %%
# Timed are three batches of a model with 64 heads of queries and 8 of keys, in bf16. The rate
# counts the bytes of keys and values. The peer is cuDNN, through ``scaled_dot_product_attention``
# with ``enable_gqa=True``. The ceiling is a copy of keys and values, whose rate counts reads and
# writes. ``amax`` of the same numbers reads them once and writes almost nothing, as decoding does.

# sphinx_gallery_fold = "measures decoding against cuDNN and a copy"
import sys  # for shared/
from pathlib import Path  # for shared/

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for shared/
from shared.bench import gpu_times, spread, write_rows


def from_cudnn(q, k, v):
    """Return PyTorch's attention by cuDNN and nothing else."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def benchmark(cases, rounds=30):
    """Return rows (batch, N, provider, unit, median, p20, p80)."""
    rows = []
    for batch, n in cases:
        q = torch.randn(batch, 64, 1, 128, device=DEVICE, dtype=torch.bfloat16)
        both = torch.randn(2, batch, 8, n, 128, device=DEVICE, dtype=torch.bfloat16)
        k, v = both
        calls = {"triton": partial(decode_attention, q, k, v), "copy": both.clone}
        calls["amax"] = both.view(torch.int32).amax
        try:
            from_cudnn(q, k, v)
            calls["cudnn"] = partial(from_cudnn, q, k, v)
        except RuntimeError as error:
            print(f"cudnn does not run here: {str(error).splitlines()[0]}")
        moved = both.numel() * both.element_size()
        for provider, times in gpu_times(calls, rounds).items():
            amount = 2 * moved if provider == "copy" else moved
            rates = [amount / ms / 1e6 for ms in times]
            rows.append((batch, n, provider, "GB/s", *spread(rates)))
    return rows


if ON_GPU:
    rows = benchmark(CASES)
    write_rows("decode-attention.csv", ["batch", "N"], rows)
    rate = {(batch, n, provider): median for batch, n, provider, _, median, _, _ in rows}
    table = []
    for batch, n in CASES:
        ours, *others = (
            rate.get((batch, n, p), math.nan) for p in ("triton", "cudnn", "amax", "copy")
        )
        table.append((batch, n, ours, *others, *(ours / other for other in others)))
    headers = ["batch", "N", "triton", "cudnn", "amax", "copy", "/cudnn", "/amax", "/copy"]
    print("GB/s, higher is better; /…: triton's ratio to it")
    print(tabulate(table, headers, floatfmt=(",.0f",) * 6 + (".2f",) * 3, intfmt=","))
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%
# With few bytes, the launch, the latency of the first loads and the step from one kernel to the
# next are a large part of the time. A copy moves twice the bytes in one launch, so compare with
# ``amax`` there.
