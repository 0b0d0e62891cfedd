"""Inputs without elements: the result has its shape, and every sum over nothing is zero."""

import pytest
import torch

EXPERTS = torch.ones(3, 0).half(), torch.ones(2, 0, 8).half(), torch.tensor([1, 3]).int()
A, B = torch.ones(3, 0).to(torch.float8_e4m3fn), torch.ones(0, 8).to(torch.float8_e4m3fn)
SCALED = A, B, torch.ones(3, 1), torch.ones(1, 8)


def randn(*shape):
    return torch.randn(shape, requires_grad=True)


def detached(tensors):
    return [x.detach() for x in tensors]


def ints(*shape):
    return torch.zeros(shape, dtype=torch.int32)


ATTENTION = [
    [randn(*q), *[randn(q[0], 2, 7, 16)] * 2] for q in ((0, 2, 5, 16), (2, 2, 0, 16), (2, 0, 5, 16))
]
PAGED = [  # no sequence, and no page
    [torch.ones(n, 8, 16), *torch.ones(2, pages, 4, 2, 16), ints(n, pages), ints(n)]
    for n, pages in ((0, 3), (2, 0))
]
NONE = (1, 0), (0, 5), (0, 5000)
TEXTS = [[*3 * [torch.ones(*n, 2, 16)], *2 * [torch.ones(*n, 2)]] for n in NONE]
INT4 = (0, 8, 128), (3, 0, 128), (3, 8, 0)


def int4(n, k):
    return ints(k // 128, n, 32).short(), *2 * [torch.ones(n, k // 128)]


CASES = [
    ("01-vector-add", "add", detached([randn(3, 0, 2), randn(3, 0, 2)]), (3, 0, 2)),
    ("02-fused-softmax", "softmax", detached([randn(0, 7)]), (0, 7)),
    ("02-fused-softmax", "softmax", detached([randn(7, 0)]), (7, 0)),
    ("03-matrix-multiplication", "matmul", detached([randn(0, 5), randn(5, 3)]), (0, 3)),
    ("03-matrix-multiplication", "matmul", detached([randn(5, 0), randn(0, 3)]), (5, 3)),
    ("04-low-memory-dropout", "dropout", (randn(0, 5), torch.ones(0, 5) > 0, 0.5), (0, 5)),
    ("04-low-memory-dropout", "seeded_dropout", (randn(0, 5), 0.5, 1), (0, 5)),
    ("05-layer-norm", "layer_norm", (randn(0, 7), randn(7), randn(7)), (0, 7)),
    ("05-layer-norm", "rms_norm", (randn(2, 3, 0), randn(0)), (2, 3, 0)),
    *[("06-fused-attention", "attention", detached(qkv), None) for qkv in ATTENTION],
    *[("06c-attention-gluon", "attention", detached(qkv), None) for qkv in ATTENTION],
    *[("06b-attention-backward", "attention", qkv, None) for qkv in ATTENTION],
    ("07-math-functions", "gelu", detached([randn(3, 0, 2)]), (3, 0, 2)),
    ("08-grouped-gemm", "grouped_mm", EXPERTS, (3, 8)),
    ("09-fp8-matmul", "scaled_mm", SCALED, (3, 8)),
    *[("11-paged-attention", "paged_attention", paged, None) for paged in PAGED],
    *[("12-int4-weights", "int4_mm", (torch.ones(m, k), *int4(n, k)), (m, n)) for m, n, k in INT4],
    ("13-sampling", "sample", detached([randn(0, 7)]), (0,)),
    *[("14-gated-delta-rule", "gated_delta_rule", text, None) for text in TEXTS],
    *[("14b-segments", "gated_delta_rule", text, None) for text in TEXTS],
]


@pytest.mark.parametrize(("name", "function", "arguments", "shape"), CASES)
def test_nothing_gives_nothing(tutorial, name, function, arguments, shape):
    y = tutorial(name)[function](*arguments)
    assert y.shape == (shape or arguments[0].shape)
    assert not y.any()
    if y.requires_grad:
        inputs = [x for x in arguments if getattr(x, "requires_grad", False)]
        for gradient in torch.autograd.grad(y.sum(), inputs):
            assert not gradient.any()
