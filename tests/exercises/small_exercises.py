"""Small exercises: right answers, and what the checker calls typical mistakes."""

#: An answer to each exercise without a page of its own; a change that spoils it, and what is said.
SMALL = {
    "01-mask": (
        """
@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, k, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    y = tl.load(y_ptr + offsets, mask=offsets < k, other=0.0)
    tl.store(out_ptr + offsets, x + y, mask=offsets < n)

def add_padded(x, y):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(len(x), 1024),)](x, y, out, len(x), len(y), BLOCK=1024)
    return out
""",
        [
            ("offsets < k, other=0.0", "offsets < n", "out of bounds: a load"),
            (", other=0.0", "", "an undefined value"),
        ],
    ),
    "02-logsumexp": (
        """
@triton.jit
def kernel(x_ptr, out_ptr, stride, N, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < N, other=-float("inf"))
    m = tl.max(x, axis=0)
    tl.store(out_ptr + row, m + tl.log(tl.sum(tl.exp(x - m), axis=0)))

def logsumexp(x):
    out = torch.empty(len(x), device=x.device)
    kernel[(len(x),)](x, out, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
""",
        [('-float("inf")', "0.0", "elements are wrong"), ("x - m)", "x)", "elements are wrong")],
    ),
    "03-transposed": (
        """
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bk, bn, T: tl.constexpr):
    rows = tl.program_id(0) * T + tl.arange(0, T)
    columns = tl.program_id(1) * T + tl.arange(0, T)
    total = tl.zeros((T, T), dtype=tl.float32)
    for k in range(0, K, T):
        d = k + tl.arange(0, T)
        a_mask, b_mask = (rows[:, None] < M) & (d < K), (d[:, None] < K) & (columns < N)
        a = tl.load(a_ptr + rows[:, None] * am + d * ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + d[:, None] * bk + columns * bn, mask=b_mask, other=0.0)
        total = tl.dot(a, b, total)
    mask = (rows[:, None] < M) & (columns < N)
    tl.store(c_ptr + rows[:, None] * N + columns, total.to(tl.float16), mask=mask)

def matmul_t(a, w):
    (M, K), N = a.shape, len(w)
    c = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    kernel[grid](a, w, c, M, N, K, *a.stride(), w.stride(1), w.stride(0), T=32)
    return c
""",
        [("w.stride(1), w.stride(0)", "w.stride(0), w.stride(1)", "elements are wrong")],
    ),
    "06-weighted-mean": (
        """
@triton.jit
def kernel(s_ptr, v_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m, z, acc = -1e38, 0.0, 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s = tl.load(s_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
        v = tl.load(v_ptr + cols, mask=cols < N, other=0.0)
        m_new = tl.maximum(m, tl.max(s, axis=0))
        p = tl.exp(s - m_new)
        acc = acc * tl.exp(m - m_new) + tl.sum(p * v, axis=0)
        z = z * tl.exp(m - m_new) + tl.sum(p, axis=0)
        m = m_new
    tl.store(out_ptr + row, acc / z)

def weighted_mean(s, v):
    out = torch.empty(len(s), device=s.device)
    kernel[(len(s),)](s, v, out, s.shape[1], BLOCK=256)
    return out
""",
        [("z * tl.exp(m - m_new) +", "z +", "elements are wrong")],
    ),
    "04-signs": (
        """
@triton.jit
def kernel(out_ptr, n, seed, BLOCK: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    counters = block * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    w0, w1, w2, w3 = tl.randint4x(seed, counters)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 1.0 - 2.0 * (words & 1), mask=offsets < n)

def random_signs(n, seed):
    out = torch.empty(n)
    kernel[(triton.cdiv(n, 1024),)](out, n, seed, BLOCK=1024)
    return out
""",
        [("w0, w2), tl.interleave(w1, w3)", "w0, w1), tl.interleave(w2, w3)", "are wrong")],
    ),
    "05-rms": (
        """
@triton.jit
def kernel(x_ptr, w_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)
    r = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    w = tl.load(w_ptr + cols, mask=mask)
    tl.store(y_ptr + row * N + cols, x * r * w, mask=mask)

def rms_norm(x, weight):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    kernel[(len(x),)](x, weight, y, x.shape[1], BLOCK=block)
    return y
""",
        [("x * x) / N", "x * x) / BLOCK", "elements are wrong")],
    ),
    "07-tanh": (
        """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    e = tl.exp(-2 * tl.abs(x))
    y = (1 - e) / (1 + e)
    tl.store(y_ptr + offsets, tl.where(x < 0, -y, y), mask=mask)

def tanh(x):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
""",
        [
            (
                "e = tl.exp(-2 * tl.abs(x))\n    y = (1 - e) / (1 + e)",
                "e = tl.exp(2 * tl.abs(x))\n    y = (e - 1) / (e + 1)",
                "All of them are NaN",
            )
        ],
    ),
    "08-sums": (
        """
@triton.jit
def kernel(x_ptr, offsets_ptr, out_ptr, K, BLOCK: tl.constexpr):
    expert, columns = tl.program_id(0), tl.arange(0, BLOCK)
    start = tl.load(offsets_ptr + expert - 1, mask=expert > 0, other=0)
    end = tl.load(offsets_ptr + expert)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(start, end):
        total += tl.load(x_ptr + row * K + columns, mask=columns < K, other=0.0)
    tl.store(out_ptr + expert * K + columns, total, mask=columns < K)

def expert_sums(x, offsets):
    out = x.new_empty(len(offsets), x.shape[1])
    block = triton.next_power_of_2(x.shape[1])
    kernel[(len(offsets),)](x, offsets, out, x.shape[1], BLOCK=block)
    return out
""",
        [
            (", mask=expert > 0, other=0", "", "-1 of `offsets_ptr`"),
            ("range(start, end)", "range(start, end + 1)", "out of bounds: a load"),
        ],
    ),
    "09-blocks": (
        """
@triton.jit
def kernel(q_ptr, scales_ptr, out_ptr, K, groups, BLOCK: tl.constexpr):
    row, group = tl.program_id(0), tl.program_id(1)
    columns = group * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(q_ptr + row * K + columns, mask=columns < K).to(tl.float32)
    s = tl.load(scales_ptr + row * groups + group)
    tl.store(out_ptr + row * K + columns, q * s, mask=columns < K)

def dequantize_blocks(q, scales):
    (M, K), groups = q.shape, scales.shape[1]
    out = torch.empty(M, K, device=q.device)
    kernel[(M, groups)](q, scales, out, K, groups, BLOCK=128)
    return out
""",
        [
            ("K, groups, BLOCK=128", "K, K // 128, BLOCK=128", "elements are wrong"),
            ("(M, groups)", "(M, K // 128)", "no program has written"),
        ],
    ),
    "10-probability": (
        """
@triton.jit
def kernel(x_ptr, target_ptr, p_ptr, V, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    target = tl.load(target_ptr + row)
    x_ptr += row * V
    m, s = -1e38, 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < V, other=-float("inf"))
        larger = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - larger) + tl.sum(tl.exp(x - larger), axis=0)
        m = larger
    p = 0.0
    if target >= 0:
        p = tl.exp(tl.load(x_ptr + target) - m) / s
    tl.store(p_ptr + row, p)

def target_probabilities(logits, targets):
    p = torch.empty(len(logits), device=logits.device)
    kernel[(len(logits),)](logits, targets, p, logits.shape[1], BLOCK=1024)
    return p
""",
        [
            ("    if target >= 0:\n        p", "    p", "-100 of `x_ptr`"),
            ("s * tl.exp(m - larger)", "s", "elements are wrong"),
        ],
    ),
    "11-last-key": (
        """
@triton.jit
def kernel(k_ptr, table_ptr, lengths_ptr, out_ptr, most, N, PAGE: tl.constexpr, B: tl.constexpr):
    sequence, columns = tl.program_id(0), tl.arange(0, B)
    last = tl.load(lengths_ptr + sequence) - 1
    page = tl.load(table_ptr + sequence * most + last // PAGE).to(tl.int64)
    k_ptrs = k_ptr + (page * PAGE + last % PAGE) * N + columns
    tl.store(out_ptr + sequence * N + columns, tl.load(k_ptrs, mask=columns < N), mask=columns < N)

def last_keys(k_pages, page_table, lengths):
    (batch, most), (_, page, heads, d) = page_table.shape, k_pages.shape
    out = k_pages.new_empty(batch, heads, d)
    block = triton.next_power_of_2(heads * d)
    kernel[(batch,)](k_pages, page_table, lengths, out, most, heads * d, PAGE=page, B=block)
    return out
""",
        [("sequence) - 1", "sequence)", "1 of `table_ptr`")],
    ),
    "12-unpack": (
        """
@triton.jit
def kernel(words_ptr, out_ptr, W, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    words = tl.load(words_ptr + row * W + j, mask=j < W)
    for i in tl.static_range(4):
        n = (words >> 4 * i) & 15
        tl.store(out_ptr + (row * 4 + i) * W + j, n.to(tl.int8), mask=j < W)

def unpack_words(words):
    rows, width = words.shape
    out = torch.empty(rows, 4 * width, dtype=torch.int8, device=words.device)
    kernel[(rows,)](words, out, width, BLOCK=triton.next_power_of_2(width))
    return out
""",
        [
            ("(row * 4 + i) * W + j", "row * 4 * W + 4 * j + i", "elements are wrong"),
            (" & 15", "", "elements are wrong"),
        ],
    ),
    "13-share": (
        """
@triton.jit
def kernel(x_ptr, threshold_ptr, out_ptr, V, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * V + cols, mask=cols < V, other=-float("inf"))
    weights = tl.exp(x - tl.max(x, axis=0))
    kept = tl.where(x >= tl.load(threshold_ptr + row), weights, 0.0)
    tl.store(out_ptr + row, tl.sum(kept, axis=0) / tl.sum(weights, axis=0))

def share_above(x, thresholds):
    out = torch.empty(len(x), device=x.device)
    block = triton.next_power_of_2(x.shape[1])
    kernel[(len(x),)](x, thresholds, out, x.shape[1], BLOCK=block)
    return out
""",
        [
            ('-float("inf")', "0.0", "elements are wrong"),
            (', other=-float("inf")', "", "an undefined value"),
        ],
    ),
}
