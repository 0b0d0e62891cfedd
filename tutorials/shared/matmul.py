"""The product of the second page on matrices, which the first page's `matmul` calls as well."""

import functools
import math
from dataclasses import dataclass, replace

import triton
import triton.language as tl
from shared.gpu import HAS_DESCRIPTORS, SHARED_BYTES, SMS
from triton.tools.tensor_descriptor import TensorDescriptor


def tile_position(tile, tiles_m, tiles_n, group):
    """Return (row, column) of the tile with number *tile*, taking *group* rows at a time."""
    in_group = group * tiles_n  # tiles of one full group
    first = tile // in_group * group  # first row of this group
    rows = min(tiles_m - first, group)  # the last group may have fewer rows
    return first + tile % in_group % rows, tile % in_group // rows


tile_position_in_kernel = triton.jit(tile_position)


@triton.jit
def apply_activation(x, ACTIVATION: tl.constexpr):
    """Apply the activation named *ACTIVATION* to a block."""
    if ACTIVATION == "leaky_relu":
        x = tl.where(x >= 0, x, 0.01 * x)
    return x


@triton.jit
def compute_tile(
    a_desc, b_desc, c_desc, row, column, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute the tile of C = activation(A @ B) that begins at (row, column)."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    acc = apply_activation(acc, ACTIVATION)
    c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit(do_not_specialize=["whole"])
def descriptor_kernel(
    a_desc, b_desc, c_desc,  # for tiles of BLOCK_M × BLOCK_N
    a_cut, b_cut, c_cut,  # for pieces of CUT_M × CUT_N
    M, N, K, whole,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    CUT_M: tl.constexpr, CUT_N: tl.constexpr,
    GROUP: tl.constexpr, PERSISTENT: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute this program's share of the tiles of C = activation(A @ B)."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    if PERSISTENT:
        for tile in tl.range(program, whole, programs, flatten=True):
            i, j = tile_position_in_kernel(tile, tiles_m, tiles_n, GROUP)
            compute_tile(
                a_desc, b_desc, c_desc, i * BLOCK_M, j * BLOCK_N, K,
                BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION,
            )  # fmt: skip
    elif program < whole:  # one program for each tile
        i, j = tile_position_in_kernel(program, tiles_m, tiles_n, GROUP)
        compute_tile(
            a_desc, b_desc, c_desc, i * BLOCK_M, j * BLOCK_N, K,
            BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION,
        )  # fmt: skip

    if CUT_M:
        ACROSS: tl.constexpr = BLOCK_N // CUT_N
        PIECES: tl.constexpr = BLOCK_M // CUT_M * ACROSS  # of one tile
        pieces = (tiles_m * tiles_n - whole) * PIECES
        first = program  # my first piece
        if not PERSISTENT:  # the programs after those for whole tiles have one piece each
            first = tl.where(program < whole, pieces, program - whole)
        for piece in range(first, pieces, programs):
            i, j = tile_position_in_kernel(whole + piece // PIECES, tiles_m, tiles_n, GROUP)
            row = i * BLOCK_M + piece % PIECES // ACROSS * CUT_M
            column = j * BLOCK_N + piece % ACROSS * CUT_N
            compute_tile(a_cut, b_cut, c_cut, row, column, K, CUT_M, CUT_N, BLOCK_K, ACTIVATION)


@dataclass(frozen=True)
class Plan:
    """How to compute a product: its tiles, and what one program gets to work with."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    descriptors: bool = False  # tiles by descriptors, or by pointers
    persistent: bool = False  # one program for each SM, which computes many tiles
    at_once: int = 0  # so many programs share an SM, and all run at once; 0: in waves
    cut: tuple[int, int] | None = None  # the smaller tile for the last wave
    group: int = 8


def divide_up(a, b):
    """Return a / b, rounded up."""
    return -(-a // b)


def describe(a, b, c, block_m, block_n, block_k):
    """Return descriptors for tiles of *a*, *b* and *c*."""
    blocks = ((a, [block_m, block_k]), (b, [block_k, block_n]), (c, [block_m, block_n]))
    return [TensorDescriptor(t, t.shape, t.stride(), block) for t, block in blocks]


def launch_descriptors(plan, a, b, c, activation):
    """Launch ``descriptor_kernel`` for the tiles of *c*, some of them cut into pieces."""
    (M, K), N = a.shape, b.shape[1]
    tiles = divide_up(M, plan.block_m) * divide_up(N, plan.block_n)
    whole, pieces, cut_m, cut_n = tiles, 0, None, None
    descriptors = describe(a, b, c, plan.block_m, plan.block_n, plan.block_k)
    if plan.cut:
        cut_m, cut_n = plan.cut
        whole = tiles // SMS * SMS
        pieces = (tiles - whole) * (plan.block_m // cut_m) * (plan.block_n // cut_n)
        descriptors += describe(a, b, c, cut_m, cut_n, plan.block_k)
    else:
        descriptors += [None, None, None]
    programs = min(SMS, max(whole, pieces)) if plan.persistent else whole + pieces
    descriptor_kernel[(programs,)](
        *descriptors, M, N, K, whole,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, BLOCK_K=plan.block_k,
        CUT_M=cut_m, CUT_N=cut_n, GROUP=plan.group,
        PERSISTENT=plan.persistent, ACTIVATION=activation,
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip


def can_describe(matrix):
    """Say if the rows of *matrix* are contiguous and start at multiples of 16 bytes."""
    row, column = matrix.stride()
    aligned = row * matrix.element_size() % 16 == 0 and matrix.data_ptr() % 16 == 0
    return matrix.numel() > 0 and column == 1 and row >= matrix.shape[1] and aligned


def tile_cost(m, n):
    """Return the time that one SM needs for one column of A in an m × n tile, in products."""
    return m * n + 24 * (m + n)


START = 2**24  # the time until the first small tiles have arrived, in products


def plan_cost(plan, M, N, K):
    """Estimate the time of an (M, K) by (K, N) product, in products of one SM."""
    tiles = divide_up(M, plan.block_m) * divide_up(N, plan.block_n)
    waves, left = divmod(tiles, SMS)
    pieces = (
        left * (plan.block_m // plan.cut[0]) * (plan.block_n // plan.cut[1]) if plan.cut else left
    )
    last = divide_up(pieces, SMS)
    if plan.at_once and waves + last != plan.at_once:
        return math.inf  # not the number of programs on an SM that this plan is for
    cost = K * waves * tile_cost(plan.block_m, plan.block_n)
    cost += K * last * tile_cost(*(plan.cut or (plan.block_m, plan.block_n)))
    return cost + (START if plan.cut and not plan.at_once else 0)


def fit(plan):
    """Return *plan* with as many of its stages as the shared memory of this GPU has room for."""
    step = (plan.block_m + plan.block_n) * plan.block_k * 2  # bytes
    # A persistent program keeps a buffer for storing a tile, beside the pipeline for the next.
    buffer = plan.block_m * plan.block_n * 2 if plan.persistent else 0
    room = SHARED_BYTES // (plan.at_once or 1) - buffer - 1024
    return replace(plan, stages=min(plan.stages, room // step))


def usable(plans):
    """Return those of *plans* that this GPU has room for, if only with fewer stages."""
    return [plan for plan in map(fit, plans) if plan.stages >= 2]


LARGE = Plan(128, 256, 64, warps=8, stages=3, descriptors=True, persistent=True)
MEDIUM = Plan(128, 128, 64, warps=4, stages=5, descriptors=True, persistent=True)
CUT = [replace(MEDIUM, cut=cut) for cut in ((64, 64), (64, 128))]
PAIR = replace(MEDIUM, stages=3, persistent=False, at_once=2)
SMALL = [
    Plan(64, 32, 128, warps=4, stages=4, at_once=1),
    Plan(64, 64, 128, warps=4, stages=4, at_once=1),
]
POINTER_PLANS = usable([
    *SMALL,
    Plan(64, 128, 64, warps=4, stages=4),
    Plan(128, 128, 64, warps=8, stages=4),
    Plan(128, 256, 64, warps=8, stages=3),
])  # fmt: skip
DESCRIPTOR_PLANS = usable([
    *SMALL,
    Plan(64, 128, 128, warps=4, stages=4, descriptors=True, at_once=1),
    Plan(64, 128, 64, warps=4, stages=4, descriptors=True, at_once=2, cut=(64, 64)),
    *(replace(PAIR, cut=cut) for cut in ((64, 64), (64, 128))),
    *(MEDIUM, *CUT, LARGE),
])  # fmt: skip
FP32_PLAN = Plan(64, 64, 32, warps=4, stages=2)  # no tensor cores: a simple plan will do


@functools.lru_cache(maxsize=1024)
def cheapest_plan(M, N, K, described):
    """Return the plan with the least estimated time for an (M, K) by (K, N) product."""
    plans = DESCRIPTOR_PLANS if described else POINTER_PLANS
    return min(plans, key=lambda plan: plan_cost(plan, M, N, K))


def choose_plan(a, b):
    """Return a plan for ``a @ b``, from the shapes and from what this GPU can do."""
    if a.element_size() == 4:
        return FP32_PLAN
    # The rows of C must start at multiples of 16 bytes as well.
    described = HAS_DESCRIPTORS and b.shape[1] % 8 == 0 and can_describe(a) and can_describe(b)
    return cheapest_plan(a.shape[0], *b.shape[::-1], described)
