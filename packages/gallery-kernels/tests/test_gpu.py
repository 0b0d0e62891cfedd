"""What only a GPU can show: full sizes, streams, graphs, threads, several devices, far offsets.

``test_functions.py`` runs on a GPU as well.
"""

import gc
import threading

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

import gallery_kernels
from arguments import (
    DIFFERENTIABLE,
    NAMES,
    WAITING,
    arguments_of,
    floats,
    function_of,
    put,
    results_and_gradients,
    results_of,
)
from gallery_kernels import attention_hopper
from references import UNIT, assert_attention, assert_norm, heads

pytestmark = pytest.mark.gpu
each = pytest.mark.parametrize("name", NAMES)
FLOATS = [torch.float16, torch.bfloat16, torch.float32]


def assert_same(found, right) -> None:
    for one, other in zip(found, right, strict=True):
        assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def refill(arguments, name, device):
    """Put other numbers into the same tensors."""
    for x, new in zip(arguments, arguments_of(name, device), strict=True):
        if isinstance(x, torch.Tensor):
            x.copy_(new)


# All functions


@pytest.mark.parametrize("name", sorted({*NAMES} - WAITING))
def test_a_graph_that_is_replayed_twice_computes_with_new_data(name, gpu):
    call, arguments = function_of(name), arguments_of(name, gpu)
    call(*arguments)  # compiles the kernels
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = results_of(call, arguments)
    for _ in range(2):
        refill(arguments, name, gpu)
        graph.replay()
        assert_same(found, results_of(call, arguments))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_graph_of_a_training_step(name, gpu):
    call, arguments = function_of(name), arguments_of(name, gpu)
    leaves = {i: arguments[i].clone().requires_grad_() for i in floats(arguments)}
    given = [leaves.get(i, x) for i, x in enumerate(arguments)]

    def run():
        return torch.autograd.grad(call(*given).sum(), [*leaves.values()])

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()  # compiles the kernels
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    for _ in range(2):
        with torch.no_grad():
            for leaf in leaves.values():
                leaf.normal_()
        graph.replay()
        assert_same(found, run())


@pytest.mark.parametrize("dynamic", [None, False, True])
@each
def test_a_function_compiled_by_inductor_gives_the_same(name, dynamic, gpu):
    call, arguments = function_of(name), arguments_of(name, gpu)
    inside = lambda *given: [2 * x for x in results_of(call, given)]  # noqa: E731
    torch.compiler.reset()
    compiled = torch.compile(inside, fullgraph=True, dynamic=dynamic)
    for _ in range(2):
        assert_same(compiled(*arguments), inside(*arguments))
        arguments = arguments_of(name, gpu)
    if name in DIFFERENTIABLE:
        torch.compiler.reset()
        compiled = torch.compile(call, fullgraph=True, dynamic=dynamic)
        found = results_and_gradients(compiled, arguments)
        assert_same(found, results_and_gradients(call, arguments))


@each
def test_a_call_runs_on_the_stream_that_is_current(name, gpu):
    """On another stream, it would read the numbers before they are there."""
    call, arguments = function_of(name), arguments_of(name, gpu)
    for _ in range(3):  # the launches are kept, and their descriptors encoded
        call(*arguments)
    news = arguments_of(name, gpu)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)
        for x, new in zip(arguments, news, strict=True):
            if isinstance(x, torch.Tensor):
                x.copy_(new)
        found = results_of(call, arguments)
        torch.cuda.current_stream().synchronize()
    assert_same(found, results_of(call, news))


@each
def test_eight_new_threads_get_the_same(name, gpu):
    call, arguments = function_of(name), arguments_of(name, gpu)
    results, errors = [], []

    def run():
        try:
            found = [results_of(call, arguments)]
            if name in DIFFERENTIABLE:
                found.append(results_and_gradients(call, arguments))
            results.append(found)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    right = results_of(call, arguments)
    torch.cuda.synchronize()
    for found in results:
        assert_same(found[0], right)
        if name in DIFFERENTIABLE:
            assert_same(found[1], results_and_gradients(call, arguments))


@each
def test_inference_mode(name, gpu):
    call, arguments = function_of(name), arguments_of(name, gpu)
    right = results_of(call, arguments)
    with torch.inference_mode():
        assert_same(results_of(call, arguments), right)
        inside = [x.clone() if isinstance(x, torch.Tensor) else x for x in arguments]
        assert_same(results_of(call, inside), right)
    assert_same(results_of(call, arguments), right)  # a plan that was kept inside serves outside


@each
def test_no_memory_is_kept_after_a_call(name, gpu):
    call, arguments = function_of(name), arguments_of(name, gpu)
    kept = []
    for _ in range(6):
        call(*arguments)
        if name in DIFFERENTIABLE:
            results_and_gradients(call, arguments)
        torch.cuda.synchronize()
        gc.collect()  # of graphs of autograd that refer to themselves
        kept.append(torch.cuda.memory_allocated())
    assert kept[0] == kept[-1]


@each
def test_a_tensor_that_begins_at_an_odd_address(name, gpu):
    """A plan kept for aligned tensors would load 16 bytes at once from an odd address."""
    call, arguments = function_of(name), arguments_of(name, gpu)
    right = results_of(call, arguments)
    for i, x in enumerate(arguments):
        if not isinstance(x, torch.Tensor) or not x.is_contiguous():
            continue
        moved = torch.empty(x.numel() + 1, dtype=x.dtype, device=gpu)[1:].view(x.shape)
        moved.copy_(x)
        for one, other in zip(results_of(call, put(arguments, i, moved)), right, strict=True):
            assert_close(one, other)


def columns_of_wider(x):
    """The same numbers in a matrix whose rows are three longer, and begin at an odd address."""
    wide = torch.empty((*x.shape[:-1], x.shape[-1] + 3), dtype=x.dtype, device=x.device)
    return wide[..., 1 : x.shape[-1] + 1].copy_(x)


def every_second(x):
    return torch.stack([x, x], dim=-1)[..., 0]


def turned(x):
    """The same numbers, with the first dimension as the one whose elements are neighbors."""
    return x.movedim(0, -1).contiguous().movedim(-1, 0)


def expanded(x):
    """Other numbers: the first of the last dimension but one, for all of it."""
    return x.narrow(-2, 0, 1).expand(x.shape) if x.dim() > 1 else x


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("view", [columns_of_wider, every_second, turned, expanded])
@each
def test_views_give_what_their_copies_give(name, view, dtype, gpu):
    call, arguments = function_of(name), arguments_of(name, gpu)
    for i, x in enumerate(arguments):
        if not isinstance(x, torch.Tensor) or x.dim() == 0:
            continue
        given = [
            y.to(dtype) if isinstance(y, torch.Tensor) and y.dtype in FLOATS else y
            for y in arguments
        ]
        given[i] = view(given[i])
        try:
            right = results_of(call, put(given, i, given[i].contiguous()))
        except (TypeError, ValueError):
            continue  # of this dtype
        try:
            found = results_of(call, given)
        except ValueError as refusal:
            assert "contiguous" in str(refusal) or "stride" in str(refusal)  # noqa: PT017
            continue
        for one, other in zip(found, right, strict=True):
            assert_close(one, other, rtol=2 * torch.finfo(dtype).eps, atol=2e-3, equal_nan=True)


@each
def test_ten_calls_give_the_same_bits(name, gpu):
    call, arguments = function_of(name), arguments_of(name, gpu)
    results = [results_of(call, arguments) for _ in range(10)]
    assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))
    if name in DIFFERENTIABLE:
        results = [results_and_gradients(call, arguments) for _ in range(10)]
        assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))


@each
def test_a_gpu_that_is_not_the_current_one(name):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    call, arguments = function_of(name), arguments_of(name)
    there = [x.to("cuda:1") if isinstance(x, torch.Tensor) else x for x in arguments]
    here = [x.to("cuda:0") if isinstance(x, torch.Tensor) else x for x in arguments]
    for _ in range(3):
        found, right = results_of(call, there), results_of(call, here)
        assert_same([x.to("cuda:0") for x in found], right)
    if name in DIFFERENTIABLE:
        found, right = results_and_gradients(call, there), results_and_gradients(call, here)
        assert_same([x.to("cuda:0") for x in found], right)


# Attention


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [8, 16, 32, 64, 80, 96, 128, 192, 256])
def test_attention_at_full_size(d, causal, dtype, gpu):
    for queries, keys in ((2048, 2048), (1000, 777), (512, 4096)):
        assert_attention(*heads(1, 4, 2, queries, keys, d, dtype, gpu), causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_attention_of_many_tokens(d, causal, gpu):
    q, k, v = heads(1, 2, 2, 8192, 8192, d, torch.bfloat16, gpu)
    if attention_hopper.has_covered_layout(q, k, v):
        assert_attention(q, k, v, causal)
        assert_attention(
            *[x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)], causal
        )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("own", "queries", "keys"),
    [(6, 128, 128), (72, 1024, 1024), (62, 2048, 2048), (10, 3072, 3072), (8, 4096, 1280),
     (28, 1152, 2304)],
)  # fmt: skip
def test_attention_of_many_heads(own, queries, keys, causal, gpu):
    """A multiprocessor computes many blocks, and the last turn of all of them is not full."""
    assert_attention(*heads(1, own, own // 2, queries, keys, 128, torch.bfloat16, gpu), causal)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("hidden", [64, 128, 200, 384])
def test_attention_with_tiles_whose_scores_are_all_minus_infinity(d, hidden, gpu):
    """The first tile of the Triton kernel, and the last one, with which Gluon's begins."""
    for hide in (slice(None, hidden), slice(-hidden, None)):
        q, k, v = heads(1, 1, 1, 512, 512, d, torch.bfloat16, gpu)
        q[..., 0], k[..., 0] = 1, 0
        k[:, :, hide, 0] = -torch.inf
        right = functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
        for given in ((q, k, v), [x.mT.contiguous().mT for x in (q, k, v)]):
            found = gallery_kernels.attention(*given)
            assert_close(found.double(), right, rtol=2**-7, atol=2**-7)


def test_attention_with_more_than_65535_sequences(gpu):
    q, k, v = heads(70_000, 1, 1, 1, 3, 16, torch.float16, gpu)
    assert_attention(q, k, v)


# Norms


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "shape", [(7, 65), (300, 2560), (77, 9217), (4096, 15_872), (513, 16_385), (257, 2**18)]
)
def test_norms_at_full_size(shape, dtype, norm, gpu):
    x = (2 * torch.randn(shape, device=gpu) + 1).to(dtype)
    weight, bias = torch.randn(2, shape[1], device=gpu).to(dtype)
    for _ in range(2):  # the second time with a plan
        assert_norm(norm, x, weight, bias, slack=4)


def test_norms_past_32_bits_of_offsets(gpu):
    x = torch.randn(2**17 + 1, 2**14, dtype=torch.float16, device=gpu)
    y = gallery_kernels.rms_norm(x, torch.ones(2**14, device=gpu))
    for part in (slice(0, 3), slice(-3, None)):
        right = functional.rms_norm(x[part].double(), (2**14,), eps=1e-6)
        assert_close(y[part].double(), right, rtol=2e-3, atol=1e-5)


# Dropout


def test_each_replay_of_a_graph_drops_by_the_seed_that_lies_on_the_gpu(gpu):
    seeded_dropout = gallery_kernels.seeded_dropout
    x, seed = torch.randn(5003, device=gpu), torch.tensor(1, device=gpu)
    seeded_dropout(x, 0.5, seed)  # compiles the kernel
    torch.accelerator.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = seeded_dropout(x, 0.5, seed)
    for number in (1, 2, 2**40):
        seed.fill_(number)
        x.normal_()
        graph.replay()
        assert_close(y, seeded_dropout(x, 0.5, number), rtol=0, atol=0)


@pytest.mark.parametrize("seed", [0, 1, 16, 2**31, 2**32 + 1, 2**63, 2**64 - 1])
def test_a_kept_launch_takes_seeds_of_any_size(seed, gpu):
    """A kernel compiled for 32 bits would drop by another seed."""
    x = torch.randn(2**20 + 3, device=gpu)
    gallery_kernels.seeded_dropout(x, 0.5, 3)
    signed = torch.tensor(seed - 2**64 if seed >= 2**63 else seed, device=gpu)
    found = gallery_kernels.seeded_dropout(x, 0.5, seed)
    assert torch.equal(found, gallery_kernels.seeded_dropout(x, 0.5, signed))


# Paged attention


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("d", [64, 80, 128, 256])
@pytest.mark.parametrize("page", [1, 16, 24, 64])
def test_paged_attention_at_full_size(page, d, dtype, gpu):
    lengths = [0, 1, page, 4097, 700, 63, 64, 65, 2000]
    counts = [-(-n // page) for n in lengths]
    order = torch.randperm(sum(counts), device=gpu).int()
    table = torch.full((len(lengths), max(counts)), -1, dtype=torch.int32, device=gpu)
    for row, own in zip(table, order.split(counts), strict=True):
        row[: len(own)] = own
    q = torch.randn(len(lengths), 16, d, device=gpu).to(dtype)
    k, v = torch.randn(2, len(order), page, 2, d, device=gpu).to(dtype)
    given = torch.tensor(lengths, dtype=torch.int32, device=gpu)
    for _ in range(2):  # the second time with a plan
        out = gallery_kernels.paged_attention(q, k, v, table, given)
        for i, n in enumerate(lengths):
            own = table[i, : counts[i]].long()
            keys, values = (x[own].flatten(0, 1)[:n].double().transpose(0, 1) for x in (k, v))
            scores = q[i].double().unflatten(0, (2, 8)) @ keys.mT * d**-0.5
            right = (scores.softmax(-1) @ values).flatten(0, 1)
            assert_close(out[i].double(), right, rtol=UNIT[dtype], atol=UNIT[dtype])
