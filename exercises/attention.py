"""Exercises on attention and recurrences: inputs to try, and what is right."""

import torch

from exercises.compare import size_of
from triton_watch.watch import watching

ATTENTION = {"rtol": 2**-9, "atol": 2**-9}  # weights and output are rounded to fp16


def attention_inputs(device, heads, key_heads, queries, keys, d=32, batch=1):
    """Queries, keys and values in fp16."""
    q = torch.randn(batch, heads, queries, d, device=device).half()
    k, v = torch.randn(2, batch, key_heads, keys, d, device=device).half()
    return q, k, v


def scores(device):
    """Scores that rise and fall along a row or are large, and values."""
    for shape in ((1, 1), (5, 3), (7, 1024), (3, 1025), (4, 5000)):
        yield 4 * torch.randn(shape, device=device), torch.randn(shape[1], device=device)
    rising = (4 * torch.randn(3, 3000, device=device)).sort(dim=1)[0]
    for s in (rising, rising.flip(1), rising + 100):
        yield s, torch.randn(3000, device=device)


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
    """How many bytes a call loads, and how many numbers it multiplies."""
    with watching() as watch:
        loaded, multiplied = watch.loaded, watch.multiplied
        call(*arguments)
        return watch.loaded - loaded, watch.multiplied - multiplied


def skips_the_past(call, device):
    """With one window, twice the tokens make twice the products."""
    if device.type != "cpu":
        return ""
    short, long = (counted(call, *attention_inputs(device, 1, 1, n, n), 64)[1] for n in (512, 1024))
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
    times = counted(call, q, k, v)[0] / size_of(k, v)
    if times > 1.5:
        return (
            f"eight heads of four queries share keys and values, and {times:.1f} times as many "
            "bytes are read as these have: a tile can hold the queries of all eight"
        )
    return ""


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


def segment_cases(device):
    """M and L of segments, such that the states stay of one size."""
    for heads, segments, d in ((1, 1, 16), (3, 5, 32), (2, 9, 64)):
        maps, ends = torch.randn(2, heads, segments, d, d, device=device)
        yield maps / (2 * d**0.5), ends


def states_after(maps, ends):
    """The states after each segment, from zero, in fp64."""
    state, found = torch.zeros_like(ends[:, 0], dtype=torch.float64), []
    for segment in range(maps.shape[1]):
        state = maps[:, segment].double() @ state + ends[:, segment]
        found.append(state)
    return torch.stack(found, dim=1).to(ends.dtype)


def which_segment(arguments, wrong):
    """The first segment whose state is wrong."""
    first = wrong.flatten(2).any(dim=2).any(dim=0).nonzero()[0].item()
    return f"The first segment with a wrong state is number {first} of {wrong.shape[1]}."


def recurrence_cases(device):
    """Factors and terms of recurrences; no usual segment divides the tokens."""
    for tokens, n in ((1, 1), (63, 5), (300, 130), (1000, 3)):
        yield torch.rand(tokens, n, device=device), torch.randn(tokens, n, device=device)


def by_numbers(a, b):
    """The recurrence of each column, token by token in fp64."""
    h, found = torch.zeros_like(b[0], dtype=torch.float64), []
    for factor, term in zip(a.double(), b.double(), strict=True):
        h = factor * h + term
        found.append(h)
    return torch.stack(found).to(b.dtype)


def which_tokens(arguments, wrong):
    """The first token that is wrong, in its chunk."""
    first = wrong.flatten(2).any(dim=2).any(dim=0).nonzero()[0].item()
    return f"The first token that is wrong is number {first} of {wrong.shape[1]}."


def outputs(device):
    """Outputs of attention and their gradients, whose products are large for fp16."""
    for shape in ((1, 1, 1, 16), (2, 3, 77, 64), (1, 2, 1000, 128)):
        yield (30 * torch.randn(2, *shape, device=device)).half().unbind()
    yield torch.full((2, 5, 64), 300.0, device=device).half().unbind()


def score_factors(device):
    """Queries and keys in bf16, for kernels that take tiles of 64 × 128."""
    for queries, keys, d in ((1, 128, 64), (100, 256, 128), (1000, 4096, 64), (64, 384, 128)):
        yield (
            torch.randn(queries, d, device=device).bfloat16(),
            torch.randn(keys, d, device=device).bfloat16(),
        )


def page_cases(device):
    """Keys in pages of 16, a page table with unused places, and lengths."""
    for lengths, heads, d in (((16,), 1, 16), ((1, 33, 48, 15), 2, 64), ((100, 16), 3, 32)):
        counts = [-(-n // 16) for n in lengths]
        order = torch.randperm(sum(counts) + 2).int()
        table = torch.full((len(lengths), max(counts)), -(2**31), dtype=torch.int32)
        for row, own in zip(table, order[: sum(counts)].split(counts), strict=True):
            row[: len(own)] = own
        keys = torch.randn(len(order), 16, heads, d, device=device)
        yield keys, table.to(device), torch.tensor(lengths, device=device).int()


def newest_keys(k_pages, page_table, lengths):
    """The key of the last token of each sequence."""
    last = lengths.long() - 1
    page = page_table.gather(1, last[:, None] // k_pages.shape[1])[:, 0].long()
    return k_pages[page, last % k_pages.shape[1]]
