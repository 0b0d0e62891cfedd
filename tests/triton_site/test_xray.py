"""What the compiler made of a kernel: read by the probe, shown below the kernel, line by line."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from triton_site import xray
from triton_site.kernels import xray_pages

PTX = """
	.file	1 "/home/someone/script.py"
.visible .entry tile_kernel(
	.param .u64 tile_kernel_param_0
)
{
	.loc	1 12 20                          // script.py:12:20
	ld.global.v4.b32 	{ %r1 }, [ %rd1 ];
	.loc	2 290 36, $L__info_string0, inlined_at 1 13 9
	@%p1 shfl.sync.bfly.b32 	%r5, %r4, 16, 31, -1;
	.loc	1 14 4
	wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1;
	bar.sync 	0;
}
	.section	.debug_abbrev
	{
.b8 1
	}
"""
TTGIR = """#blocked = #ttg.blocked<{sizePerThread = [4]}>
#loc = loc("script.py":9:0)
#loc1 = loc("script.py":12:20)
#loc2 = loc("standard.py":290:36)
#loc3 = loc("script.py":13:9)
#loc4 = loc(callsite(#loc2 at #loc3))
#loc5 = loc("x"(#loc1))
module {
  tt.func public @tile_kernel() {
    %x = tt.load %a loc(#loc5)
    %s = "tt.reduce"(%x) loc(#loc4)
    tt.return loc(#loc)
  } loc(#loc)
}
"""
SCRIPT = '''"""
First
=====

Words.
"""


@triton.jit
def tile_kernel(x_ptr):
    """One tile."""
    x = load(x_ptr)
    s = sum(x)
    d = dot(x, s)


def launch():
    pass
'''
H200 = {"warps": 64, "registers": 65536, "shared": 233472}


def kernel(**changes: object) -> SimpleNamespace:
    facts = {
        "n_regs": 168,
        "n_spills": 0,
        "asm": {"ptx": PTX, "ttgir": TTGIR, "cubin": b"x" * 4096},
    }
    metadata = SimpleNamespace(num_warps=8, num_stages=3, shared=196608)
    source = SimpleNamespace(constants={(1,): 128})
    return SimpleNamespace(metadata=metadata, src=source, **(facts | changes))


FUNCTION = SimpleNamespace(
    __name__="tile_kernel", arg_names=["x_ptr", "BLOCK_M"], starting_line_number=9
)


def test_facts_say_what_decides_the_speed():
    facts = xray.facts_of(FUNCTION, kernel(), H200)
    assert facts["constants"] == {"BLOCK_M": 128}
    assert (facts["registers"], facts["spills"], facts["shared"]) == (168, 0, 196608)
    assert (facts["warps"], facts["stages"], facts["bytes"]) == (8, 3, 4096)
    assert facts["instructions"] == {
        "wgmma.mma_async": 1, "ld.global": 1, "shfl.sync": 1, "bar.sync": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "programs", "limit"),
    [
        (168, 196608, 8, 1, "registers"),  # 168 × 32 → 5376; 65536 // 5376 = 12 warps
        (32, 0, 4, 16, "warps"),
        (64, 100000, 4, 2, "shared memory"),
        (255, 0, 16, 0, "registers"),
    ],
)
def test_occupancy_is_what_the_scarcest_leaves(registers, shared, warps, programs, limit):
    found = xray.occupancy(registers, shared, warps, H200)
    assert found == {"programs": programs, "warps": programs * warps, "of": 64, "limit": limit}
    assert xray.occupancy(registers, shared, warps, {}) is None


def test_the_code_tells_nothing_of_the_machine():
    text = xray.lean(PTX)
    assert "/home" not in text
    assert '.file\t1 "script.py"' in text
    assert "debug_abbrev" not in text
    assert "wgmma" in text


def test_code_that_is_too_long_says_so(monkeypatch):
    monkeypatch.setattr(xray, "MAX_CODE", 20)
    assert xray.shortened("a\n" * 100) == "a\n" * 9 + "a\n… 200 characters in all\n"


def test_a_kernel_that_is_given_a_function_does_not_end_the_script(monkeypatch):
    """Triton 3.6 writes constants down as JSON for a hook; a function is none."""
    runtime = SimpleNamespace(jit_post_compile_hook=None)
    jit = SimpleNamespace(serialize_specialization_data=json.dumps)
    monkeypatch.setitem(sys.modules, "triton.knobs", SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", jit)
    xray.kernels().before_block()
    assert runtime.jit_post_compile_hook is not None
    assert jit.serialize_specialization_data({"BLOCK": 128}) == '{"BLOCK": 128}'
    assert jit.serialize_specialization_data({"FUNCTION": object()}) == ""


def test_the_same_code_gives_the_same_bytes(tmp_path):
    code = {"tile_kernel": {"facts": {"line": 9}, "ptx": PTX}}
    for name in ("a", "b"):
        xray.save(tmp_path / name, code)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert xray.load(tmp_path / "a") == code
    (tmp_path / "b").write_bytes(gzip.compress(b"[") + b"?")
    assert xray.load(tmp_path / "b") == {}
    assert xray.load(tmp_path / "none") == {}


def test_a_kernel_that_cannot_be_read_does_not_end_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    probe = xray.kernels()
    probe._compiled = [(FUNCTION, SimpleNamespace(n_regs=3)), (FUNCTION, kernel())]
    probe.after_block()
    (facts,) = probe.provenance()["kernels"]
    assert facts["name"] == "tile_kernel"
    assert json.dumps(facts)
    assert xray.load(tmp_path / xray.FILE_NAME)["tile_kernel"]["ttgir"].startswith("#blocked")


def test_a_disassembler_that_warns_is_not_heard(tmp_path, monkeypatch, capfd):
    class Asm(dict):
        def __getitem__(self, name):
            if name == "sass":
                os.write(2, b"nvdisasm warning")
                return "Function: tile_kernel"
            return super().__getitem__(name)

    monkeypatch.chdir(tmp_path)
    probe = xray.kernels()
    probe._compiled = [(FUNCTION, kernel(asm=Asm(ptx=PTX)))]
    probe.after_block()
    assert capfd.readouterr().err == ""
    assert "sass" in xray.load(tmp_path / xray.FILE_NAME)["tile_kernel"]


def test_a_kernel_that_was_never_launched_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    probe = xray.kernels()
    probe._compiled = [(FUNCTION, kernel(n_regs=None))]
    probe.after_block()
    assert probe.provenance() == {"kernels": []}
    assert not (tmp_path / xray.FILE_NAME).exists()


def test_a_kernel_that_is_launched_in_a_later_block_is_seen_then(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    probe, made = xray.kernels(), kernel(n_regs=None)
    probe._compiled = [(FUNCTION, made)]
    probe.after_block()
    made.n_regs = 168
    probe.after_block()
    probe.after_block()
    assert [facts["registers"] for facts in probe.provenance()["kernels"]] == [168]
    assert "tile_kernel" in xray.load(tmp_path / xray.FILE_NAME)


class Compiler:
    """As much of Triton as reads a kernel from a cache: what lies there, for which GPU."""

    def __init__(self, arch=90):
        self.target = SimpleNamespace(backend="cuda", arch=arch)
        self.utils = SimpleNamespace(load_binary=lambda *_: ("module", "function", 40, 8, 1024))

    def get_current_target(self):
        return SimpleNamespace(backend="cuda", arch=90)

    def get_current_device(self):
        return 0

    def CompiledKernel(self, source, group, _):  # noqa: N802 - its name in Triton
        metadata = SimpleNamespace(
            name=next(iter(group)).partition(".")[0], num_warps=4, shared=0, target=self.target
        )
        asm = {"ttgir": TTGIR, "ptx": PTX, "cubin": b""}
        return SimpleNamespace(metadata=metadata, asm=asm, kernel=b"", src=source)


@pytest.mark.parametrize(
    ("folder", "arch", "names"),
    [
        ("cache/A", 90, ["child_kernel"]),
        ("torchinductor_me/triton/0/A", 90, []),  # made by torch.compile
        ("cache/A", 80, []),  # compiled for another GPU
    ],
)
def test_what_processes_compiled_is_found_in_their_cache(
    folder, arch, names, tmp_path, monkeypatch
):
    made = Compiler(arch)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(xray.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(xray, "_device_limits", lambda: H200)
    monkeypatch.setitem(sys.modules, "triton.compiler", made)
    driver = SimpleNamespace(driver=SimpleNamespace(active=made))
    monkeypatch.setitem(sys.modules, "triton.runtime.driver", driver)
    group = tmp_path / folder / "__grp__child_kernel.json"
    group.parent.mkdir(parents=True)
    group.write_text(json.dumps({"child_paths": {"child_kernel.json": "/x/child_kernel.json"}}))
    (group.parent / "__grp__broken.json").write_text("[")
    probe = xray.kernels()
    assert list(probe._of_processes({"child_kernel"})) == []  # which the script launched itself
    probe = xray.kernels()
    probe.after_block()
    probe.after_block()
    found = probe.provenance()["kernels"]
    assert [facts["name"] for facts in found] == names
    for facts in found:
        assert (facts["registers"], facts["spills"], facts["line"]) == (40, 8, 8)
    assert sorted(xray.load(tmp_path / "here" / xray.FILE_NAME)) == names


def test_each_line_of_code_knows_its_line_of_the_kernel():
    ptx = dict(reversed(pair) for pair in xray_pages.ptx_lines(xray.lean(PTX)))
    by_word = {text.split()[0]: line for text, line in ptx.items() if text.strip()}
    assert by_word["ld.global.v4.b32"] == 12
    assert by_word["@%p1"] == 13  # where the function that was built in is called
    assert by_word["bar.sync"] == 14
    ttgir = list(xray_pages.ttgir_lines(TTGIR))
    assert (12, "    %x = tt.load %a") in ttgir
    assert (13, '    %s = "tt.reduce"(%x)') in ttgir
    assert not any("loc(" in text for _, text in ttgir)


def test_lines_follow_where_only_prose_has_moved():
    entry = {"facts": {"line": 9}, "ttgir": TTGIR}
    same = xray_pages.viewed("tile_kernel", entry, SCRIPT)
    assert same["first"] == 9
    moved = xray_pages.viewed("tile_kernel", entry, SCRIPT.replace("Words.", "Words.\nMore."))
    assert moved["first"] == same["first"] + 1
    assert [12, "    %x = tt.load %a"] in same["codes"]["ttgir"]
    assert [13, "    %x = tt.load %a"] in moved["codes"]["ttgir"]


def test_the_page_has_a_fold_below_the_kernel(build: Callable):
    found = {xray_pages.PROBE: {"kernels": [xray.facts_of(FUNCTION, kernel(), H200)]}}
    built = build(SCRIPT, {"xray.json.gz": ""}, probes=found)
    (fold,) = built.page.select("details.gallery-fold-xray")
    line = " ".join(fold.summary.text.split())
    assert "what became of tile_kernel" in line
    assert "168 registers, nothing spilled, 192 KiB of shared memory" in line
    assert "tl.dot became wgmma" in line
    assert [cell.text for cell in fold.select("tbody td")][:5] == ["128", "8", "3", "168", "0"]
    assert fold.select_one(".gallery-xray")["data-source"].startswith("../_static/xray/01-first-")
    assert built.warnings == ""


def test_a_kernel_that_a_function_makes_has_its_fold_too(build: Callable):
    script = SCRIPT.replace("    pass\n", "    @jit\n    def made(x):\n        pass\n")
    facts = [xray.facts_of(FUNCTION, kernel(), H200) | {"name": n} for n in ("made", "tile_kernel")]
    folds = build(script, {}, probes={xray_pages.PROBE: {"kernels": facts}}).page
    summaries = [fold.summary.text for fold in folds.select("details.gallery-fold-xray")]
    assert ["tile_kernel" in summaries[0], "made" in summaries[1]] == [True, True]
    entry = {"facts": {"line": 18}, "ttgir": TTGIR}
    assert xray_pages.viewed("made", entry, script)["source"][1] == "    def made(x):"


def test_its_code_is_written_once(build: Callable, monkeypatch, tmp_path):
    found = {xray_pages.PROBE: {"kernels": [xray.facts_of(FUNCTION, kernel(), H200)]}}
    code = {"tile_kernel": {"facts": {}, "ptx": PTX}, "other": {"facts": {}, "ptx": PTX}}
    monkeypatch.setattr(xray, "load", lambda path: code)
    folder = build(SCRIPT, {"xray.json.gz": ""}, probes=found).folder / "_static" / "xray"
    names = ["01-first-other.js", "01-first-tile_kernel.js"]
    assert sorted(path.name for path in folder.iterdir()) == names
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    build(SCRIPT, {"xray.json.gz": ""}, probes=found)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    (folder / names[1]).unlink()
    build(SCRIPT, {"xray.json.gz": ""}, probes=found)
    assert (folder / names[1]).is_file()
    # Of a kernel that is gone, so is the code.
    monkeypatch.setattr(xray_pages, "stamps", lambda app: {})
    (tmp_path / "trees" / "xray.json").write_text(json.dumps({"": [f"xray/{names[0]}"]}))
    xray_pages._write_code(
        SimpleNamespace(
            builder=SimpleNamespace(format="html"),
            outdir=folder.parents[1],
            doctreedir=tmp_path / "trees",
        ),
        None,
    )
    assert [path.name for path in folder.iterdir()] == names[1:]


def test_without_facts_there_is_no_fold(build: Callable):
    assert not build(SCRIPT, {}).page.select("details.gallery-fold-xray")
