"""The check of exercises: it accepts our solutions, and says what is wrong with other answers."""

import ast
import itertools
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from tests.fixtures.forked import check as check_in_a_copy
from tests.galleries import FILES
from tests.tutorials.practice import FILE, exercise


def check(name, function):
    """What the check of the exercise *name* says of *function*."""
    module = SimpleNamespace(__name__="mine")
    setattr(module, exercise.EXERCISES[name].name, function)
    return exercise.check(name, module)


#: ``make test`` tries these, and ``make test-stress`` all.
QUICK = "01-axpy", "02-log-softmax", "05-group-norm", "06-alibi", "09-per-tensor", "10-z-loss"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.stress)
        for name, one in exercise.EXERCISES.items()
        if f"solutions/{name}" in FILES and not one.gpu
    ],
)
def test_our_solution_is_accepted(name, tutorial, capsys):
    function = tutorial(f"solutions/{name}")[exercise.EXERCISES[name].name]
    assert check(name, function) == ""
    printed = capsys.readouterr().out
    assert "is right on" in printed
    assert "bytes have to move" in printed


def changed(name, change):
    """The reference of an exercise; *change* spoils the result, and gets the arguments as well."""
    return lambda *arguments: change(exercise.EXERCISES[name].reference(*arguments), *arguments)


def leave_empty(result, x, g, offsets):
    result[offsets.diff(prepend=offsets[:1] * 0) == 0] = torch.nan
    return result


def fill_ignored(result, logits, targets, smoothing):
    result[1][targets == -100] = 1.0
    return result


def forget_mask(x, weight, bias, p, seed):
    """Dropout of a norm whose gradients ignore the mask."""
    y = layer_norm(x, weight.shape, weight, bias)
    keep = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed % 97)) >= p
    return y + (y * keep / (1 - p) - y).detach()


WRONG = {
    "01-axpy": [
        (lambda a, x, y: x + y, "All are wrong"),
        (lambda a, x, y: (a * x + y).half(), "dtype is torch.float16"),
        (lambda a, x, y: (a * x + y)[:-1], r"shape is \(0,\)"),
        (lambda a, x, y: None, "NoneType, and not a tensor"),
        (lambda a, x, y: 1 / 0, "ends with ZeroDivisionError"),
        (None, r"mine defines no axpy\(a, x, y\)"),
    ],
    "01-strides": [(lambda x, y: torch.empty(len(x)), "no program has written")],
    "03b-waves": [(lambda tiles, processors: tiles / processors, r"\(85, 84\): 1 of 1")],
    "05-residual": [
        (lambda x, r, w, b: layer_norm(x + r, w.shape, w, b), "6: y, the sum, .* and there are 5"),
        (lambda x, r, w, b: (layer_norm(x + r, w.shape, w, b), x.detach() + r), "gradient of x: "),
    ],
    "05-dropout": [(forget_mask, "of x.* draw the numbers of forward")],
    "06-sliding-window": [(lambda q, k, v, w: exercise.windowed(q, k, v, w + 1), "far edge")],
    "06-alibi": [(lambda q, k, v, s: exercise.penalized(q, k, v, -s), r"heads \[0, 1, 2\]")],
    "07-gelu-backward": [(lambda x, way: gelu(x.detach(), approximate=way), "no gradient")],
    "08-backward": [(changed("08-backward", leave_empty), "Experts without tokens .* zero")],
    "08-gate": [(lambda x, a, b, o: exercise.gated_experts(x, b, a, o), "rows, of the experts")],
    "09-per-tensor": [
        (lambda x: x, "is the memory of its input x"),
        (lambda x: 1 * x, "should return two tensors"),
        (lambda x: ((64 * x).to(torch.float8_e4m3fn), torch.tensor(1 / 64)), "should become 448"),
    ],
    "10-label-smoothing": [(changed("10-label-smoothing", fill_ignored), "rows that do not count")],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_refused_with_its_cause(name):
    for function, message in WRONG[name]:
        found = check(name, function)
        assert re.search(message, found, re.DOTALL), found


def test_fp8_is_rounded_as_on_a_gpu(tutorial):
    """The interpreter alone loses the carry of 1.99, so it would refuse right answers."""
    names = tutorial("solutions/09-per-tensor")
    x = torch.tensor([448.0, 1.99, 3.99, -15.9, 2**-9, 0.0011, 1e9]).repeat(3)
    q = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    largest = torch.tensor(448.0).view(torch.int32)  # a scale of 1
    more = {"BLOCK": 32, "EMULATE": False}
    with exercise.Watch() as watch:
        names["round_kernel"][(1,)](x, q, largest, torch.empty(()), len(x), **more)
    assert torch.equal(q.float(), x.clamp(max=448).to(torch.float8_e4m3fn).float())
    assert (watch.loaded, watch.stored) == (4 * len(x) + 4, len(x) + 4)


def test_work_that_can_be_skipped_is_noticed(tutorial):
    """A causal kernel without a window computes tiles before it, and reads keys for each head."""
    alibi = tutorial("solutions/06-alibi")["alibi_attention"]

    def causal(q, k, v, *more):
        k, v = (x.expand(q.shape[0], q.shape[1], *x.shape[2:]).contiguous() for x in (k, v))
        q = torch.cat([q, q.new_zeros(*q.shape[:2], k.shape[2] - q.shape[2], q.shape[3])], 2)
        return alibi(q, k, v, torch.zeros(q.shape[1]))

    cpu = torch.device("cpu")
    assert "3.8 times the products: tiles" in exercise.skips_the_past(causal, cpu)
    assert "times as many bytes are read" in exercise.reads_keys_once(causal, cpu)


ADD = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add_loop(x, y, programs):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out
"""


def command(folder, *arguments, **files):
    """Execute the checker in *folder* with *files*; return its exit status and what it prints."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    done = check_in_a_copy(folder, FILE, *arguments)
    return done.returncode, done.stdout + done.stderr


def command_of_a_reader(folder, *arguments):
    """The same without our copies of processes."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    run = subprocess.run(
        [sys.executable, str(FILE), *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    return run.returncode, run.stdout


def changed_add(old, new):
    assert old in ADD
    return ADD.replace(old, new)


def test_the_command_counts_a_load_that_is_not_needed(tmp_path):
    """A kernel that loads x twice moves four thirds of the bytes of an addition."""
    line = "    x = tl.load(x_ptr + offsets, mask=mask)\n"
    (tmp_path / "mine.py").write_text(changed_add(line, 2 * line))
    status, printed = command_of_a_reader(tmp_path, "01-grid-stride", "mine.py")
    assert status == 0, printed
    assert "1.33 times as many" in printed
    assert "1 launch of kernels" in printed


#: What is wrong with a file, and what the one line says.
FAULTS = {
    "no_function": ("def add_lop(x, y, programs): ...", "defines no add_loop.*is it add_lop"),
    "parameters": ("def add_loop(x, y): ...", r"add_loop\(x, y\); the exercise asks for add_loop"),
    "order": ("def add_loop(programs, x, y): ...", r"order should be add_loop\(x, y, programs\)"),
    "no_callable": ("add_loop = 3", "is no function, but of the type int"),
    "a_kernel": (
        changed_add("def kernel", "def add_loop").split("def add_loop(x, y")[0], "is a kernel"
    ),
    "syntax": ("def add_loop(x, y, programs)\n    return x", "mine.py line 1.*SyntaxError"),
    "an_import": ("import nothing_like_this\n", "mine.py line 1.*No module named 'nothing_like"),
    "exit_at_import": ("import sys\nsys.exit(0)", "SystemExit"),
    "exit": ("import os\nos._exit(0)", "ends the process .exit status 0. before the check"),
    "crash": ("import ctypes\nctypes.string_at(8)", "crashes: SIGSEGV in mine.py line 2"),
    "an_error": (changed_add("torch.empty_like(x)", "torch.empty_like(z)"), "NameError.*line 17"),
    "shape": (changed_add("return out", "return out[:, None]"), r"shape is \(1, 1\), and should"),
    "dtype": (changed_add("return out", "return out.double()"), "dtype is torch.float64"),
    "device": (changed_add("return out", "return out.to('meta')"), "on the device meta"),
    "nothing": (changed_add("return out", "return None"), "NoneType, and not a tensor"),
    "alias": (changed_add("torch.empty_like(x)", "x"), "changes its input x in place"),
    "an_input": (changed_add("return out", "return x"), "is the memory of its input x"),
    "in_place": (changed_add("return out", "y.zero_()\n    return out"), "changes its input y"),
    "by_pytorch": ("def add_loop(x, y, programs):\n    return x + y", "launches no kernel"),
    "mask": (changed_add("x + y, mask=mask", "x + y"), "out of bounds: a store"),
    "caught": (
        changed_add("x + y, mask=mask", "x + y").replace("    kernel[", "    try: kernel[")
        .replace("BLOCK=1024)\n", "BLOCK=1024)\n    except Exception: return x + y\n"),
        "out of bounds: a store",
    ),
    "grid": (
        changed_add("triton.cdiv(x.numel(), 1024)", "x.numel() // 1024 or 1"),
        "no program has written",
    ),
}  # fmt: skip


QUICK_FAULTS = "parameters", "exit", "crash", "an_error", "alias", "mask"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK_FAULTS else pytest.mark.stress)
        for name in FAULTS
    ],
)
def test_each_fault_of_a_file_is_one_line(name, tmp_path):
    text, message = FAULTS[name]
    status, printed = command(tmp_path, "01-grid-stride", "mine.py", mine=text)
    assert status == 1, printed
    assert re.search(message, printed), printed
    assert "Traceback" not in printed
    assert printed.startswith("Not yet. ")
    if "out of bounds" not in message and "written" not in message:
        assert printed.count("\n") == 1, printed


def test_a_missing_file_and_a_folder_are_one_line(tmp_path):
    (tmp_path / "folder").mkdir()
    for name, message in (("none.py", "There is no file none.py"), ("folder", "is a folder")):
        status, printed = command(tmp_path, "01-axpy", name)
        assert status == 1
        assert message in printed
        assert printed.count("\n") == 1


ENDLESS = {
    "in_a_kernel": changed_add(
        "    mask = offsets < n\n",
        "    mask = offsets < n\n    while n > 0:\n        n = n + 0\n",
    ),
    "in_python": changed_add("    return out", "    while True:\n        pass"),
    "at_import": "while True:\n    pass",
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_what_does_not_end_is_stopped(name, tmp_path):
    status, printed = command(
        tmp_path, "01-grid-stride", "mine.py", "--limit", "2", mine=ENDLESS[name]
    )
    assert status == 1
    assert re.search(r"does not end: after \d+ s.* mine.py line", printed), printed
    assert ("program 0 of kernel" in printed) == (name == "in_a_kernel")


def test_a_script_is_watched(tmp_path):
    right = (
        f"{ADD}\nimport sys\nx = torch.randn(3000)\nassert torch.equal(add_loop(x, x, 1), x + x)\n"
    )
    status, printed = command(
        tmp_path, "--watch", "script.py", "--an", "argument", script=right + "print(sys.argv)\n"
    )
    assert status == 0, printed
    assert "['script.py', '--an', 'argument']" in printed
    assert "watched 1 launch of kernels and found nothing wrong" in printed
    wrong = right.replace("x + y, mask=mask", "x + y")
    status, printed = command(tmp_path, "--watch", "script.py", script=wrong)
    assert status == 1
    assert re.search(r"index: +3000 of `out_ptr`, which has 3000 elements", printed), printed
    assert "Traceback" not in printed
    status, printed = command(
        tmp_path, "--watch", "script.py", script=f"{right}\nraise OSError('no')\n"
    )
    assert status == 1
    assert re.search(r"script.py.*OSError: no", printed, re.DOTALL)
    assert "runpy" not in printed
    status, printed = command(tmp_path, "--watch", "script.py", script=f"{right}\nsys.exit(3)\n")
    assert status == 3
    wrong = right.replace("    mask = offsets < n", "    tl.static_assert(BLOCK == 3)")
    status, printed = command(tmp_path, "--watch", "script.py", script=wrong)
    assert status == 1
    assert re.search(
        "kernel ends with AssertionError.*line: .*script.py line 10", printed, re.DOTALL
    )
    assert "Traceback" not in printed


def test_what_a_script_leaves_out_is_noted(tmp_path):
    text = f"{ADD}\nx, out = torch.randn(3000), torch.empty(3000)\n"
    text += "kernel[(2,)](x, x, out, 3000, BLOCK=1024)\n"
    status, printed = command(tmp_path, "--watch", "script.py", script=text)
    assert status == 0
    assert "kernel leaves out a part of `out_ptr`: 952 of 3000 elements" in printed
    assert printed.endswith("watched 1 launch of kernels and found nothing else.\n")
    for use in ("print(out)", "out.tolist()", "torch.testing.assert_close(out, 2 * x)"):
        status, printed = command(tmp_path, "--watch", "script.py", script=f"{text}{use}\n")
        assert status == 1
        assert re.search(r"Found: .*no program has written.*`out_ptr`: 952 of 3000", printed, re.S)


#: Right answers of exercises without a page of their own, and what typical mistakes are called.
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
    kernel[(len(s),)](s, v, out, s.shape[1], BLOCK=1024)
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


def without_code(text):
    """What the checker prints, in one line, without the lines of the reader's file."""
    return " ".join(re.sub(r"mine.py line \d+ `.*`", "", text).split())


def shown_in_lesson(name):
    """What a lesson shows of the checker, behind its command; nothing if it shows the command."""
    for path in (FILE.parents[3] / "tutorials").glob(f"{name.partition('-')[0]}-*.py"):
        command = f"#    $ python exercise.py {name} mine.py\n"
        behind = path.read_text(encoding="utf-8").partition(command)[2]
        lines = itertools.takewhile(lambda line: line.startswith("#    "), behind.split("\n"))
        return "".join(f"{line[5:]}\n" for line in lines)
    return ""


@pytest.mark.parametrize("name", SMALL)
def test_a_small_exercise_knows_its_mistakes(name, tmp_path):
    """And a lesson shows what the checker prints for one of them."""
    head = "import torch\nimport triton\nimport triton.language as tl\n"
    text, mistakes = SMALL[name]
    shown, seen = without_code(shown_in_lesson(name)), []
    status, printed = command(tmp_path, name, "mine.py", mine=head + text)
    assert status == 0, printed
    assert "times as many" in printed
    for old, new, message in mistakes:
        assert old in text
        status, printed = command(tmp_path, name, "mine.py", mine=head + text.replace(old, new))
        assert status == 1
        assert message in printed, printed
        seen.append(without_code(printed))
    assert any(printed.startswith(shown) for printed in seen)


def test_every_exercise_has_a_right_answer_that_is_tried():
    pages = {name.partition("/")[2] for name in FILES if name.startswith("solutions/")}
    on_gpu = {name for name, one in exercise.EXERCISES.items() if one.gpu}
    assert set(exercise.EXERCISES) <= pages | set(SMALL) | on_gpu | {"03b-waves"}
    assert pages <= set(exercise.EXERCISES)


def test_modules_of_the_checker_share_no_name():
    """They become one file, in which a name has one meaning."""
    owners = {}
    for path in (FILE.parents[3] / "tutorials/shared/practice").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                owners.setdefault(node.name, []).append(path.stem)
    assert not {name: files for name, files in owners.items() if len(files) > 1}
