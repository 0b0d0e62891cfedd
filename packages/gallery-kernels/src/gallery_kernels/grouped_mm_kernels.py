"""The kernels of ``grouped_mm``. The lesson 08-grouped-gemm explains them.

The tiles of all products form one list: all tiles of the first group, then those of the second, and
so on. A group has as many tiles as its rows fill. Only the GPU knows how many that are.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["groups", "rows"])  # not compiled anew for other numbers
def pointer_kernel(
    x_ptr, w_ptr, out_ptr, offsets_ptr, groups, rows, K, N,
    stride_xm, stride_xk, stride_we, stride_wk, stride_wn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute one tile of one group, of tensors of any strides."""
    tile = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    step = tl.full((), BLOCK_K, tl.int64)
    first = 0  # the first tile of the group
    start = 0  # its first row
    for group in range(groups):
        # Wrong offsets must not lead outside of the result.
        end = tl.maximum(tl.minimum(tl.load(offsets_ptr + group), rows), start)
        after = first + tl.cdiv(end - start, BLOCK_M) * tiles_n
        if (tile >= first) & (tile < after):
            m = start + (tile - first) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
            n = (tile - first) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
            ks = tl.arange(0, BLOCK_K).to(tl.int64)
            x_ptrs = x_ptr + m[:, None] * stride_xm + ks[None, :] * stride_xk
            w_ptrs = w_ptr + tl.full((), group, tl.int64) * stride_we
            w_ptrs += ks[:, None] * stride_wk + n[None, :] * stride_wn
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                x_mask = (m[:, None] < end) & (ks[None, :] < K - k)
                w_mask = (ks[:, None] < K - k) & (n[None, :] < N)
                x = tl.load(x_ptrs, mask=x_mask, other=0.0)  # [BLOCK_M, BLOCK_K]
                w = tl.load(w_ptrs, mask=w_mask, other=0.0)  # [BLOCK_K, BLOCK_N]
                acc = tl.dot(x, w, acc, input_precision="ieee")
                x_ptrs += step * stride_xk
                w_ptrs += step * stride_wk
            mask = (m[:, None] < end) & (n[None, :] < N)
            out_ptrs = out_ptr + m[:, None] * N + n[None, :]
            tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)
        first = after
        start = end


@triton.jit(do_not_specialize=["groups", "rows", "K"])
def persistent_kernel(
    x_desc, w_desc, out_ptr, offsets_ptr, groups, rows, K, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BY_COLUMNS: tl.constexpr,
    GROUPS: tl.constexpr,
):  # fmt: skip
    """Compute the tiles whose numbers are this program's plus multiples of all programs."""
    every = tl.arange(0, GROUPS)  # a power of two
    real = every < groups
    tiles_n = tl.cdiv(N, BLOCK_N)
    starts = tl.load(offsets_ptr + every - 1, mask=real & (every > 0), other=0)
    ends = tl.minimum(tl.load(offsets_ptr + every, mask=real, other=0), rows)
    own_rows = tl.where(real, tl.maximum(ends - tl.minimum(starts, rows), 0), 0)
    last = tl.cumsum(tl.cdiv(own_rows, BLOCK_M), axis=0) * tiles_n  # behind the tiles of each group
    for tile in tl.range(tl.program_id(0), tl.max(last), tl.num_programs(0), flatten=True):
        passed = last <= tile
        group = tl.sum(passed.to(tl.int32), axis=0)
        first = tl.max(tl.where(passed, last, 0), axis=0)
        start = tl.max(tl.where(passed, ends, 0), axis=0)
        end = tl.minimum(tl.load(offsets_ptr + group), rows)
        tiles_m = tl.cdiv(end - start, BLOCK_M)
        # Down the columns: neighbors in the list load the same part of w from the L2 cache.
        row = start + (tile - first) % tiles_m * BLOCK_M
        column = (tile - first) // tiles_m * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            x = x_desc.load([row, k])
            if BY_COLUMNS:  # w is stored as [groups, N, K]
                w = w_desc.load([group, column, k]).reshape(BLOCK_N, BLOCK_K).T
            else:
                w = w_desc.load([group, k, column]).reshape(BLOCK_K, BLOCK_N)
            acc = tl.dot(x, w, acc)
        out_rows = row + tl.arange(0, BLOCK_M)
        out_columns = column + tl.arange(0, BLOCK_N)
        mask = (out_rows[:, None] < end) & (out_columns[None, :] < N)
        out_ptrs = out_ptr + out_rows.to(tl.int64)[:, None] * N + out_columns[None, :]
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)
