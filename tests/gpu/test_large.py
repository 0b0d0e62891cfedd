"""What only a GPU can show, and no script checks: tensors past 2³¹ elements, and the same bits.

Each script compares its kernels with float64 at full size before it times them.
"""

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

ADD, SOFTMAX, NORMS = "01-vector-add", "02-fused-softmax", "05-layer-norm"
ATTENTION, GELU, LOSS = "06b-attention-backward", "07-math-functions", "10-cross-entropy"


@pytest.mark.parametrize(
    ("name", "function", "shape", "reference"),
    [
        (ADD, lambda f: lambda x: f["add"](x, x), (2**31 + 5,), lambda x: x + x),
        (SOFTMAX, lambda f: f["softmax"], (2**17 + 1, 2**14 + 128), lambda x: x.softmax(1)),
        (NORMS, lambda f: lambda x: f["rms_norm"](x, torch.ones_like(x[0])), (2**17 + 1, 2**14),
         lambda x: functional.rms_norm(x, x.shape[1:], eps=1e-6)),
        (GELU, lambda f: f["gelu"], (2**31 + 5,), functional.gelu),
    ],
)  # fmt: skip
def test_offsets_past_32_bits(definitions, device, name, function, shape, reference):
    x = torch.randn(shape, dtype=torch.float16, device=device)
    y = function(definitions(name))(x)
    for part in (slice(0, 3), slice(-3, None)):
        assert_close(y[part].double(), reference(x[part].double()), rtol=2e-3, atol=1e-5)


def test_offsets_past_32_bits_of_cross_entropy(definitions, device):
    m, v = 2**14 + 3, 2**17 + 1
    logits = torch.randn(m, v, device=device, dtype=torch.bfloat16).requires_grad_()
    targets = torch.randint(0, v, (m,), device=device)
    (gradient,) = torch.autograd.grad(definitions(LOSS)["cross_entropy"](logits, targets), logits)
    exact = logits.detach()[-3:].double().requires_grad_()
    part = functional.cross_entropy(exact, targets[-3:], reduction="sum") / m
    (wanted,) = torch.autograd.grad(part, exact)
    assert_close(gradient[-3:].double(), wanted, rtol=2**-7, atol=2**-7 / m)


def test_attention_gives_the_same_bits_every_time(definitions, device):
    inputs = [x.requires_grad_() for x in torch.randn(3, 2, 8, 2048, 128, device=device).half()]
    results = []
    for _ in range(10):
        o = definitions(ATTENTION)["attention"](*inputs, True)
        results.append((o, *torch.autograd.grad(o, inputs, torch.ones_like(o))))
    assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))
