"""Kernels are compiled before they are needed, several at a time."""

from concurrent.futures import ThreadPoolExecutor

import triton
from shared.setup import ON_GPU


def compile_ahead(calls):
    """Compile the kernels that the *calls* would launch, in parallel; none of them is launched.

    A kernel is compiled at its first launch, and whoever launches many waits for one after the
    other. The calls are made as always, so what they return are tensors that nobody wrote.

    Args:
        calls: Functions of no arguments; one that computes with the result of its own kernels,
            on the CPU, will see anything.
    """
    if not ON_GPU:
        return
    run = triton.JITFunction.run

    def compile_only(kernel, *args, grid, warmup, **options):
        return run(kernel, *args, grid=grid, warmup=True, **options)

    triton.JITFunction.run = compile_only
    try:
        with ThreadPoolExecutor(16) as pool, triton.AsyncCompileMode(pool):
            for call in calls:
                call()
    finally:
        triton.JITFunction.run = run
