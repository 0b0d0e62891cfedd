"""The kernels of both losses. The lessons 10-cross-entropy and 10b explain them.

``cross_entropy`` keeps the losses of M rows in ``[1 + M]`` numbers of fp32, of which the first is
the *share* of a row: 1 / n, where n rows count.
"""

import triton
import triton.language as tl

#: The running maximum starts at the lowest finite number: from -inf, a block of logits of -inf
#: would compute -inf - -inf, which is NaN.
LOWEST = tl.constexpr(-3.4028234663852886e38)
LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * LOG2E)


@triton.jit(debug=True, do_not_specialize=["M", "V", "ignore_index"])
def count_kernel(target_ptr, share_ptr, M, V, ignore_index, BLOCK: tl.constexpr):
    """Store 1 / n, where n of the M targets count; NaN if none does."""
    n = 0
    for start in range(0, M, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        target = tl.load(target_ptr + rows, mask=rows < M, other=ignore_index)
        counts = target != ignore_index
        in_range = (target >= 0) & (target < V)
        tl.device_assert(in_range | (target == ignore_index), "a target is out of range")
        n += tl.sum(counts.to(tl.int32), axis=0)
    tl.store(share_ptr, tl.where(n > 0, 1.0 / tl.maximum(n, 1), float("nan")))


@triton.jit(do_not_specialize=["M"])
def mean_kernel(loss_ptr, mean_ptr, M, BLOCK: tl.constexpr):
    """Store the sum of M losses times the share of a row."""
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, M, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        total += tl.load(loss_ptr + 1 + rows, mask=rows < M, other=0.0)
    tl.store(mean_ptr, tl.sum(total, axis=0) * tl.load(loss_ptr))


@triton.jit
def mean_of_last(loss_ptr, mean_ptr, M, BLOCK: tl.constexpr):
    """In the last of M programs, store the mean; until then its place counts them, from 0."""
    tl.debug_barrier()  # after this, all losses of this program are stored
    if tl.atomic_add(mean_ptr, 1.0) == M - 1:
        mean_kernel(loss_ptr, mean_ptr, M, BLOCK)


@triton.jit
def scale_kernel(x_ptr, factor_ptr, y_ptr, n, IN_PLACE: tl.constexpr, BLOCK: tl.constexpr):
    """Store x times a factor that is on the GPU; IN_PLACE, a factor of 1 moves no memory."""
    factor = tl.load(factor_ptr)
    if (not IN_PLACE) or factor != 1.0:
        begin = tl.program_id(0).to(tl.int64) * BLOCK
        for start in range(begin, n, tl.num_programs(0) * BLOCK):
            offsets = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + offsets, mask=offsets < n).to(tl.float32)
            tl.store(y_ptr + offsets, factor * x, mask=offsets < n)


# cross_entropy


@triton.jit
def add_up(m, s, x_ptr, n, BLOCK: tl.constexpr, MAXIMA: tl.constexpr):
    """Return the maximum m and the sum s of exp(x - m), with n more logits.

    With MAXIMA > 1, each thread keeps a maximum and a sum of its own until the end of the loop.
    """
    EACH: tl.constexpr = 8 if MAXIMA > 1 else 1  # neighbors, which one thread loads
    own_s = tl.zeros([MAXIMA], tl.float32)
    own_m = own_s + m
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < n
        x = tl.load(x_ptr + columns, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        x = tl.reshape(x.to(tl.float32), [BLOCK // MAXIMA // EACH, MAXIMA, EACH])
        larger = tl.maximum(own_m, tl.max(tl.max(x, axis=2), axis=0))  # [MAXIMA]
        p = tl.exp2((x - larger[None, :, None]) * LOG2E)
        own_s = own_s * tl.exp2((own_m - larger) * LOG2E) + tl.sum(tl.sum(p, axis=2), axis=0)
        own_m = larger
    largest = tl.max(own_m, axis=0)
    return largest, s * tl.exp(m - largest) + tl.sum(own_s * tl.exp(own_m - largest), axis=0)


@triton.jit
def write_gradient(x_ptr, grad_ptr, n, m, bias, BLOCK: tl.constexpr):
    """Store 2**bias times n probabilities, from the end: what was read last is in the cache."""
    last = (n - 1) // BLOCK * BLOCK
    for done in range(0, n, BLOCK):
        columns = last - done + tl.arange(0, BLOCK)
        mask = columns < n
        x = tl.load(x_ptr + columns, mask=mask, other=0.0, eviction_policy="evict_first")
        p = tl.exp2((x.to(tl.float32) - m) * LOG2E + bias)
        tl.store(grad_ptr + columns, p, mask=mask, eviction_policy="evict_first")


@triton.jit
def cross_entropy_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, stride, V, ignore_index,
    BLOCK: tl.constexpr,
    MAXIMA: tl.constexpr,  # 1, or one for each thread
    GROUP: tl.constexpr,  # elements in 16 bytes; 1 if the rows need not be cut
    WRITE: tl.constexpr,  # whether the gradient is wanted
    SHARED: tl.constexpr,  # whether it contains the share of a row
):  # fmt: skip
    """Compute the loss of one row, then its gradient, which may overwrite the row.

    With GROUP > 1 the row is cut into groups of 16 bytes at addresses divisible by 16, and two
    edges, whose elements are loaded one by one.
    """
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    begin = row * stride
    grad_begin = row * V
    hit = tl.load(x_ptr + begin + target, mask=target != ignore_index, other=0.0).to(tl.float32)
    first = begin
    grad_first = grad_begin
    lead = 0  # elements before the groups
    middle = V  # elements in the groups
    m = tl.full([], LOWEST, tl.float32)
    s = 0.0
    if GROUP > 1:
        first = (begin + GROUP - 1) // GROUP * GROUP
        grad_first = (grad_begin + GROUP - 1) // GROUP * GROUP
        lead = tl.minimum(first - begin, V).to(tl.int32)
        middle = (V - lead) // GROUP * GROUP
        place = tl.arange(0, 2 * GROUP)
        edge = tl.where(place < GROUP, place, place - GROUP + lead + middle)
        on_edge = tl.where(place < GROUP, place < lead, edge < V)
        x_edge = tl.load(x_ptr + begin + edge, mask=on_edge, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x_edge, axis=0))
        s = tl.sum(tl.exp(x_edge - m), axis=0)
    m, s = add_up(m, s, x_ptr + first, middle, BLOCK, MAXIMA)
    share = tl.load(loss_ptr) if SHARED else 1.0
    loss = 0.0
    if target != ignore_index:
        loss = m - hit + tl.log(s)
    else:
        share = 0.0
    tl.store(loss_ptr + 1 + row, loss)
    if WRITE:
        bias = tl.log2(share / s)
        write_gradient(x_ptr + first, grad_ptr + grad_first, middle, m, bias, BLOCK)
        if GROUP > 1:
            p = tl.exp2((x_edge - m) * LOG2E + bias)
            tl.store(grad_ptr + grad_begin + edge, p, mask=on_edge)
        tl.debug_barrier()  # after this, the target's element is stored again
        p = tl.exp2((hit - m) * LOG2E + bias) - share
        tl.store(grad_ptr + grad_begin + target, p, mask=target != ignore_index)


@triton.jit(debug=True, do_not_specialize=["M"])
def few_rows_kernel(
    x_ptr, target_ptr, loss_ptr, grad_ptr, mean_ptr, stride, V, ignore_index, M,
    BLOCK: tl.constexpr, MAXIMA: tl.constexpr, GROUP: tl.constexpr, WRITE: tl.constexpr,
    SHARED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Do what three launches do: each program counts the rows, and the last one adds them up."""
    count_kernel(target_ptr, loss_ptr, M, V, ignore_index, ROWS)  # all store the same share
    tl.debug_barrier()  # after this, all threads of the program load it
    cross_entropy_kernel(x_ptr, target_ptr, loss_ptr, grad_ptr, stride, V, ignore_index,
                         BLOCK, MAXIMA, GROUP, WRITE, SHARED)  # fmt: skip
    mean_of_last(loss_ptr, mean_ptr, M, ROWS)


# linear_cross_entropy


@triton.jit(do_not_specialize_on_alignment=["target_ptr", "loss_ptr"])
def overwriting_kernel(
    x_ptr, target_ptr, loss_ptr, share_ptr, stride, V, ignore_index,
    BLOCK: tl.constexpr, WRITE: tl.constexpr,
):  # fmt: skip
    """Compute the loss of one row, and overwrite the row with its gradient.

    A row has *stride* elements, a multiple of 16, of which V are logits.
    """
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    row_ptr = x_ptr + row * stride
    hit = tl.load(row_ptr + target, mask=target != ignore_index, other=0.0).to(tl.float32)
    m = LOWEST
    s = 0.0
    for start in range(0, stride, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + columns, mask=columns < stride, eviction_policy="evict_last")
        x = tl.where(columns < V, x.to(tl.float32), -float("inf"))
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
        m = larger
    share = tl.load(share_ptr)
    loss = 0.0
    if target != ignore_index:
        loss = m - hit + tl.log(s)
    else:
        share = 0.0
    tl.store(loss_ptr + row, loss)
    if WRITE:
        last = (stride - 1) // BLOCK * BLOCK
        for done in range(0, stride, BLOCK):
            columns = last - done + tl.arange(0, BLOCK)
            mask = columns < stride
            x = tl.load(row_ptr + columns, mask=mask, eviction_policy="evict_first")
            x = tl.where(columns < V, x.to(tl.float32), -float("inf"))
            p = tl.exp(x - m) * (share / s)
            gradient = tl.where(columns == target, p - share, p)
            tl.store(row_ptr + columns, gradient, mask=mask, eviction_policy="evict_first")
