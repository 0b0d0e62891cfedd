"""Weights of 4 bits, against float64."""

import sys

import pytest
import torch
from triton.runtime._allocation import _allocator

from gallery_kernels import int4_mm, pack_int4
from gallery_kernels.launch import MOST_PROGRAMS_ON_AXIS_1, Launch, Limits

MODULE = sys.modules["gallery_kernels.int4"]
H100 = Limits(132, 232_448, 50 * 2**20, is_nvidia=True, is_hopper=True, starts_early=True)


def unpacked(packed, scales, zeros):
    """Word j of a group holds columns j, j + group / 4, …, the first in its lowest bits."""
    groups, rows, quarter = packed.shape
    w = torch.empty(rows, groups, 4, quarter, dtype=torch.float64, device=packed.device)
    for i in range(4):
        w[:, :, i] = ((packed.int() >> 4 * i) & 15).transpose(0, 1)
    return (w.flatten(2) * scales.double()[..., None] + zeros.double()[..., None]).flatten(1)


def assert_right(out, x, pack):
    """Allow a rounding of the weights and one of the output, in the mean."""
    exact = x.double() @ unpacked(*pack).T
    assert out.dtype == x.dtype
    error = (out.double() - exact).norm() / exact.norm().clamp(min=1e-30)
    assert error < 2 * torch.finfo(x.dtype).eps


WEIGHTS = {
    "around zero": torch.randn(37, 512),
    "not around zero": 0.5 + 0.05 * torch.randn(37, 512),
    "far from zero": 1.003 + 0.007 * torch.rand(37, 512),
    "far below zero": -1.003 - 0.007 * torch.rand(37, 512),
    "very far from zero": 100.3 + torch.rand(37, 512),
}


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("group", [64, 128, 256])
def test_no_weight_is_off_by_more_than_half_a_scale(group, weight):
    """A zero that is rounded up, or a scale from another zero, would cut integers at 0 and 15."""
    packed, scales, zeros = pack_int4(weight, group)
    assert packed.shape == (512 // group, 37, group // 4)
    assert packed.dtype == torch.int16
    assert scales.shape == zeros.shape == (37, 512 // group)
    error = (unpacked(packed, scales, zeros) - weight).abs().view(37, -1, group).amax(2)
    assert (error <= 0.5001 * scales.double()).all()
    # The scale is no larger than a zero and a scale in bfloat16 need.
    groups = weight.double().view(37, -1, group)
    low, high = groups.amin(2), groups.amax(2)
    step = (high - low + 2.0**-7 * low.abs()) / 15
    assert (scales <= (1 + 2**-7) * step).all()


def test_integers_come_back_exactly():
    """Each of the 16 integers in each of the four places of a word."""
    weight = torch.arange(16).repeat_interleave(8).roll(5).expand(3, 128).clone()
    weight[1] = weight[1].roll(64)
    pack = pack_int4(weight.float() * 0.25 - 1)
    assert torch.equal(unpacked(*pack), weight.double() * 0.25 - 1)


@pytest.mark.parametrize("value", [0.0, -3.0, 1e8, 1e-30])
def test_weights_of_one_value(value):
    """Their scale is 0, and no weight is divided by it."""
    pack = pack_int4(torch.full((5, 128), value).bfloat16())
    assert torch.equal(unpacked(*pack), torch.full((5, 128), value).bfloat16().double())
    x = torch.full((2, 128), 0.5).bfloat16()
    assert_right(int4_mm(x, *pack), x, pack)


def test_a_weight_that_requires_a_gradient_or_has_64_bits():
    weight = torch.randn(5, 128, dtype=torch.float64, requires_grad=True)
    pack = pack_int4(weight)
    assert not any(x.requires_grad for x in pack)
    for found, right in zip(pack, pack_int4(weight.detach().float()), strict=True):
        assert torch.equal(found, right)


@pytest.mark.parametrize("rows", [1, 7, 16, 17, 65, 257])
@pytest.mark.parametrize(("n", "k", "group"), [(1, 128, 128), (67, 640, 128), (130, 320, 64)])
def test_odd_sizes(rows, n, k, group):
    pack = pack_int4(torch.randn(n, k), group)
    x = torch.randn(rows, k).half()
    assert_right(int4_mm(x, *pack, group), x, pack)


@pytest.mark.parametrize("rows", [2, 20])
def test_bfloat16_is_computed_in_float32_in_the_interpreter(rows):
    pack = pack_int4(torch.randn(33, 256))
    x = torch.randn(rows, 256).bfloat16() * 1e10  # beyond fp16
    assert_right(int4_mm(x, *pack), x, pack)


def test_scales_of_another_program():
    """Scales and zeros that do not lie side by side, and in another dtype, are copied."""
    packed, scales, zeros = pack_int4(torch.randn(33, 256))
    x = torch.randn(3, 256).half()
    expected = int4_mm(x, packed, scales, zeros)
    for kind in (torch.bfloat16, torch.float32):
        others = scales.to(kind).contiguous(), zeros.to(kind).contiguous()
        assert torch.equal(int4_mm(x, packed, *others), expected)


@pytest.mark.parametrize("rows", [3, 30])
def test_views(rows):
    pack = pack_int4(torch.randn(256, 33).T)
    x = torch.randn(257, 2 * rows).half().T[::2, 1:]
    assert_right(int4_mm(x, *pack), x, pack)


def test_other_weights_of_the_same_shape():
    """A plan keeps shapes, and no weights."""
    x = torch.randn(3, 128).half()
    for _ in range(2):
        pack = pack_int4(torch.randn(33, 128))
        assert_right(int4_mm(x, *pack), x, pack)


def test_scales_beside_zeros_in_another_dtype():
    """They lie as pack_int4 leaves them, but their bits are no bf16."""
    packed, scales, zeros = pack_int4(torch.randn(33, 256))
    x = torch.randn(3, 256).half()
    pairs = torch.stack([scales.T, zeros.T], dim=2).half()
    other = pairs[..., 0].T, pairs[..., 1].T
    assert other[1].data_ptr() == other[0].data_ptr() + 2
    rounded = [t.bfloat16() for t in other]
    for _ in range(2):
        assert torch.equal(int4_mm(x, packed, *other), int4_mm(x, packed, *rounded))
    assert_right(int4_mm(x, packed, *other), x, (packed, *rounded))


@pytest.mark.parametrize("rows", [3, 30])
def test_the_allocator_of_the_program_stays(rows):
    """Descriptors need an allocator; the one that the program has set is still set afterwards."""
    pack, x = pack_int4(torch.randn(33, 128)), torch.randn(rows, 128).half()
    before = _allocator.get()
    int4_mm(x, *pack)
    assert _allocator.get() is before


def test_scales_at_an_odd_address_are_copied(monkeypatch):
    """The kernel reads a scale and a zero as one word, which needs an address that 4 divides."""
    addresses = []

    class Noted(Launch):
        def __call__(self, x, packed, scales, out):
            addresses.append(scales.data_ptr())
            super().__call__(x, packed, scales, out)

    monkeypatch.setattr(MODULE, "Launch", Noted)
    monkeypatch.setattr(MODULE, "PLANS", MODULE.Plans())
    packed, scales, zeros = pack_int4(torch.randn(33, 256))
    x, n = torch.randn(3, 256).half(), 2 * scales.numel()
    for moved in (2, 1):  # elements; the first ones leave a plan for the second ones
        pairs = torch.empty(n + 2, dtype=torch.bfloat16)[moved : moved + n].view(2, 33, 2)
        pairs.copy_(torch.stack([scales.T, zeros.T], dim=2))
        pack = packed, pairs[..., 0].T, pairs[..., 1].T
        assert_right(int4_mm(x, *pack), x, pack)
    assert len(addresses) == 2
    assert all(address % 4 == 0 for address in addresses)


def meta(*shape, dtype=torch.float16):
    return torch.empty(shape, dtype=dtype, device="meta")


def test_millions_of_rows_of_a_weight_are_programs_on_the_first_axis(monkeypatch):
    """The hardware starts at most 65,535 programs on another axis."""
    monkeypatch.setattr(MODULE, "limits_of", lambda device: H100)
    n = 2**23
    assert n // 64 > MOST_PROGRAMS_ON_AXIS_1
    plan = MODULE.plan_product(meta(1, 64), meta(1, n, 16, dtype=torch.int16))
    assert plan.grid == (n // plan.constants["BLOCK_N"], 1, 1)
    too_many = meta(1, n + 1, 16, dtype=torch.int16)
    monkeypatch.setattr("gallery_kernels.checks.check_device", lambda name, x: None)
    scales = meta(n + 1, 1)
    with pytest.raises(ValueError, match=r"at most 2\*\*23 rows of the weight"):
        MODULE.check_int4_mm(meta(1, 64), too_many, scales, scales, 64)


@pytest.mark.parametrize(
    ("M", "N", "expected"),
    [
        (1, 8192, (8, 32, 4)),
        (1, 14336, (8, 64, 4)),
        (64, 8192, (64, 64, 4)),
        (1024, 8192, (256, 128, 8)),
    ],
)
def test_the_tile_depends_on_the_gpu_of_the_tensors(M, N, expected):
    """Limits of the current GPU at import would be those of another one."""
    tile = MODULE.tile_for(M, N, 128, H100)
    assert (tile["BLOCK_M"], tile["BLOCK_N"], tile["num_warps"]) == expected
    small = Limits(8, 65_536, 2**20, is_nvidia=False, is_hopper=False, starts_early=False)
    tile = MODULE.tile_for(1024, N, 128, small)
    assert tile["BLOCK_M"] == 64


@pytest.mark.parametrize(("m", "n", "k"), [(0, 8, 256), (3, 0, 256), (3, 8, 0)])
def test_nothing_gives_nothing(m, n, k):
    pack = pack_int4(torch.randn(n, k)) if n * k else None
    if pack is None:
        pack = [
            torch.ones(k // 128, n, 32, dtype=torch.int16),
            *torch.ones(2, n, k // 128).bfloat16(),
        ]
    found = int4_mm(torch.ones(m, k).half(), *pack)
    assert found.shape == (m, n)
    assert not found.any()


INT4 = [torch.ones(2, 8, 32, dtype=torch.int16), *2 * [torch.ones(8, 2).bfloat16()]]
WIDE = torch.ones(3, 256).half()

REFUSALS = [
    (([1.0], *INT4), TypeError, "x must be a torch.Tensor, but is a list"),
    ((WIDE.double(), *INT4), TypeError, "the dtype of x must be .* but is torch.float64"),
    ((WIDE, INT4[0].int(), *INT4[1:]), TypeError, "dtype of packed must be torch.int16"),
    ((WIDE, *INT4[:2], INT4[2].to("meta")), ValueError, "zeros must be on .* on meta"),
    ((WIDE[:, 1:], *INT4), ValueError, r"x must have shape \(3, 256\), but has \(3, 255\)"),
    ((WIDE[0], *INT4), ValueError, r"x must be a matrix, but has shape \(256,\)"),
    ((WIDE, *INT4[:2], INT4[2].T), ValueError, r"zeros must have shape \(8, 2\)"),
    ((WIDE, *INT4, 64), ValueError, r"packed must be .*\(2, 8, 32\), and group is 64"),
    ((WIDE, *INT4, 128.0), ValueError, "group must be 64, 128 or 256, but is 128.0"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_an_error_names_the_argument_before_and_after_a_right_call(arguments, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            int4_mm(*arguments)
        int4_mm(WIDE, *INT4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((WIDE.int(),), TypeError, "the dtype of weight must be .* but is torch.int32"),
        ((WIDE[:, :200],), ValueError, r"\[N, a multiple of 128\], but has shape \(3, 200\)"),
        ((WIDE, 100), ValueError, "group must be 64, 128 or 256, but is 100"),
        ((WIDE, [128]), ValueError, "group must be 64, 128 or 256, but is"),
        ((WIDE / 0,), ValueError, "weight contains nan, inf"),
    ],
)
def test_a_weight_that_cannot_be_packed_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        pack_int4(*arguments)


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 16, 17, 64, 100, 256, 1000])
@pytest.mark.parametrize(("n", "k", "group"), [(8192, 2048, 128), (1000, 4096, 256), (77, 320, 64)])
def test_full_sizes(rows, n, k, group, dtype, gpu):
    pack = pack_int4(torch.randn(n, k, device=gpu), group)
    x = torch.randn(rows, k, device=gpu).to(dtype)
    for _ in range(2):  # the second call uses the plan of the first
        assert_right(int4_mm(x, *pack, group), x, pack)


@pytest.mark.gpu
def test_more_programs_than_another_axis_has(gpu):
    """4,200,000 rows of a weight are 65,625 tiles of 64."""
    n = 4_200_000
    packed = torch.randint(-(2**15), 2**15, (1, n, 16), dtype=torch.int16, device=gpu)
    pairs = torch.rand(1, n, 2, device=gpu).bfloat16()
    pack = packed, pairs[..., 0].T, pairs[..., 1].T
    x = torch.randn(1, 64, device=gpu).bfloat16()
    out = int4_mm(x, *pack, 64)
    last = [packed[:, -99:], *(t[-99:] for t in pack[1:])]
    assert_right(out[:, -99:], x, [t.contiguous() for t in last])
