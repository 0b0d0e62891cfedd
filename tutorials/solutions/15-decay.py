"""
Weight decay by group
=====================

*Solution to the first exercise of* :doc:`../15-transformer`.

Each weight has a decay of its own, which the kernel loads beside it. That adds 4 bytes for each
weight. A weight's decay is that of its matrix or norm, so one number for each group of 128 weights
does the same, if each parameter begins at a multiple of 128: 4 bytes for 128 weights.
"""

# %%

# sphinx_gallery_fold = "chooses the device"
import os

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%
# Only one line is new, the load of ``decays``.

RATE, BETA1, BETA2, EPS = 1e-3, 0.9, 0.95, 1e-8


@triton.jit(do_not_specialize=["rate", "first", "second"])
def decay_kernel(
    w_ptr, g_ptr, m_ptr, v_ptr, decay_ptr, new_w_ptr, new_m_ptr, new_v_ptr, n,
    rate, beta1, beta2, eps, first, second, BLOCK: tl.constexpr,
):  # fmt: skip
    """Update one block of weights; *first* and *second* correct the moments of early steps."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = i < n
    w, g = tl.load(w_ptr + i, mask=mask), tl.load(g_ptr + i, mask=mask)
    m, v = tl.load(m_ptr + i, mask=mask), tl.load(v_ptr + i, mask=mask)
    decay = tl.load(decay_ptr + i, mask=mask)  # <-
    m += (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    w = w - rate * decay * w - rate * (m / first) / (tl.sqrt(v / second) + eps)
    tl.store(new_w_ptr + i, w, mask=mask)
    tl.store(new_m_ptr + i, m, mask=mask)
    tl.store(new_v_ptr + i, v, mask=mask)


def decayed_step(w, g, m, v, decays, t):
    """Return weights and moments after step *t* of AdamW, for contiguous fp32 vectors."""
    new = [torch.empty_like(x) for x in (w, m, v)]
    decay_kernel[(triton.cdiv(w.numel(), 1024),)](
        w, g, m, v, decays, *new, w.numel(), RATE, BETA1, BETA2, EPS, 1 - BETA1**t, 1 - BETA2**t,
        BLOCK=1024,
    )  # fmt: skip
    return tuple(new)


# %%
# Four steps agree with PyTorch's optimizer of two groups:

torch.manual_seed(0)
w, decays = torch.randn(5003, device=DEVICE), torch.zeros(5003, device=DEVICE)
decays[:4000] = 0.1
matrix, norm = (torch.nn.Parameter(part.clone()) for part in w.split([4000, 1003]))
groups = [{"params": [matrix], "weight_decay": 0.1}, {"params": [norm], "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(BETA1, BETA2), eps=EPS)
m, v = torch.zeros_like(w), torch.zeros_like(w)
for t in range(1, 5):
    g = torch.randn_like(w)
    matrix.grad, norm.grad = g[:4000].clone(), g[4000:].clone()
    optimizer.step()
    w, m, v = decayed_step(w, g, m, v, decays, t)
torch.testing.assert_close(w, torch.cat([matrix, norm]).detach(), rtol=1e-5, atol=1e-6)
print("four steps agree with torch.optim.AdamW and two groups")
