"""
A cache for sampling
====================

*Solution to the second exercise of* :doc:`../15-transformer`.

A new byte needs the keys and values of all bytes before it, but not their queries. So each layer
keeps its keys and values in pages, appends one of each, and calls the attention of
:doc:`../11-paged-attention`. Everything else of the model runs on a single row. One byte then reads
all weights once, and the keys and values of the bytes before it.
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
# One program stores the new key and the new value of one sequence:


@triton.jit
def append_kernel(
    k_ptr, v_ptr, k_pages_ptr, v_pages_ptr, table_ptr, lengths_ptr, most, N,
    PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store a key and a value of N numbers behind the last ones of a sequence."""
    sequence, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    mask = columns < N
    length = tl.load(lengths_ptr + sequence)
    page = tl.load(table_ptr + sequence * most + length // PAGE).to(tl.int64)  # <-
    at = (page * PAGE + length % PAGE) * N + columns
    tl.store(k_pages_ptr + at, tl.load(k_ptr + sequence * N + columns, mask=mask), mask=mask)
    tl.store(v_pages_ptr + at, tl.load(v_ptr + sequence * N + columns, mask=mask), mask=mask)


def append(k, v, k_pages, v_pages, page_table, lengths):
    """Write *k* and *v*, [batch, heads, d], to the pages of their sequences; all are contiguous."""
    (batch, most), (_, page, heads, d) = page_table.shape, k_pages.shape
    append_kernel[(batch,)](
        k, v, k_pages, v_pages, page_table, lengths, most, heads * d,
        PAGE=page, BLOCK=triton.next_power_of_2(heads * d),
    )  # fmt: skip


# %%
# The check appends 40 tokens to two sequences and reads them back in order:

torch.manual_seed(0)
keys, values = torch.randn(2, 40, 2, 3, 16, device=DEVICE).unbind()  # [tokens, batch, heads, d]
k_pages, v_pages = torch.zeros(2, 8, 16, 3, 16, device=DEVICE).unbind()
table = torch.randperm(8)[:6].int().view(2, 3).to(DEVICE)
for n, (k, v) in enumerate(zip(keys, values, strict=True)):
    append(k, v, k_pages, v_pages, table, torch.full((2,), n, device=DEVICE).int())
for pages, tokens in ((k_pages, keys), (v_pages, values)):
    for i, row in enumerate(table.long()):
        assert torch.equal(pages[row].flatten(0, 1)[:40], tokens[:, i])
print("40 tokens of two sequences lie in their pages, in order")
