"""
Why is my kernel slower after the upgrade?
==========================================

Nothing failed, but the same kernel with the same settings takes longer: another release of Triton
compiles it differently, and the best ``num_warps``, ``num_stages`` or tile may have moved. Time all
settings again: ``sweep_settings.py`` below does it for your kernel. The three kernels of this page
show how much a setting decides: with its best setting, the product has :measured:`product_range`
times the speed that it has with its worst.
"""

# %%
# Which settings are the best here?
# ---------------------------------
#
# ``num_warps`` (groups of threads that share a program), ``num_stages`` (tiles in flight in the
# pipeline of a loop) and the tile are chosen by trial, on one GPU with one release (`#11373
# <https://github.com/triton-lang/triton/issues/11373>`_, `#11471
# <https://github.com/triton-lang/triton/issues/11471>`_, `aiter #4137
# <https://github.com/ROCm/aiter/issues/4137>`_). So the first step is to try them all again. Three
# kernels stand for three kinds: a softmax is limited by memory, a product by tensor cores, and
# attention by tensor cores and exponentials.

# sphinx_gallery_fold = "imports and device"
import os
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import torch
from torch.nn import functional

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import sys  # for shared/
from pathlib import Path  # for shared/

import matplotlib.pyplot as plt
import triton
import triton.language as tl
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))  # for shared/
from shared.bench import figure, spread, write_rows, write_table

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device
DTYPE = torch.float16 if ON_GPU else torch.float32

# %%


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """Compute the softmax of one row, in pieces of BLOCK numbers."""
    row, i = tl.program_id(0).to(tl.int64) * N, tl.arange(0, BLOCK)
    m, z = tl.full((BLOCK,), -float("inf"), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        x = tl.load(x_ptr + row + start + i).to(tl.float32)  # BLOCK divides N
        m_new = tl.maximum(m, x)
        z = z * tl.exp(m - m_new) + tl.exp(x - m_new)
        m = m_new
    top = tl.max(m)
    total = tl.sum(z * tl.exp(m - top))
    for start in range(0, N, BLOCK):
        x = tl.load(x_ptr + row + start + i).to(tl.float32)
        out = tl.exp(x - top) / total
        tl.store(out_ptr + row + start + i, out.to(out_ptr.dtype.element_ty))


@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Compute one tile of a product; the tile divides all sizes."""
    rows = tl.program_id(1) * BM + tl.arange(0, BM)[:, None]
    cols = tl.program_id(0) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        a = tl.load(a_ptr + rows * K + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + cols)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows * N + cols, acc.to(c_ptr.dtype.element_ty))


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Compute the attention of BM queries of one head to all N keys; tiles divide N."""
    head = tl.program_id(1).to(tl.int64) * N * D
    rows = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None]
    keys, d = tl.arange(0, BN), tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + head + rows * D + d)
    m, z = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        at = head + (start + keys)[:, None] * D + d
        s = tl.dot(q, tl.load(k_ptr + at).T) * scale
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp2(s - m_new[:, None])  # scale contains log2(e)
        correction = tl.exp2(m - m_new)
        z = z * correction + tl.sum(p, axis=1)
        v = tl.load(v_ptr + at)
        acc = tl.dot(p.to(v.dtype), v, acc * correction[:, None])
        m = m_new
    tl.store(out_ptr + head + rows * D + d, (acc / z[:, None]).to(out_ptr.dtype.element_ty))


# %%
# Each kernel has a function that returns its arguments and grid for a tile, the settings to try,
# and a reference:

SIZES = {"rows": 4096, "N": 16384, "n": 4096, "heads": 64, "tokens": 2048, "d": 128}
if not ON_GPU:
    SIZES = {"rows": 2, "N": 256, "n": 64, "heads": 1, "tokens": 64, "d": 16}
torch.manual_seed(0)
x = torch.randn(SIZES["rows"], SIZES["N"], device=DEVICE).to(DTYPE)
a, b = torch.randn(2, SIZES["n"], SIZES["n"], device=DEVICE).to(DTYPE)
b /= SIZES["n"] ** 0.5  # so that results are about 1
q, k, v = torch.randn(3, SIZES["heads"], SIZES["tokens"], SIZES["d"], device=DEVICE).to(DTYPE)
y, c, o = torch.empty_like(x), torch.empty_like(a), torch.empty_like(q)


def softmax_launch(block):
    """Return the grid, the arguments and the constants of a launch."""
    return (len(x),), (x, y, x.shape[1]), {"BLOCK": block}


def product_launch(BM, BN, BK):
    """Return the grid, the arguments and the constants of a launch."""
    n = len(a)
    return (n // BN, n // BM), (a, b, c, n, n, n), {"BM": BM, "BN": BN, "BK": BK}


def attention_launch(BM, BN):
    """Return the grid, the arguments and the constants of a launch."""
    heads, n, d = q.shape
    arguments = q, k, v, o, n, d**-0.5 * 1.4426950408889634
    return (n // BM, heads), arguments, {"D": d, "BM": BM, "BN": BN}


def attended():
    """Return PyTorch's attention."""
    return functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


BYTES = 2 * x.numel() * x.element_size()
KERNELS = {  # kernel, launch, result, reference, tiles, warps, stages, unit, amount
    "softmax": (softmax_kernel, softmax_launch, y, lambda: x.softmax(1),
                [(1024,), (4096,), (16384,)], (4, 8, 16), (1, 2, 4), "GB/s", BYTES / 1e6),
    "product": (product_kernel, product_launch, c, lambda: a @ b,
                [(128, 256, 64), (128, 128, 64), (64, 128, 64)], (4, 8), (2, 3, 4), "TFLOPS",
                2 * SIZES["n"] ** 3 / 1e9),
    "attention": (attention_kernel, attention_launch, o, attended,
                  [(128, 128), (128, 64), (64, 64)], (4, 8), (2, 3, 4), "TFLOPS",
                  4 * SIZES["heads"] * SIZES["tokens"] ** 2 * SIZES["d"] / 1e9),
}  # fmt: skip
if not ON_GPU:  # one small setting each
    small = {"softmax": [(64,)], "product": [(16, 16, 16)], "attention": [(16, 16)]}
    KERNELS = {name: (*given[:4], small[name], (4,), (2,), *given[7:])
               for name, given in KERNELS.items()}  # fmt: skip


def settings_of(name):
    """Return all combinations of a kernel's tiles, warps and stages."""
    return list(product(*KERNELS[name][4:7]))


def launch(name, tile, warps, stages, method="run"):
    """Launch a kernel with these settings, or compile it only; return the compiled kernel."""
    kernel, arguments_for = KERNELS[name][:2]
    grid, arguments, constants = arguments_for(*tile)
    options = {"num_warps": warps, "num_stages": stages}
    if method == "warmup":
        return kernel.warmup(*arguments, grid=grid, **constants, **options)
    return kernel[grid](*arguments, **constants, **options)


def compile_all():
    """Compile every setting of every kernel, several at the same time."""
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        triton.AsyncCompileMode(pool, ignore_errors=True),
    ):
        for name in KERNELS:
            for settings in settings_of(name):
                launch(name, *settings, method="warmup")


if ON_GPU:
    try:
        compile_all()
    except Exception as error:  # then each is compiled at its first launch
        print(f"compiled one by one, because of {type(error).__name__}: {str(error)[:80]}")

# %%
# Every setting computes the same, and is compared with PyTorch. Then all are timed, in three rounds
# in random order, so that no setting is slow only because something else ran at that moment. A
# setting that does not fit the GPU is left out of the map.

# sphinx_gallery_fold = "checks and times every setting"
ROWS, MADE, FAILED = [], {}, []
for name, (_, _, result, reference, *_) in KERNELS.items():
    expected = reference()
    for tile, warps, stages in settings_of(name):
        try:
            result.zero_()
            compiled = launch(name, tile, warps, stages)
            torch.testing.assert_close(result, expected, atol=2e-2, rtol=2e-2)
            MADE[name, tile, warps, stages] = ON_GPU and (
                compiled.n_regs, compiled.n_spills, compiled.metadata.shared)  # fmt: skip
        except AssertionError:
            raise
        except Exception as error:  # too much shared memory, or refused by the assembler
            why = f"{type(error).__name__}: {str(error).split('. ')[0]}"
            label = "x".join(map(str, tile))
            FAILED.append(f"{name} {label}, {warps} warps, {stages} stages: {why}")
if ON_GPU:
    times = {setting: [] for setting in MADE}
    for setting in (s for _ in range(3) for s in random.sample(list(MADE), len(MADE))):
        call = partial(launch, *setting)
        times[setting] += triton.testing.do_bench(call, warmup=5, rep=15, return_mode="all")
    for (name, tile, *numbers), found in times.items():
        unit, amount = KERNELS[name][7:]
        rates = spread([amount / ms for ms in found])
        ROWS.append((name, "x".join(map(str, tile)), *numbers, "triton", unit, *rates))
    write_rows("settings.csv", ["kernel", "tile", "warps", "stages"], ROWS)
TRIED = sum(len(settings_of(name)) for name in KERNELS)
print(f"{TRIED - len(FAILED)} of {TRIED} settings are right")
assert len(FAILED) < TRIED / 3, FAILED

# %%
# Each square is one setting: the stronger the blue, the faster. Its number is the speed in percent
# of the best one with this release, and a dash is a setting that did not fit:

# sphinx_gallery_fold = "draws a map of each kernel"


def draw_maps():
    """Draw the speed of each setting as a share of the kernel's best."""
    fig, unused = figure(height=8.2)
    unused.remove()
    axes = fig.subplots(len(KERNELS), 1)
    for ax, (name, given) in zip(axes, KERNELS.items(), strict=True):
        tiles, warps, stages = given[4:7]
        speeds = {row[1:4]: row[6] for row in ROWS if row[0] == name}
        best = max(speeds.values())
        labels = ["x".join(map(str, tile)) for tile in tiles]
        columns = list(product(warps, stages))
        shares = [[100 * speeds.get((tile, *c), float("nan")) / best for c in columns]
                  for tile in labels]  # fmt: skip
        ax.imshow(shares, cmap="Blues", vmin=30, vmax=110, aspect="auto")
        for i, line in enumerate(shares):
            for j, share in enumerate(line):
                text = f"{share:.0f}" if share == share else "–"
                ax.text(j, i, text, ha="center", va="center", fontsize=12,
                        color="white" if share > 80 else "black")  # fmt: skip
        ax.set_yticks(range(len(labels)), [text.replace("x", " × ") for text in labels])
        ax.set_xticks(range(len(columns)), [f"{w} w\n{s} s" for w, s in columns], fontsize=11.5)
        ax.set_title(f"{name}: best {best:.0f} {given[7]}")
    fig.suptitle(f"% of the best, Triton {triton.__version__}\n"
                 f"on {torch.get_device_module().get_device_name()}", fontsize=13)  # fmt: skip
    plt.show()


if ON_GPU:
    draw_maps()

# %%
# *w* are warps and *s* stages. The three best settings of each kernel, the worst one, and what the
# compiler made of each:

# sphinx_gallery_name = "best"
# sphinx_gallery_shows = "OutOfResources, PTXASError, plain digits"
if ON_GPU:
    table, values = [], []
    for name in KERNELS:
        order = sorted((row for row in ROWS if row[0] == name), key=lambda row: -row[6])
        for row in [*order[:3], order[-1]]:
            tile = tuple(map(int, row[1].split("x")))
            made = MADE[name, tile, row[2], row[3]]
            table.append((name, row[1], row[2], row[3], row[6], row[5], *made))
            values.append((" ".join(map(str, row[:4])), "registers", made[0]))
    head = ["kernel", "tile", "warps", "stages", "speed", "", "registers", "spills", "shared"]
    print(f"Triton {triton.__version__}")
    print(tabulate(table, head, floatfmt=",.0f", intfmt=","))
    print(*FAILED, sep="\n")
    write_table("settings-values.csv", ["name", "unit", "value"], list(dict.fromkeys(values)))

# %%
# .. output-of:: best
#    :release: 3.6.0
#
# If the first line of a kernel stands lower in the other table, or is missing there, its winner has
# moved. If it is the first line in both, the upgrade has not moved the winner of this kernel, but
# it may move that of yours, as in the reports above.
#
# **Setting by setting**, much moved from 3.6.0 to 3.9.0 on this GPU. The product in tiles of
# 128 × 128 with 4 warps and 2 stages became :measured:`two_stages` times as fast. Attention in
# tiles of 128 × 64 with 4 warps and 2 stages reached :measured:`was` TFLOPS, and now reaches
# :measured:`became`. The softmax whose tile is a whole row of 16,384 numbers, with 4 warps and
# 1 stage, lost :measured:`spilled` %. A program that uses one of these settings changes its speed
# with the upgrade.
#
# *Registers* and *spills* are counted for a thread, and *shared* is the bytes of shared memory of a
# program. They tell why a line is slow. *Spills* mean that a thread had more numbers than
# registers, so the tile needs more warps. A slow line without spills often has a tile that is too
# small for its warps. A different count with the same setting means that the two releases arranged
# the tile or the pipeline in another way.
#
# With this release, the best setting has :measured:`softmax_range` times the speed of the worst in
# softmax, :measured:`product_range` times in the product, and :measured:`attention_range` times in
# attention. So much is at stake when a constant in the code is no longer the right one. If columns
# of a map that differ only in their stages look alike, this kernel does not need a search over
# stages. The same holds for warps.
#
# How do I find out for my own kernel?
# ------------------------------------
#
# `sweep_settings.py <../../_static/sweep_settings.py>`__ times a kernel of yours with every setting
# and writes a CSV file. Run it once in each of two environments, then compare the files::
#
#    $ old/bin/python sweep_settings.py kernel.py old.csv
#    $ new/bin/python sweep_settings.py kernel.py new.csv
#    $ python sweep_settings.py --compare old.csv new.csv
#
# Your file has the settings and a call; ``check`` is optional and stops at a wrong result::
#
#    SETTINGS = {"BLOCK": [1024, 4096], "num_warps": [4, 8, 16], "num_stages": [1, 2]}
#
#    def call(**settings):
#        return my_kernel[grid](x, out, n, **settings)
#
#    def check():
#        torch.testing.assert_close(out, reference)
#
# The comparison says how much time the winner of each release takes on the other release. It ends
# with status 1 if the old winner loses five percent or more, so it can stand in a test of the
# upgrade.
#
# What do I do about it?
# ----------------------
#
# * **Sweep before you upgrade**, with real sizes, and in a process that does nothing else.
# * **Keep settings beside the release and the GPU they were measured on**, in a table, not in the
#   kernel. Autotuning does half of this by itself: its cache belongs to the release and to the
#   architecture, which several GPUs share. See :doc:`questions-compiling`.
# * **Autotune over few settings that differ much**, such as two tiles, two numbers of warps, and
#   two of stages. Then a release that moves the winner does not need a change of the code.
# * **Compare what the compiler makes** if a release is slower with every setting:
#   :doc:`/releases` shows what a release changed in the speed of this site's tutorials.
