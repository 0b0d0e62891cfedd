"""
Why is a kernel out of shared memory on another GPU?
====================================================

*OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.* The tile
was chosen for a GPU with more: a program has up to 227 KB of shared memory on an H100, and 99 KB on
an RTX 4090. Lower ``num_stages`` by one, then take a smaller tile, or let a function ask the device
and choose. This page has that function, the limits of eight GPUs, and what the compiler makes of
one kernel for seven architectures. You need to own none of them.
"""

# %%
# How much shared memory and how many registers has my GPU?
# ---------------------------------------------------------
#
# A program must fit into one multiprocessor: its tiles into shared memory, its accumulators into
# registers (`#8182 <https://github.com/triton-lang/triton/issues/8182>`_, `helion #470
# <https://github.com/pytorch/helion/issues/470>`_, `vllm #36802
# <https://github.com/vllm-project/vllm/issues/36802>`_). The limits belong to the architecture, and
# the other numbers to the product:

# sphinx_gallery_fold = "imports and device"
import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ON_GPU = torch.accelerator.is_available()
os.environ.setdefault("TRITON_INTERPRET", "0" if ON_GPU else "1")  # before Triton is imported
import triton
import triton.language as tl
from tabulate import tabulate

DEVICE = torch.zeros(1, device=torch.accelerator.current_accelerator() if ON_GPU else "cpu").device

# %%

GPUS = [
    # name, architecture, multiprocessors; KB of a program, KB of a multiprocessor;
    # registers of a multiprocessor, threads of one; GB of memory, GB/s
    ("A100 SXM 80 GB", "8.0", 108, 163, 164, 65536, 2048, 80, 2039),
    ("GeForce RTX 3090", "8.6", 82, 99, 100, 65536, 1536, 24, 936),
    ("L4", "8.9", 58, 99, 100, 65536, 1536, 24, 300),
    ("GeForce RTX 4090", "8.9", 128, 99, 100, 65536, 1536, 24, 1008),
    ("H100 SXM", "9.0", 132, 227, 228, 65536, 2048, 80, 3350),
    ("B200", "10.0", 148, 227, 228, 65536, 2048, 180, 8000),
    ("GeForce RTX 5090", "12.0", 170, 99, 100, 65536, 1536, 32, 1792),
    ("Instinct MI300X", "gfx942", 304, 64, 64, 131072, 2048, 192, 5300),
]
HEAD = ["GPU", "arch.", "SMs", "KB a program", "KB an SM", "registers", "threads", "GB", "GB/s"]
print(tabulate(GPUS, HEAD, intfmt=","))

# %%
# *Arch.* is the compute capability of NVIDIA's GPUs, and the name of AMD's architecture. An SM is a
# multiprocessor; its *registers* and *threads* are shared by all programs on it.
#
# The columns *KB*, *registers* and *threads* of NVIDIA's GPUs come from the table of technical
# specifications in the `CUDA programming guide
# <https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#compute-capabilities>`_. Those
# of the Instinct come from AMD's `GPU specifications
# <https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html>`_: local memory (LDS) of 64 KB, and
# vector registers of 512 KB, counted here in 32 bits. The other columns are from the data sheets of
# the products. 1 KB is 1024 bytes. Triton supports compute capability 8.0 and later, so a T4 (7.5)
# is not in the table.
#
# GeForce GPUs and the L4 give a program 99 KB in all three generations. The A100 gives 163 KB, and
# the H100 and the B200 give 227 KB. A tile that was chosen on these is often too large for those.
#
# What does the error look like?
# ------------------------------
#
# The kernel is compiled, and then refused when it is loaded. This product has a tile that suits
# large products on Hopper, but with five stages, which is too much for each GPU of the table:


@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Compute one tile of the product of two row-major fp16 matrices."""
    rows = (tl.program_id(1) * BM + tl.arange(0, BM))[:, None]  # [BM, 1]
    cols = (tl.program_id(0) * BN + tl.arange(0, BN))[None, :]  # [1, BN]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        in_a, in_b = (rows < M) & (inner < K)[None, :], (inner < K)[:, None] & (cols < N)
        a = tl.load(a_ptr + rows * K + inner[None, :], mask=in_a, other=0.0)
        b = tl.load(b_ptr + inner[:, None] * N + cols, mask=in_b, other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows * N + cols, acc.to(tl.float16), mask=(rows < M) & (cols < N))


def product_with(tile, a, b):
    """Return ``a @ b``, computed with *tile*: BM, BN, BK, warps, stages."""
    (M, K), N = a.shape, b.shape[1]
    BM, BN, BK, warps, stages = tile
    c = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = triton.cdiv(N, BN), triton.cdiv(M, BM)
    options = {"num_warps": warps, "num_stages": stages}
    product_kernel[grid](a, b, c, M, N, K, BM=BM, BN=BN, BK=BK, **options)
    return c


# sphinx_gallery_shows = "OutOfResources, plain digits"
a, b = torch.randn(2, 512, 512, device=DEVICE).half()
if ON_GPU:
    try:
        product_with((128, 256, 64, 8, 5), a, b)
        print("it fits")
    except triton.runtime.errors.OutOfResources as error:
        print(f"{type(error).__name__}: {error}")

# %%
# *Required* is what the compiler has given to the tiles: about ``stages · (BM + BN) · BK`` elements
# of two bytes. *Hardware limit* is the column *KB a program* of the table.
#
# How do I choose a tile that fits?
# ---------------------------------
#
# Ask the device, and take the first tile of a list that fits. The estimate counts one buffer for
# each stage. That is what Hopper and the B200 need. The other architectures need one less, so it is
# on the safe side:

TILES = [  # BM, BN, BK, warps, stages, from the best for large products to the smallest
    (128, 256, 64, 8, 4),
    (128, 256, 64, 8, 3),
    (128, 128, 64, 8, 3),
    (128, 128, 32, 4, 3),
    (64, 64, 32, 4, 3),
]


def shared_bytes():
    """Return how many bytes of shared memory a program may have on the current GPU."""
    if not ON_GPU:
        return 99 * 1024
    driver = triton.runtime.driver.active
    return driver.utils.get_device_properties(driver.get_current_device())["max_shared_mem"]


def estimate(tile, element_size=2):
    """Return the bytes of shared memory that the buffers of a tile need."""
    BM, BN, BK, _, stages = tile
    return stages * (BM + BN) * BK * element_size


def choose_tile(limit):
    """Return the first tile whose buffers, and 1 KB for the rest, fit into *limit* bytes."""
    return next((tile for tile in TILES if estimate(tile) + 1024 <= limit), TILES[-1])  # <-


def product(a, b):
    """Return ``a @ b`` of fp16 matrices, on any GPU."""
    return product_with(choose_tile(shared_bytes()), a, b)


for shape in ((512, 512, 512), (40, 72, 24)) if ON_GPU else ((40, 72, 24),):
    M, N, K = shape
    a, b = torch.randn(M, K, device=DEVICE).half(), torch.randn(K, N, device=DEVICE).half()
    exact = (a.double() @ b.double()).half()
    torch.testing.assert_close(product(a, b), exact, atol=0.02, rtol=1e-3)
print(f"here: {shared_bytes():,} bytes, so {choose_tile(shared_bytes())}")
print(tabulate([(gpu[0], *choose_tile(1024 * gpu[3])) for gpu in GPUS],
               ["GPU", "BM", "BN", "BK", "warps", "stages"]))  # fmt: skip

# %%
# With autotuning, drop what cannot fit before it is compiled, by
# ``prune_configs_by={"early_config_prune": …}``. A configuration that does not fit after all costs
# only its compilation: ``triton.autotune`` catches OutOfResources and takes another one.
#
# Does it compile for a GPU that I do not have?
# ---------------------------------------------
#
# Compiling needs no GPU. :py:func:`triton.compile` takes the target by name, the types of the
# arguments, and which of them are divisible by 16. Each target has a process of its own, in which
# all tiles are compiled:

TARGETS = {
    "8.0": ("cuda", 80, 32),
    "8.6": ("cuda", 86, 32),
    "8.9": ("cuda", 89, 32),
    "9.0": ("cuda", 90, 32),
    "10.0": ("cuda", 100, 32),
    "12.0": ("cuda", 120, 32),
    "gfx942": ("hip", "gfx942", 64),
}
AUTHORS = [*TILES, (128, 256, 64, 4, 3)]  # the last one: half of the warps
COMPILE = '''
import json, re, subprocess, sys, tempfile
from pathlib import Path
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

KERNEL

def usage(compiled, target):
    """Return the registers of a thread, and the bytes that it spills, or None."""
    if target[0] == "hip":
        found = {k: int(v) for k, v in re.findall(
            r"[.](vgpr_count|agpr_count|vgpr_spill_count): *([0-9]+)", compiled.asm["amdgcn"])}
        return found["vgpr_count"] + found["agpr_count"], 4 * found["vgpr_spill_count"]
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [tool, "-res-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(re.search("REG:([0-9]+)", text)[1]), int(re.search("STACK:([0-9]+)", text)[1])

target, tiles = json.loads(sys.argv[1])
names = ["a_ptr", "b_ptr", "c_ptr", "M", "N", "K"]
types = dict(zip(names, ["*fp16"] * 3 + ["i32"] * 3)) | dict.fromkeys(["BM", "BN", "BK"], "constexpr")
divisible = {(i,): [["tt.divisibility", 16]] for i in range(len(names))}
for *sizes, warps, stages in tiles:
    source = ASTSource(product_kernel, types, dict(zip(["BM", "BN", "BK"], sizes)), divisible)
    try:
        options = {"num_warps": warps, "num_stages": stages}
        compiled = triton.compile(source, target=GPUTarget(*target), options=options)
        result = [compiled.metadata.shared]
        try:
            result += usage(compiled, target)
        except Exception as error:
            result += [None, None]
        print(json.dumps(result), flush=True)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or ["no message"]
        print(json.dumps(f"{type(error).__name__}: {lines[0][:60]}"), flush=True)
'''  # noqa: E501


def compile_for(targets, tiles):
    """Return {architecture: [shared bytes, registers, spilled bytes] or the error of each tile}."""
    code = inspect.getsource(product_kernel.fn)
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "for_others.py"
        script.write_text(COMPILE.replace("KERNEL", code))
        started = {
            name: subprocess.Popen(
                [sys.executable, script, json.dumps([target, tiles])], env=environment,
                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for name, target in targets.items()
        }  # fmt: skip
        found = {}
        for name, process in started.items():
            out, problem = process.communicate()
            assert process.returncode == 0, problem
            found[name] = [json.loads(line) for line in out.splitlines()]
    return found


def described(tile):
    """Return a tile in words."""
    BM, BN, BK, warps, stages = tile
    return f"{BM} × {BN} × {BK}, {warps} warps, {stages} stages"


def cells(index, limits=None):
    """Return a table of one number of each compiled tile; what exceeds *limits* has an X."""
    for i, tile in enumerate(AUTHORS):
        row = []
        for name, results in FOUND.items():
            result = results[i]
            if isinstance(result, str):
                ERRORS.setdefault(result, f"{described(tile)} for {name}")
                row.append("error")
            elif result[index] is None:
                row.append("–")
            else:
                too_much = limits and result[index] > limits[name]
                shown = round(result[index] / 1024) if limits else result[index]
                row.append(f"{shown}{' X' if too_much else ''}")
        yield (described(tile), *row)


ERRORS = {}
LIMITS = {gpu[1]: 1024 * gpu[3] for gpu in GPUS}
if not ON_GPU:  # enough to see that it works
    TARGETS = {name: TARGETS[name] for name in ("8.6", "9.0")}
    AUTHORS = AUTHORS[:1]
FOUND = compile_for(TARGETS, AUTHORS)
print(tabulate(cells(0, LIMITS), ["KB of shared memory; X: too much", *FOUND]))

# %%
# * **The same tile needs different amounts.** Hopper and Blackwell for data centers read their
#   tiles from shared memory while they multiply, and keep one buffer more than the others.
# * **X** marks a tile that fails with the error above when it is launched. Try one stage less
#   first, because it leaves the tile as it is. Then reduce ``BK``, then ``BM`` or ``BN``. The maps
#   of :doc:`settings` show what fewer stages and smaller tiles cost.
#
# Why does it spill registers?
# ----------------------------
#
# A thread has at most 255 registers on NVIDIA's GPUs. A tile of 128 × 256 has an accumulator of
# 32,768 numbers: 128 for each thread of eight warps, and 256 for each thread of four. Where all of
# them must be in registers, 256 are too many, and the rest goes to memory and back:

print(tabulate(cells(1), ["registers of a thread", *FOUND]))
print()
print(tabulate(cells(2), ["bytes a thread spills", *FOUND]))
for error, where in ERRORS.items():
    print(f"{where}: {error}")
assert not any(isinstance(r, str) for r in FOUND["9.0"]), ERRORS
assert FOUND["8.6"][0][0] > LIMITS["8.6"], "the first tile was to exceed 99 KB"

# %%
# NVIDIA's numbers are those of ``cuobjdump -res-usage``, which Triton's wheel brings, and AMD's
# those in the assembler's output. On compute capability 10.0, accumulators stay in *tensor memory*,
# a memory beside the tensor cores, until the end. On gfx942, four warps are 256 threads, and a
# thread has up to 512 registers. So neither of these two architectures spills here. On your own
# GPU, the compiled kernel says the same: ``n_regs``, ``n_spills`` and ``metadata.shared`` of what
# ``kernel[grid](…)`` returns.
#
# The remedy is more warps, or a smaller tile. ``maxnreg`` as an option limits registers further,
# so that more programs fit on a multiprocessor; see :doc:`/programming-guide/chapter-3/slow`.
#
# **What else differs**: fp8 on tensor cores needs 8.9 or later. Clusters, and the hardware that
# loads a descriptor's tile (TMA), need 9.0 or later, and ``tl.dot_scaled`` is native only on newer
# ones: :doc:`dot-scaled`.
