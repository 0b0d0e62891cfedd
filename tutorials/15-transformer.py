r"""
A small transformer
===================

You train a language model of some eleven million parameters with the kernels of the
lessons. It learns Python's documentation byte by byte, at :measured:`faster` times the speed of
PyTorch's eager mode. You need :doc:`05-layer-norm`, :doc:`06b-attention-backward` and
:doc:`10-cross-entropy`.
"""

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "transformer"
# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_depends = "03-matrix-multiplication.py, 04-low-memory-dropout.py, 05-layer-norm.py, 06b-attention-backward.py, 10-cross-entropy.py, 13-sampling.py"  # noqa: E501
import os
import time
from pydoc_data.topics import topics

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import sys  # for shared/
from functools import partial
from pathlib import Path

import triton
import triton.language as tl
from tabulate import tabulate
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.bench import spread, write_rows, write_table
from shared.lesson import lesson

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
DTYPE = torch.bfloat16 if ON_GPU else torch.float32  # the interpreter computes bf16 wrongly
BETAS = 0.9, 0.95
PROGRAMS = torch.cuda.get_device_properties(0).multi_processor_count if ON_GPU else 4

# %%
# The one new kernel
# ------------------
#
# The lessons lack only the optimizer, which changes the weights in each step. **AdamW** keeps two
# averages for each weight *w*: *m* of its gradients *g*, and *v* of their squares:
#
# .. math::
#
#    m \leftarrow m + (1 - \beta_1)(g - m), \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
#    w \leftarrow w - \lambda d w
#      - \lambda \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}
#
# Here *t* counts the steps, λ is the learning rate, *d* draws each weight towards 0 (the *decay*),
# and a small ε keeps the divisor from 0. β₁ and β₂ say how slowly the averages change, and dividing
# by 1 − βᵗ makes up for their start at 0.


@triton.jit
def adamw_kernel(
    w_ptr, copy_ptr, g_ptr, m_ptr, v_ptr, powers_ptr, n, rate, decay, beta1, beta2, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Update one block of weights; *powers* holds β₁ᵗ and β₂ᵗ."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = i < n
    g = tl.load(g_ptr + i, mask=mask).to(tl.float32)
    m = tl.load(m_ptr + i, mask=mask)
    v = tl.load(v_ptr + i, mask=mask)
    w = tl.load(w_ptr + i, mask=mask)
    m += (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    mean = m / (1 - tl.load(powers_ptr)).to(tl.float32)
    square = v / (1 - tl.load(powers_ptr + 1)).to(tl.float32)
    w = w - rate * decay * w - rate * mean / (tl.sqrt(square) + eps)  # <-
    tl.store(w_ptr + i, w, mask=mask)
    tl.store(m_ptr + i, m, mask=mask)
    tl.store(v_ptr + i, v, mask=mask)
    tl.store(copy_ptr + i, w.to(copy_ptr.dtype.element_ty), mask=mask)
    tl.store(g_ptr + i, tl.zeros((BLOCK,), g_ptr.dtype.element_ty), mask=mask)


# %%
# All weights in one vector
# -------------------------
#
# One launch updates all weights, if they lie in one vector. It also writes their copy in bf16, and
# clears the gradients. ``Weights`` holds five vectors: the weights in fp32, their copy in bf16, the
# gradients, *m* and *v*. Each parameter of the model is a view into the copy, and its ``.grad`` a
# view into the gradients, where they stay, because autograd adds to a gradient that is there.


class Weights:
    """The parameters of a model in one block of memory; ``weights[name]`` is one of them."""

    def __init__(self, initial, dtype):
        sizes = [triton.cdiv(t.numel(), 128) * 128 for t in initial.values()]  # aligned
        padded = [functional.pad(t.flatten(), (0, -t.numel() % 128)) for t in initial.values()]
        self.master = torch.cat(padded).float()
        self.m, self.v = torch.zeros_like(self.master), torch.zeros_like(self.master)
        self.copy, self.grad = self.master.to(dtype), torch.zeros_like(self.master, dtype=dtype)
        self.betas = torch.tensor(BETAS, dtype=torch.float64, device=DEVICE)
        self.powers, self.optimizer = torch.ones_like(self.betas), None
        copies, grads = self.copy.split(sizes), self.grad.split(sizes)
        self.views = {}
        for (name, t), copy, grad in zip(initial.items(), copies, grads, strict=True):
            view = copy[: t.numel()].view(t.shape).detach().requires_grad_()
            view.grad = grad[: t.numel()].view(t.shape)
            self.views[name] = view

    def __getitem__(self, name):
        return self.views[name]


def adamw(weights, rate=1e-3, decay=0.1, eps=1e-8):
    """Update all *weights* by one step of AdamW, and clear their gradients."""
    weights.powers.mul_(weights.betas)
    n = weights.master.numel()
    adamw_kernel[(triton.cdiv(n, 1024),)](
        weights.master, weights.copy, weights.grad, weights.m, weights.v, weights.powers,
        n, rate, decay, *BETAS, eps, BLOCK=1024,
    )  # fmt: skip
    torch.autograd.graph.increment_version(weights.copy)  # autograd does not see kernels


# %%
# Four steps beside ``torch.optim.AdamW`` in float64, with the same gradients:

# sphinx_gallery_fold = "checks the optimizer"
torch.manual_seed(0)
initial = {"a": torch.randn(33, 7, device=DEVICE), "b": torch.randn(1000, device=DEVICE)}
weights = Weights(initial, torch.float32)
expected = [t.clone().double().requires_grad_() for t in initial.values()]
optimizer = torch.optim.AdamW(expected, 1e-3, betas=BETAS, weight_decay=0.1)
for _ in range(4):
    for view, t in zip(weights.views.values(), expected, strict=True):
        t.grad = torch.randn_like(t)
        view.grad += t.grad
    optimizer.step()
    adamw(weights)
    assert weights.grad.count_nonzero() == 0
for view, t in zip(weights.views.values(), expected, strict=True):
    torch.testing.assert_close(view.detach().double(), t.detach(), rtol=1e-6, atol=1e-7)
print("AdamW agrees with float64 after four steps")

# %%
# The model
# ---------
#
# The parts come from the lessons. ``lesson`` loads the functions of a script without its checks and
# benchmarks, so there is one copy of each kernel.

norms, losses = lesson("05-layer-norm"), lesson("10-cross-entropy")
attention = lesson("06b-attention-backward").attention
dropout = lesson("04-low-memory-dropout").seeded_dropout
matmul = lesson("03-matrix-multiplication").matmul

# %%
# ``matmul`` has no gradient yet. For :math:`y = x w^T` and the incoming gradient *g*, the gradients
# are :math:`g w` for *x* and :math:`g^T x` for *w*. LeakyReLU is fused into the forward pass. Its
# slope depends on the sign of its input, which is that of *y*, so keeping *y* is enough.


class Linear(torch.autograd.Function):
    """``activation(x @ w.T)`` for x [tokens, K] and w [N, K], with gradients."""

    @staticmethod
    def forward(ctx, x, w, activation):
        """Keep what the gradients need: y only for its signs."""
        ctx.w, y = w, matmul(x, w.T, activation)
        ctx.save_for_backward(x, w, y if activation else None)  # no change in place is overlooked
        return y

    @staticmethod
    def backward(ctx, g):
        """Multiply the incoming gradient with w and with x."""
        x, w, y = ctx.saved_tensors
        if y is not None:
            g = torch.ops.aten.leaky_relu_backward(g, y, 0.01, True)
        return matmul(g, w), matmul(g.T, x), None


# %%
# A **decoder** predicts the next byte from all bytes before it: a token is one byte here. For each
# position it begins with a vector *x*, the weights of the byte plus those of the position. Each
# layer adds two things to *x*: what attention collects from the positions so far, and what two
# products with an activation between them make of each position. A norm comes before each, and
# before the last product. This product gives the **logits**, one number for each possible byte,
# from which softmax makes probabilities.


def decoder(tokens, weights, config, parts, seeds=None):
    """Return the logits [batch · time, 256] for *tokens* [batch, time], computed by *parts*."""
    batch, time = tokens.shape
    layers, width, heads = config
    x = functional.embedding(tokens, weights["bytes"]) + weights["places"][:time]
    x = x.view(batch * time, width)

    def add(x, change, number):
        return x + (change if seeds is None else parts.dropout(change, 0.2, seeds[number]))

    for i in range(layers):
        h = parts.rms_norm(x, weights[f"{i} norm 1"])
        qkv = parts.linear(h, weights[f"{i} qkv"]).view(batch, time, 3, heads, width // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [batch, heads, time, width / heads]
        h = parts.attention(q, k, v).transpose(1, 2).reshape(batch * time, width)
        x = add(x, parts.linear(h, weights[f"{i} out"]), 2 * i)
        h = parts.rms_norm(x, weights[f"{i} norm 2"])
        h = parts.linear(h, weights[f"{i} up"], "leaky_relu")
        x = add(x, parts.linear(h, weights[f"{i} down"]), 2 * i + 1)
    return parts.linear(parts.rms_norm(x, weights["norm"]), weights["logits"])


class Ours:
    """The parts from the lessons."""

    linear = staticmethod(lambda x, w, activation="": Linear.apply(x, w, activation))
    dropout, rms_norm = staticmethod(dropout), norms.rms_norm
    attention = partial(attention, causal=True)
    loss = partial(losses.cross_entropy, inplace=True)


class PyTorch:
    """The same parts from PyTorch."""

    rms_norm = staticmethod(lambda x, w: functional.rms_norm(x, w.shape, w, 1e-6))
    attention = partial(functional.scaled_dot_product_attention, is_causal=True)
    loss = staticmethod(functional.cross_entropy)

    @staticmethod
    def linear(x, w, activation=""):
        """Return ``activation(x @ w.T)``."""
        y = functional.linear(x, w)
        return functional.leaky_relu(y) if activation else y


# %%
# One step
# --------
#
# A step computes the loss and all gradients, and updates the weights. The **loss** is the mean of
# −log *p*, where *p* is the probability that the model gives to the right byte. Its unit is the
# *nat*; a *bit* is 0.693 nats. The cross-entropy writes its gradient over the logits: less memory.


def train_step(weights, tokens, targets, config, parts, update, seeds=None, model=decoder):
    """Return the loss of one batch, and change the weights by one step."""
    logits = model(tokens, weights, config, parts, seeds)
    loss = parts.loss(logits, targets.flatten())
    loss.backward()
    update(weights)
    return loss.detach()


# %%
# The text comes with Python: the pages of ``help()``, about half a million bytes. The last tenth is
# kept for checking. A small model, with two layers of width 32, takes four steps with our kernels
# and with PyTorch. The losses and all weights have to agree.

# sphinx_gallery_fold = "has the text and PyTorch's update, and compares four steps"
from shared.training import initial_weights

TEXT = "\n\n".join(topics[name] for name in sorted(topics)).encode()
TEXT = torch.frombuffer(bytearray(TEXT), dtype=torch.uint8).to(DEVICE).long()
TRAIN, CHECK = TEXT[: len(TEXT) * 9 // 10], TEXT[len(TEXT) * 9 // 10 :]


def batch_of(text, count, time, generator):
    """Return *count* random pieces of *text*, and the same shifted by one byte."""
    starts = torch.randint(len(text) - time, (count, 1), device=DEVICE, generator=generator)
    pieces = text[starts + torch.arange(time + 1, device=DEVICE)]
    return pieces[:, :-1], pieces[:, 1:]


def torch_update(weights):
    """Update *weights* by PyTorch's fused AdamW, and clear their gradients."""
    if weights.optimizer is None:
        on_gpu = {"fused": True, "capturable": True} if ON_GPU else {}
        weights.optimizer = torch.optim.AdamW(
            [weights.master], 1e-3, betas=BETAS, weight_decay=0.1, **on_gpu
        )
    weights.master.grad = weights.grad.float()
    weights.optimizer.step()
    weights.copy.copy_(weights.master)
    weights.grad.zero_()


SMALL, STEPS = (2, 32, 2), 4  # layers, width, heads


def small_run(parts, update):
    """Return the losses of a small model in four steps, and its weights."""
    weights = Weights(initial_weights(SMALL, 16, DEVICE), torch.float32)
    generator = torch.Generator(DEVICE).manual_seed(0)
    batches = [batch_of(TRAIN, 2, 16, generator) for _ in range(STEPS)]
    losses = [train_step(weights, *batch, SMALL, parts, update).item() for batch in batches]
    return losses, weights.master


expected = small_run(PyTorch, torch_update)
torch.testing.assert_close(small_run(Ours, adamw), expected, rtol=1e-4, atol=1e-4)
print("four losses, as with PyTorch:", ", ".join(f"{loss:.5f}" for loss in expected[0]))

# %%
# On a GPU the model has six layers of width 384, with six heads, and a step takes 64 pieces of 256
# bytes. The whole step becomes one **CUDA graph**: Python launches it once, and the GPU runs its
# hundreds of kernels without waiting for Python. What changes in a step, such as βᵗ, has to lie on
# the GPU. PyTorch's models get a graph, too, and one vector of weights: AdamW needs one launch.

# sphinx_gallery_fold = "makes a model in training, as one CUDA graph a step"
CONFIG, BATCH, TIME = (6, 384, 6), 64, 256


class Run:
    """A model in training; *drop* zeroes a fifth of the changes to x, others in each step."""

    def __init__(self, parts, update, compiled=False, drop=False):
        self.parts, self.update = parts, update
        self.weights = Weights(initial_weights(CONFIG, TIME, DEVICE), DTYPE)
        self.generator = torch.Generator(DEVICE).manual_seed(0)
        self.tokens, self.targets = map(torch.clone, batch_of(TRAIN, BATCH, TIME, self.generator))
        self.seeds = torch.arange(2 * CONFIG[0], device=DEVICE).view(-1, 1) if drop else None
        self.model = torch.compile(decoder) if compiled else decoder
        self.start = [t.clone() for t in (self.weights.master, self.weights.copy)]
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                self.step()  # compiles the kernels
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.step()
        self.restart()

    def restart(self):
        """Forget all steps, and what the optimizer keeps of them."""
        weights = self.weights
        for t, first in zip((weights.master, weights.copy), self.start, strict=True):
            t.copy_(first)
        kept = weights.optimizer.state[weights.master].values() if weights.optimizer else ()
        for t in (weights.m, weights.v, weights.grad, *kept):
            t.zero_()
        weights.powers.fill_(1)
        self.generator.manual_seed(0)

    def step(self):
        """Take one step on ``tokens`` and ``targets``."""
        batch = self.tokens, self.targets
        loss = train_step(
            self.weights, *batch, CONFIG, self.parts, self.update, self.seeds, self.model
        )
        if self.seeds is not None:
            self.seeds.add_(2 * CONFIG[0])
        return loss

    def train(self, seconds, every=50):
        """Train for so long; return [(seconds, loss)], the mean of *every* steps each."""
        found, begin = [], time.perf_counter()
        while not found or found[-1][0] < seconds:
            total = torch.zeros((), device=DEVICE)
            for _ in range(every):
                tokens, targets = batch_of(TRAIN, BATCH, TIME, self.generator)
                self.tokens.copy_(tokens)
                self.targets.copy_(targets)
                self.graph.replay()
                total += self.loss
            mean = total.item() / every  # waits for the GPU
            found.append((time.perf_counter() - begin, mean))
        return found

    def check(self):
        """Return the mean loss on the text that was kept for checking."""
        generator = torch.Generator(DEVICE).manual_seed(1)
        losses = []
        with torch.no_grad():
            for _ in range(8):
                tokens, targets = batch_of(CHECK, BATCH, TIME, generator)
                logits = decoder(tokens, self.weights, CONFIG, self.parts)
                losses.append(functional.cross_entropy(logits.float(), targets.flatten()))
        return torch.stack(losses).mean().item()


if ON_GPU:
    first = Run(Ours, adamw)
    count = sum(view.numel() for view in first.weights.views.values())
    print(f"{count:,} parameters, {BATCH * TIME:,} tokens a step")
else:
    print("Without a GPU there is only the small model.")

# %%
# Where the time goes
# -------------------
#
# .. predict:: Which part of the step takes the most time on the GPU?
#    :choices: attention | the products | the optimizer
#    :answer: the products
#
#    Our product takes :measured:`products` % of the step. Six layers have four weights each, and
#    the last product one. Each takes part in three products: one forward, two for the gradients.
#
# PyTorch's profiler lists the kernels of one step. PyTorch's own copy and add between ours:

# sphinx_gallery_fold = "profiles one step"
from shared.training import print_profile, profile_of

values = []  # (name, unit, value)
if ON_GPU:
    found = profile_of(first.step)
    print_profile(found)
    whole = sum(ms for *_, ms in found)
    product = sum(ms for name, _, ms in found if name == "matmul_kernel")
    values += [("parameters", "1", count), ("products", "%", 100 * product / whole)]

# %%
# Gradients of weights in parts
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
#
# A third of the products are gradients of weights, :math:`g^T x`, and use the GPU poorly. The
# result is small, 384 × 384 for some, so :doc:`03-matrix-multiplication` takes small tiles, which
# load much for each multiplication. But the sum is long: it runs over all 16,384 tokens of a step.
# The remedy is large tiles and a sum **cut into parts**, one program for each part of a tile:


@triton.jit
def parts_kernel(
    g_ptr, x_ptr, parts_ptr, T, N, K, part, stride_g, stride_x,
    BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Compute one tile of ``g.T @ x`` over *part* of the T tokens."""
    tiles = tl.cdiv(K, BLOCK)
    n = tl.program_id(0) // tiles * BLOCK + tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
    k = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)[None, :]
    begin = tl.program_id(1) * part  # <-
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for t in range(begin, min(begin + part, T), STEP):
        rows = t + tl.arange(0, STEP)[:, None].to(tl.int64)  # [STEP, 1]
        g = tl.load(g_ptr + rows * stride_g + n, mask=(rows < T) & (n < N), other=0.0)
        x = tl.load(x_ptr + rows * stride_x + k, mask=(rows < T) & (k < K), other=0.0)
        acc = tl.dot(tl.trans(g), x, acc, input_precision="ieee")
    n = tl.trans(n)  # [BLOCK, 1]
    place = (tl.program_id(1).to(tl.int64) * N + n) * K + k
    tl.store(parts_ptr + place, acc, mask=(n < N) & (k < K))


@triton.jit
def add_parts_kernel(parts_ptr, grad_ptr, size, parts, BLOCK: tl.constexpr):
    """Add the partial sums to the gradient, in order."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < size
    total = tl.load(grad_ptr + i, mask=mask).to(tl.float32)
    for part in range(parts):
        total += tl.load(parts_ptr + tl.cast(part, tl.int64) * size + i, mask=mask)
    tl.store(grad_ptr + i, total.to(grad_ptr.dtype.element_ty), mask=mask)


# %%
# The second kernel adds the parts to the gradient that is already there. ``Fused`` uses both:

# sphinx_gallery_fold = "launches both kernels, and checks four steps"


def add_weight_gradient(g, x, grad):
    """Add ``g.T @ x`` to *grad*."""
    g, x = norms.readable(g), norms.readable(x)  # the kernel needs contiguous rows
    (T, N), K = g.shape, x.shape[1]
    tiles = triton.cdiv(N, 128) * triton.cdiv(K, 128)
    count = max(1, min(triton.cdiv(T, 256), 2 * PROGRAMS // tiles))
    part = triton.cdiv(triton.cdiv(T, count), 64) * 64
    parts = torch.empty((triton.cdiv(T, part), N, K), dtype=torch.float32, device=g.device)
    parts_kernel[tiles, len(parts)](
        g, x, parts, T, N, K, part, g.stride(0), x.stride(0),
        BLOCK=128, STEP=64, num_warps=8, num_stages=3,
    )  # fmt: skip
    add_parts_kernel[(triton.cdiv(N * K, 1024),)](parts, grad, N * K, len(parts), BLOCK=1024)


class FusedLinear(Linear):
    """``Linear``, whose backward pass adds to the weight's gradient itself."""

    @staticmethod
    def backward(ctx, g):
        """Return the gradient of x, and add to that of w."""
        x, w, y = ctx.saved_tensors
        if y is not None:
            g = torch.ops.aten.leaky_relu_backward(g, y, 0.01, True)
        add_weight_gradient(g, x, ctx.w.grad)
        return matmul(g, w), None, None


class Fused(Ours):
    """Our parts, with the gradients of weights in parts."""

    linear = staticmethod(lambda x, w, activation="": FusedLinear.apply(x, w, activation))


torch.testing.assert_close(small_run(Fused, adamw), expected, rtol=1e-4, atol=1e-4)
print("four steps agree with PyTorch, too")

# %%
# How fast is it?
# ---------------
#
# Four models are timed in turns: ours (*triton, first*), ours with gradients in parts (*triton*),
# PyTorch's eager mode (*torch*), and ``torch.compile`` (*compile*). Then all but *triton, first*
# train for ten seconds:

# sphinx_gallery_fold = "times a step of each model, and trains each for ten seconds"
from shared.training import draw_losses, graph_times

if ON_GPU:
    runs = {"triton": Run(Fused, adamw), "triton, first": first}
    runs |= {"torch": Run(PyTorch, torch_update)}
    runs |= {"compile": Run(PyTorch, torch_update, compiled=True)}
    rows = [
        (*CONFIG[:2], BATCH * TIME, name, "ms", *spread(ms))
        for name, ms in graph_times({name: run.graph for name, run in runs.items()}).items()
    ]
    write_rows("transformer.csv", ["layers", "width", "tokens"], rows)
    table = [(row[3], row[5], BATCH * TIME / row[5] / 1e3) for row in rows]
    print(tabulate(table, ["model", "ms a step", "million tokens/s"], floatfmt=".2f"))
    del runs["triton, first"], first
    for run in runs.values():
        run.restart()  # the timed steps have trained them already
    curves = {name: run.train(10) for name, run in runs.items()}
    draw_losses(curves, "Ten seconds of training")
    points = [(name, *point) for name, curve in curves.items() for point in curve]
    write_table("transformer-loss.csv", ["provider", "seconds", "loss"], points)
else:
    print("Without a GPU there is nothing to time.")

# %%
# With gradients in parts, a step has :measured:`gain` times the speed of our first one, and
# :measured:`faster` times that of PyTorch's eager mode. It has :measured:`compiled` times the speed
# of ``torch.compile``.
#
# **The curves are single runs**; a dot is the mean of 50 steps. The models begin alike and see the
# same batches. After equal steps only rounding separates them, so the fastest one gets furthest.
#
# A minute of training
# --------------------
#
# Our model sees the text many times in a minute, so it can learn it by heart. **Dropout** makes
# that harder: :doc:`04-low-memory-dropout` zeroes a fifth of all changes to *x*. Its seeds lie on
# the GPU, and each step changes them, or every replay would drop the same ones.

# sphinx_gallery_fold = "trains for a minute, and writes 200 bytes"
sample = lesson("13-sampling").sample


def continued(weights, text, count):
    """Return *count* bytes that the model writes after the last ones of *text*."""
    window = text[-TIME:].clone()
    made = []
    for seed in range(count):
        with torch.no_grad():
            logits = decoder(window[None], weights, CONFIG, Fused)[-1:]
        made.append(sample(logits.float(), temperature=0.7, top_p=0.95, seed=seed))
        window = torch.cat([window[1:], made[-1]])
    return bytes(torch.cat(made).tolist()).decode(errors="replace")


if ON_GPU:
    run = Run(Fused, adamw, drop=True)
    curve, checks = [], []
    for _ in range(12):
        curve += run.train(5)
        checks.append(run.check())
    table = [(5 * i, checks[i - 1], checks[i - 1] / 0.6931) for i in (1, 2, 4, 6, 9, 12)]
    print(tabulate(table, ["seconds", "loss on the kept text", "bits a byte"], floatfmt=".2f"))
    values += [("lowest", "nats", min(checks)), ("tokens", "1", len(curve) * 50 * BATCH * TIME)]
    write_table("15-transformer-values.csv", ["name", "unit", "value"], values)
    print("-" * 60, continued(run.weights, CHECK[:TIME], 200), sep="\n")
else:
    print("Without a GPU there is nothing to train.")

# %%
# In this minute the model has seen :measured:`seen` million bytes. Its lowest loss on the kept text
# is :measured:`lowest` nats. **From then on this loss rises, because the model learns the other
# text by heart.** Dropout does not prevent that: the text is too short for so many parameters. In
# practice you stop at the lowest loss, or take more text. The lines below the table, sampled by
# :doc:`13-sampling` after the whole minute, continue a piece of the kept text, and may repeat what
# the model learned by heart.
#
# Exercises
# ---------
#
# 1. **Decay by group** *(easy, 20 minutes)*. The weights of norms should not decay. Give the kernel
#    a vector with the decay of each weight, and return *w*, *m* and *v* from
#    ``decayed_step(w, g, m, v, decays, t)``. :doc:`Solution <solutions/15-decay>`.
# 2. **A cache for sampling** *(medium, 30 minutes)*. ``continued`` computes all 256 positions for
#    each byte. Keep keys and values in the pages of :doc:`11-paged-attention` instead:
#    ``append(k, v, k_pages, v_pages, page_table, lengths)`` writes the new ones, [batch, heads, d],
#    after the last ones. What is then read for a byte? :doc:`Solution <solutions/15-cache>`.
#
# References
# ----------
#
# * Ilya Loshchilov and Frank Hutter: *Decoupled weight decay regularization*, ICLR 2019,
#   https://arxiv.org/abs/1711.05101
# * Alec Radford et al.: *Language models are unsupervised multitask learners*, 2019: this decoder.
