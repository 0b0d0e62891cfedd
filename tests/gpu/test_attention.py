"""What only a GPU can show of attention and of Gluon: new threads, CUDA graphs."""

import threading

import pytest
import torch

ATTENTION = ["06-fused-attention", "06b-attention-backward", "06c-attention-gluon"]


def in_a_new_thread(function):
    """Call *function* in a thread that has not used the GPU; return its result."""
    results, errors = [], []

    def run():
        try:
            results.append(function())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def inputs(device, d=128):
    return torch.randn(3, 1, 2, 256, d, device=device).bfloat16().unbind()


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("name", ATTENTION)
def test_a_first_call_in_a_new_thread(definitions, device, name, d):
    """Without the GPU's context in the thread, no descriptor can be encoded."""
    attention, (q, k, v) = definitions(name)["attention"], inputs(device, d)
    definitions(name)["PLANS"].clear()
    found = [in_a_new_thread(lambda: attention(q, k, v, True)) for _ in range(2)]
    assert torch.equal(found[0], attention(q, k, v, True))
    assert torch.equal(found[1], found[0])


def test_a_first_product_in_a_new_thread(definitions, device):
    names = definitions("09b-fp8-gluon")
    problem = names["draw_problem"](512, 256, 512)
    names["PLANS"].clear()
    names["assert_right"](in_a_new_thread(lambda: names["scaled_mm_by_blocks"](*problem)), *problem)


@pytest.mark.parametrize("name", ATTENTION)
def test_a_cuda_graph_computes_with_new_data(definitions, device, name):
    attention, (q, k, v) = definitions(name)["attention"], inputs(device)
    attention(q, k, v, True)  # compiles the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = attention(q, k, v, True)
    for _ in range(2):
        q.normal_()
        graph.replay()
        assert torch.equal(o, attention(q, k, v, True))


@pytest.mark.parametrize("name", ATTENTION)
def test_a_second_gpu(definitions, name):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    attention, (q, k, v) = definitions(name)["attention"], inputs("cuda:1")
    found = attention(q, k, v, True)
    assert found.device == q.device
    assert torch.equal(found.to("cuda:0"), attention(*(x.to("cuda:0") for x in (q, k, v)), True))


@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize("name", ATTENTION)
def test_odd_strides_and_addresses(definitions, device, name, d):
    """PyTorch's attention, to which 06c hands what its kernels do not cover, misreads some."""
    attention, wide = definitions(name)["attention"], torch.randn(3, 1, 2, 97, d + 3, device=device)
    q, k, v = (x[..., 1 : d + 1] for x in wide.bfloat16())
    right = attention(*(x.float() for x in (q, k, v)), True)
    assert (attention(q, k, v, True).float() - right).norm() < 0.02 * right.norm()
