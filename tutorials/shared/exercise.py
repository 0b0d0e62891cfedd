"""Check your solution of an exercise: is it right, and does it move more than it has to?

    python exercise.py 02-log-softmax mine.py          # in Triton's interpreter: no GPU is needed
    python exercise.py 02-log-softmax mine.py --gpu    # on the GPU; nothing is counted there
    python exercise.py                                 # lists the exercises

*mine.py* defines the function that the exercise asks for. It is called with awkward shapes, its
results are compared with PyTorch's, and what is wrong is described: which elements, and what that
pattern usually means. The interpreter also counts what your kernels load, store and multiply;
beside it stands what cannot be avoided.
"""

import argparse
import functools
import importlib.util
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

FP16 = {"rtol": 2**-10, "atol": 2**-10}  # a rounding of fp16, and a sum in fp32
FP32 = {"rtol": 1e-5, "atol": 1e-6}


@dataclass(frozen=True)
class Exercise:
    """What is asked for.

    Attributes:
        function: its name and parameters.
        cases: makes the arguments to try, each a tuple.
        reference: computes what the function must return, from the same arguments.
        tolerance: how far the two may be apart; None for properties in place of a reference.
        least: the bytes that one call has to move at least, from its arguments and its result.
        multiplied: how many products of two numbers it has to compute at least, from its arguments.
        seen: makes of the result what is compared; a ValueError says what it should have been.
        hint: says, from the arguments and the places of wrong elements, what these have in common.
        use: calls the function; one that differentiates it as well returns results and gradients.
        names: what the results are called, where there are several.
        properties: further checks; each returns what is wrong, or nothing.
    """

    function: str
    cases: Callable
    reference: Callable | None = None
    tolerance: dict = field(default_factory=lambda: FP32)
    least: Callable = lambda arguments, result: size_of(*arguments, result)
    multiplied: Callable | None = None
    seen: Callable = lambda result: result
    hint: Callable = lambda arguments, wrong: ""
    use: Callable = lambda call, arguments: call(*arguments)
    names: tuple = ()
    properties: tuple = ()

    @property
    def name(self):
        """The name of the function."""
        return self.function.partition("(")[0]


def size_of(*values):
    """Return the bytes of the tensors in *values* and in tuples there, each element once."""
    tensors = [v for value in values for v in (value if isinstance(value, tuple) else (value,))]
    return sum(v.numel() * v.element_size() for v in tensors if isinstance(v, torch.Tensor))


# --- what is tried --------------------------------------------------------------------------------


def vectors(device):
    """Vectors of lengths that no block divides."""
    for n in (1, 5, 1023, 1025, 5003):
        yield torch.randn(n, device=device), torch.randn(n, device=device)


def matrices(device):
    """Matrices whose rows fill no block; the last one has a common size."""
    for shape in ((1, 1), (5, 7), (3, 781), (2, 1025), (16, 1000)):
        yield (4 * torch.randn(shape, device=device),)


def products(device, dtype=torch.float16):
    """Factors of products; no size is a multiple of a tile."""
    for m, n, k in ((1, 1, 1), (5, 7, 3), (123, 77, 45), (64, 96, 200)):
        yield (
            torch.randn(m, k, device=device, dtype=dtype),
            torch.randn(k, n, device=device, dtype=dtype),
        )


def causal(x, scale):
    """Softmax of the rows of ``scale * x``, where row i sees the columns up to i."""
    hidden = torch.ones_like(x, dtype=torch.bool).triu(1)
    return torch.softmax((scale * x).masked_fill(hidden, -torch.inf), dim=1)


def softmax_backward(y, g):
    """The gradient of softmax from its result and the gradient of that."""
    return y * (g - (g * y).sum(dim=1, keepdim=True))


def linear(x, weight, bias, activation=""):
    """A linear layer with an activation, in fp32."""
    y = torch.nn.functional.linear(x.float(), weight.float(), bias.float())
    functions = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}
    return functions.get(activation, lambda y: y)(y).to(x.dtype)


def linear_cases(device):
    """Inputs, weights and biases, with each activation."""
    for activation in ("", "relu"):
        for a, b in products(device):
            bias = torch.randn(b.shape[1], device=device, dtype=a.dtype)
            yield a, b.T.contiguous(), bias, activation


def same_rows(call, device):
    """A row keeps its mask, whichever batch it is part of."""
    x = torch.ones(7, 300, device=device)
    seeds = torch.tensor([3, 1, 4, 1, 5, 9, 2], device=device)
    y = call(x, 0.5, seeds)
    if not torch.equal(y[1], y[3]):
        return "rows with one seed (1 and 3) have different masks"
    alone = call(x[4:5].contiguous(), 0.5, seeds[4:5].contiguous())
    if not torch.equal(alone[0], y[4]):
        return "a row has another mask when it is alone: the mask must not depend on its number"
    return "rows with different seeds have one mask" if torch.equal(y[0], y[1]) else ""


def keeps_the_share(call, device):
    """As many are kept as *p* says, and they are scaled."""
    y = call(torch.ones(64, 512, device=device))
    kept = (y != 0).float().mean().item()
    if abs(kept - 0.75) > 0.02:
        return f"p = 0.25, and {kept:.3f} of the elements are kept: 0.75 should be"
    scaled = y[y != 0]
    if not torch.allclose(scaled, torch.full_like(scaled, 4 / 3)):
        return "what is kept must be divided by 1 - p"
    return ""


def layout_does_not_matter(call, device):
    """A transposed matrix gets the mask of its rows and columns, not of its memory."""
    x = torch.randn(60, 90, device=device)
    if not torch.equal(call(x.T, 0.3, 5), call(x.T.contiguous(), 0.3, 5)):
        return "a transposed matrix and a contiguous copy of it have different masks"
    return ""


def keeps_distances(call, device):
    """A projection is linear, is the same each time, and nearly keeps distances."""
    x = torch.randn(6, 1000, device=device)
    y = call(x, 256, 4, 7)
    if not torch.equal(y, call(x, 256, 4, 7)):
        return "two calls with one seed give different results"
    both = call(x[:3] + x[3:], 256, 4, 7)
    if not torch.allclose(both, y[:3] + y[3:], rtol=1e-3, atol=1e-3):
        return "the projection of a sum is not the sum of the projections"
    ratio = (torch.pdist(y) / torch.pdist(x)).mean().item()
    if not 0.8 < ratio < 1.2:
        return f"distances become {ratio:.2f} times what they were: is R scaled by sqrt(s / k)?"
    return ""


ATTENTION = {"rtol": 2**-9, "atol": 2**-9}  # weights and output are rounded to fp16


def attention_inputs(device, heads, key_heads, queries, keys, d=32, batch=1):
    """Queries, keys and values in fp16."""
    q = torch.randn(batch, heads, queries, d, device=device).half()
    k, v = torch.randn(2, batch, key_heads, keys, d, device=device).half()
    return q, k, v


def masked_attention(q, k, v, seen=None, added=0.0):
    """Attention in fp64, of grouped heads; *seen* says which keys, *added* goes to the scores."""
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q.double() @ k.mT * q.shape[3] ** -0.5 + added
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    return (scores.softmax(-1) @ v).to(q.dtype)


def distances(q, k):
    """How far each query is behind each key: negative where the key comes later."""
    places = torch.arange(max(q.shape[2], k.shape[2]), device=q.device)
    return places[: q.shape[2], None] - places[: k.shape[2]]


def window_cases(device):
    """Sequences that no tile divides, with windows from one key to all."""
    for n, window in ((1, 1), (130, 64), (200, 1), (100, 1000), (200, 65), (700, 130)):
        yield *attention_inputs(device, 2, 2, n, n), window


def windowed(q, k, v, window):
    """Attention to the last keys of each query."""
    distance = distances(q, k)
    return masked_attention(q, k, v, (distance >= 0) & (distance < window))


def which_queries(arguments, wrong):
    """The heads and queries that are wrong, and what the first of them has before it."""
    rows = wrong.any(dim=3)
    heads, queries = (rows.any(dim=i).any(dim=0).nonzero().flatten().tolist() for i in (2, 1))
    whose = "" if len(heads) == rows.shape[1] else f"They are all in the heads {heads}. "
    if len(queries) == rows.shape[2]:
        return whose.strip()
    text = f"{whose}The first query that is wrong is number {queries[0]} of {rows.shape[2]}."
    window = arguments[3] if len(arguments) > 3 else None
    if isinstance(window, int) and not isinstance(window, bool) and queries[0] >= window - 1:
        return f"{text} Those before have fewer keys than the window is wide: its far edge?"
    return text


def penalized(q, k, v, slopes):
    """Causal attention with a penalty for distance."""
    distance = distances(q, k)
    penalty = -slopes.double()[:, None, None] * distance
    return masked_attention(q, k, v, distance >= 0, penalty)


def penalty_cases(device):
    """Sequences that no tile divides; slopes from steep to none."""
    for n in (1, 64, 200, 330):
        yield *attention_inputs(device, 4, 4, n, n), torch.tensor([1, 0.25, 0.01, 0], device=device)


def grouped(q, k, v, causal):
    """Attention in which heads of queries share a head of keys and values."""
    return masked_attention(q, k, v, distances(q, k) >= 0 if causal else None)


def grouped_cases(device):
    """Groups of 1, 3 and 8 heads; tiles begin and end in the midst of a group."""
    for heads, key_heads, queries, keys in ((4, 4, 70, 70), (6, 2, 50, 130), (16, 2, 3, 150)):
        for causal in (True, False):
            yield *attention_inputs(device, heads, key_heads, queries, keys, batch=2), causal


def decode_cases(device):
    """One query a head: from one key to many, also with scores of which one decides."""
    for batch, heads, key_heads, keys in ((1, 8, 2, 1), (2, 4, 4, 129), (9, 2, 1, 50)):
        yield attention_inputs(device, heads, key_heads, 1, keys, batch=batch)
    q, k, v = attention_inputs(device, 6, 2, 1, 700)
    yield 8 * q, k, v
    yield attention_inputs(device, 8, 1, 1, 3000)


def counted(call, *arguments):
    """What the interpreter counts in a call."""
    with Counter() as counter:
        call(*arguments)
    return counter


def skips_the_past(call, device):
    """With one window, twice the tokens make twice the products."""
    if device.type != "cpu":
        return ""
    short, long = (
        counted(call, *attention_inputs(device, 1, 1, n, n), 64).multiplied for n in (512, 1024)
    )
    if long > 2.5 * short:
        return (
            f"twice the tokens with the same window make {long / short:.1f} times the products: "
            "tiles that no query of a block sees are not skipped"
        )
    return ""


def reads_keys_once(call, device):
    """A group whose queries fit into one tile has its keys and values read once."""
    if device.type != "cpu":
        return ""
    q, k, v = attention_inputs(device, 8, 1, 4, 512)
    times = counted(call, q, k, v).loaded / size_of(k, v)
    if times > 1.5:
        return (
            f"eight heads of four queries share keys and values, and {times:.1f} times as many "
            "bytes are read as these have: a tile can hold the queries of all eight"
        )
    return ""


def polynomials(device):
    """Numbers, and coefficients of polynomials, the highest power first."""
    x = torch.linspace(-80, 80, 5003, device=device)
    for terms in ([1.0], [1.0, 0.5], [0.5, 1.0, 1.0], [1 / 24, 1 / 6, 0.5, 1.0, 1.0]):
        yield x, terms


def by_polynomial(x, terms):
    """Two to a whole power, times a polynomial of the rest."""
    k = (x.double() / math.log(2) + 0.5).floor()
    r, p = x.double() - k * math.log(2), 0.0
    for term in terms:
        p = p * r + term
    return (p * torch.exp2(k)).float()


def keeping(kept):
    """A hook that puts into the list *kept* what is saved for the backward pass."""

    def keep(tensor):
        kept.append(tensor)
        return tensor

    return keep


def gelu_has_gradients(call, device):
    """The gradient of GELU, exact and approximate, for what comes from behind."""
    for approximation in ("none", "tanh"):
        x = (3 * torch.randn(5, 781, device=device)).requires_grad_()
        g, exact = torch.randn_like(x), x.detach().double().requires_grad_()
        right = torch.nn.functional.gelu(exact, approximate=approximation)
        (wanted,) = torch.autograd.grad(right, exact, g.double())
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(keeping(kept), lambda tensor: tensor):
            y = call(x, approximation)
        if not y.requires_grad:
            return "its result has no gradient: is it made by a torch.autograd.Function?"
        (found,) = torch.autograd.grad(y, x, g)
        if wrong := difference(found, wanted.float(), {"rtol": 1e-4, "atol": 1e-5}):
            return f"the gradient for {approximation!r}: {wrong}"
        if size_of(*kept) > size_of(x):
            return f"{size_of(*kept)} bytes are kept for the backward pass; x has {size_of(x)}"
    return ""


def experts(device):
    """Tokens of experts, sorted: some have none, and no size is a multiple of a tile."""
    for sizes, k, n in (([5, 0, 70, 1, 0, 33], 45, 77), ([0, 130], 64, 32), ([40, 50], 33, 65)):
        offsets = torch.tensor(sizes).cumsum(0).to(device, torch.int32)
        x = torch.randn(sum(sizes), k, device=device, dtype=torch.float16)
        yield x, offsets, n


def by_expert(x, offsets):
    """Return the rows of each expert, in fp32."""
    return x.float().split(offsets.diff(prepend=offsets.new_zeros(1)).tolist())


def gradient_cases(device):
    """Inputs, gradients of the output, and offsets."""
    for x, offsets, n in experts(device):
        yield x, torch.randn(len(x), n, device=device, dtype=x.dtype), offsets


def grouped_gradient(x, g, offsets):
    """The gradient of the matrix of each expert."""
    pairs = zip(by_expert(x, offsets), by_expert(g, offsets), strict=True)
    return torch.stack([rows.T @ gradient for rows, gradient in pairs]).to(x.dtype)


def which_experts(arguments, wrong):
    """Experts without tokens, or those that have another one behind them."""
    sizes = arguments[-1].diff(prepend=arguments[-1].new_zeros(1))
    found = wrong.flatten(1).any(dim=1)
    names = ", ".join(str(e) for e in found.nonzero().flatten().tolist())
    if not (found & (sizes > 0)).any():
        return f"Experts without tokens ({names}): their gradient is zero, and has to be written."
    if not found[sizes.nonzero()[-1]] and found[sizes > 0].sum() > 0:
        return (
            f"Experts {names}, but not the last one that has tokens: behind the rows of an expert "
            "come those of the next; are they masked?"
        )
    return f"Experts {names}."


def gate_cases(device):
    """Inputs, two stacks of matrices, and offsets."""
    for x, offsets, n in experts(device):
        w = torch.randn(2, len(offsets), x.shape[1], n, device=device) / x.shape[1] ** 0.5
        yield x, *w.to(x.dtype), offsets


def gated_experts(x, w_gate, w_up, offsets):
    """The first layer of experts with a gate."""
    return torch.cat([
        torch.nn.functional.silu(rows @ w_gate[e].float()) * (rows @ w_up[e].float())
        for e, rows in enumerate(by_expert(x, offsets))
    ]).to(x.dtype)  # fmt: skip


def whose_rows(arguments, wrong):
    """The experts that rows belong to."""
    rows = wrong.any(dim=1).nonzero().flatten()
    found = torch.searchsorted(arguments[-1], rows.int(), right=True).unique().tolist()
    return f"They are {len(rows)} rows, of the experts {', '.join(map(str, found))}."


def gate_least(arguments, out):
    """The bytes of a gated layer: the matrices of experts without tokens need not be read."""
    x, w_gate, w_up, offsets = arguments
    share = (offsets.diff(prepend=offsets.new_zeros(1)) > 0).float().mean().item()
    return size_of(x, offsets, out) + int(share * size_of(w_gate, w_up))


def norm_cases(device):
    """Rows of very different size, and weights."""
    for m, n in ((3, 1), (5, 781), (2, 4096)):
        x = torch.randn(m, n, device=device) * torch.logspace(-2, 3, m, device=device)[:, None]
        yield x, torch.randn(n, device=device)


def rms_norm(x, weight):
    """The RMS norm of rows."""
    return x / (x.square().mean(dim=1, keepdim=True) + 1e-6).sqrt() * weight


def dequantized(result):
    """What a pair of e4m3 numbers and their scales stands for."""
    tensors = isinstance(result, tuple) and all(isinstance(t, torch.Tensor) for t in result)
    if not tensors or len(result) != 2:
        raise ValueError("it should return two tensors, the rounded numbers and their scale")
    if result[0].dtype != torch.float8_e4m3fn:
        raise ValueError(f"its numbers are {result[0].dtype}, and should be torch.float8_e4m3fn")
    return result[0].float() * result[1]


def uses_the_format(call, *arguments):
    """The largest of the numbers that share a scale becomes 448."""
    q, scale = call(*arguments)
    largest = q.float().abs().flatten(1).amax(dim=1) if scale.numel() > 1 else q.float().abs().max()
    if not (largest == 448).all():
        return f"the largest number is {largest.min().item():g}, and should become 448 by its scale"
    return ""


def repeats_itself(call, device):
    """Two calls give the same bits."""
    x = torch.randn(20, 3000, device=device)
    (q, scale), (again, same) = call(x), call(x)
    if torch.equal(q.view(torch.uint8), again.view(torch.uint8)) and torch.equal(scale, same):
        return ""
    return "two calls with the same numbers give different results"


FP8 = {"rtol": 1.001 / 16, "atol": 1e-4}  # half of the last of three bits; and the smallest number


def loss_cases(device, *settings):
    """Logits, targets of which some do not count, and a setting."""
    for m, v in ((1, 1), (5, 781), (3, 10001)):
        logits = 3 * torch.randn(m, v, device=device)
        targets = torch.randint(0, v, (m,), device=device)
        targets[1::3] = -100
        for setting in settings:
            yield logits, targets, setting


def with_gradient(loss):
    """Return *loss* with the gradient of the logits, in fp32, computed in fp64."""

    def both(logits, *more):
        exact = logits.double().requires_grad_()
        value = loss(exact, *more)
        return value.detach().float(), torch.autograd.grad(value, exact)[0].float()

    return both


@with_gradient
def smoothed_loss(logits, targets, smoothing):
    """Cross-entropy with label smoothing."""
    return torch.nn.functional.cross_entropy(logits, targets, label_smoothing=smoothing)


@with_gradient
def z_loss(logits, targets, alpha):
    """Cross-entropy with a penalty on the log-sum-exp."""
    z = torch.logsumexp(logits, dim=1)[targets != -100]
    return torch.nn.functional.cross_entropy(logits, targets) + alpha * (z * z).mean()


def which_rows(arguments, wrong):
    """Rows that do not count, or the places of the targets."""
    counts = arguments[1] != -100
    if wrong.ndim != 2:
        return ""
    if not wrong[counts].any():
        return "They are rows that do not count, with the target -100: their gradient is zero."
    at_target = wrong[counts].gather(1, arguments[1][counts, None])
    if at_target.any() and at_target.sum() == wrong.sum():
        return "They are at the targets: what is subtracted there, and nowhere else?"
    return ""


def results_and_gradients(call, arguments):
    """The results of a function, and the gradients of the tensors that it is called with."""
    inputs = [v.detach().requires_grad_() if isinstance(v, torch.Tensor) else v for v in arguments]
    results = call(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    wanted = [v for v in inputs if isinstance(v, torch.Tensor)]
    numbers = torch.Generator().manual_seed(1)  # the same gradients of the results, for each call
    given = [torch.randn(y.shape, generator=numbers).to(y) for y in results]
    return (*(y.detach() for y in results), *torch.autograd.grad(results, wanted, given))


def in_double(function):
    """Return a function that computes results and gradients of *function* in fp64, as fp32."""

    def exact(*arguments):
        doubles = [v.double() if isinstance(v, torch.Tensor) else v for v in arguments]
        return tuple(t.float() for t in results_and_gradients(function, doubles))

    return exact


def rows_with_parameters(device, matrices=1):
    """Matrices whose rows fill no block, and for each a weight and a bias."""
    for shape in ((1, 2), (5, 7), (3, 781), (100, 50)):
        given = [2 * torch.randn(shape, device=device) + 1 for _ in range(matrices)]
        yield *given, *torch.randn(2, shape[1], device=device)


def norm_of_sum(x, residual, weight, bias):
    """The layer norm of a sum, and the sum."""
    s = x + residual
    return torch.nn.functional.layer_norm(s, weight.shape, weight, bias), s


def images(device):
    """Images, groups of their channels, and parameters of channels."""
    for shape, groups in (
        ((2, 6, 5, 7), 3),
        ((1, 4, 70, 70), 1),
        ((3, 8, 33), 8),
        ((4, 12, 40), 4),
    ):
        x = 3 * torch.randn(shape, device=device) + 10
        yield x, groups, *torch.randn(2, shape[1], device=device)


def group_norm(x, groups, weight, bias):
    """Group norm, in fp64."""
    more = (weight.double(), bias.double())
    return torch.nn.functional.group_norm(x.double(), groups, *more).float()


def fits_one_mask(call, device):
    """What was dropped from the output was dropped from the gradients, and the rest is scaled."""
    x, weight, bias = torch.randn(60, 90, device=device), *torch.randn(2, 90, device=device)
    bias += 100  # so that only what was dropped is 0
    y, *gradients = results_and_gradients(call, (x, weight, bias, 0.25, 2**40 + 5))
    keep = y != 0

    def dropped(x, weight, bias, p, seed):
        return torch.nn.functional.layer_norm(x, weight.shape, weight, bias) * keep / (1 - p)

    expected = in_double(dropped)(x, weight, bias, 0.25, 2**40 + 5)
    names = ("the output", *(f"the gradient of {name}" for name in ("x", "weight", "bias")))
    for name, got, right in zip(names, (y, *gradients), expected, strict=True):
        if found := difference(got, right, {"rtol": 1e-4, "atol": 1e-3}):
            more = "" if name == "the output" else " Does backward draw the numbers of forward?"
            return f"{name}, for the mask of the output: {found}{more}"
    if not torch.equal(y, call(x, weight, bias, 0.25, 2**40 + 5)):
        return "two calls with one seed give different results"
    other = call(x, weight, bias, 0.25, 6) != 0
    return "two seeds give the same mask" if torch.equal(other, keep) else ""


def norm_of_ones(call, device):
    """Dropout of a norm that gives 1 everywhere."""

    def ones(x):
        zeros = torch.zeros_like(x[0])
        return call(x, zeros, zeros + 1, 0.25, 3)

    return keeps_the_share(ones, device)


def filled(tiles, processors):
    """The share of the places in all waves that have a tile."""
    return tiles / (math.ceil(tiles / processors) * processors)


def as_number(result):
    """A number as what is compared, a tensor."""
    if not isinstance(result, int | float):
        raise ValueError(f"it returns a {type(result).__name__}, and not a number")
    return torch.tensor(result, dtype=torch.float64)


def paged(device, *settings):
    """Queries, pages in random order, page table and lengths; a page has 16 tokens."""
    for lengths in ([0, 1, 15, 16, 17], [300], [70, 0, 133]):
        counts = [-(-n // 16) for n in lengths]
        order = torch.randperm(sum(counts) + 2).int()
        table = torch.zeros(len(lengths), max(counts), dtype=torch.int32)
        for row, own in zip(table, order[: sum(counts)].split(counts), strict=True):
            row[: len(own)] = own
        q = torch.randn(len(lengths), 8, 32, device=device).half()
        k, v = torch.randn(2, len(order), 16, 2, 32, device=device).half()
        for setting in settings or [None]:
            yield q, k, v, table.to(device), torch.tensor(lengths).int().to(device), setting


def paged_attention(q, k_pages, v_pages, page_table, lengths, window=None):
    """Attention of one query for each sequence, to its last keys, in fp64."""
    out = torch.zeros_like(q)
    for i, n in enumerate(lengths.tolist()):
        own = page_table[i, : -(-n // k_pages.shape[1])].long()
        first = 0 if window is None else max(0, n - window)
        k, v = (x[own].flatten(0, 1)[first:n].transpose(0, 1) for x in (k_pages, v_pages))
        out[i] = masked_attention(q[i, None, :, None], k[None], v[None])[0, :, 0] if n else 0
    return out


def int8_cases(device):
    """The same with pages of int8, and a scale for each row."""
    for q, k, v, table, lengths, _ in paged(device):
        scales = [x.float().abs().amax(-1) / 127 for x in (k, v)]
        k, v = ((x / s[..., None]).round().char() for x, s in zip((k, v), scales, strict=True))
        yield q, k, v, *scales, table, lengths


def int8_attention(q, k_pages, v_pages, k_scales, v_scales, page_table, lengths):
    """Attention to keys and values that are products of an int8 number and a scale."""
    k, v = k_pages.double() * k_scales[..., None], v_pages.double() * v_scales[..., None]
    return paged_attention(q, k, v, page_table, lengths)


def which_sequences(arguments, wrong):
    """The lengths of the sequences that are wrong."""
    lengths = next(x for x in arguments if isinstance(x, torch.Tensor) and x.ndim == 1)
    return f"The sequences have the lengths {lengths[wrong.flatten(1).any(dim=1)].tolist()}."


def paged_least(arguments, out):
    """The bytes of queries, keys, values, their scales, and the result."""
    q, k, *more = arguments
    lengths = next(x for x in more if isinstance(x, torch.Tensor) and x.ndim == 1)
    window = more[-1] if isinstance(more[-1], int) else lengths.max().item()
    scales = [x for x in more if isinstance(x, torch.Tensor) and x.ndim == 3]
    tokens = lengths.clamp(max=window).sum().item()
    return size_of(q, out) + tokens * 2 * size_of(k[0, 0], *(x[0, 0] for x in scales[:1]))


def int4_cases(device):
    """Return x, packed, scales and zeros, as ``pack_int4`` of tutorial 12 lays them out."""
    for rows, N, groups in ((1, 33, 1), (5, 64, 3), (20, 100, 4)):
        integers = torch.randint(16, (groups, N, 4, 32), device=device, dtype=torch.int32)
        words = sum(integers[:, :, i] << 4 * i for i in range(4))
        packed = (words - (words >> 15 << 16)).to(torch.int16)
        pairs = torch.randn(groups, N, 2, device=device).bfloat16()
        x = torch.randn(rows, 128 * groups, device=device).half()
        yield x, packed, pairs[..., 0].T, pairs[..., 1].T


def int4_product(x, packed, scales, zeros):
    """Return x · wᵀ in float64."""
    codes = torch.cat([(packed.int() >> 4 * i) & 15 for i in range(4)], dim=2)
    w = codes.double().transpose(0, 1) * scales.double()[..., None] + zeros.double()[..., None]
    return (x.double() @ w.flatten(1).T).half()


def fp4_product(x, packed, scales):
    """Return x · wᵀ in float64, for numbers of four bits with a sign and an exponent."""
    table = x.new_tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    codes = torch.cat([(packed.int() >> 4 * i) & 15 for i in range(4)], dim=2)
    w = torch.cat([table, -table])[codes].transpose(0, 1) * scales.double()[..., None]
    return (x.double() @ w.flatten(1).T).half()


def delta_cases(device, *sizes):
    """q, k, v, g, beta of texts that no usual chunk divides; the keys have length 1."""
    for tokens, k_heads, v_heads, d in sizes:
        q, k = torch.randn(2, 2, tokens, k_heads, d, device=device)
        k, v = k / k.norm(dim=-1, keepdim=True), torch.randn(2, tokens, v_heads, d, device=device)
        g, beta = torch.rand(2, 2, tokens, v_heads, device=device)
        yield q, k, v, -0.3 * g, beta


def prefix_cases(device):
    """Texts, and single tokens, that continue from a state of zeros and from another."""
    for arguments in delta_cases(device, (1, 1, 2, 16), (70, 2, 4, 32)):
        v = arguments[2]
        state = torch.randn(2, v.shape[2], v.shape[3], v.shape[3], device=device)
        yield *arguments, state
        yield *arguments, 0 * state


def by_recurrence(q, k, v, g, beta, state):
    """The gated delta rule from *state*, token by token in fp64, and the state after it."""
    q, k = (x.double().repeat_interleave(v.shape[2] // k.shape[2], dim=2) for x in (q, k))
    state, outputs = state.double(), []
    for t in range(v.shape[1]):
        state = state * g[:, t, :, None, None].double().exp()
        error = v[:, t].double() - torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        write = beta[:, t, :, None].double() * error
        state = state + k[:, t, :, :, None] * write[:, :, None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]) * q.shape[3] ** -0.5)
    return torch.stack(outputs, dim=1).to(v.dtype), state.to(v.dtype)


def texts_without_gate(device):
    """q, k, v and beta of texts, with as many heads of keys as of values."""
    for q, k, v, _, beta in delta_cases(device, (1, 1, 1, 16), (31, 3, 3, 32), (130, 2, 2, 64)):
        yield q, k, v, beta


def without_gate(q, k, v, beta):
    """The delta rule from a state of zeros, in fp64."""
    state = v.new_zeros(2, v.shape[2], v.shape[3], v.shape[3])
    return by_recurrence(q, k, v, 0 * beta, beta, state)[0]


def which_tokens(arguments, wrong):
    """The first token that is wrong, in its chunk."""
    first = wrong.flatten(2).any(dim=2).any(dim=0).nonzero()[0].item()
    return f"The first token that is wrong is number {first} of {wrong.shape[1]}."


def min_p_words(call, device):
    """Words are drawn by their probabilities, and improbable ones never."""
    p = torch.tensor([0.04, 0.4, 0.05, 0.3, 0.19, 0.02], device=device)
    words = call(p.log().expand(2000, -1).contiguous(), 0.25, 5)
    found = words.bincount(minlength=6) / len(words)
    wanted = torch.where(p >= 0.1, p, 0) / 0.89
    for word in range(6):
        if wanted[word] == 0 and found[word] > 0:
            return f"word {word} is drawn; its probability is less than 0.25 times the largest"
        if abs(found[word] - wanted[word]) > 0.05:
            return (
                f"word {word} has the frequency {found[word]:.2f}, and should: {wanted[word]:.2f}"
            )
    return ""


def same_words(call, device):
    """The same seed gives the same words, another seed gives others."""
    logits = torch.randn(40, 781, device=device)
    words = call(logits, 0.01, 5)
    if not torch.equal(words, call(logits, 0.01, 5)):
        return "two calls with one seed draw different words"
    if not torch.equal(words[:7], call(logits[:7], 0.01, 5)):
        return "the first rows draw other words in a smaller batch"
    return "two seeds draw the same words" if torch.equal(words, call(logits, 0.01, 6)) else ""


def penalty_of_words_cases(device):
    """Words that occur often, once and never; a text without tokens."""
    for batch, V, count in ((1, 7, 5), (3, 781, 300), (2, 50, 0), (2, 3, 200)):
        tokens = torch.randint(0, V, (batch, count), device=device)
        yield torch.randn(batch, V, device=device), tokens, 1.3


def penalty_of_words(logits, tokens, penalty):
    """Penalize each word once."""
    occurs = torch.zeros_like(logits).scatter(1, tokens, 1.0) > 0
    return torch.where(occurs, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


EXERCISES = {
    "01-axpy": Exercise(
        "axpy(a, x, y)",
        lambda device: ((2.5, x, y) for x, y in vectors(device)),
        lambda a, x, y: a * x + y,
    ),
    "01-strides": Exercise(
        "add_strided(x, y)",
        lambda device: ((x[::2], y[: len(x[::2])]) for x, y in vectors(device)),
        torch.add,
    ),
    "01-grid-stride": Exercise(
        "add_loop(x, y, programs)",
        lambda device: ((x, y, programs) for x, y in vectors(device) for programs in (1, 3)),
        lambda x, y, programs: x + y,
    ),
    "02-log-softmax": Exercise(
        "log_softmax(x)",
        matrices,
        lambda x: torch.log_softmax(x, dim=1),
        {"rtol": 1e-5, "atol": 1e-5},
    ),
    "02-causal-softmax": Exercise(
        "causal_softmax(x, scale)",
        lambda device: ((torch.randn(n, n, device=device), 0.125) for n in (1, 5, 100, 129)),
        causal,
        least=lambda arguments, y: size_of(y) + (size_of(arguments[0]) + 4 * len(y)) // 2,
    ),
    "02-softmax-backward": Exercise(
        "softmax_backward(y, g)",
        lambda device: ((x.softmax(dim=1), torch.randn_like(x)) for (x,) in matrices(device)),
        softmax_backward,
    ),
    "03-linear-layer": Exercise(
        'linear(x, weight, bias, activation="")', linear_cases, linear, FP16,
        multiplied=lambda x, weight, bias, activation: x.numel() * len(weight),
    ),
    "03-batched": Exercise(
        "bmm(a, b)",
        lambda device: (
            (a.expand(3, -1, -1).contiguous(), b.expand(3, -1, -1).contiguous())
            for a, b in products(device)
        ),
        lambda a, b: torch.bmm(a.float(), b.float()).to(a.dtype),
        FP16,
        multiplied=lambda a, b: a.numel() * b.shape[2],
    ),
    "03-split-k": Exercise(
        "split_k_matmul(a, b, parts)",
        lambda device: ((a, b, parts) for a, b in products(device) for parts in (1, 4)),
        lambda a, b, parts: (a.float() @ b.float()).to(a.dtype),
        FP16,
        multiplied=lambda a, b, parts: a.numel() * b.shape[1],
    ),
    "03b-waves": Exercise(
        "filled(tiles, processors)",
        lambda device: ((n, sms) for sms in (84, 132, 304) for n in (1, sms, sms + 1, 1000)),
        lambda tiles, processors: as_number(filled(tiles, processors)),
        seen=as_number,
    ),
    "04-seed-per-row": Exercise(
        "seeded_dropout_rows(x, p, seeds)",
        lambda device: [(torch.ones(5, 781, device=device), 0.25, torch.arange(5, device=device))],
        properties=(
            same_rows,
            lambda call, device: keeps_the_share(
                lambda x: call(x, 0.25, torch.arange(len(x), device=device)), device
            ),
        ),
    ),
    "04-strided-input": Exercise(
        "strided_dropout(x, p, seed)",
        lambda device: [(torch.ones(781, 5, device=device).T, 0.25, 3)],
        properties=(
            layout_does_not_matter,
            lambda call, device: keeps_the_share(lambda x: call(x, 0.25, 3), device),
        ),
    ),
    "04-sparse-johnson-lindenstrauss": Exercise(
        "project(x, k, s, seed)",
        lambda device: [(torch.randn(5, 781, device=device), 64, 4, 3)],
        properties=(keeps_distances,),
    ),
    "05-residual": Exercise(
        "add_norm(x, residual, weight, bias)",
        lambda device: rows_with_parameters(device, matrices=2),
        in_double(norm_of_sum),
        {"rtol": 1e-4, "atol": 1e-4},
        # Forward two tensors are read and two written, backward three and one.
        least=lambda arguments, results: 8 * size_of(arguments[0]) + 5 * size_of(arguments[2]),
        use=results_and_gradients,
        names=(
            "y", "the sum", *(f"the gradient of {t}" for t in ("x", "residual", "weight", "bias"))
        ),
    ),
    "05-group-norm": Exercise(
        "group_norm(x, groups, weight, bias)",
        images,
        group_norm,
        {"rtol": 1e-4, "atol": 1e-4},
    ),
    "05-dropout": Exercise(
        "dropped_layer_norm(x, weight, bias, p, seed)",
        lambda device: ((*given, 0.25, 3) for given in rows_with_parameters(device)),
        # Forward one tensor is read and one written, backward two and one.
        least=lambda arguments, results: 5 * size_of(arguments[0]) + 5 * size_of(arguments[1]),
        use=results_and_gradients,
        properties=(fits_one_mask, norm_of_ones),
    ),
    "06-sliding-window": Exercise(
        "window_attention(q, k, v, window)",
        window_cases,
        windowed,
        ATTENTION,
        multiplied=lambda q, k, v, window: (
            2 * q.numel() // q.shape[2] * sum(min(i + 1, window) for i in range(q.shape[2]))
        ),
        hint=which_queries,
        properties=(skips_the_past,),
    ),
    "06-alibi": Exercise(
        "alibi_attention(q, k, v, slopes)",
        penalty_cases,
        penalized,
        ATTENTION,
        multiplied=lambda q, k, v, slopes: q.numel() * (q.shape[2] + 1),
        hint=which_queries,
    ),
    "06-grouped-heads": Exercise(
        "grouped_attention(q, k, v, causal=False)",
        grouped_cases,
        grouped,
        ATTENTION,
        multiplied=lambda q, k, v, causal: 2 * q.numel() * k.shape[2],
        hint=which_queries,
        properties=(reads_keys_once,),
    ),
    "06-decode": Exercise(
        "decode_attention(q, k, v)",
        decode_cases,
        masked_attention,
        ATTENTION,
        multiplied=lambda q, k, v: 2 * q.numel() * k.shape[2],
        hint=which_queries,
    ),
    "07-polynomial": Exercise(
        "exponential(x, terms)",
        polynomials,
        by_polynomial,
        {"rtol": 1e-5, "atol": 0.0},
    ),
    "07-gelu-backward": Exercise(
        'gelu(x, approximation="none")',
        lambda device: (
            (3 * torch.randn(5, n, device=device), way)
            for n in (1, 781)
            for way in ("none", "tanh")
        ),
        lambda x, way: torch.nn.functional.gelu(x.double(), approximate=way).float(),
        {"rtol": 1e-5, "atol": 2e-6},
        properties=(gelu_has_gradients,),
    ),
    "08-backward": Exercise(
        "grouped_gradient(x, g, offsets)",
        gradient_cases,
        grouped_gradient,
        FP16,
        multiplied=lambda x, g, offsets: x.numel() * g.shape[1],
        hint=which_experts,
    ),
    "08-gate": Exercise(
        "gated_experts(x, w_gate, w_up, offsets)",
        gate_cases,
        gated_experts,
        FP16,
        least=gate_least,
        multiplied=lambda x, w_gate, w_up, offsets: 2 * x.numel() * w_up.shape[2],
        hint=whose_rows,
    ),
    "09-fused-quantize": Exercise(
        "normalize_and_quantize(x, weight)",
        norm_cases,
        rms_norm,
        FP8,
        seen=dequantized,
        properties=(
            lambda call, device: uses_the_format(call, *list(norm_cases(device))[1]),
        ),
    ),
    "09-per-tensor": Exercise(
        "quantize_tensor(x)",
        lambda device: (
            (torch.randn(shape, device=device),) for shape in ((1,), (123, 457), (5, 4096))
        ),
        lambda x: x,
        FP8,
        # The largest of all is known only when all have been read, so they are read again.
        least=lambda arguments, result: 2 * size_of(*arguments) + size_of(result),
        seen=dequantized,
        properties=(
            lambda call, device: uses_the_format(call, torch.randn(7, 1000, device=device)),
            repeats_itself,
        ),
    ),
    "10-label-smoothing": Exercise(
        "smoothed_cross_entropy(logits, targets, smoothing)",
        lambda device: loss_cases(device, 0.0, 0.1, 1.0),
        smoothed_loss,
        {"rtol": 1e-5, "atol": 2e-6},
        hint=which_rows,
    ),
    "10-z-loss": Exercise(
        "cross_entropy_with_z_loss(logits, targets, alpha)",
        lambda device: loss_cases(device, 0.0, 1e-4, 0.1),
        z_loss,
        {"rtol": 1e-4, "atol": 1e-5},
        hint=which_rows,
    ),
    "10-own-maxima": Exercise(
        "losses_of(logits, targets, own)",
        lambda device: loss_cases(device, True, False),
        lambda logits, targets, own: torch.nn.functional.cross_entropy(
            logits, targets, reduction="none"
        ),
        {"rtol": 1e-5, "atol": 2e-6},
    ),
    "11-window": Exercise(
        "window_attention(q, k_pages, v_pages, page_table, lengths, window)",
        lambda device: paged(device, 1, 16, 50, 1000),
        paged_attention,
        ATTENTION,
        least=paged_least,
        hint=which_sequences,
    ),
    "11-int8-pages": Exercise(
        "int8_attention(q, k_pages, v_pages, k_scales, v_scales, page_table, lengths)",
        int8_cases,
        int8_attention,
        ATTENTION,
        least=paged_least,
        hint=which_sequences,
    ),
    "12-zero-points": Exercise(
        "folded_mm(x, packed, scales, zeros)",
        int4_cases,
        int4_product,
        {"rtol": 4e-3, "atol": 0.1},
        multiplied=lambda x, packed, *_: len(x) * 4 * packed.numel(),
    ),
    "12-fp4": Exercise(
        "fp4_mm(x, packed, scales)",
        lambda device: (arguments[:3] for arguments in int4_cases(device)),
        fp4_product,
        {"rtol": 4e-3, "atol": 0.1},
        multiplied=lambda x, packed, _: len(x) * 4 * packed.numel(),
    ),
    "13-min-p": Exercise(
        "sample_min_p(logits, min_p, seed)",
        lambda device: [(torch.randn(3, 781, device=device), 0.1, 3)],
        properties=(min_p_words, same_words),
    ),
    "13-repetition-penalty": Exercise(
        "penalize(logits, tokens, penalty)",
        penalty_of_words_cases,
        penalty_of_words,
        least=lambda arguments, result: size_of(arguments[1], result),
    ),
    "14-delta-rule": Exercise(
        "delta_rule(q, k, v, beta)",
        texts_without_gate,
        without_gate,
        {"rtol": 1e-4, "atol": 1e-4},
        hint=which_tokens,
    ),
    "14-prefix": Exercise(
        "continue_rule(q, k, v, g, beta, state)",
        prefix_cases,
        by_recurrence,
        {"rtol": 1e-4, "atol": 1e-4},
        names=("the output", "the new state"),
    ),
}  # fmt: skip


# --- what is wrong --------------------------------------------------------------------------------


def difference(got, expected, tolerance, hint=lambda wrong: "", names=()):
    """Return what is wrong with *got*, in one or two sentences; nothing where it is right."""
    if isinstance(expected, tuple):
        if not isinstance(got, tuple) or len(got) != len(expected):
            if names:
                there = len(got) if isinstance(got, tuple) else 1
                return f"there should be {len(expected)}: {', '.join(names)}; and there are {there}"
            return f"it should return {len(expected)} tensors, and returns {shown(got)}"
        pairs = zip(got, expected, strict=True)
        found = [difference(*pair, tolerance, hint) for pair in pairs]
        named = names or [f"of its results, number {i}" for i in range(len(found))]
        return next((f"{name}: {f}" for name, f in zip(named, found, strict=True) if f), "")
    if not isinstance(got, torch.Tensor):
        return f"it returns a {type(got).__name__}, and not a tensor"
    if got.shape != expected.shape:
        return f"its shape is {tuple(got.shape)}, and should be {tuple(expected.shape)}"
    if got.dtype != expected.dtype:
        return f"its dtype is {got.dtype}, and should be {expected.dtype}"
    wrong = ~torch.isclose(got.double(), expected.double(), equal_nan=True, **tolerance)
    if not wrong.any():
        return ""
    first = tuple(wrong.nonzero()[0].tolist())
    text = (
        f"{wrong.sum().item()} of {wrong.numel()} elements are wrong. The first is at {first}: "
        f"{got[first].item():.6g} in place of {expected[first].item():.6g}."
    )
    return f"{text} {hint(wrong) or pattern(got, wrong)}".strip()


def pattern(got, wrong):
    """Return what the places of the *wrong* elements suggest."""
    lost = got.isnan() & wrong
    if lost.sum() == wrong.sum():
        return "All of them are NaN: nothing was written there, or something undefined was used."
    if wrong.all():
        return "All are wrong: look at the formula, and at the strides, before the masks."
    flat = wrong.flatten().nonzero().flatten()
    if len(flat) == wrong.numel() - flat[0]:
        return "All from there to the end: is the last block masked, and is the grid rounded up?"
    if wrong.ndim == 2:
        rows, columns = wrong.any(dim=1), wrong.any(dim=0)
        if wrong[rows].all():
            return f"They are {rows.sum().item()} whole rows: look at what a row has in common."
        if wrong[:, columns].all():
            return f"They are whole columns, from column {columns.nonzero()[0].item()} on: a mask?"
    return ""


# --- what is moved --------------------------------------------------------------------------------


def elements(mask):
    """How many elements of a tile are loaded or stored: those where *mask* is true."""
    return int((mask if hasattr(mask, "sum") else mask.data).sum())  # of a descriptor, or not


class Counter:
    """Counts what kernels load, store and multiply while the interpreter executes them.

    It also sees to it that numbers are rounded to fp8 and bf16 as on a GPU. The interpreter alone
    cuts bits off, or loses a carry.
    """

    def __init__(self):
        self.loaded = self.stored = self.dots = self.multiplied = 0

    def __enter__(self):
        from triton.runtime import interpreter

        self.module, self.convert = interpreter, getattr(interpreter, "_convert_float", None)
        self.kind = InterpreterBuilder = interpreter.InterpreterBuilder
        names = "create_masked_load", "create_masked_store", "create_dot", "create_atomic_rmw"
        self.before = {name: getattr(InterpreterBuilder, name) for name in names}
        before = self.before

        def load(builder, ptrs, mask, *rest, **named):
            value = before["create_masked_load"](builder, ptrs, mask, *rest, **named)
            self.loaded += elements(mask) * value.data.itemsize
            return value

        def store(builder, ptrs, value, mask, *rest, **named):
            self.stored += elements(mask) * value.data.itemsize
            return before["create_masked_store"](builder, ptrs, value, mask, *rest, **named)

        def dot(builder, a, b, *rest):
            self.dots += 1
            self.multiplied += a.data.size * b.data.shape[-1]
            return before["create_dot"](builder, a, b, *rest)

        def atomic(builder, operation, ptr, value, mask, *rest):
            self.loaded += elements(mask) * value.data.itemsize
            self.stored += elements(mask) * value.data.itemsize
            return before["create_atomic_rmw"](builder, operation, ptr, value, mask, *rest)

        for name, function in zip(before, (load, store, dot, atomic), strict=True):
            setattr(InterpreterBuilder, name, function)
        interpreter._convert_float = self.round
        return self

    def round(self, values, source, target, mode):
        """Round *values* from fp32 to a narrower type, to the nearest and ties to even."""
        kinds = {
            "fp8e4nv": (torch.float8_e4m3fn, torch.uint8),
            "fp8e5": (torch.float8_e5m2, torch.uint8),
            "bf16": (torch.bfloat16, torch.uint16),
        }
        if str(source) != "fp32" or str(target) not in kinds:
            return self.convert(values, source, target, mode)
        kind, bits = kinds[str(target)]
        most = torch.finfo(kind).max if bits == torch.uint8 else torch.inf  # fp8 saturates
        return torch.tensor(values).clamp(-most, most).to(kind).view(bits).numpy()

    def __exit__(self, *error):
        for name, function in self.before.items():
            setattr(self.kind, name, function)
        self.module._convert_float = self.convert


# --- the check ------------------------------------------------------------------------------------


def check(name, module, on_gpu=False):
    """Check the function of the exercise *name* in *module*; return what is wrong, or nothing.

    Prints what was tried and, in the interpreter, what the last call moved.
    """
    exercise = EXERCISES[name]
    call = getattr(module, exercise.name, None)
    if not callable(call):
        return f"{module.__name__} defines no {exercise.function}"
    device = torch.accelerator.current_accelerator() if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    # What is never written becomes NaN, and not what happened to lie there.
    torch.use_deterministic_algorithms(True, warn_only=True)
    tried = 0
    for arguments in exercise.cases(device):
        shapes = ", ".join(shown(value) for value in arguments)
        counter = Counter() if not on_gpu else None
        try:
            if counter:
                with counter:
                    got = exercise.use(call, arguments)
            else:
                got = exercise.use(call, arguments)
        except Exception as error:
            return f"{exercise.name}({shapes}) ends with {type(error).__name__}: {error}"
        if exercise.reference:
            expected = exercise.reference(*arguments)
            hint = functools.partial(exercise.hint, arguments)
            try:
                found = difference(
                    exercise.seen(got), expected, exercise.tolerance, hint, exercise.names
                )
            except ValueError as error:
                found = error
            if found:
                return f"{exercise.name}({shapes}): {found}"
        tried += 1
    for wrong in exercise.properties:
        if found := wrong(call, device):
            return f"{exercise.name}: {found}"
    rules = f", and keeps {len(exercise.properties)} rules" if exercise.properties else ""
    print(f"{exercise.function} is right on {tried} inputs{rules}.")
    least = exercise.least(arguments, got)
    if counter and least:
        products = exercise.multiplied(*arguments) if exercise.multiplied else 0
        tell(counter, least, products, shapes)
    elif least:
        print("What it moves is counted in the interpreter: call this once more without --gpu.")
    return ""


def tell(counter, least, products, shapes):
    """Print what a call moved, beside what it had to move."""
    moved = counter.loaded + counter.stored
    print(f"For {shapes}:")
    print(f"  loaded {counter.loaded} bytes, stored {counter.stored}: together {moved}")
    print(f"  at least {least} bytes have to move: {moved / least:.2f} times as many")
    if counter.dots:
        print(f"  {counter.dots} products of tiles, with {counter.multiplied} of two numbers")
    if counter.dots and products:
        times = counter.multiplied / products
        print(f"  {products} of two numbers are needed: {times:.2f} times as many")
    if moved > 1.6 * least and not counter.dots:
        print("  Something is loaded more often than once. Can it stay in registers?")
    if counter.dots:
        print("  (Loads that several programs share are met by the cache, up to a point.)")


def shown(value):
    """Return an argument as it is told: a tensor by its shape."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return f"{tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def main(arguments=None):
    """Check a file; 0 for a right solution, 1 for a wrong one, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("exercise", nargs="?", help="its name, or the beginning of it")
    parser.add_argument("file", nargs="?", type=Path, help="the file with your function")
    parser.add_argument("--gpu", action="store_true", help="run on the GPU")
    options = parser.parse_args(arguments)
    names = [name for name in EXERCISES if name.startswith(options.exercise or "")]
    if not options.file or len(names) != 1:
        for name in names or EXERCISES:
            print(f"{name + ':':33s} {EXERCISES[name].function}")
        return 2 if options.exercise else 0
    if not options.gpu:
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    spec = importlib.util.spec_from_file_location(options.file.stem, options.file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[options.file.stem] = module
    spec.loader.exec_module(module)
    wrong = check(names[0], module, options.gpu)
    if wrong:
        print(f"Not yet. {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
