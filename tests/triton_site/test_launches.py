"""The launch that a page is about: the last of a named kernel in the cell that names it."""

import sys
from types import SimpleNamespace

import pytest

from tests.triton_site.test_xray import FACTS, FUNCTION, built_with, kernel, saved
from triton_site import launches, xray

CELL = '# sphinx_gallery_xray = "tile_kernel: 4096 × 8192, fp32"\nrun()\n'


class Chain:
    """A chain of hooks, as Triton has it."""

    def __init__(self):
        self.calls = []

    def add(self, call):
        self.calls.append(call)

    def remove(self, call):
        self.calls.remove(call)

    def launch(self, function):
        for call in list(self.calls):
            call(SimpleNamespace(data={"function": function}))


@pytest.fixture
def chain(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = Chain()
    runtime = SimpleNamespace(jit_post_compile_hook=None, launch_enter_hook=made)
    monkeypatch.setitem(sys.modules, "triton.knobs", SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", SimpleNamespace())
    return made


def variants(*registers: int):
    return [(FUNCTION, kernel(n_regs=n, function=n)) for n in registers]


def test_the_last_launch_of_a_marked_cell_is_kept_with_its_code(chain, tmp_path):
    probe = xray.kernels()
    probe.before_block(CELL)
    probe._compiled = variants(168, 40, 32)
    for function in (168, 40, 32, 40):
        chain.launch(function)
    probe.after_block()
    assert chain.calls == [], "other cells are not slowed down"
    found = probe.provenance()
    launched = found["launched"]["tile_kernel"]
    assert launched["shape"] == "4096 × 8192, fp32"
    assert found["kernels"][launched["kernel"]]["registers"] == 40
    assert saved(tmp_path)["tile_kernel"]["facts"]["registers"] == 40
    probe.before_block("run()")
    assert chain.calls == []
    probe.after_block()
    assert probe.provenance() == found


def test_what_times_the_cpu_is_not_slowed_down(chain):
    def cpu_share():
        chain.launch(40)
        return list(chain.calls)

    def _bench():
        chain.launch(32)

    probe = xray.kernels()
    probe.before_block(CELL)
    probe._compiled = variants(168, 40, 32)
    chain.launch(168)
    _bench()  # the autotuner tries a variant
    assert cpu_share() == []
    probe.after_block()
    number = probe.provenance()["launched"]["tile_kernel"]["kernel"]
    assert probe.provenance()["kernels"][number]["registers"] == 168


def test_a_kernel_that_its_cell_does_not_launch_has_no_variant(chain):
    probe = xray.kernels()
    probe.before_block(CELL)
    probe.after_block()
    assert probe.provenance()["launched"]["tile_kernel"]["kernel"] is None


@pytest.mark.parametrize("text", ["tile_kernel", "tile_kernel:", "4 × 4: fp32", "a: b; c"])
def test_a_setting_that_names_no_shape_is_refused(text):
    with pytest.raises(ValueError, match="is not KERNEL: SHAPE"):
        launches.wanted(text)
    assert launches.wanted("a: 4 × 4; b: 8") == {"a": "4 × 4", "b": "8"}


def test_the_page_shows_that_launch_first_and_others_behind_it(build):
    other = FACTS | {"constants": {"BLOCK_M": 64}, "registers": 80}
    often = [other | {"constants": {"BLOCK_M": 64, "n": n}} for n in (1, None)]
    launched = {"tile_kernel": {"shape": "4096 × 8192, fp32", "kernel": 0}}
    built = built_with(build, {}, [FACTS, *often], launched=launched)
    (tab,) = built.page.select("details.gallery-tab-compiled")
    assert "4096 × 8192, fp32, the launch that this page is about" in tab.p.text
    assert tab.select_one(".gallery-chips li").text.strip() == "168 registers"
    _, behind = tab.select("details.gallery-fold-variants")
    assert [cell.text for cell in behind.select("th")] == ["BLOCK_M", "64"]


def test_a_launch_of_another_kernel_is_damage(build):
    launched = {"tile_kernel": {"shape": "4096 × 8192", "kernel": 7}}
    with pytest.raises(Exception, match="the number of another kernel"):
        built_with(build, {}, [FACTS], launched=launched)
