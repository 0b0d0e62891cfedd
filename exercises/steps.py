"""Exercises on a training step and on a step of sampling: inputs to try, and what is right."""

import torch

RATE, BETAS, EPS = 1e-3, (0.9, 0.95), 1e-8


def step_cases(device, sizes=(1, 5, 1025, 5003)):
    """Weights, gradients, both moments, a decay for each weight, and the number of the step."""
    for t, n in enumerate(sizes, 1):
        w, g, m = torch.randn(3, n, device=device).unbind()
        decays = 0.1 * (torch.arange(n, device=device) % 3 > 0)
        yield w.clone(), g.clone(), m.clone(), m * m + 0.1, decays, t


def decayed(w, g, m, v, decays, t):
    """Weights and moments after a step of AdamW in double precision."""
    kind = w.dtype
    w, g, m, v, decays = (x.double() for x in (w, g, m, v, decays))
    m = BETAS[0] * m + (1 - BETAS[0]) * g
    v = BETAS[1] * v + (1 - BETAS[1]) * g * g
    change = m / (1 - BETAS[0] ** t) / ((v / (1 - BETAS[1] ** t)).sqrt() + EPS)
    return tuple(x.to(kind) for x in (w - RATE * decays * w - RATE * change, m, v))


def append_cases(device):
    """A new key and value of each sequence, pages, a page table, and lengths so far."""
    for lengths, heads, d in (((0,), 1, 16), ((15, 16, 33), 2, 64), ((47, 0), 3, 32)):
        table = torch.randperm(3 * len(lengths) + 2)[: 3 * len(lengths)].int()
        k, v = torch.randn(2, len(lengths), heads, d, device=device).unbind()
        pages = torch.randn(2, 3 * len(lengths) + 2, 16, heads, d, device=device).unbind()
        given = (x.clone() for x in (k, v, *pages))
        rows = table.view(len(lengths), 3).to(device)
        yield *given, rows, torch.tensor(lengths, device=device).int()


def appended(k, v, k_pages, v_pages, page_table, lengths):
    """Pages in which each sequence has one token more."""
    page = page_table.gather(1, lengths[:, None].long() // 16)[:, 0].long()
    places = page, lengths.long() % 16
    return k_pages.index_put(places, k), v_pages.index_put(places, v)


def in_copies(call, arguments):
    """Call a function that changes pages with copies of them, and return these."""
    k, v, k_pages, v_pages, *more = arguments
    pages = k_pages.clone(), v_pages.clone()
    call(k, v, *pages, *more)
    return pages
