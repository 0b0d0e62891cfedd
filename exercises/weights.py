"""Exercises on experts, narrow numbers and sampling: inputs to try, and what is right."""

import torch

from exercises.compare import size_of


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


def expert_cases(device):
    """Rows of experts, some of them without any."""
    for sizes, width in (((3,), 5), ((2, 0, 7, 1), 77), ((0, 9, 0), 130)):
        ends = torch.tensor(sizes).cumsum(0).int()
        yield torch.randn(sum(sizes), width, device=device), ends.to(device)


def expert_sums(x, offsets):
    """The sum of the rows of each expert."""
    ends = offsets.tolist()
    return torch.stack([x[a:b].sum(dim=0) for a, b in zip([0, *ends], ends, strict=False)])


def block_cases(device, shapes=((1, 1), (5, 128), (3, 300), (2, 1000))):
    """Numbers in e4m3, and a scale for each 128 of a row."""
    for rows, columns in shapes:
        numbers = torch.randn(rows, columns, device=device).to(torch.float8_e4m3fn)
        yield numbers, torch.rand(rows, -(-columns // 128), device=device) + 0.5


def scaled_back(q, scales):
    """The numbers that fp8 and scales by blocks of 128 stand for."""
    return q.float() * scales.repeat_interleave(128, dim=1)[:, : q.shape[1]]


def word_cases(device, shapes=((1, 1), (5, 32), (3, 50))):
    """Words of 16 bits."""
    for shape in shapes:
        yield (torch.randint(-(2**15), 2**15, shape, device=device, dtype=torch.int16),)


def four_integers(words):
    """The integers in words: the lowest four bits of a row first."""
    return torch.cat([(words >> 4 * i) & 15 for i in range(4)], dim=1).to(torch.int8)


def threshold_cases(device, shapes=((1, 1), (5, 7), (3, 1000))):
    """Logits and a threshold for each row; all of them are below zero in the last case."""
    for shape in shapes:
        x = 3 * torch.randn(shape, device=device)
        yield x, x.median(dim=1).values
        yield x - 50, (x - 50).median(dim=1).values


def share_from(x, thresholds):
    """The share of the weights of softmax that logits from the threshold of a row on have."""
    return (x.softmax(dim=1) * (x >= thresholds[:, None])).sum(dim=1)
