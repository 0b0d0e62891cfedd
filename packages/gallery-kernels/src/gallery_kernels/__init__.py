"""Triton kernels for programs: each function is faster than what is public, or has no rival.

A function takes tensors on a GPU, any strides unless its docstring says otherwise, and any stream.
It is one operation for ``torch.compile`` and ``torch.func``. An argument that it cannot take is
refused by an error that names the argument.
"""

from gallery_kernels.attention import attention
from gallery_kernels.cross_entropy import cross_entropy
from gallery_kernels.delta_rule import gated_delta_rule
from gallery_kernels.dropout import seeded_dropout
from gallery_kernels.grouped_mm import grouped_mm
from gallery_kernels.int4 import int4_mm, pack_int4
from gallery_kernels.linear_cross_entropy import linear_cross_entropy
from gallery_kernels.norms import layer_norm, rms_norm
from gallery_kernels.paged_attention import paged_attention
from gallery_kernels.sampling import sample

__all__ = [
    "attention",
    "cross_entropy",
    "gated_delta_rule",
    "grouped_mm",
    "int4_mm",
    "layer_norm",
    "linear_cross_entropy",
    "pack_int4",
    "paged_attention",
    "rms_norm",
    "sample",
    "seeded_dropout",
]
