"""Exercises on vectors, rows and matrices: inputs to try, and what is right."""

import math

import numpy as np
import torch

from exercises.compare import difference, size_of


def vectors(device):
    """Vectors of lengths that no block divides."""
    for n in (1, 5, 1023, 1025, 5003):
        yield torch.randn(n, device=device), torch.randn(n, device=device)


def padded(device):
    """Vectors of which the second one is shorter."""
    for n, k in ((1, 1), (5, 3), (1025, 1024), (5003, 1), (5003, 4999), (2049, 0)):
        yield torch.randn(n, device=device), torch.randn(k, device=device)


def add_padded(x, y):
    """The sum of x and y, whose missing elements count as 0."""
    z = x.clone()
    z[: len(y)] += y
    return z


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


def random_signs(n, seed):
    """1 or -1, by the lowest bits of the words of Philox: four for each counter."""
    c0 = np.arange((n + 3) // 4, dtype=np.uint64)
    c1 = c2 = c3 = np.zeros_like(c0)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c2 = (b >> half) ^ c1 ^ np.uint64(k0), (a >> half) ^ c3 ^ np.uint64(k1)
        c1, c3 = b & low, a & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    words = np.stack([c0, c1, c2, c3], axis=1).reshape(-1)[:n]
    return torch.from_numpy(1.0 - 2.0 * (words & np.uint64(1)).astype(np.float32))


def same_bits(call, *arguments):
    """Two calls give the same bits."""
    return "" if torch.equal(call(*arguments), call(*arguments)) else "two calls differ in bits"


def last_layers(device, *sizes, bias=False):
    """Inputs and weights of a last layer, targets of which some do not count, and rows a piece."""
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    for m, k, v, piece in sizes:
        x, w = torch.randn(m, k, device=device), torch.randn(v, k, device=device) / k**0.5
        targets = torch.randint(0, v, (m,), device=device)
        targets[1::3] = -100
        more = (torch.randn(v, device=device).to(dtype),) if bias else ()
        yield x.to(dtype), w.to(dtype), *more, targets, piece


def loss_of_last_layer(x, weight, bias, targets, piece):
    """The loss of a last layer, and the gradients of what it is computed from."""
    given = [t.double().requires_grad_() for t in (x, weight, bias) if t is not None]
    logits = torch.nn.functional.linear(*given)
    loss = torch.nn.functional.cross_entropy(logits, targets)
    gradients = torch.autograd.grad(loss, given)
    return loss.detach().float(), *(g.to(x.dtype) for g in gradients)


def of_last_layer(arguments):
    """How far results of a last layer may be apart."""
    if arguments[0].dtype == torch.float32:
        return {"rtol": 1e-4, "atol": 1e-6}
    return {"rtol": 2**-5, "atol": 2e-4}


def target_cases(device):
    """Logits and targets, some of which do not count."""
    for rows, words in ((1, 5), (4, 1000), (3, 5003)):
        targets = torch.randint(0, words, (rows,), device=device)
        yield 3 * torch.randn(rows, words, device=device), targets
        yield (
            100 * torch.randn(rows, words, device=device),
            targets.index_fill(0, targets[:1] * 0, -100),
        )


def probability_of(logits, targets):
    """The probability of each target; 0 for one that does not count."""
    found = logits.softmax(dim=1).gather(1, targets.clamp(min=0)[:, None])[:, 0]
    return torch.where(targets < 0, 0.0, found)
