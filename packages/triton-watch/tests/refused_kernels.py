"""Kernels that the interpreter executes and a GPU or its compiler refuses.

``@named(…)`` lists what the report must contain: what is refused, and what to write instead.
"""

import math

import torch
import triton
import triton.language as tl

FACTOR = 3
RIGHT = tl.constexpr(3)


def named(*words, before=True, certain=True):
    """Give a function the words of its report.

    Args:
        words: What the report contains.
        before: Whether it is raised by the launch, and not at the end.
        certain: Whether the source alone tells.
    """

    def with_words(function):
        function.words = words
        function.before = before
        function.certain = certain and before
        return function

    return with_words


def plain(x):
    return x + x


@triton.jit
def break_kernel(x_ptr, out_ptr, n):
    total = 0.0
    for i in range(n):
        x = tl.load(x_ptr + i)
        if x > 3.0:
            break
        total += x
    tl.store(out_ptr, total)


@triton.jit
def continue_kernel(x_ptr, out_ptr, n):
    total = 0.0
    for i in range(n):
        if i == 2:
            continue
        total += tl.load(x_ptr + i)
    tl.store(out_ptr, total)


@triton.jit
def return_kernel(x_ptr, out_ptr, n):
    for i in range(n):
        x = tl.load(x_ptr + i)
        tl.store(out_ptr, x)
        if x > 3.0:
            return


@triton.jit
def chain_kernel(x_ptr, out_ptr, n):
    offsets = tl.arange(0, 16)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, x, mask=0 <= offsets < n)


@triton.jit
def type_kernel(x_ptr, out_ptr, n):
    total = 0
    for i in range(n):
        total += tl.load(x_ptr + i)
    tl.store(out_ptr, total)


@triton.jit
def try_kernel(x_ptr, out_ptr, n):
    try:
        x = tl.load(x_ptr)
    except Exception:
        x = 0.0
    tl.store(out_ptr, x)


@triton.jit
def lambda_kernel(x_ptr, out_ptr, n):
    twice = lambda x: x + x  # noqa: E731
    tl.store(out_ptr, twice(tl.load(x_ptr)))


@triton.jit
def global_kernel(x_ptr, out_ptr, n):
    tl.store(out_ptr, tl.load(x_ptr) * FACTOR)


@triton.jit
def plain_kernel(x_ptr, out_ptr, n):
    x = tl.load(x_ptr)
    tl.store(out_ptr, plain(x))


@triton.jit
def math_kernel(x_ptr, out_ptr, n):
    tl.store(out_ptr, math.exp(tl.load(x_ptr)))


@triton.jit
def index_kernel(x_ptr, out_ptr, n):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr, x[0])


@triton.jit
def append_kernel(x_ptr, out_ptr, n):
    parts = []
    for i in tl.static_range(2):
        parts.append(tl.load(x_ptr + i))
    tl.store(out_ptr, parts[0] + parts[1])


@triton.jit
def helper(x_ptr, n):
    total = 0.0
    for i in range(n):
        if i == 3:
            break
        total += tl.load(x_ptr + i)
    return total


@triton.jit
def calling_kernel(x_ptr, out_ptr, n):
    tl.store(out_ptr, helper(x_ptr, n))


def launch(kernel):
    kernel[(1,)](torch.ones(16), torch.zeros(16), 16)


@named("`break`", "while", "refused_kernels.py line 37 `break`")
def a_break():
    launch(break_kernel)


@named("`continue`", "`if` around", certain=False)
def a_continue():
    launch(continue_kernel)


@named("`return`", "one `return` at the end")
def a_return_in_a_loop():
    launch(return_kernel)


@named("0 <= offsets < n", "(0 <= offsets) & (offsets < n)")
def a_chained_comparison():
    launch(chain_kernel)


@named("`total` changes its type in a loop, from int32 to fp32", "tl.zeros", before=False)
def a_variable_that_changes_its_type():
    launch(type_kernel)


@named("`try`")
def a_try():
    launch(try_kernel)


@named("`lambda`", "@triton.jit")
def a_lambda():
    launch(lambda_kernel)


@named("global variable `FACTOR`", "FACTOR = tl.constexpr(3)")
def a_plain_global():
    launch(global_kernel)


@named("`plain`", "@triton.jit", "tl.store(out_ptr, plain(x))")
def a_plain_helper():
    launch(plain_kernel)


@named("`math.exp`", "`tl`", certain=False)
def a_call_of_math():
    launch(math_kernel)


@named("an index into a block", "tl.gather", certain=False)
def an_index_into_a_block():
    launch(index_kernel)


@named("a list that grows", "a tuple", before=False)
def a_list_that_grows():
    launch(append_kernel)


@named("`break`", "refused_kernels.py line", before=False)
def a_break_in_a_helper():
    launch(calling_kernel)
