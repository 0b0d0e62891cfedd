"""Triton kernels for programs: each function is faster than what is public, or has no rival.

A function takes tensors on a GPU, any strides unless its docstring says otherwise, and any stream.
It is one operation for ``torch.compile`` and ``torch.func``. An argument that it cannot take is
refused by an error that names the argument.
"""

from gallery_kernels.attention import attention
from gallery_kernels.dropout import seeded_dropout
from gallery_kernels.norms import layer_norm, rms_norm
from gallery_kernels.paged_attention import paged_attention

__all__ = ["attention", "layer_norm", "paged_attention", "rms_norm", "seeded_dropout"]
