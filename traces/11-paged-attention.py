"""A page table and its pages."""

import torch


def pages(kernels):
    """Each sequence reads its row of the page table, and follows it to the pages."""
    q, o = torch.ones(2, 1, 8), torch.empty(2, 1, 8)
    k, v = torch.ones(2, 6, 4, 1, 8).unbind()
    table = torch.tensor([[4, 1, 0], [2, 5, 0]], dtype=torch.int32)
    lengths = torch.tensor([6, 8], dtype=torch.int32)
    kernels.page_kernel[(2, 1)](
        q, k, v, table, lengths, o, 1, 1, 3, 0.35, k.stride(0), k.stride(1), PAGE=4, D=8
    )
