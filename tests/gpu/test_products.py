"""Kernels that multiply matrices, against float64 at full size."""

from __future__ import annotations

import random

import pytest
import torch

from tests.tutorials.float64 import attention, beside_float64

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
HALVES = FLOATS[1:]
MATMUL, ATTENTION = "03-matrix-multiplication", "06b-attention-backward"
GLUON = "06c-attention-gluon"
GROUPED, FP8 = "08-grouped-gemm", "09-fp8-matmul"


def check_matmul(definitions, a, b, activation=""):
    matmul = definitions(MATMUL)["matmul"]
    got = matmul(a, b, activation)
    assert torch.equal(matmul(a, b, activation), got), "other bits"
    expected = a.double() @ b.double()
    if activation:
        expected = torch.nn.functional.leaky_relu(expected)
    # Against the sum of the absolute products, since a sum may cancel: one rounding of the result
    # has an error below eps / 2 of it, the fp32 sum below 1e-6, and a wrong product far more.
    size = a.double().abs() @ b.double().abs()
    error = (got.double() - expected).norm() / size.norm().clamp_min(1e-30)
    assert error < torch.finfo(a.dtype).eps / 2 + 1e-6, f"{a.shape} by {b.shape}: {error:.2e}"


@pytest.mark.parametrize("activation", ["", "leaky_relu"])
@pytest.mark.parametrize("n", [128 * i for i in range(2, 33)])
def test_squares(definitions, device, n, activation):
    a, b = torch.randn(2, n, n, dtype=torch.float16, device=device)
    check_matmul(definitions, a, b, activation)


@pytest.mark.parametrize("dtype", FLOATS)
def test_matrices_of_random_shapes_and_strides(definitions, device, dtype):
    choose = random.Random(0)
    layouts = [
        lambda m, n: torch.randn(m, n, device=device),
        lambda m, n: torch.randn(n, m, device=device).T,
        lambda m, n: torch.randn(m, 2 * n, device=device)[:, ::2],
    ]
    for _ in range(40):
        m, n, k = (choose.choice((1, 5, 64, 123, 1000, 2048, 4099)) for _ in range(3))
        a, b = (choose.choice(layouts)(*s).to(dtype) for s in ((m, k), (k, n)))
        check_matmul(definitions, a, b, choose.choice(("", "leaky_relu")))


def check_attention(definitions, sizes, dtype, causal, scale=None, view=lambda x: x):
    batch, heads, key_heads, queries, keys, d = sizes
    device = torch.accelerator.current_accelerator()
    shapes = [(batch, heads, queries, d), *[(batch, key_heads, keys, d)] * 2]
    inputs = [view(torch.randn(s, device=device).to(dtype)) for s in shapes]
    # Weights, dS and each result are rounded to the dtype once, in no common direction; gradients
    # subtract numbers of one size, one of which comes from the rounded output.
    unit = max(torch.finfo(dtype).eps, 1e-5)
    # Where keys are few, gradients of queries and keys add up numbers that cancel.
    added = max(1, 5 * (queries * heads / key_heads) ** 0.5 / keys)
    for name, x, y in beside_float64(
        lambda q, k, v: definitions(ATTENTION)["attention"](q, k, v, causal, scale),
        lambda q, k, v: attention(q, k, v, causal, scale),
        *inputs,
    ):
        size = y.norm() + 0.02 * y.numel() ** 0.5 * (1 if name == "the result" else added)
        error = (x.double() - y).norm()
        assert x.isfinite().all(), name
        assert error <= unit * size * (1 if name == "the result" else 2), name


BENCHMARK = [(2, 3, 3, n, n, d) for n in (512, 1024, 4096, 8192) for d in (64, 128)]
GROUPS = [(2, 8, 2, *n, d) for n in ((128, 1024), (1024, 128), (2048, 512)) for d in (64, 128)]
PAIRS = [(1, 1), (1, 1000), (1000, 1), (127, 385), (640, 129), (1023, 1025)]
RAGGED = [(1, 2, 2, *n, d) for n in PAIRS for d in (16, 32, 64, 128)]
MANY = [(16, 16, 4, 1024, 1024, 128), (40, 8, 8, 256, 256, 64)]  # more blocks than SMs


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [(s, torch.bfloat16) for s in BENCHMARK]
    + [(s, d) for s in GROUPS + MANY for d in HALVES]
    + [(s, d) for s in RAGGED for d in FLOATS],
    ids=str,
)
def test_attention(definitions, sizes, dtype, causal):
    check_attention(definitions, sizes, dtype, causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", BENCHMARK + GROUPS + MANY + RAGGED[::4], ids=str)
def test_attention_in_gluon(definitions, device, sizes, causal):
    batch, heads, key_heads, queries, keys, d = sizes
    q = torch.randn(batch, heads, queries, d, device=device).bfloat16()
    k, v = torch.randn(2, batch, key_heads, keys, d, device=device).bfloat16()
    o = definitions(GLUON)["attention"](q, k, v, causal)
    assert torch.equal(definitions(GLUON)["attention"](q, k, v, causal), o), "other bits"
    expected = attention(q.double(), k.double(), v.double(), causal)
    size = expected.norm() + 0.02 * expected.numel() ** 0.5
    assert (o.double() - expected).norm() <= torch.finfo(o.dtype).eps * size


def test_attention_gives_the_same_bits_every_time(definitions, device):
    inputs = [x.requires_grad_() for x in torch.randn(3, 2, 8, 2048, 128, device=device).half()]
    results = []
    for _ in range(10):
        o = definitions(ATTENTION)["attention"](*inputs, True)
        results.append((o, *torch.autograd.grad(o, inputs, torch.ones_like(o))))
    assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))


def test_attention_of_random_shapes_and_views(definitions):
    choose = random.Random(0)
    views = [
        lambda x: x,
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: torch.cat([x, x], 3)[..., 1 : 1 + x.shape[3]],
        lambda x: x.mT.contiguous().mT,
    ]
    for _ in range(30):
        key_heads, group = choose.choice((1, 2, 3)), choose.choice((1, 2, 4))
        lengths = (choose.choice((1, 64, 100, 128, 256, 777)) for _ in range(2))
        sizes = (1, key_heads * group, key_heads, *lengths, choose.choice((16, 64, 128)))
        options = (choose.choice(c) for c in (FLOATS, (False, True), (None, 0.01, 0.2), views))
        check_attention(definitions, sizes, *options)


def test_attention_needs_no_matrix_of_scores(definitions, device):
    q, k, v = torch.randn(3, 1, 1, 2**18, 64, device=device).bfloat16()  # scores: 128 GiB
    o = definitions(ATTENTION)["attention"](q, k, v)
    rows = slice(1000, 1010)
    expected = attention(q[:, :, rows].double(), k.double(), v.double())
    assert (o[:, :, rows].double() - expected).norm() <= 2**-7 * expected.norm()


def check_grouped(page, sizes, k, n, by_columns=False, dtype=torch.bfloat16):
    device = page["DEVICE"]
    sizes = [int(size) for size in sizes]
    x = torch.randn(sum(sizes), k, dtype=dtype, device=device)
    w = torch.randn(len(sizes), k, n, dtype=dtype, device=device)
    if by_columns:
        w = w.mT.contiguous().mT
    ends = torch.tensor(sizes).cumsum(0).to(device, torch.int32)
    got = page["grouped_mm"](x, w, ends)
    assert torch.equal(page["grouped_mm"](x, w, ends), got), "not the same every time"
    for expert, (rows, out) in enumerate(zip(x.split(sizes), got.split(sizes), strict=True)):
        expected = rows.double() @ w[expert].double()
        size = rows.double().abs() @ w[expert].double().abs()  # a sum may cancel
        allowed = expected.abs() * torch.finfo(dtype).eps / 2 + size * 2**-18
        assert ((out.double() - expected).abs() <= allowed).all(), f"expert {expert}"


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("case", range(5))
def test_grouped_mm_at_the_sizes_of_the_benchmark(definitions, case, skewed):
    page = definitions(GROUPED)
    experts, tokens, k, n = page["CASES"][case]
    check_grouped(page, page["group_sizes"](experts, tokens, skewed), k, n)


@pytest.mark.parametrize("dtype", HALVES)
def test_grouped_mm_of_random_sizes_and_strides(definitions, dtype):
    page, choose = definitions(GROUPED), random.Random(0)
    check_grouped(page, [0, 0, 5000, 0], 2048, 1408, dtype=dtype)
    for _ in range(25):
        experts = choose.choice((1, 3, 8, 33, 130))
        sizes = [choose.choice((0, 0, 1, 5, 63, 64, 129, 700)) for _ in range(experts)]
        k, n = choose.choice((8, 45, 520, 4096)), choose.choice((8, 77, 264, 1024))
        check_grouped(page, sizes, k, n, choose.random() < 0.5, dtype)


@pytest.fixture
def fp8(definitions):
    page = definitions(FP8)
    if not page["CAN_RUN"]:
        pytest.skip(page["NO_FP8"])
    return page


SHAPES = [(n, n, n) for n in (1024, 1536, 2048, 3072, 4096, 5120)]
SHAPES += [(1, 5, 64), (123, 1000, 2056), (4112, 64, 5), (2056, 4112, 1000), (64, 1, 123)]
SHAPES += [(1, 8, 16), (200, 1032, 400), (4000, 3000, 1152), (2048, 8192, 128)]


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scaled_mm(fp8, shape, blocks):
    problem = fp8["draw_problem"](*shape, blocks, seed=sum(shape))
    fp8["assert_right"](fp8["scaled_mm"](*problem), *problem)
    if blocks and fp8["IS_HOPPER"] and shape[1] % 8 == shape[2] % 16 == 0:
        c = fp8["empty_like_product"](*problem[:2])
        fp8["run_turns"](*problem, c)
        fp8["assert_right"](c, *problem)
