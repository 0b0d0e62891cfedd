"""
An expert with a gate
=====================

*Solution to the second exercise of* :doc:`../08-grouped-gemm`.

In most mixtures of experts the first layer of an expert is *gated*: two products of the same
tokens, ``silu(x @ w_gate[e]) * (x @ w_up[e])``, where silu(z) is z / (1 + exp(-z)). Separate
operations write both products to memory, read them again, and write a third matrix. One program can
keep both tiles in registers and apply the gate there. It needs two accumulators, and loads each
tile of ``x`` once for both.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os

import torch
from tabulate import tabulate

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# The kernel is the tutorial's ``one_launch_kernel`` with a second stack of weights. It applies the
# gate to the sums in fp32 and rounds once.


@triton.jit
def gated_kernel(
    x_ptr, gate_ptr, up_ptr, out_ptr, offsets_ptr, experts, tokens, K, N,
    stride_xm, stride_xk, stride_we, stride_wk, stride_wn, stride_om,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of one expert; both stacks of weights have the same strides."""
    mine = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first, start = 0, 0
    for expert in range(experts):
        end = tl.maximum(tl.minimum(tl.load(offsets_ptr + expert), tokens), start)
        after = first + tl.cdiv(end - start, BLOCK_M) * tiles_n
        if (mine >= first) & (mine < after):
            tiles_m = (after - first) // tiles_n
            rows = start + (mine - first) % tiles_m * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = (mine - first) // tiles_m * BLOCK_N + tl.arange(0, BLOCK_N)
            rows, columns = rows.to(tl.int64), columns.to(tl.int64)
            steps = tl.arange(0, BLOCK_K).to(tl.int64)
            x_ptrs = x_ptr + rows[:, None] * stride_xm + steps[None, :] * stride_xk
            offset = tl.full((), expert, tl.int64) * stride_we
            offset += steps[:, None] * stride_wk + columns[None, :] * stride_wn
            x_step = tl.full((), BLOCK_K, tl.int64) * stride_xk
            w_step = tl.full((), BLOCK_K, tl.int64) * stride_wk
            gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                in_x = (rows[:, None] < end) & (steps[None, :] < K - k)
                in_w = (steps[:, None] < K - k) & (columns[None, :] < N)
                x = tl.load(x_ptrs, mask=in_x, other=0.0)
                gate = tl.dot(x, tl.load(gate_ptr + offset, mask=in_w, other=0.0), gate)
                up = tl.dot(x, tl.load(up_ptr + offset, mask=in_w, other=0.0), up)
                x_ptrs += x_step
                offset += w_step
            out = gate / (1 + tl.exp(-gate)) * up
            out_ptrs = out_ptr + rows[:, None] * stride_om + columns[None, :]
            inside = (rows[:, None] < end) & (columns[None, :] < N)
            tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=inside)
        first = after
        start = end


def gated_experts(x, w_gate, w_up, offsets):
    """Return ``silu(x @ w_gate[e]) * (x @ w_up[e])``, each row with the matrices of its expert.

    Args:
        x: tokens × K, sorted by expert, fp16 or bf16.
        w_gate: experts × K × N.
        w_up: Another such stack, with the same strides.
        offsets: int32, the row behind the last one of each expert.
    """
    if w_gate.shape != w_up.shape or w_gate.stride() != w_up.stride():
        raise ValueError("w_up must have the shape and the strides of w_gate")
    if x.dim() != 2 or w_gate.dim() != 3 or x.shape[1] != w_gate.shape[1]:
        raise ValueError(f"x and w_gate do not fit: {tuple(x.shape)}, {tuple(w_gate.shape)}")
    if offsets.dtype != torch.int32 or offsets.shape != w_gate.shape[:1]:
        raise ValueError("offsets must be a vector of int32, one for each expert")
    (tokens, K), (experts, _, N) = x.shape, w_gate.shape
    out = torch.empty(tokens, N, dtype=x.dtype, device=x.device)
    block_m, block_n, block_k = (128, 128, 64) if ON_GPU else (32, 32, 32)
    grid = ((triton.cdiv(tokens, block_m) + experts) * triton.cdiv(N, block_n),)
    gated_kernel[grid](
        x, w_gate, w_up, out, offsets, experts, tokens, K, N,
        *x.stride(), *w_gate.stride(), out.stride(0),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=8, num_stages=3,
    )  # fmt: skip
    return out


# %%
# Two accumulators of 128 × 128 take as many registers as one of 128 × 256. So a fused tile must be
# smaller than the tile of a single product.

# sphinx_gallery_fold = "checks it against float64"
torch.manual_seed(0)
dtype = torch.bfloat16 if ON_GPU else torch.float16
for sizes, K, N in [([5, 0, 70, 1, 0, 33], 45, 77), ([0, 130], 64, 32)]:
    offsets = torch.tensor(sizes).cumsum(0).to(DEVICE, torch.int32)
    x = torch.randn(sum(sizes), K, device=DEVICE, dtype=dtype)
    w_gate, w_up = torch.randn(2, len(sizes), K, N, device=DEVICE, dtype=dtype) / K**0.5
    expected = []
    for e, rows in enumerate(x.double().split(sizes)):
        gate = torch.nn.functional.silu(rows @ w_gate[e].double())
        expected.append(gate * (rows @ w_up[e].double()))
    got = gated_experts(x, w_gate, w_up, offsets)
    # One rounding; both sums are in fp32, and silu is not steep.
    rounding, summing = torch.finfo(dtype).eps, 2**-18 * K
    torch.testing.assert_close(got.double(), torch.cat(expected), rtol=rounding, atol=summing)
print("gated_experts agrees with float64")

# %%
# The fused kernel neither writes nor reads the two products, but its smaller tiles load more for
# each operation. Which one counts for more?

# sphinx_gallery_fold = "times it beside PyTorch"
if ON_GPU:
    experts, tokens, K, N = 64, 16384, 2048, 1408
    x = torch.randn(tokens, K, device=DEVICE, dtype=torch.bfloat16)
    w_gate, w_up = torch.randn(2, experts, K, N, device=DEVICE, dtype=torch.bfloat16) / 45
    offsets = torch.arange(1, experts + 1, device=DEVICE, dtype=torch.int32) * (tokens // experts)

    def separate():
        """Return the same with two grouped products, and silu after them."""
        gate = torch._grouped_mm(x, w_gate, offs=offsets)
        return torch.nn.functional.silu(gate) * torch._grouped_mm(x, w_up, offs=offsets)

    calls = {"fused": lambda: gated_experts(x, w_gate, w_up, offsets)}
    if hasattr(torch, "_grouped_mm") and not torch.version.hip:
        calls["torch._grouped_mm, twice, and silu"] = separate
    table = []
    for name, call in calls.items():
        try:
            ms = triton.testing.do_bench(call, 5, 30, return_mode="median")
        except RuntimeError as error:
            print(f"{name} is not available here: {error}")
        else:
            table.append((name, 4 * tokens * K * N / ms / 1e9))
    print(tabulate(table, ["", "TFLOPS"], floatfmt=("", ".0f")))
else:
    print("Without a GPU there is nothing to time.")
