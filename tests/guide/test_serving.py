"""Chapters 3, 7 and 8, in the interpreter: what each page promises beside its outputs."""

import inspect
import math

import pytest
import torch


@pytest.fixture(scope="module")
def invariance(tutorial):
    return tutorial("invariance")


def test_parts_that_depend_on_the_batch_are_found(invariance):
    def by_batch(x):
        return x * (1 + len(x) % 2 * 2**-20)

    rows = torch.ones(8, 4)
    assert invariance["differences"](by_batch, rows, batches=[1, 2, 3, 4])[0] == 2  # 2 and 4
    assert invariance["differences"](lambda x: 2 * x, rows, batches=[1, 2, 3])[0] == 0


def test_a_row_that_changes_with_its_place_is_found(invariance):
    def first_differs(x):
        return torch.cat([x[:1] + 1, x[1:]])

    assert invariance["differences"](first_differs, torch.ones(8, 4), batches=[1, 2])[0] == 1


def test_the_fixed_norm_has_one_result_for_every_batch(invariance):
    x = torch.randn(40, 256)
    for rows in (1, 7, 17, 40):
        assert torch.equal(
            invariance["rms_norm"](x[:rows], 4)[0], invariance["rms_norm"](x[:1], 4)[0]
        )


def test_the_fixed_product_has_the_same_parts_for_every_batch(invariance, monkeypatch):
    """Its bits in the interpreter are those of NumPy's library, which vary with the CPU."""
    x, w = torch.randn(40, 256), torch.randn(256, 64)
    fixed = invariance["product_fixed"]
    exact = x.double() @ w.double()
    torch.testing.assert_close(fixed(x, w).double(), exact, rtol=1e-4, atol=1e-4)
    monkeypatch.setitem(fixed.__globals__, "product", lambda x, w, *settings: settings)
    assert {fixed(x[:rows], w) for rows in (1, 7, 17, 40)} == {(4,)}


@pytest.mark.parametrize("length", [1, 31, 32, 33, 96])
def test_decoding_in_parts_is_attention_for_any_length(invariance, length):
    q, k, v = torch.randn(2, 64), torch.randn(2, 96, 64), torch.randn(2, 96, 64)
    lengths = torch.tensor([length, 96], dtype=torch.int32)
    out = invariance["decode_fixed"](q, k, v, lengths)
    weights = (q[0].double() @ k[0, :length].double().T / 8).softmax(-1)
    torch.testing.assert_close(
        out[0].double(), weights @ v[0, :length].double(), rtol=1e-4, atol=1e-5
    )
    alone = invariance["decode_fixed"](q[:1], k[:1], v[:1], lengths[:1])
    assert torch.equal(out[0], alone[0]), "the longer neighbour changed the result"


@pytest.fixture(scope="module")
def graphs(tutorial):
    return tutorial("graphs")


def test_a_seed_in_a_tensor_advances(graphs):
    x, seed = torch.ones(1000), torch.tensor([5])
    first, second = graphs["dropout"](x, seed), graphs["dropout"](x, seed)
    assert seed.item() == 7
    assert not torch.equal(first, second)
    assert torch.equal(first, graphs["dropout"](x, 5))


@pytest.mark.parametrize("n", [1, 4095, 4096, 9000])
def test_both_sums_are_right(graphs, n):
    x = torch.rand(n)
    for function in ("sum_at_once", "sum_in_parts"):
        torch.testing.assert_close(graphs[function](x)[0], x.sum(), rtol=1e-4, atol=1e-5)


def test_every_body_to_capture_is_python(graphs):
    for body in graphs["BODIES"].values():
        compile(graphs["SCRIPT"].replace("BODY", body), "capture", "exec")


@pytest.fixture(scope="module")
def others(tutorial):
    return tutorial("other-gpus")


def test_the_chosen_tile_fits_every_gpu_of_the_table(others):
    for gpu in others["GPUS"]:
        assert others["estimate"](others["choose_tile"](1024 * gpu[3])) <= 1024 * gpu[3], gpu[0]
    assert others["choose_tile"](227 * 1024) == others["TILES"][0]
    assert others["choose_tile"](1) == others["TILES"][-1]


def test_the_estimate_is_what_the_compiler_takes_on_hopper(others):
    found = others["FOUND"]["9.0"][0][0]
    assert abs(found - others["estimate"](others["TILES"][0])) <= 1024


@pytest.mark.usefixtures("quick_checker")
def test_the_watch_names_three_of_the_four_faults(tutorial):
    page = tutorial("sanitizers")
    said = [page["verdict"](page["TEXTS"][fault, "the watch"]) for fault in page["FAULTS"]]
    assert "race" in said[0]
    assert "out of bounds" in said[1]
    assert "uninitialized" in said[2]
    assert said[3] == "nothing"


def test_a_tool_s_message_is_found(tutorial):
    verdict = tutorial("sanitizers")["verdict"]
    assert verdict(None) == "–"
    assert verdict("total: 256\n") == "nothing"
    assert verdict("x.py:5: Write after read race detected\nRuntimeError: bad").startswith("Write")
    assert "Invalid __global__ read" in verdict("========= Invalid __global__ read of size 4 bytes")
    assert (
        verdict("Traceback\nRuntimeError: no compiler\n[exit status 1]")
        == "RuntimeError: no compiler"
    )


def test_a_page_of_new_features_runs_on_every_release(tutorial):
    page = tutorial("new")
    assert page["results"]["spinning"] == page["PROGRAMS"]
    x, y = torch.rand(2, 100) + 0.5
    torch.testing.assert_close(page["divide"]("plain", x, y)[0], x / y)


def test_mxfp4_is_unpacked_to_its_values(tutorial):
    page = tutorial("dot-scaled")
    codes = torch.arange(16, dtype=torch.uint8).repeat(8)[:128]
    packed = (codes[::2] | codes[1::2] << 4).repeat(64, 1)  # [64, 64]
    scales = torch.full((64, 4), 128, dtype=torch.uint8)  # times 2
    out = page["unpacking"](torch.eye(128)[:20], packed, scales)
    torch.testing.assert_close(out[:16, 0].double(), 2 * page["E2M1"], rtol=0, atol=0)


def test_what_is_drawn_has_the_values_that_are_said(tutorial):
    page = tutorial("dot-scaled")
    codes, scales, exact = page["draw"](2, 64, "e2m1")
    first = page["E2M1"][codes[0, 0].item() & 15] * 2.0 ** (scales[0, 0].item() - 127)
    assert exact[0, 0] == first
    assert exact.shape == (2, 64)


def test_every_setting_of_the_sweep_is_checked(tutorial):
    page = tutorial("settings")
    for name in page["KERNELS"]:
        for settings in page["settings_of"](name):
            result, reference = page["KERNELS"][name][2:4]
            result.zero_()
            page["launch"](name, *settings)
            torch.testing.assert_close(result, reference(), atol=1e-4, rtol=1e-4)
    assert math.prod(map(len, page["KERNELS"]["softmax"][4:7])) == len(
        page["settings_of"]("softmax")
    )


def test_kernels_for_other_gpus_are_in_the_script_that_compiles_them(others):
    code = others["COMPILE"].replace("KERNEL", inspect.getsource(others["product_kernel"].fn))
    compile(code, "for_others", "exec")
