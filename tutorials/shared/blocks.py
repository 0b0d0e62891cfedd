"""Random fp8 matrices with scales by blocks of 128, and the check of their product."""

import torch
import triton


def draw_problem(M, N, K, seed=0):
    """Return random a and b in e4m3, b stored by columns, and their scales by blocks."""
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    generator = torch.Generator(device).manual_seed(seed)
    a = torch.randn(M, K, device=device, generator=generator)
    b = torch.randn(K, N, device=device, generator=generator)
    steps, columns = triton.cdiv(K, 128), triton.cdiv(N, 128)
    scale_a = torch.rand(steps, M, device=device, generator=generator).T + 0.5
    scale_b = torch.rand(steps, columns, device=device, generator=generator) + 0.5
    e4m3 = torch.float8_e4m3fn
    return a.to(e4m3), b.T.contiguous().to(e4m3).T, scale_a, scale_b.T.contiguous().T


def assert_right(c, a, b, scale_a, scale_b):
    """Raise AssertionError where *c* is not the product of the scaled matrices."""
    K, N = b.shape
    a = a.double() * scale_a.double().repeat_interleave(128, 1)[:, :K]
    b = b.double() * scale_b.double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:K, :N]
    size = a.norm(dim=1, keepdim=True) * b.norm(dim=0, keepdim=True)
    torch.testing.assert_close(c.double() / size, a @ b / size, rtol=2**-7, atol=2**-12)
