"""Tiles that may be faster than today's, timed on the GPU at hand.

``python benchmarks/candidates.py [attention-forward] [attention-hopper] [attention-backward]
[grouped-mm] [cross-entropy]`` times the sections named, or all of them. Each candidate's result is
compared with today's before it is timed. The first row of a table is what the function does today.
"""

import sys
from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gallery_kernels import attention as attention_function
from gallery_kernels import attention_hopper
from gallery_kernels.attention_kernels import attention_kernel
from gallery_kernels.launch import DescribedLaunch, Launch, described, limits_of
from timing import gpu_microseconds, print_table

attention = sys.modules["gallery_kernels.attention"]

TOKENS, NUMBERS = 16_384, 2048  # of all sequences together, and of all heads of a token
LENGTHS = [512, 1024, 2048, 4096, 8192, 16_384]


def inputs(n: int, d: int) -> tuple[torch.Tensor, ...]:
    """Return q, k and v in bf16."""
    return torch.randn(3, TOKENS // n, NUMBERS // d, n, d, device="cuda").bfloat16().unbind()


def cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return cuDNN's attention."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)


def same(found: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two results differ by rounding only."""
    error = (found.float() - right.float()).norm() / right.float().norm()
    return bool(error < 2**-6)


def working(calls: dict[str, Callable], right: torch.Tensor) -> dict[str, Callable]:
    """Return the calls that compile and are right; the others are printed."""
    good = {}
    for name, call in calls.items():
        try:
            found = call()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
            continue
        if same(found, right):
            good[name] = call
        else:
            print(f"{name}: wrong")
    return good


def rates_over_lengths(
    title: str, calls_for: Callable[[int], dict[str, Callable]], operations: int
) -> None:
    """Print TFLOPS of all calls at each length, and their share of cuDNN's.

    A call has *operations* times its length.
    """
    found: dict[str, dict[int, float]] = {}
    for n in LENGTHS:
        calls = calls_for(n)
        for name, time in gpu_microseconds(calls).items():
            found.setdefault(name, {})[n] = operations * n / time / 1e6
    columns = [title, *[f"N = {n}" for n in LENGTHS], *[f"/ cuDNN, {n}" for n in LENGTHS]]
    rows = []
    for name, rates in found.items():
        shares = [rates.get(n, 0.0) / found["cuDNN"][n] for n in LENGTHS]
        rows.append([name, *[rates.get(n, 0.0) for n in LENGTHS], *shares])
    print_table("TFLOPS", columns, rows)


# Attention, forward


@triton.jit(do_not_specialize=["heads", "keys"])
def plain_kernel(
    q_desc, k_desc, v_desc, o_desc, heads, keys, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Compute attention for BLOCK_M queries of one head; BLOCK_N divides the number of keys."""
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row = tl.program_id(0) * BLOCK_M
    q = q_desc.load([batch, head, row, 0]).reshape(BLOCK_M, D)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    z = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for col in range(0, keys, BLOCK_N):
        k = k_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        s = tl.dot(q, tl.trans(k))
        m_new = tl.maximum(m, tl.max(s, axis=1) * scale)
        p = tl.exp2(s * scale - m_new[:, None])
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = v_desc.load([batch, head, col, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None])
        m = m_new
    o_desc.store([batch, head, row, 0], (acc / z[:, None]).to(o_desc.dtype)[None, None])


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return attention by the kernel of 20 lines, with 128 queries and 64 keys."""
    (batch, heads, n, d), o = q.shape, torch.empty_like(q)
    tiles = [described(x, [1, 1, rows, d]) for x, rows in ((q, 128), (k, 64), (v, 64), (o, 128))]
    constants = {"BLOCK_M": 128, "BLOCK_N": 64, "D": d, "num_warps": 4, "num_stages": 2}
    scale = d**-0.5 * 1.4426950408889634
    plain_kernel[n // 128, batch * heads](*tiles, heads, n, scale, **constants)
    return o


def by_launch(launch: DescribedLaunch, q, k, v) -> torch.Tensor:
    """Return the output of a launch of the forward pass."""
    o = torch.empty_like(q)
    launch((q, k, v, o), o)
    return o


FORWARD_TILES = [
    (128, 64, 4, 2), (128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2), (128, 128, 8, 3),
    (64, 128, 4, 2), (64, 64, 4, 3), (128, 32, 4, 3),
]  # fmt: skip


def attention_forward(d: int = 128) -> None:
    """Tiles of the Triton kernel, beside the plain kernel and cuDNN."""
    for causal in (False, True):

        def calls_for(n: int, causal: bool = causal) -> dict[str, Callable]:
            q, k, v = inputs(n, d)
            today = attention.tile_for(attention_kernel, q, n)
            tiles = {"Triton, today": today}
            for tile in FORWARD_TILES:
                tiles[f"Triton, {tile}"] = attention.Tile(*tile)
            calls = {}
            for name, tile in tiles.items():
                launch = attention.launch_with_tile(tile, q, k, v, causal, d**-0.5, False)
                calls[name] = partial(by_launch, launch, q, k, v)
            if not causal:
                calls["plain, 20 lines"] = partial(plain, q, k, v)
            calls["the function"] = partial(attention_function, q, k, v, causal)
            calls["cuDNN"] = partial(cudnn, q, k, v, causal)
            return working(calls, cudnn(q, k, v, causal))

        operations = (2 if causal else 4) * TOKENS * NUMBERS
        rates_over_lengths(f"forward, d = {d}, causal {causal}", calls_for, operations)


def attention_hopper_forward() -> None:
    """The Gluon kernels with other tiles and grids, causal, d = 128."""

    def launch_for(kernel, q, k, v, changes) -> DescribedLaunch:
        grid, numbers, constants = attention_hopper.settings(kernel, q, k, True, 128**-0.5)
        changes = dict(changes)
        programs = changes.pop("programs", grid[0])
        together = changes.pop("together", numbers[-1])
        constants = {**constants, **changes, "KEEP_LSE": False}
        launch = Launch(kernel, (programs,), (*numbers[:-1], together), constants)
        rows = (64, constants["BLOCK_N"], constants["BLOCK_N"], 64)
        tensors = (q, k, v, torch.empty_like(q))
        described_as_matrix = attention_hopper.described_as_matrix
        tiles = [described_as_matrix(x, count) for x, count in zip(tensors, rows, strict=True)]
        return DescribedLaunch(launch, tiles)

    def calls_for(n: int) -> dict[str, Callable]:
        q, k, v = inputs(n, 128)
        roles, ahead = attention_hopper.roles_kernel, attention_hopper.ahead_kernel
        blocks = n // 128 * q.shape[0] * q.shape[1]
        processors = limits_of(q.device).multiprocessors
        variants = {
            "Gluon roles, today": (roles, {}),
            "roles, one program a block": (roles, {"programs": blocks}),
            "roles, persistent": (roles, {"programs": min(blocks, processors)}),
            "roles, 64 keys, 4 stages": (roles, {"BLOCK_N": 64, "STAGES": 4}),
            "roles, 64 keys, 3 stages": (roles, {"BLOCK_N": 64, "STAGES": 3}),
            "roles, 8 heads together": (roles, {"together": 8}),
            "roles, all heads together": (roles, {"together": q.shape[0] * q.shape[1]}),
            "ahead, 64 keys, 3 stages": (ahead, {}),
            "ahead, 64 keys, 2 stages": (ahead, {"STAGES": 2}),
            "ahead, 128 keys, 1 stage": (ahead, {"BLOCK_N": 128, "STAGES": 1}),
        }
        calls = {}
        for name, (kernel, changes) in variants.items():
            launch = launch_for(kernel, q, k, v, changes)
            calls[name] = partial(by_launch, launch, q, k, v)
        tile = attention.tile_for(attention_kernel, q, n)
        launch = attention.launch_with_tile(tile, q, k, v, True, 128**-0.5, False)
        calls["Triton"] = partial(by_launch, launch, q, k, v)
        calls["cuDNN"] = partial(cudnn, q, k, v, True)
        return working(calls, cudnn(q, k, v, True))

    operations = 2 * TOKENS * NUMBERS
    rates_over_lengths("forward on Hopper, d = 128, causal", calls_for, operations)


# Attention, backward

QUERY_TILES = [(128, 64, 8, 3), (128, 64, 8, 2), (128, 128, 8, 2), (64, 64, 4, 2), (64, 128, 4, 2)]
KEY_TILES = [(64, 64, 4, 2), (128, 64, 8, 2), (128, 32, 8, 3), (64, 32, 4, 3), (64, 128, 8, 2)]


def attention_backward(d: int = 128) -> None:
    """Tiles of both kernels, each timed alone, and cuDNN's whole backward pass."""
    for causal in (True, False):
        for n in (4096, 8192, 16_384):
            q, k, v = inputs(n, d)
            plan = attention._keep_plan(q, k, v, causal, None)
            o, lse = plan.forward_with_lse(q, k, v)
            do = torch.randn_like(o)
            right = plan.backward(q, k, v, o, lse, do)
            delta = (o.float() * do.float()).sum(-1)

            def of_queries(launch, q=q, k=k, v=v, o=o, do=do, lse=lse, delta=delta):
                dq = torch.empty_like(q)
                launch((k, v), q, o, do, dq, lse, delta)
                return dq

            def of_keys(launch, q=q, k=k, v=v, do=do, lse=lse, delta=delta):
                dk, dv = torch.empty_like(k), torch.empty_like(v)
                launch((q, do), k, v, dk, dv, lse, delta)
                return dk

            query_calls, key_calls = {}, {}
            for tile in QUERY_TILES:
                launch = attention.launch_of_queries(
                    attention.Tile(*tile), q, k, v, o, do, causal, d**-0.5
                )
                query_calls[f"dQ {tile}"] = partial(of_queries, launch)
            for tile in KEY_TILES:
                launch = attention.launch_of_keys(
                    attention.Tile(*tile), q, k, v, do, causal, d**-0.5
                )
                key_calls[f"dK, dV {tile}"] = partial(of_keys, launch)
            calls = {**working(query_calls, right[0]), **working(key_calls, right[1])}
            calls["both, today"] = partial(plan.backward, q, k, v, o, lse, do)
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            y = cudnn(*leaves, causal)
            calls["cuDNN"] = partial(torch.autograd.grad, y, leaves, do, retain_graph=True)
            times = gpu_microseconds(calls, rounds=10)
            flops = (5 if causal else 10) * TOKENS * n * NUMBERS
            rows = [[name, time, flops / time / 1e6] for name, time in times.items()]
            title = f"backward, d = {d}, causal {causal}, N = {n}"
            print_table(title, ["kernel", "µs", "TFLOPS if it were all"], rows)


# Grouped products

TILINGS = {
    "few rows": (64, 128, 4, 4, 2),
    "pair": (128, 128, 4, 3, 2),
    "large": (128, 256, 8, 3, 1),
    "large, 4 stages": (128, 256, 8, 4, 1),
    "pair, 4 stages": (128, 128, 4, 4, 1),
    "pair, 8 warps": (128, 128, 8, 3, 2),
    "tall": (256, 128, 8, 3, 1),
}
PRODUCTS = [
    (8, 8192, 4096, 4096), (64, 8192, 2048, 1408), (64, 65_536, 2048, 1408),
    (64, 65_536, 1408, 2048), (128, 4096, 2048, 768), (64, 65_536, 4096, 4096),
]  # fmt: skip


def grouped_mm() -> None:
    """Tilings of the persistent kernel, beside PyTorch's: groups, rows, K, N."""
    module = sys.modules.get("gallery_kernels.grouped_mm")
    if module is None:
        print("grouped_mm is not in this package yet")
        return
    for groups, rows, depth, columns in PRODUCTS:
        x = torch.randn(rows, depth, device="cuda").bfloat16()
        w = torch.randn(groups, columns, depth, device="cuda").bfloat16().mT
        cuts = torch.randint(0, rows + 1, (groups - 1,), device="cuda").sort().values
        offsets = torch.cat([cuts, cuts.new_tensor([rows])]).int()
        right = torch._grouped_mm(x, w, offsets)

        def by_tiling(launch, x=x, w=w, offsets=offsets, columns=columns):
            out = x.new_empty(x.shape[0], columns)
            launch((x, w), out, offsets)
            return out

        calls = {"the function": partial(module.grouped_mm, x, w, offsets)}
        for name, numbers in TILINGS.items():
            tiling = module.Tiling(*numbers)
            launch = module.launch_by_descriptors(tiling, x, w, limits_of(x.device))
            calls[name] = partial(by_tiling, launch)
        calls["torch._grouped_mm"] = partial(torch._grouped_mm, x, w, offsets)
        times = gpu_microseconds(working(calls, right))
        theirs = times["torch._grouped_mm"]
        table = [
            [name, time, 2 * rows * depth * columns / time / 1e6, theirs / time]
            for name, time in times.items()
        ]
        title = f"{groups} groups, {rows} rows, K = {depth}, N = {columns}"
        print_table(title, ["tiling", "µs", "TFLOPS", "of torch's speed"], table)


# Cross-entropy


def cross_entropy() -> None:
    """Warps and blocks of the loss with its gradient, beside a copy of the logits and back."""
    module = sys.modules.get("gallery_kernels.cross_entropy")
    if module is None:
        print("cross_entropy is not in this package yet")
        return
    today = module.tile_for
    for rows, columns in ((8192, 32_000), (8192, 32_768), (4096, 128_256), (4096, 131_072)):
        logits = torch.randn(rows, columns, device="cuda").bfloat16()
        targets = torch.randint(0, columns, (rows,), device="cuda")
        gradient = torch.empty_like(logits)
        right = None
        calls = {}
        tiles = {"today": today(columns)}
        for warps in (4, 8, 16, 32):
            for each in (512, 1024, 2048):
                tile = {"BLOCK": each * warps, "MAXIMA": 32 * warps, "num_warps": warps}
                tiles[f"{warps} warps, {each} logits each"] = tile
        for name, tile in tiles.items():
            module.tile_for = lambda _, tile=tile: tile
            launches = module.launches_for(logits, -100, write=True)

            def run(launches=launches, logits=logits, targets=targets, gradient=gradient):
                launches(logits, targets, gradient)
                return gradient

            if right is None:
                right = run().clone()
            calls[name] = run
        module.tile_for = today
        calls = working(calls, right)
        calls["copy"] = partial(gradient.copy_, logits)  # as many bytes: one read, one write
        times = gpu_microseconds(calls)
        table = [[name, time, times["copy"] / time] for name, time in times.items()]
        print_table(f"{rows} × {columns}, bf16", ["tile", "µs", "of a copy's speed"], table)


SECTIONS = {
    "attention-forward": attention_forward,
    "attention-hopper": attention_hopper_forward,
    "attention-backward": attention_backward,
    "grouped-mm": grouped_mm,
    "cross-entropy": cross_entropy,
}


if __name__ == "__main__":
    torch.manual_seed(0)
    for section in sys.argv[1:] or SECTIONS:
        print(f"\n== {section}, {torch.cuda.get_device_name()}, Triton {triton.__version__}")
        SECTIONS[section]()
