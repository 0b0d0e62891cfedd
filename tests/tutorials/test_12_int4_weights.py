"""int4 weights, in the interpreter, against float64."""

import inspect

import pytest
import torch
from triton.runtime._allocation import _allocator


def unpacked(packed, scales, zeros):
    """Word j of a group holds columns j, j + group / 4, …, the first in its lowest bits."""
    groups, rows, quarter = packed.shape
    w = torch.empty(rows, groups, 4, quarter, dtype=torch.float64)
    for i in range(4):
        w[:, :, i] = ((packed.int() >> 4 * i) & 15).transpose(0, 1)
    return (w.flatten(2) * scales.double()[..., None] + zeros.double()[..., None]).flatten(1)


def assert_right(out, x, pack):
    """Allow a rounding of the weights and one of the output, in the mean."""
    exact = x.double() @ unpacked(*pack).T
    assert out.dtype == x.dtype
    error = (out.double() - exact).norm() / exact.norm().clamp(min=1e-30)
    assert error < 2 * torch.finfo(x.dtype).eps


@pytest.mark.parametrize("group", [64, 128, 256])
def test_packed_weights_are_as_close_as_a_scale_allows(page, group):
    weight = torch.randn(37, 512)
    packed, scales, zeros = page["pack_int4"](weight, group)
    assert packed.shape == (512 // group, 37, group // 4)
    assert packed.dtype == torch.int16
    assert scales.shape == zeros.shape == (37, 512 // group)
    error = (unpacked(packed, scales, zeros) - weight).abs()
    half = scales.double().repeat_interleave(group, 1) / 2  # and the rounding of 15 scales to bf16
    assert (error <= 1.2 * half).all()


def test_integers_come_back_exactly(page):
    """Each of the 16 integers in each of the four places of a word."""
    weight = torch.arange(16).repeat_interleave(8).roll(5).expand(3, 128).clone()
    weight[1] = weight[1].roll(64)
    pack = page["pack_int4"](weight.float() * 0.25 - 1)
    assert torch.equal(unpacked(*pack), weight.double() * 0.25 - 1)
    assert torch.equal(page["unpack"](*pack), unpacked(*pack))


@pytest.mark.parametrize("value", [0.0, -3.0, 1e8, 1e-30])
def test_weights_of_one_value(page, value):
    """Their scale is 0, and no weight is divided by it."""
    pack = page["pack_int4"](torch.full((5, 128), value).bfloat16())
    assert torch.equal(unpacked(*pack), torch.full((5, 128), value).bfloat16().double())
    x = torch.full((2, 128), 0.5).bfloat16()
    assert_right(page["int4_mm"](x, *pack), x, pack)


@pytest.mark.parametrize("rows", [1, 7, 16, 17, 65, 257])
@pytest.mark.parametrize(("n", "k", "group"), [(1, 128, 128), (67, 640, 128), (130, 320, 64)])
def test_odd_sizes(page, rows, n, k, group):
    pack = page["pack_int4"](torch.randn(n, k), group)
    x = torch.randn(rows, k).half()
    assert_right(page["int4_mm"](x, *pack, group), x, pack)


def test_the_plain_function(page, plain):
    pack = page["pack_int4"](torch.randn(19, 384), 64)
    x = torch.randn(18, 384).half()
    assert_right(plain("12-int4-weights").int4_mm(x, *pack, group=64), x, pack)


@pytest.mark.parametrize("rows", [2, 20])
def test_bf16_as_on_a_gpu(page, rows):
    pack = page["pack_int4"](torch.randn(33, 256))
    x = torch.randn(rows, 256).bfloat16() * 1e10  # beyond fp16
    assert_right(page["int4_mm"](x, *pack), x, pack)


def test_scales_of_another_program(page):
    """Scales and zeros that do not lie side by side, and in another dtype, are copied."""
    packed, scales, zeros = page["pack_int4"](torch.randn(33, 256))
    x = torch.randn(3, 256).half()
    expected = page["int4_mm"](x, packed, scales, zeros)
    for kind in (torch.bfloat16, torch.float32):
        others = scales.to(kind).contiguous(), zeros.to(kind).contiguous()
        assert torch.equal(page["int4_mm"](x, packed, *others), expected)


@pytest.mark.parametrize("rows", [3, 30])
def test_views_are_read_as_they_are(page, rows):
    pack = page["pack_int4"](torch.randn(256, 33).T)
    x = torch.randn(257, 2 * rows).half().T[::2, 1:]
    assert_right(page["int4_mm"](x, *pack), x, pack)


def test_other_weights_of_the_same_shape(page):
    """A plan keeps shapes, and no weights."""
    x = torch.randn(3, 128).half()
    for _ in range(2):
        pack = page["pack_int4"](torch.randn(33, 128))
        assert_right(page["int4_mm"](x, *pack), x, pack)


def test_scales_beside_zeros_in_another_dtype(page):
    """They lie as pack_int4 leaves them, but their bits are no bf16."""
    packed, scales, zeros = page["pack_int4"](torch.randn(33, 256))
    x = torch.randn(3, 256).half()
    pairs = torch.stack([scales.T, zeros.T], dim=2).half()
    other = pairs[..., 0].T, pairs[..., 1].T
    assert other[1].data_ptr() == other[0].data_ptr() + 2
    rounded = [t.bfloat16() for t in other]
    for _ in range(2):
        assert torch.equal(page["int4_mm"](x, packed, *other), page["int4_mm"](x, packed, *rounded))
    assert_right(page["int4_mm"](x, packed, *other), x, (packed, *rounded))


@pytest.mark.parametrize("rows", [3, 30])
def test_the_allocator_of_the_program_stays(page, rows):
    """Descriptors need an allocator; the one that the program has set is still set afterwards."""
    pack, x = page["pack_int4"](torch.randn(33, 128)), torch.randn(rows, 128).half()
    before = _allocator.get()
    page["int4_mm"](x, *pack)
    assert _allocator.get() is before


def test_scales_at_an_odd_address_are_copied(page, monkeypatch):
    """The kernel reads a scale and a zero as one word, which needs an address that 4 divides."""
    addresses = []

    class Noted(page["Launch"]):
        def __call__(self, x, packed, scales, out):
            addresses.append(scales.data_ptr())
            super().__call__(x, packed, scales, out)

    names = inspect.unwrap(page["int4_mm"]).__globals__
    monkeypatch.setitem(names, "Launch", Noted)
    monkeypatch.setitem(names, "PLANS", type(names["PLANS"])())
    packed, scales, zeros = page["pack_int4"](torch.randn(33, 256))
    x, n = torch.randn(3, 256).half(), 2 * scales.numel()
    for moved in (2, 1):  # elements; the first ones leave a plan for the second ones
        pairs = torch.empty(n + 2, dtype=torch.bfloat16)[moved : moved + n].view(2, 33, 2)
        pairs.copy_(torch.stack([scales.T, zeros.T], dim=2))
        pack = packed, pairs[..., 0].T, pairs[..., 1].T
        assert_right(page["int4_mm"](x, *pack), x, pack)
    assert len(addresses) == 2
    assert all(address % 4 == 0 for address in addresses)
