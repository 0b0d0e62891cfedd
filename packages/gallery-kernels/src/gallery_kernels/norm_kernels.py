"""The kernels of the norms. The lessons 05-layer-norm and 05b-reductions explain them.

Rows of up to 16,384 elements are held in registers, in pieces, and read once. Longer ones are read
block by block, and twice. Statistics are ``[1 or 2, M]`` in fp32: the reciprocal deviation of each
row and, with CENTER, its mean.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def forward_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, stats_ptr, M, N, x_row_stride, eps,
    CENTER: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Normalize ROWS rows of up to PIECE * PIECES elements; without CENTER it is RMS norm."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    columns = tl.arange(0, PIECE)[None, :]  # [1, PIECE]
    xs, mean = (), tl.zeros([ROWS, 1], tl.float32)
    total = tl.zeros([ROWS, PIECE], tl.float32)
    for i in tl.static_range(PIECES):
        mask = (rows < M) & (i * PIECE + columns < N)
        x = tl.load(x_ptr + (rows * x_row_stride + (i * PIECE + columns)), mask=mask, other=0.0)
        xs = xs + (x,)
        total += x.to(tl.float32)
    if CENTER:
        mean = tl.sum(total, axis=1, keep_dims=True) / N  # [ROWS, 1]
        tl.store(stats_ptr + M + rows, mean, mask=rows < M)
    total = tl.zeros([ROWS, PIECE], tl.float32)
    for i in tl.static_range(PIECES):
        centered = xs[i].to(tl.float32) - mean
        if CENTER and i == PIECES - 1:  # only the last piece has padding
            centered = tl.where(i * PIECE + columns < N, centered, 0.0)
        total += centered * centered
    rstd = tl.rsqrt(tl.sum(total, axis=1, keep_dims=True) / N + eps)
    tl.store(stats_ptr + rows, rstd, mask=rows < M)
    for i in tl.static_range(PIECES):
        mask = i * PIECE + columns < N
        w = tl.load(w_ptr + i * PIECE + columns, mask=mask, eviction_policy="evict_last")
        y = (xs[i].to(tl.float32) - mean) * rstd * w.to(tl.float32)
        if CENTER:
            b = tl.load(b_ptr + i * PIECE + columns, mask=mask, eviction_policy="evict_last")
            y += b.to(tl.float32)
        tl.store(y_ptr + rows * N + i * PIECE + columns, y, mask=(rows < M) & mask)


@triton.jit(do_not_specialize=["stats_ptr"])
def backward_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, dx_ptr, sums_ptr, x_row_stride, g_row_stride, M, N,
    CENTER: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr, PIECES: tl.constexpr,
    OWN: tl.constexpr, WEIGHTS: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of every P-th tile of ROWS rows, and partial sums of dw and db."""
    SHARE: tl.constexpr = 1 if OWN == PIECES else 2  # programs that share a row
    program, programs = tl.program_id(0) // SHARE, tl.num_programs(0) // SHARE
    first = tl.program_id(0) % SHARE * (PIECES - OWN)  # its own pieces come first
    least = tl.program_id(0) % SHARE * OWN * PIECE  # both have the middle one, the first writes it
    columns = tl.arange(0, PIECE)[None, :]  # [1, PIECE]
    zeros = tl.zeros([ROWS, PIECE], tl.float32)
    kept, dw, db = (), (), ()
    for i in tl.static_range(PIECES):
        place = (first + i) % PIECES * PIECE + columns
        if WEIGHTS == 0:
            kept = kept + (tl.load(w_ptr + place, mask=place < N, other=0.0),)
        if i < OWN:
            dw, db = dw + (zeros,), db + (zeros,)
    for tile in tl.range(program, tl.cdiv(M, ROWS), programs, num_stages=STAGES):
        rows = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
        rstd = tl.load(stats_ptr + rows, mask=rows < M, other=0.0)
        mean = tl.zeros([ROWS, 1], tl.float32)
        if CENTER:
            mean = tl.load(stats_ptr + M + rows, mask=rows < M, other=0.0)
        xs, gs, ws = (), (), ()
        sum_wg, sum_wgx = zeros, zeros
        for i in tl.static_range(PIECES):
            place = (first + i) % PIECES * PIECE + columns
            mask = (rows < M) & (place < N)
            x = tl.load(x_ptr + (rows * x_row_stride + place), mask=mask, other=0.0)
            g = tl.load(g_ptr + (rows * g_row_stride + place), mask=mask, other=0.0)
            w = kept[i] if WEIGHTS == 0 else tl.load(w_ptr + place, mask=place < N, other=0.0)
            if i < OWN:
                xs, gs, ws = xs + (x,), gs + (g,), ws + (w,)
            wg = w.to(tl.float32) * g.to(tl.float32)
            sum_wg += wg
            sum_wgx += wg * (x.to(tl.float32) - mean)
        mean_wg = tl.sum(sum_wg, axis=1, keep_dims=True) / N if CENTER else 0.0
        mean_wgx = tl.sum(sum_wgx, axis=1, keep_dims=True) / N * rstd
        new_dw, new_db = (), ()
        for i in tl.static_range(OWN):
            place = (first + i) * PIECE + columns
            g = gs[i].to(tl.float32)
            normal = (xs[i].to(tl.float32) - mean) * rstd
            new_dw, new_db = new_dw + (dw[i] + g * normal,), new_db + (db[i] + g,)
            w = ws[i]
            if WEIGHTS == 2:  # the hint is another one, or both loads would become one
                w = tl.load(w_ptr + place, mask=place < N, other=0.0, eviction_policy="evict_last")
            dx = (w.to(tl.float32) * g - mean_wg - normal * mean_wgx) * rstd
            mask = (rows < M) & (place < N) & (place >= least)
            tl.store(dx_ptr + rows * N + place, dx, mask=mask)
        dw, db = new_dw, new_db
    if EARLY:
        gdc_launch_dependents()
    for i in tl.static_range(OWN):
        place = (first + i) * PIECE + columns
        mask = (place < N) & (place >= least)
        mine = sums_ptr + tl.cast(program, tl.int64) * (2 * N if CENTER else N) + place
        tl.store(mine, tl.sum(dw[i], axis=0, keep_dims=True), mask=mask)
        if CENTER:
            tl.store(mine + N, tl.sum(db[i], axis=0, keep_dims=True), mask=mask)


@triton.jit
def sums_kernel(
    sums_ptr, dw_ptr, db_ptr, P, N,
    CENTER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Add up the P rows of partial sums; with EARLY it is launched before they are stored."""
    width = 2 * N if CENTER else N  # of a row: the sums for dw, then those for db
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]  # [1, COLUMNS]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    if EARLY:
        gdc_wait()
    for start in range(0, P, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)  # [ROWS, 1]
        mask = (rows < P) & (columns < width)
        total += tl.load(sums_ptr + rows * width + columns, mask=mask, other=0.0)
    total = tl.sum(total, axis=0, keep_dims=True)
    tl.store(dw_ptr + columns, total, mask=columns < N)
    if CENTER:
        tl.store(db_ptr + (columns - N), total, mask=(columns >= N) & (columns < width))


@triton.jit
def long_forward_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, stats_ptr, M, N, x_row_stride, eps,
    CENTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Normalize one row, block by block; the means and deviations of blocks are combined."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * x_row_stride
    mean = 0.0
    squares = 0.0
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        x = tl.load(x_row + columns, mask=mask, other=0.0).to(tl.float32)
        if CENTER:
            count = tl.minimum(N - start, BLOCK)
            block_mean = tl.sum(x) / count
            share = count / (start + count)  # of the elements seen so far
            delta = block_mean - mean
            mean += delta * share
            centered = tl.where(mask, x - block_mean, 0.0)
            squares += tl.sum(centered * centered) + delta * delta * share * start
        else:
            squares += tl.sum(x * x)
    rstd = tl.rsqrt(squares / N + eps)
    tl.store(stats_ptr + row, rstd)
    if CENTER:
        tl.store(stats_ptr + M + row, mean)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        x = tl.load(x_row + columns, mask=mask).to(tl.float32)
        w = tl.load(w_ptr + columns, mask=mask).to(tl.float32)
        y = (x - mean) * rstd * w
        if CENTER:
            y += tl.load(b_ptr + columns, mask=mask).to(tl.float32)
        tl.store(y_ptr + row * N + columns, y, mask=mask)


@triton.jit
def means_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, means_ptr, x_row_stride, g_row_stride, M, N,
    CENTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the means of wg times the normalized x and, with CENTER, of wg, of one row."""
    row = tl.program_id(0).to(tl.int64)
    rstd = tl.load(stats_ptr + row)
    mean = 0.0
    if CENTER:
        mean = tl.load(stats_ptr + M + row)
    sum_wg = tl.zeros([BLOCK], tl.float32)
    sum_wgx = tl.zeros([BLOCK], tl.float32)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + row * g_row_stride + columns, mask=mask, other=0.0).to(tl.float32)
        wg = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32) * g
        sum_wg += wg
        sum_wgx += wg * (x - mean) * rstd
    tl.store(means_ptr + row, tl.sum(sum_wgx) / N)
    if CENTER:
        tl.store(means_ptr + M + row, tl.sum(sum_wg) / N)


@triton.jit
def columns_kernel(
    x_ptr, g_ptr, w_ptr, stats_ptr, means_ptr, dx_ptr, sums_ptr, x_row_stride, g_row_stride, M, N,
    CENTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute a block of columns of the gradient of x, and its partial sums of dw and db."""
    program, programs = tl.program_id(1), tl.num_programs(1)
    columns = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < N
    w = tl.load(w_ptr + columns, mask=mask).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    for number in range(program, M, programs):
        row = tl.cast(number, tl.int64)
        x = tl.load(x_ptr + row * x_row_stride + columns, mask=mask).to(tl.float32)
        g = tl.load(g_ptr + row * g_row_stride + columns, mask=mask).to(tl.float32)
        rstd = tl.load(stats_ptr + row)
        mean = 0.0
        mean_wg = 0.0
        if CENTER:
            mean = tl.load(stats_ptr + M + row)
            mean_wg = tl.load(means_ptr + M + row)
        normal = (x - mean) * rstd
        dw += g * normal
        db += g
        dx = (w * g - mean_wg - normal * tl.load(means_ptr + row)) * rstd
        tl.store(dx_ptr + row * N + columns, dx, mask=mask)
    mine = sums_ptr + tl.cast(program, tl.int64) * (2 * N if CENTER else N) + columns
    tl.store(mine, dw, mask=mask)
    if CENTER:
        tl.store(mine + N, db, mask=mask)
