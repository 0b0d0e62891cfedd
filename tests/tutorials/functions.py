"""The functions that lessons offer to programs, each with arguments that are right."""

import torch

E4M3 = torch.float8_e4m3fn


def randn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(shape).to(dtype) for shape in shapes]


def ints(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def scaled(m: int, n: int, k: int, blocks: bool) -> list[torch.Tensor]:
    a, b = randn((m, k), (n, k), dtype=E4M3)
    size = 128 if blocks else k
    scales = torch.rand(m, -(-k // size)) + 0.5, torch.rand(-(-k // size), 1 if blocks else n) + 0.5
    return [a, b.T, *scales]


def words(n: int, k: int, group: int = 128) -> list[torch.Tensor]:
    """Weights of int4: the packed words, their scales and their zeros."""
    packed = torch.randint(-(2**15), 2**15, (k // group, n, group // 4), dtype=torch.int16)
    return [packed, *torch.rand(2, n, k // group).bfloat16()]


def paged() -> list[torch.Tensor]:
    q, k, v = randn((2, 4, 16), (5, 8, 2, 16), (5, 8, 2, 16))
    return [q, k, v, ints(0, 1, 2, 3, 4, 0).view(2, 3), ints(20, 9)]


def text(tokens: int = 20, heads: int = 2) -> list[torch.Tensor]:
    gates = 20 / tokens * torch.rand(2, 1, tokens, heads)  # finite with any sign, however long
    q, k, v = randn(*3 * [(1, tokens, heads, 16)])
    return [q, k / k.norm(dim=-1, keepdim=True), v, -0.2 * gates[0], gates[1]]


HEADS = (1, 4, 40, 16), (1, 2, 40, 16), (1, 2, 40, 16)
ATTENTION = "06-fused-attention", "06c-attention-gluon", "06b-attention-backward"

#: Lesson and function, and what makes arguments that are right.
FUNCTIONS = {
    ("01-vector-add", "add"): lambda: randn((5, 7), (5, 7)),
    ("02-fused-softmax", "softmax"): lambda: randn((8, 80)),
    ("03-matrix-multiplication", "matmul"): lambda: randn((8, 9), (9, 7)),
    ("03b-full-waves", "matmul"): lambda: randn((8, 16), (16, 24), dtype=torch.float16),
    ("04-low-memory-dropout", "dropout"): lambda: [*randn((99,)), torch.rand(99) > 0.5, 0.5],
    ("04-low-memory-dropout", "seeded_dropout"): lambda: [*randn((99,)), 0.5, 3],
    ("05-layer-norm", "layer_norm"): lambda: randn((4, 48), (48,), (48,)),
    ("05-layer-norm", "rms_norm"): lambda: randn((4, 48), (48,)),
    ("05b-reductions", "long_layer_norm"): lambda: randn((2, 300), (300,), (300,)),
    **{(lesson, "attention"): lambda: [*randn(*HEADS), True] for lesson in ATTENTION},
    ("07-math-functions", "gelu"): lambda: randn((5, 7)),
    ("08-grouped-gemm", "grouped_mm"): lambda: [
        *randn((40, 64), (3, 64, 96), dtype=torch.float16), ints(30, 30, 40),
    ],
    ("09-fp8-matmul", "scaled_mm"): lambda: scaled(40, 48, 64, blocks=False),
    ("09b-fp8-gluon", "scaled_mm_by_blocks"): lambda: scaled(64, 48, 256, blocks=True),
    ("10-cross-entropy", "cross_entropy"): lambda: [
        *randn((4, 30)), ints(3, -100, 0, 29, dtype=torch.int64),
    ],
    ("10b-linear-cross-entropy", "linear_cross_entropy"): lambda: [
        *randn((7, 3), (33, 3)), torch.randint(0, 33, (7,)), -100, 2,
    ],
    ("11-paged-attention", "paged_attention"): paged,
    ("12-int4-weights", "int4_mm"): lambda: [
        *randn((3, 256), dtype=torch.float16), *words(33, 256),
    ],
    ("13-sampling", "sample"): lambda: [*randn((3, 300)), 1.0, 0, 0.9, 2],
    ("14-gated-delta-rule", "gated_delta_rule"): text,
    ("14b-segments", "gated_delta_rule"): lambda: text(2048, 1),
}  # fmt: skip

#: Those that have gradients.
DIFFERENTIABLE = [key for key in FUNCTIONS if key[0][:3] in ("04-", "05-", "06b", "10-", "10b")]

#: Beginnings of the lessons whose functions torch.compile calls between its graphs.
BETWEEN_GRAPHS = ("05-", "05b-", "06b-", "10b-", "12-", "13-", "14-", "14b-")
