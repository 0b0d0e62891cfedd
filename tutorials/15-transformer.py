"""
A small transformer
===================

You put the kernels of the lessons together and train a language model with them: a decoder of
:measured:`parameters` million parameters that learns Python's documentation byte by byte. It
processes :measured:`ours` million tokens a second, and PyTorch's eager mode
:measured:`eager` million. You need :doc:`05-layer-norm`, :doc:`06b-attention-backward`,
:doc:`10-cross-entropy` and, for a text of its own, :doc:`13-sampling`.
"""

# %%

# sphinx_gallery_fold = "imports and device"
# sphinx_gallery_level = "transformer"
# sphinx_gallery_thumbnail_number = 1
# sphinx_gallery_depends = "03-matrix-multiplication.py, 04-low-memory-dropout.py, 05-layer-norm.py, 06b-attention-backward.py, 10-cross-entropy.py, 13-sampling.py"  # noqa: E501
import math
import os
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

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.lesson import lesson

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
DTYPE = torch.bfloat16 if ON_GPU else torch.float32  # the interpreter computes bf16 wrongly
BETAS = 0.9, 0.95
PROGRAMS = torch.cuda.get_device_properties(0).multi_processor_count if ON_GPU else 4

# %%
# The one new kernel
# ------------------
#
# The lessons have a kernel for every part of the model. Only the optimizer is missing. **AdamW**
# keeps two averages for each weight: *m* of its gradients and *v* of their squares. A step moves
# the weight *w* with gradient *g* by
#
# .. math::
#
#    m \leftarrow m + (1 - \beta_1)(g - m), \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
#    w \leftarrow w - \lambda d w
#      - \lambda \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}
#
# Here λ is the learning rate, *d* the weight decay, and *t* counts the steps. Each weight depends on
# its own numbers only, so one launch can update all weights of the model, if they lie in one block
# of memory. The kernel also does two errands on the way: it writes the weights in bf16 for the next
# forward pass, and it clears the gradients.


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
# The weights in one block of memory
# ----------------------------------
#
# ``Weights`` holds five vectors: the weights in fp32, their copy in bf16, the gradients, *m* and
# *v*. Each parameter of the model is a view into the copy, and its ``.grad`` a view into the
# gradients. Autograd adds to a gradient that is already there, so it never allocates one.


class Weights:
    """The parameters of a model in one block of memory; ``weights[name]`` is one of them."""

    def __init__(self, initial, dtype, betas=(0.9, 0.95)):
        sizes = [triton.cdiv(t.numel(), 128) * 128 for t in initial.values()]  # aligned
        padded = [
            torch.nn.functional.pad(t.flatten(), (0, -t.numel() % 128)) for t in initial.values()
        ]
        self.master = torch.cat(padded).float()
        self.m, self.v = torch.zeros_like(self.master), torch.zeros_like(self.master)
        self.copy, self.grad = self.master.to(dtype), torch.zeros_like(self.master, dtype=dtype)
        self.betas = torch.tensor(betas, dtype=torch.float64, device=DEVICE)
        self.powers = torch.ones_like(self.betas)
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


# %%
# Four steps beside ``torch.optim.AdamW``, on the same gradients:

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
# The parts come from the lessons. ``lesson`` executes the functions of a script and leaves out its
# checks and benchmarks, so there is one copy of each kernel.

norms, losses = lesson("05-layer-norm"), lesson("10-cross-entropy")
attention = lesson("06b-attention-backward").attention
dropout = lesson("04-low-memory-dropout").seeded_dropout
matmul = lesson("03-matrix-multiplication").matmul

# %%
# ``matmul`` has no gradient yet. For :math:`y = x w^T` the gradients are two more products. With
# LeakyReLU fused into the forward pass, the sign of *y* is the sign of the sum before it, so
# nothing else has to be kept.


class Linear(torch.autograd.Function):
    """``activation(x @ w.T)`` for x [tokens, K] and w [N, K], with gradients."""

    @staticmethod
    def forward(ctx, x, w, activation):
        """Keep what the gradients need: y only for its signs."""
        y = matmul(x, w.T, activation)
        ctx.save_for_backward(x, w, y if activation else None)
        return y

    @staticmethod
    def backward(ctx, g):
        """Multiply the incoming gradient with w and with x."""
        x, w, y = ctx.saved_tensors
        if y is not None:
            g = torch.ops.aten.leaky_relu_backward(g, y, 0.01, True)
        return matmul(g, w), matmul(g.T, x), None


def linear(x, w, activation=""):
    """Return ``activation(x @ w.T)``."""
    return Linear.apply(x, w, activation)


# %%
# A **decoder** predicts the next byte from all bytes before it. Each layer adds two things to its
# input *x*: what attention collects from earlier positions, and what two products with an
# activation between them make of each position. A norm comes before each.


def decoder(tokens, weights, config, parts, seeds=None):
    """Return the logits [batch · time, 256] for *tokens* [batch, time], with the kernels in *parts*."""
    batch, time = tokens.shape
    layers, width, heads = config
    x = torch.nn.functional.embedding(tokens, weights["bytes"]) + weights["places"][:time]
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

    linear, dropout, rms_norm = staticmethod(linear), staticmethod(dropout), norms.rms_norm
    attention = partial(attention, causal=True)
    loss = partial(losses.cross_entropy, inplace=True)


class PyTorch:
    """The same parts from PyTorch."""

    rms_norm = staticmethod(lambda x, w: torch.nn.functional.rms_norm(x, w.shape, w, 1e-6))
    attention = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
    loss = staticmethod(torch.nn.functional.cross_entropy)

    @staticmethod
    def linear(x, w, activation=""):
        """Return ``activation(x @ w.T)``."""
        y = torch.nn.functional.linear(x, w)
        return torch.nn.functional.leaky_relu(y) if activation else y


# sphinx_gallery_fold = "makes the first weights"


def initial_weights(config, context):
    """Return {name: fp32 tensor} of a model; the same for each call."""
    layers, width, heads = config
    torch.manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, device=DEVICE)  # noqa: E731
    made = {"bytes": 0.5 * normal(256, width), "places": 0.1 * normal(context, width)}
    for i in range(layers):
        deep = (2 * layers) ** -0.5  # each layer adds to x, so x stays of one size
        made[f"{i} norm 1"] = made[f"{i} norm 2"] = torch.ones(width, device=DEVICE)
        made[f"{i} qkv"] = normal(3 * width, width) * width**-0.5
        made[f"{i} out"] = normal(width, width) * width**-0.5 * deep
        made[f"{i} up"] = normal(4 * width, width) * width**-0.5
        made[f"{i} down"] = normal(width, 4 * width) * (4 * width) ** -0.5 * deep
    made["norm"] = torch.ones(width, device=DEVICE)
    made["logits"] = normal(256, width) * width**-0.5
    return made


# %%
# Training it
# -----------
#
# One step: logits, loss, gradients, optimizer. The cross-entropy writes its gradient over the
# logits. On a GPU the whole step becomes one **CUDA graph**: Python launches it once and the GPU
# runs its hundreds of kernels without waiting for Python. All contenders get this.


def train_step(weights, tokens, targets, config, parts, update, seeds=None):
    """Return the loss of one batch, and change the weights by one step."""
    logits = decoder(tokens, weights, config, parts, seeds)
    loss = parts.loss(logits, targets.flatten())
    loss.backward()
    update(weights)
    return loss.detach()


# %%
# PyTorch's contenders use the same block of memory, so its fused AdamW needs one launch, too.

# sphinx_gallery_fold = "PyTorch's update, graphs, and batches"


def torch_update(weights, optimizers={}):  # noqa: B006 - one optimizer for each set of weights
    """Update *weights* by PyTorch's fused AdamW, and clear their gradients."""
    if id(weights) not in optimizers:
        on_gpu = {"fused": True, "capturable": True} if ON_GPU else {}
        optimizers[id(weights)] = torch.optim.AdamW(
            [weights.master], 1e-3, betas=BETAS, weight_decay=0.1, **on_gpu
        )
    weights.master.grad = weights.grad.float()
    optimizers[id(weights)].step()
    weights.copy.copy_(weights.master)
    weights.grad.zero_()


def graph_of_step(step):
    """Return the CUDA graph of *step*, and the loss that each replay writes."""
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            step()  # compiles the kernels
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    return graph, loss


TEXT = "\n\n".join(topics[name] for name in sorted(topics)).encode()
TEXT = torch.frombuffer(bytearray(TEXT), dtype=torch.uint8).to(DEVICE).long()
TRAIN, CHECK = TEXT[: len(TEXT) * 9 // 10], TEXT[len(TEXT) * 9 // 10 :]


def batch_of(text, count, time, generator):
    """Return *count* random pieces of *text*, and the same shifted by one byte."""
    starts = torch.randint(len(text) - time, (count, 1), device=DEVICE, generator=generator)
    at = starts + torch.arange(time + 1, device=DEVICE)
    pieces = text[at]
    return pieces[:, :-1], pieces[:, 1:]


# %%
# First the check: a small model takes four steps with our kernels and with PyTorch, in float32.

# sphinx_gallery_fold = "compares four steps with PyTorch"
small, traces = (2, 32, 2), {}
for parts, update in ((Ours, adamw), (PyTorch, torch_update)):
    weights = Weights(initial_weights(small, 16), torch.float32)
    generator = torch.Generator(DEVICE).manual_seed(0)
    traces[parts] = [
        train_step(weights, *batch_of(TRAIN, 2, 16, generator), small, parts, update).item()
        for _ in range(4)
    ]
    traces[parts] += [weights.master.clone()]
torch.testing.assert_close(traces[Ours], traces[PyTorch], rtol=1e-4, atol=1e-4)
print("four losses with our kernels:", ", ".join(f"{loss:.5f}" for loss in traces[Ours][:4]))
print("four losses with PyTorch:    ", ", ".join(f"{loss:.5f}" for loss in traces[PyTorch][:4]))

# %%
# And the model itself: six layers, 384 wide, six heads, 64 pieces of 256 bytes a step.

# sphinx_gallery_fold = "counts tokens a second"
CONFIG, BATCH, TIME = (6, 384, 6), 64, 256


class Run:
    """A model in training, as one CUDA graph a step."""

    def __init__(self, parts, update, compiled=False, drop=False):
        self.weights = Weights(initial_weights(CONFIG, TIME), DTYPE)
        self.first = self.weights.master.clone()
        self.generator = torch.Generator(DEVICE).manual_seed(0)
        self.tokens, self.targets = map(torch.clone, batch_of(TRAIN, BATCH, TIME, self.generator))
        self.seeds = torch.arange(2 * CONFIG[0], device=DEVICE).view(-1, 1) if drop else None
        forward = torch.compile(decoder) if compiled else decoder

        def step():
            logits = forward(self.tokens, self.weights, CONFIG, parts, self.seeds)
            loss = parts.loss(logits, self.targets.flatten())
            loss.backward()
            update(self.weights)
            if drop:
                self.seeds.add_(2 * CONFIG[0])  # each step drops other elements
            return loss.detach()

        self.step = step
        self.graph, self.loss = graph_of_step(step)

    def train(self, steps):
        """Take *steps* steps on new batches, and return their losses as a tensor."""
        found = torch.empty(steps, device=DEVICE)
        for i in range(steps):
            tokens, targets = batch_of(TRAIN, BATCH, TIME, self.generator)
            self.tokens.copy_(tokens)
            self.targets.copy_(targets)
            self.graph.replay()
            found[i] = self.loss
        return found

    def milliseconds(self, steps=50):
        """Return the GPU's milliseconds for one step."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.graph.replay()
        start.record()
        for _ in range(steps):
            self.graph.replay()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / steps


if ON_GPU:
    first = Run(Ours, adamw)
    runs = {"eager": Run(PyTorch, torch_update)}
    runs["compile"] = Run(PyTorch, torch_update, compiled=True)

# %%
# Where the time goes
# -------------------
#
# PyTorch's profiler names each kernel of one step:

# sphinx_gallery_fold = "profiles one step"


def profile_of(run):
    """Return {kernel: (launches, milliseconds)} of one step, the longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run.step()
        torch.cuda.synchronize()
    events = [e for e in profile.key_averages() if e.self_device_time_total]
    events.sort(key=lambda e: -e.self_device_time_total)
    return {e.key: (e.count, e.self_device_time_total / 1e3) for e in events}


if ON_GPU:
    for run in (first, runs["eager"]):
        found = profile_of(run)
        whole = sum(ms for _, ms in found.values())
        rows = [
            (n.replace("at::native::", "")[:44], c, ms, f"{100 * ms / whole:.0f} %")
            for n, (c, ms) in found.items()
        ]
        print(tabulate(rows[:12], ["kernel", "launches", "ms", "share"], floatfmt=".2f"))
        print("whole", whole)

# %%
# Gradients of weights, once more
# -------------------------------


@triton.jit
def parts_kernel(
    g_ptr, x_ptr, parts_ptr, T, N, K, part, stride_g, stride_x,
    BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Compute one tile of ``g.T @ x`` over *part* of the T tokens."""
    tiles = tl.cdiv(K, BLOCK)
    n = tl.program_id(0) // tiles * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    k = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    begin = tl.program_id(1) * part
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for t in range(begin, min(begin + part, T), STEP):
        rows = t + tl.arange(0, STEP)[:, None].to(tl.int64)  # [STEP, 1]
        g = tl.load(
            g_ptr + rows * stride_g + n[None, :], mask=(rows < T) & (n[None, :] < N), other=0.0
        )
        x = tl.load(
            x_ptr + rows * stride_x + k[None, :], mask=(rows < T) & (k[None, :] < K), other=0.0
        )
        acc = tl.dot(tl.trans(g), x, acc, input_precision="ieee")  # <-
    place = (tl.program_id(1).to(tl.int64) * N + n[:, None]) * K + k[None, :]
    tl.store(parts_ptr + place, acc, mask=(n[:, None] < N) & (k[None, :] < K))


@triton.jit
def add_parts_kernel(parts_ptr, grad_ptr, size, parts, BLOCK: tl.constexpr):
    """Add *parts* partial sums to the gradient."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < size
    total = tl.load(grad_ptr + i, mask=mask).to(tl.float32)
    for part in range(parts):
        total += tl.load(parts_ptr + tl.cast(part, tl.int64) * size + i, mask=mask)
    tl.store(grad_ptr + i, total.to(grad_ptr.dtype.element_ty), mask=mask)


def add_weight_gradient(g, x, grad):
    """Add ``g.T @ x`` to *grad*."""
    (T, N), K = g.shape, x.shape[1]
    tiles = triton.cdiv(N, 128) * triton.cdiv(K, 128)
    count = max(1, min(triton.cdiv(T, 256), 2 * PROGRAMS // tiles))
    part = triton.cdiv(triton.cdiv(T, count), 64) * 64
    parts = torch.empty((triton.cdiv(T, part), N, K), device=g.device)
    parts_kernel[tiles, len(parts)](
        g, x, parts, T, N, K, part, g.stride(0), x.stride(0),
        BLOCK=128, STEP=64, num_warps=8, num_stages=3,
    )  # fmt: skip
    add_parts_kernel[(triton.cdiv(N * K, 1024),)](parts, grad, N * K, len(parts), BLOCK=1024)


class LinearInPlace(torch.autograd.Function):
    """``Linear``, whose backward pass adds to the weight's gradient itself."""

    @staticmethod
    def forward(ctx, x, w, activation):
        """As in ``Linear``; the weight itself has the gradient to add to."""
        y = matmul(x, w.T, activation)
        ctx.w = w
        ctx.save_for_backward(x, y if activation else None)
        return y

    @staticmethod
    def backward(ctx, g):
        """Return the gradient of x, and add to that of w."""
        x, y = ctx.saved_tensors
        if y is not None:
            g = torch.ops.aten.leaky_relu_backward(g, y, 0.01, True)
        add_weight_gradient(g, x, ctx.w.grad)
        return matmul(g, ctx.w), None, None


class Fused(Ours):
    """Our parts, with the gradients of weights in parts."""

    linear = staticmethod(lambda x, w, activation="": LinearInPlace.apply(x, w, activation))


weights = Weights(initial_weights(small, 16), torch.float32)
generator = torch.Generator(DEVICE).manual_seed(0)
for loss in traces[PyTorch][:4]:
    batch = batch_of(TRAIN, 2, 16, generator)
    torch.testing.assert_close(
        train_step(weights, *batch, small, Fused, adamw).item(), loss, rtol=1e-4, atol=1e-4
    )
print("with gradients in parts, too, four steps agree")

if ON_GPU:
    runs = {"first": first, "ours": Run(Fused, adamw)} | runs
    times = {name: [] for name in runs}
    for _ in range(3):
        for name in runs:
            times[name].append(runs[name].milliseconds())
    times = {n: sorted(v)[1] for n, v in times.items()}
    for name, ms in times.items():
        print(name, ms, BATCH * TIME / ms / 1e3)
    for name in runs:
        print(name, runs[name].train(200)[::20].tolist())
    found = profile_of(runs["ours"])
    whole = sum(ms for _, ms in found.values())
    rows = [
        (n.replace("at::native::", "")[:44], c, ms, f"{100 * ms / whole:.0f} %")
        for n, (c, ms) in found.items()
    ]
    print(tabulate(rows[:14], ["kernel", "launches", "ms", "share"], floatfmt=".2f"))
