"""
Matrix multiplication: full waves
=================================

The tiles of a product run in waves, and the last wave takes as long as any other, however few tiles
are left for it. :doc:`03-matrix-multiplication` ended with a kernel for any product, and with a
promise: that one can *know* which tiles to take, instead of trying. Here you will build the rule
and the kernel that ``matmul`` uses on GPUs with tensor descriptors, and learn

* what **tensor descriptors** are good for, on the GPUs that have them;
* what a **persistent** program is, and which pause it removes;
* what a **wave** is, and why a product that does not fill its last wave is slow;
* how to tell a good plan from a bad one with a few lines of arithmetic;
* how to **cut** the last wave, and three ways in which programs can share a processor.

.. ladder::
"""

# %%
# Without a GPU the first cell chooses the interpreter, and the page calculates with the numbers of
# an H200.

# sphinx_gallery_fold = "chooses the device, brings the timing loop, the rounding and the plots"
# sphinx_gallery_thumbnail_number = 2
# sphinx_gallery_level = "beyond"
import functools
import sys  # for shared/
from dataclasses import replace
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import torch
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for shared/
from shared.claims import claim, print_claims, spread
from shared.gpu import HAS_DESCRIPTORS, SHARED_BYTES, SMS
from shared.ladder import ladder
from shared.measuring import geometric_mean, measure, rates, significant, write_rows
from shared.plotting import CEILING, OURS, STEP_1, STEP_2, plot_rates
from shared.setup import DEVICE, ON_GPU

import triton
import triton.language as tl

print(f"{SMS} processors, {SHARED_BYTES} bytes of shared memory, descriptors: {HAS_DESCRIPTORS}")

# %%
# Step 1: tensor descriptors
# --------------------------
#
# In the first part, each program computes blocks of addresses, keeps them in registers and has
# masks for the edges. Newer NVIDIA GPUs (from Hopper on) have hardware that relieves it of that,
# the *tensor memory accelerator*: the program gives it a position, and a whole tile appears in
# shared memory. What it has to know about the matrix, namely address, shape, strides and the shape
# of a tile, is written into a **tensor descriptor** before the launch. Outside of the matrix it
# reads zeros and writes nothing, so there are no masks. (On GPUs without the hardware, Triton makes
# pointers and masks of a descriptor: right, but slower than writing them oneself.)
#
# A tile of C takes few lines then. The order of tiles and the activation are those of the first
# part.

# sphinx_gallery_fold = "computes a tile, and brings the order of tiles and the activation"
# sphinx_gallery_show = "compute_tile, describe"
from shared.matmul import compute_tile, describe, divide_up, tile_position_in_kernel

# %%
# The kernel finds the position of its tile, and that is all:


@triton.jit
def tile_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute one tile of C = activation(A @ B)."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    i, j = tile_position_in_kernel(tl.program_id(0), tiles_m, tiles_n, GROUP)
    compute_tile(
        a_desc, b_desc, c_desc, i * BLOCK_M, j * BLOCK_N, K,
        BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION,
    )  # fmt: skip


def launch_tiles(plan, a, b, c):
    """Launch ``tile_kernel``: one program for each tile of *c*."""
    (M, K), N = a.shape, b.shape[1]
    shape = (plan.block_m, plan.block_n, plan.block_k)
    grid = (divide_up(M, plan.block_m) * divide_up(N, plan.block_n),)
    tile_kernel[grid](
        *describe(a, b, c, *shape), M, N, K, *shape, GROUP=plan.group, ACTIVATION="",
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip


# %%
# A descriptor demands more of a matrix than a pointer does: contiguous rows that start at multiples
# of 16 bytes. So the kernel of the first part is still needed: for transposed matrices, for odd
# strides, and for GPUs without the hardware.
#
# ``plan`` is the record that the first part's launcher took, and here are all its fields: you will
# read what ``persistent``, ``at_once`` and ``cut`` are for.

# sphinx_gallery_fold = "says what a plan is, and fits it to the shared memory of this GPU"
# sphinx_gallery_show = "Plan"
from shared.matmul import Plan, fit

# %%

# sphinx_gallery_fold = "runs a plan, and checks it on a product whose tiles stick out"
# sphinx_gallery_fold_output = True


def run(launch, plan, a, b):
    """Return ``a @ b``, computed by *plan* with *launch*."""
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    launch(plan, a, b, c)
    return c


def matrices(m, n, k):
    """Return two random fp16 matrices, m × k and k × n."""
    return tuple(
        torch.randn(shape, device=DEVICE, dtype=torch.float16) for shape in ((m, k), (k, n))
    )


def check(got, a, b):
    """Raise AssertionError where *got* is not ``a @ b``, up to the rounding of fp16 and fp32."""
    expected = a.double() @ b.double()
    # One unit in the last place of fp16; K times four bits more than fp32 rounds away.
    torch.testing.assert_close(got.double(), expected, rtol=2**-10, atol=2**-20 * a.shape[1])


LARGE = fit(Plan(128, 256, 64, warps=8, stages=3, descriptors=True, persistent=True))
torch.manual_seed(0)
a, b = matrices(144, 272, 96)  # tiles stick out on all sides
check(run(launch_tiles, LARGE, a, b), a, b)
print("144 × 96 by 96 × 272: right, and no mask anywhere")

# %%
# Step 2: persistent programs
# ---------------------------
#
# When one program ends and the next one starts on the same SM (as we call a processor here), the
# pipeline runs dry: nothing is multiplied while C is stored and the first tiles of the next program
# are on their way. With large tiles there is only one program on an SM, and nobody fills the gap.
# So we turn things around and start exactly one program for each SM. It computes a tile, then the
# one that lies as many tiles further on as there are programs, and so on: it is **persistent**.
# ``flatten=True`` joins the loop over tiles and the loop along K into one, so that the loads for
# the next tile are under way before the last one is finished.

# sphinx_gallery_difference = "tile_kernel"


@triton.jit
def persistent_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute this program's share of the tiles of C = activation(A @ B)."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    program, programs = tl.program_id(0), tl.num_programs(0)
    for tile in tl.range(program, tiles_m * tiles_n, programs, flatten=True):
        i, j = tile_position_in_kernel(tile, tiles_m, tiles_n, GROUP)
        compute_tile(
            a_desc, b_desc, c_desc, i * BLOCK_M, j * BLOCK_N, K,
            BLOCK_M, BLOCK_N, BLOCK_K, ACTIVATION,
        )  # fmt: skip


def launch_persistent(plan, a, b, c):
    """Launch ``persistent_kernel``: one program for each SM, if there are tiles enough."""
    (M, K), N = a.shape, b.shape[1]
    shape = (plan.block_m, plan.block_n, plan.block_k)
    tiles = divide_up(M, plan.block_m) * divide_up(N, plan.block_n)
    persistent_kernel[(min(SMS, tiles),)](
        *describe(a, b, c, *shape), M, N, K, *shape, GROUP=plan.group, ACTIVATION="",
        num_warps=plan.warps, num_stages=plan.stages,
    )  # fmt: skip


check(run(launch_persistent, LARGE, a, b), a, b)
print("the same, persistent: right")

# %%
# Step 3: the tile that fills its waves
# -------------------------------------
#
# The registers and the shared memory that a large tile needs fill a whole SM. So the programs (or
# the tiles of persistent programs) run in **waves**: as many as there are SMs, then as many again.
# The last wave takes as long as any other, however few tiles are left for it.
#
# Which tiles run in the same wave is up to their order. The groups of the first part have a wave
# need fewer tiles of A and B; the last wave, of a single tile, they cannot fill:
#
# .. tile-order::
#    :size: 9
#    :group: 4
#    :processors: 16
#
# Over time, 9 tiles on 4 SMs are three waves, and three quarters of the last one are wasted. Below
# it, the last tile is cut into four small ones, so that each SM gets one. That will be step 4.

# sphinx_gallery_fold = "draws nine tiles on four SMs"


def draw_waves(ax, bars, title):
    """Draw *bars*, which are (SM, start, length, label), over time."""
    for sm, start, length, label in bars:
        colour = plt.get_cmap("tab10")(int(label[0]))
        ax.barh(sm, length, 0.8, left=start, color=colour, alpha=0.5, edgecolor="#444444")
        ax.text(start + length / 2, sm, label, ha="center", va="center")
    ax.set(title=title, ylabel="SM", yticks=range(4), xlim=(0, 3.05), ylim=(3.6, -0.6))


whole = [(i % 4, i // 4, 1, str(i)) for i in range(8)]
pieces = [(i, 2, 0.25, f"8{'abcd'[i]}") for i in range(4)]
fig, axes = plt.subplots(2, 1, figsize=(7, 4.6), sharex=True)
draw_waves(axes[0], [*whole, (0, 2, 1, "8")], "9 tiles on 4 SMs: 3 waves")
draw_waves(axes[1], [*whole, *pieces], "The last tile cut in four: 2¼ waves, if all goes well")
axes[1].set_xlabel("time, in large tiles")
fig.tight_layout()
plt.show()

# %%
# "If all goes well", because a small tile is less efficient than a large one. How much less? For
# each column of A that it goes through, an m × n tile does m · n products, and m + n numbers have
# to be brought to the tensor cores. Let us say that bringing one number takes as long as 24
# products. That is rough, but all we need is to tell a good plan from a bad one. The time of a
# whole product is then K columns, times the waves, times the cost of a tile. Where the last wave
# is cut up, waves of small tiles at *their* cost come on top, and so does a new start: until the
# first small tiles have arrived, nothing is multiplied. Let us say that this takes as long as 2²⁴
# products.

# sphinx_gallery_fold = "estimates the time of a product"
# sphinx_gallery_show = "tile_cost"
from shared.matmul import plan_cost, tile_cost

# %%
# What a product costs in tiles of several shapes:

# sphinx_gallery_fold = "prints the cost of a product, and draws the estimate by size"

table = []
for m, n in [(64, 32), (64, 64), (64, 128), (128, 128), (128, 256)]:
    cost = tile_cost(m, n)
    table.append((f"{m} × {n}", m * n, cost, significant(cost / (m * n))))
headers = ["tile", "products", "cost", "cost of a product"]
print(tabulate(table, headers, disable_numparse=True, stralign="right"))


def draw_estimate(plans, sizes):
    """Draw by size how fast the best of *plans* should be; 100 is large tiles in full waves."""
    fig, ax = plt.subplots(figsize=(7, 4.8), layout="constrained")
    fastest = tile_cost(128, 256) / (128 * 256)
    styles = zip(plans.items(), ("#8d6a9f", "#d1495b", "#1b6ca8"), (":", "-.", "-"), strict=True)
    for (name, some), colour, line in styles:
        best = [min(plan_cost(plan, n, n, n) for plan in some) for n in sizes]
        speed = [100 * fastest * n**3 / SMS / cost for n, cost in zip(sizes, best, strict=True)]
        ax.plot(sizes, speed, label=name, color=colour, linestyle=line)
    ax.axhline(100, label="full waves of 128 × 256 (ceiling)", color="#444444", linestyle="--")
    ax.set(xlabel="M = N", ylabel="estimated speed, %", ylim=(0, 105))
    ax.set_title(f"Estimated speed in % of full waves, {SMS} SMs")
    ax.grid(alpha=0.3)
    fig.legend(loc="outside lower center")
    plt.show()


MEDIUM = fit(Plan(128, 128, 64, warps=4, stages=5, descriptors=True, persistent=True))
CUT = [replace(MEDIUM, cut=cut) for cut in ((64, 64), (64, 128))]
estimates = {
    "128 × 256": [LARGE],
    "128 × 128": [MEDIUM],
    "the best of both, 128 × 128 also cut": [LARGE, MEDIUM, *CUT],
}
draw_estimate(estimates, range(1024, 4097, 64))

# %%
# Each tooth is one wave more. The larger tile is the better one where its waves are full, and the
# worse one where they are not, so neither is right for all sizes: the rule takes the tile with the
# lower estimate. (The fewer SMs a GPU has, the more waves there are, and the smaller the teeth.)
#
# Step 4: the last wave, cut
# --------------------------
#
# Cutting the last wave fills part of the gaps that are left. A persistent program knows which tiles
# are its own, so it can see to that as well: the first ``whole`` tiles are computed as they are,
# the others in pieces. This is the kernel that ``matmul`` uses, with its launcher. (Arguments that
# are named in ``do_not_specialize`` get no version of the kernel of their own when they are 1 or
# divisible by 16, as others do.)

# sphinx_gallery_difference = "persistent_kernel"
# sphinx_gallery_fold = "launches the kernel"
# sphinx_gallery_show = "descriptor_kernel"
from shared.matmul import launch_descriptors

# %%
# The last wave need not even wait for the one before. If the pipelines are kept short, *two*
# programs fit on one SM at the same time: a whole tile and a piece, say. They share its tensor
# cores, and while one of them waits for data or stores its tile, the other one multiplies. With
# short pipelines a program waits more often, so this pays only where all programs run at once, and
# where there are enough of them to fill each other's pauses. So there are three ways for programs
# to share the SMs, and a plan says which it is made for:
#
# ``persistent=True``
#     One program on each SM, which computes one tile after the other. For products of several
#     waves. The pipeline may take all of the shared memory.
# ``at_once=1`` or ``at_once=2``
#     One or two programs on each SM, one for each tile or piece, and all of them run from the
#     beginning: there is no second wave. For small products, if the number of tiles fits. Two
#     programs share the shared memory.
# neither
#     One program for each tile, in waves, as in step 1. Whoever ends makes room for the next.
#
# (There is another way to fill the last wave. *Stream-K*, see the references, gives each SM an
# equal share of all steps along K, wherever tiles begin and end, and adds up the partial sums of a
# tile that was shared. The balance is perfect. But partial sums have to travel through memory, and
# SMs that work at different places along K no longer need the same tiles at the same time.)
#
# All plans
# ---------
#
# Here are all plans that the rule chooses from, for 2-byte elements. The small ones come first: for
# small matrices, with one wave only, a smaller tile is done sooner. Long steps (``block_k=128``)
# are fewer steps, with more bytes under way. The smallest of all use the first part's kernel.

# sphinx_gallery_fold = "lists the plans, and picks the one with the lowest estimate"
from shared.matmul import DESCRIPTOR_PLANS, cheapest_plan

# %%
# What is chosen for some sizes: the tile, the smaller one into which the tiles of the last wave are
# cut (if any), and how many waves all the tiles would make if none were cut.

# sphinx_gallery_fold = "prints the plans for some sizes"

table = []
for n in [256, 640, 1024, 1536, 2048, 2176, 3072, 4096]:
    plan = cheapest_plan(n, n, n, HAS_DESCRIPTORS)
    tile, cut = f"{plan.block_m} × {plan.block_n}", "{} × {}".format(*plan.cut) if plan.cut else ""
    tiles = divide_up(n, plan.block_m) * divide_up(n, plan.block_n)
    kernel = "descriptors" if plan.descriptors else "pointers"
    schedule = "persistent" if plan.persistent else "in waves"
    schedule = f"{plan.at_once} on an SM" if plan.at_once else schedule
    table.append((n, tile, cut, significant(tiles / SMS), kernel, schedule))
print(f"Plans for M = N = K on {SMS} SMs")
headers = ["size", "tile", "last wave\ncut into", "waves", "kernel", "programs"]
align = {"colalign": ["right"] * 4 + ["left"] * 2}
print(tabulate(table, headers, disable_numparse=True, **align))

# %%
# Is it right?
# ------------
#
# Each plan by itself, also where it would not be chosen, on a product whose tiles stick out. The
# results of two plans differ by rounding only: they add up the same products, in another order at
# most.

# sphinx_gallery_fold = "checks every plan, and the steps"
# sphinx_gallery_fold_output = True


def launch_plan(plan, a, b, c):
    """Launch the kernel of step 4, without an activation."""
    launch_descriptors(plan, a, b, c, "")


M, N, K = (1936, 2064, 256) if ON_GPU else (144, 272, 128)
a, b = matrices(M, N, K)
plans = [plan for plan in DESCRIPTOR_PLANS if plan.descriptors]
for plan in plans:
    check(run(launch_plan, plan, a, b), a, b)
for launch in (launch_tiles, launch_persistent):
    for plan in (LARGE, MEDIUM):
        check(run(launch, plan, a, b), a, b)
print(f"steps 1 and 2, and all {len(plans)} plans of step 4: right")

# %%
# The benchmark
# -------------
#
# What did each step bring? Square fp16 matrices from 1024 to 4096, in steps of 128: the large tile
# in waves (step 1), persistent (step 2), the better of two tiles (step 3), and the rule's choice
# among all plans with descriptors (step 4), beside the vendor's library. And at every fourth size
# each of the plans by itself, to see how good the rule's choice is.

# sphinx_gallery_fold = "times the steps, and every plan at some sizes"

LIBRARY = "rocblas" if torch.version.hip else "cublas"
STEPS = ("1 descriptors", "2 persistent", "3 the better tile", "4 cut")


def estimate_by(n):
    """Return the function that estimates the time of a plan for an n × n × n product."""
    return lambda plan: plan_cost(plan, n, n, n)


def steps_of_this_page(n, a, b):
    """Return {step: call} for the way this page has gone."""
    better = min((LARGE, MEDIUM), key=estimate_by(n))
    chosen = min(plans, key=estimate_by(n))
    calls = (
        functools.partial(run, launch_tiles, LARGE, a, b),
        functools.partial(run, launch_persistent, LARGE, a, b),
        functools.partial(run, launch_persistent, better, a, b),
        functools.partial(run, launch_plan, chosen, a, b),
    )
    return dict(zip(STEPS, calls, strict=True)) | {LIBRARY: functools.partial(torch.matmul, a, b)}


def benchmark(sizes):
    """Return rows (M, N, K, provider, unit, median, p20, p80)."""
    rows = []
    for n in sizes:
        for provider, ms in measure(steps_of_this_page(n, *matrices(n, n, n)), 20).items():
            rows.append((n, n, n, provider, "TFLOPS", *rates(ms, 2 * n**3 / 1e3)))
    return rows


def rank(sizes):
    """Return {size: the rate of the rule's plan over that of the fastest plan}."""
    found = {}
    for n in sizes:
        a, b = matrices(n, n, n)
        possible = [plan for plan in plans if plan_cost(plan, n, n, n) < float("inf")]
        calls = {plan: functools.partial(run, launch_plan, plan, a, b) for plan in possible}
        medians = {plan: ms.median().item() for plan, ms in measure(calls, 10).items()}
        found[n] = min(medians.values()) / medians[min(plans, key=estimate_by(n))]
    return found


SIZES = [128 * i for i in range(8, 33)]
if ON_GPU:
    rows = benchmark(SIZES)
    write_rows("matmul-steps-fp16.csv", ["M", "N", "K"], rows)
    ranks = rank(SIZES[::4])
else:
    print("Without a GPU there is nothing to time: the benchmark needs one.")

# %%
# All rows are in the CSV file; here is every third size, and how near the rule's plan comes to the
# fastest plan of all:

# sphinx_gallery_fold = "prints and plots the rates"


def print_steps(rate, sizes):
    """Print the rates {(N, provider): TFLOPS} of the steps and of the library at *sizes*."""
    table = [(n, *(significant(rate[n, name]) for name in (*STEPS, LIBRARY))) for n in sizes]
    headers = ["M=N=K", "1 descrip-\ntors", "2 persis-\ntent", "3 better\ntile", "4 cut", LIBRARY]
    print("TFLOPS, higher is better")
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))


def plot_steps(rows):
    """Draw the first two steps, the last one and the library over size."""
    labels = {
        STEPS[0]: ("step 1: one program a tile", STEP_1),
        STEPS[1]: ("step 2: persistent", STEP_2),
        STEPS[3]: ("step 4: the last wave cut", OURS),
        LIBRARY: (f"{LIBRARY} (ceiling and best alternative)", CEILING),
    }
    fig, ax = plt.subplots(figsize=(7, 5.4), layout="constrained")
    lines = {
        label: (style, [(row[0], *row[5:]) for row in rows if row[3] == provider])
        for provider, (label, style) in labels.items()
    }
    plot_rates(ax, lines, "Matrix product in fp16", "M = N = K", "TFLOPS")
    fig.legend(loc="outside lower center")
    plt.show()


if ON_GPU:
    rate = {(n, provider): median for n, _, _, provider, _, median, _, _ in rows}
    print_steps(rate, SIZES[::3])
    print()
    table = [(n, significant(ratio)) for n, ratio in ranks.items()]
    headers = ["M=N=K", "the rule's plan\n/ the fastest"]
    print(tabulate(table, headers, disable_numparse=True, stralign="right"))
    plot_steps(rows)
else:
    print("No table and no plot without a GPU.")

# %%
# The ladder at the top of this page is of a size with an awkward last wave:

# sphinx_gallery_fold = "prints the ladder"
# sphinx_gallery_fold_output = True

if ON_GPU:
    n = 1536
    changes = {
        "Step 1: tensor descriptors": ("tiles of 128 × 256, by descriptors", STEPS[0]),
        "Step 2: persistent programs": ("one program for each SM", STEPS[1]),
        "Step 3: the tile that fills its waves": ("the better one of two tiles", STEPS[2]),
        "Step 4: the last wave, cut": ("small tiles for the last wave", STEPS[3]),
    }
    rungs = [(step, change, rate[n, name]) for step, (change, name) in changes.items()]
    ladder(rungs, (LIBRARY, rate[n, LIBRARY]), "TFLOPS", f"M = N = K = {n}, fp16")
else:
    print("No ladder without a GPU.")

# %%
# How to read the curves
# ----------------------
#
# **The teeth of step 1 and step 2** are the waves of the large tile: the rate drops where one wave
# more is needed, and recovers as that wave fills up. Persistent programs have the same teeth, since
# they have the same tiles. What they save is the pause between two tiles, so they gain where there
# are several waves, and nothing where there is only one.
#
# **The upper edge** of the teeth is what the tensor cores sustain. Where steps 1 and 2 reach it,
# their last wave happens to be full, and there is nothing left to gain for steps 3 and 4.
#
# **Step 4** fills the valleys. It cannot fill them all: a small tile is less efficient, and the
# pieces of the last wave have to be started.
#
# **The library** has other tiles, and so its teeth are at other sizes. Where it is ahead, it has a
# plan that we have not. (How many waves a launch has is one of the counters of
# :doc:`/programming-guide/chapter-5/profiling`.)
#
# What the run showed
# -------------------
#
# What this page has claimed, each beside the limit that it must keep:

# sphinx_gallery_fold = "computes the claims"

if ON_GPU:

    def mean_ratio(ours, other, sizes=SIZES):
        """Return the geometric mean of the ratio of two providers over *sizes*."""
        return geometric_mean(rate[n, ours] / rate[n, other] for n in sizes)

    scatter = spread(rows[-5:])
    waves = {n: divide_up(n, 128) * divide_up(n, 256) / SMS for n in SIZES}
    several = [n for n in SIZES if waves[n] > 2]
    claim(
        "persistent programs are no slower than one program a tile, where there are over two waves",
        mean_ratio(STEPS[1], STEPS[0], several), at_least=0.98, spread=scatter,
        section="Step 2: persistent programs",
    )  # fmt: skip
    claim(
        "with one wave only, persistent programs bring nothing",
        mean_ratio(STEPS[1], STEPS[0], [n for n in SIZES if waves[n] <= 1]), at_most=1.05,
        spread=scatter, section="Step 2: persistent programs",
    )  # fmt: skip
    claim(
        "the better of two tiles beats the large one, on average",
        mean_ratio(STEPS[2], STEPS[1]), at_least=1.0, spread=scatter,
        section="Step 3: the tile that fills its waves",
    )  # fmt: skip
    claim(
        "cutting the last wave gains more, on average",
        mean_ratio(STEPS[3], STEPS[2]), at_least=1.0, spread=scatter,
        section="Step 4: the last wave, cut",
    )  # fmt: skip
    claim(
        "the rule's plan is within a sixth of the fastest plan",
        min(ranks.values()), at_least=5 / 6, spread=scatter, section="All plans",
    )  # fmt: skip
    claim(
        f"step 4 reaches nine tenths of {LIBRARY} and more, on average",
        mean_ratio(STEPS[3], LIBRARY), at_least=0.9, spread=scatter,
        section="How to read the curves",
    )  # fmt: skip
    print_claims()
else:
    print("No claims without a GPU.")

# %%
# What to remember
# ----------------
#
# * A tensor descriptor takes addresses and masks off a program, and demands aligned, contiguous
#   rows.
# * A persistent program goes on where another one would have to start.
# * Count the waves. Where the last one is nearly empty, choose other tiles, or cut it up.
# * A rough estimate with a reason chooses almost as well as trying, and costs nothing.
#
# Exercises
# ---------
#
# 1. **A long K.** A product of 64 × K by K × 64 matrices is a single tile, and a single SM works
#    on it, however long K is. Share K between programs, so that the result is still the same
#    every time. :doc:`Solution <solutions/03-split-k>`.
# 2. **A GPU with other numbers.** Write ``filled(tiles, processors)``, the share of the places in
#    all waves that have a tile. Then set ``SMS`` to 84 or to 304 and draw the estimate again: at
#    which sizes are the valleys now, and which plan fills them?
#
# References
# ----------
#
# * Muhammad Osama, Duane Merrill, Cris Cecka, Michael Garland and John D. Owens: *Stream-K:
#   work-centric parallel decomposition for dense matrix-matrix multiplication on the GPU*,
#   PPoPP 2023, https://doi.org/10.1145/3572848.3577479
