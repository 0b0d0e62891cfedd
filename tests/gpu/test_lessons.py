"""What a lesson promises and only a GPU can show: replays of CUDA graphs, and equal bits."""

import threading

import pytest
import torch
from torch.testing import assert_close

PRODUCTS = ["03-matrix-multiplication", "03b-full-waves"]
DROPOUT, NORMS, REDUCTIONS = "04-low-memory-dropout", "05-layer-norm", "05b-reductions"


def test_each_replay_of_a_graph_drops_by_the_seed_that_lies_on_the_gpu(definitions, device):
    seeded_dropout = definitions(DROPOUT)["seeded_dropout"]
    x, seed = torch.randn(5003, device=device), torch.tensor(1, device=device)
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


def test_dropout_is_right_inside_a_compiled_function(definitions, device):
    seeded_dropout = definitions(DROPOUT)["seeded_dropout"]
    step = torch.compile(lambda x, seed: 2 * seeded_dropout(x, 0.5, seed), fullgraph=True)
    for seed in (1, 2, 2**64 - 1, torch.tensor(3, device=device)):
        x = torch.randn(999, device=device, requires_grad=True)
        y, right = step(x, seed), 2 * seeded_dropout(x, 0.5, seed)
        assert_close(y, right, rtol=0, atol=0)
        gradients = (torch.autograd.grad(t.sum(), x)[0] for t in (y, right))
        assert_close(*gradients, rtol=0, atol=0)


def test_interleaving_the_words_needs_no_shared_memory(definitions, device):
    x = torch.randn(4096, device=device)
    kernel = definitions(DROPOUT)["seeded_dropout_kernel"]
    compiled = kernel[(4,)](x, torch.empty_like(x), 4096, 1, 2**31, 2.0, BLOCK=1024)
    assert compiled.metadata.shared == 0


def product_of(definitions, name, m, n, k, device):
    """A product of fp16 matrices, its factors, and the tolerances of one rounding."""
    a, b = (torch.randn(shape, device=device).half() for shape in ((m, k), (k, n)))
    return definitions(name)["matmul"], a, b, {"rtol": 2**-10, "atol": 2**-20 * k}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("shape", [(300, 1408, 512), (1, 14336, 4096), (17, 100, 77)])
def test_a_product_is_right_compiled_replayed_and_in_a_new_thread(definitions, device, name, shape):
    matmul, a, b, tolerance = product_of(definitions, name, *shape, device=device)
    exact, results = a.double() @ b.double(), []
    thread = threading.Thread(target=lambda: results.append(matmul(a, b)))
    thread.start()
    thread.join()
    results.append(torch.compile(lambda a, b: matmul(a, b), fullgraph=True)(a, b))
    torch.accelerator.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results.append(matmul(a, b))
    graph.replay()
    assert len(results) == 3
    for result in results:
        assert_close(result.double(), exact, **tolerance)
    a.normal_()
    graph.replay()
    assert_close(results[-1].double(), a.double() @ b.double(), **tolerance)


@pytest.mark.parametrize("name", [*PRODUCTS, "solutions/03-batched"])
def test_a_product_of_rows_that_lie_2_30_elements_apart(definitions, device, name):
    lesson = definitions(name)
    far = torch.zeros(2**31 + 64, dtype=torch.float16, device=device)
    far = far.as_strided((3, 64), (2**30, 1))
    far.copy_(torch.randn(3, 64))
    b = torch.randn(64, 72, device=device).half()
    if "bmm" in lesson:
        products = lesson["bmm"](far[None], b[None])[0], lesson["bmm"](b.T[None], far.T[None])[0]
    else:
        products = lesson["matmul"](far, b), lesson["matmul"](b.T, far.T)
    exact = far.double() @ b.double()
    for product, right in zip(products, (exact, exact.T), strict=True):
        assert_close(product.double(), right, rtol=2**-10, atol=2**-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(7, 65), (300, 2560), (77, 9217), (4096, 15872)])
def test_norms_give_the_same_bits_every_time(definitions, device, dtype, shape):
    norms = definitions(NORMS)
    x, g = torch.randn(2, *shape, device=device, dtype=dtype)
    parameters = torch.randn(2, shape[1], device=device, dtype=dtype)
    for norm, count in (("layer_norm", 2), ("rms_norm", 1)):
        leaves = [t.clone().requires_grad_() for t in (x, *parameters[:count])]
        results = []
        for _ in range(10):
            y = norms[norm](*leaves)
            results.append((y, *torch.autograd.grad(y, leaves, g)))
        assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))


@pytest.mark.parametrize("shape", [(1823, 12301), (4096, 16384), (5, 781)])
def test_all_ways_to_reduce_give_the_same_bits_every_time(definitions, device, shape):
    lesson = definitions(REDUCTIONS)
    inputs = lesson["inputs_of"](*shape, torch.float16)
    for way in lesson["WAYS"].values():
        results = [way(*inputs) for _ in range(10)]
        assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))


def test_a_device_that_is_not_the_current_one(definitions):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    x, weight = torch.randn(3, 100, device="cuda:1"), torch.ones(100, device="cuda:1")
    y = definitions(NORMS)["layer_norm"](x, weight, weight)
    assert_close(y, torch.nn.functional.layer_norm(x, (100,), weight, weight), rtol=1e-5, atol=1e-5)
    assert definitions(DROPOUT)["seeded_dropout"](x, 0.5, 3).device == x.device
    assert definitions("07-math-functions")["gelu"](x).device == x.device
    for name in PRODUCTS:
        a = x.half()
        product = definitions(name)["matmul"](a, a.T)
        assert_close(product.double(), a.double() @ a.double().T, rtol=2**-10, atol=2**-12)
