"""X-ray: the probe reads what the compiler made of a kernel, the page shows it line by line."""

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gallery_recorder.api import RecordedFiles
from gallery_recorder.store.reading import ReadingError
from triton_site import xray, xray_data
from triton_site.kernels import xray_pages

PTX = """
	.file	1 "/home/someone/script.py"
	.loc	1 12 20
	ld.global.v4.b32 	{ %r1 }, [ %rd1 ];
	.loc	2 290 36, $L__info_string0, inlined_at 1 13 9
	@%p1 shfl.sync.bfly.b32 	%r5, %r4, 16, 31, -1;
	.loc	1 14 4
	wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1;
	bar.sync 	0;
	.section	.debug_abbrev
	{
.b8 1
	}
"""
TTGIR = """#loc = loc("script.py":9:0)
#loc1 = loc("script.py":12:20)
#loc2 = loc("standard.py":290:36)
#loc3 = loc("script.py":13:9)
#loc4 = loc(callsite(#loc2 at #loc3))
#loc5 = loc("x"(#loc1))
    %x = tt.load %a loc(#loc5)
    %s = "tt.reduce"(%x) loc(#loc4)
  } loc(#loc)
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


def launch():
    pass
'''
H200 = {"warps": 64, "programs": 32, "registers": 65536, "shared": 233472}


def kernel(**changes: object) -> SimpleNamespace:
    facts: dict[str, object] = {
        "n_regs": 168,
        "n_spills": 0,
        "asm": {"ptx": PTX, "ttgir": TTGIR, "cubin": b"x" * 4096},
    }
    metadata = SimpleNamespace(num_warps=8, num_stages=3, shared=196608)
    facts |= {"metadata": metadata, "src": SimpleNamespace(constants={(1,): 128})}
    return SimpleNamespace(**(facts | changes))


FUNCTION = SimpleNamespace(
    __name__="tile_kernel", arg_names=["x_ptr", "BLOCK_M"], starting_line_number=9
)


FACTS = {
    "name": "tile_kernel",
    "line": 9,
    "constants": {"BLOCK_M": 128},
    "warps": 8,
    "stages": 3,
    "registers": 168,
    "spills": 0,
    "shared": 196608,
    "bytes": 4096,
    "occupancy": {"programs": 1, "warps": 8, "of": 64, "limit": "registers"},
    "instructions": {"wgmma.mma_async": 1, "ld.global": 1, "shfl.sync": 1, "bar.sync": 1},
}


def packed(code: object) -> bytes:
    return gzip.compress(json.dumps(code).encode())


def saved(folder: Path) -> dict:
    return json.loads(gzip.decompress((folder / xray.FILE_NAME).read_bytes()))


# --- the probe -----------------------------------------------------------------------------------


def test_facts_hold_resources_and_instructions():
    assert xray.facts_of(FUNCTION, kernel(), H200) == FACTS


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "programs", "limit"),
    [
        (168, 196608, 8, 1, "registers"),  # 168 × 32 → 5376; 65536 // 5376 = 12 warps
        (32, 0, 4, 16, "warps"),
        (64, 100000, 4, 2, "shared memory"),
        (255, 0, 16, 0, "registers"),
        (16, 0, 1, 32, "programs"),
        (42, 0, 3, 13, "registers"),  # 42 warps, but 40 in four equal quarters
    ],
)
def test_the_scarcest_resource_limits_occupancy(registers, shared, warps, programs, limit):
    found = xray.occupancy(registers, shared, warps, H200)
    assert found == {"programs": programs, "warps": programs * warps, "of": 64, "limit": limit}
    assert xray.occupancy(registers, shared, warps, {}) is None


def test_the_code_names_no_folder_of_the_machine_and_long_code_is_cut(monkeypatch):
    text = xray.lean(PTX)
    assert "/home" not in text
    assert '.file\t1 "script.py"' in text
    assert "debug_abbrev" not in text
    monkeypatch.setattr(xray, "MAX_CODE", 20)
    assert xray.shortened("a\n" * 100) == "a\n" * 9 + "a\n… 200 characters in all\n"


def test_a_kernel_that_is_given_a_function_does_not_end_the_script(monkeypatch):
    """Triton 3.6 writes constants as JSON for a hook; a function is not JSON."""
    runtime = SimpleNamespace(jit_post_compile_hook=None)
    jit = SimpleNamespace(serialize_specialization_data=json.dumps)
    monkeypatch.setitem(sys.modules, "triton.knobs", SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", jit)
    xray.kernels().before_block()
    assert runtime.jit_post_compile_hook is not None
    assert jit.serialize_specialization_data({"BLOCK": 128}) == '{"BLOCK": 128}'
    assert jit.serialize_specialization_data({"FUNCTION": object()}) == ""


def test_a_kernel_that_cannot_be_read_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    probe, made = xray.kernels(), kernel(n_regs=None)
    probe._compiled = [(FUNCTION, SimpleNamespace(n_regs=3)), (FUNCTION, made)]
    probe.after_block()
    assert probe.provenance()["kernels"] == [], "it was not launched yet"
    assert list(tmp_path.iterdir()) == []
    made.n_regs = 168
    probe.after_block()
    assert [facts["name"] for facts in probe.provenance()["kernels"]] == ["tile_kernel"]
    assert saved(tmp_path)["tile_kernel"].keys() == {"facts", "ttgir", "ptx"}


# --- the page ------------------------------------------------------------------------------------


def test_each_line_of_code_knows_its_line_of_the_kernel():
    ptx = dict(reversed(pair) for pair in xray_pages.ptx_lines(xray.lean(PTX)))
    by_word = {text.split()[0]: line for text, line in ptx.items() if text.strip()}
    assert by_word["ld.global.v4.b32"] == 12
    assert by_word["@%p1"] == 13  # the call of the function that was inlined
    assert by_word["bar.sync"] == 14
    ttgir = list(xray_pages.ttgir_lines(TTGIR))
    assert (12, "    %x = tt.load %a") in ttgir
    assert (13, '    %s = "tt.reduce"(%x)') in ttgir
    assert not any("loc(" in text for _, text in ttgir)


def built_with(build, code: object, facts: object = (FACTS,), script: str = SCRIPT, **more: object):
    content = code if isinstance(code, bytes) else packed(code)
    probes = {xray_data.PROBE: {"kernels": facts} | more}
    return build(script, {xray.FILE_NAME: content}, probes=probes)


def chips(tab) -> str:
    """What a reader sees first in the tab of a kernel, in a line."""
    return ", ".join(item.text.strip() for item in tab.select(".gallery-chips > li"))


def test_the_page_has_a_tab_beside_the_kernel_and_a_file_with_its_code(build):
    entry = {"facts": FACTS, "ptx": PTX}
    built = built_with(build, {"tile_kernel": entry})
    (fold,) = built.page.select("details.gallery-tab-compiled")
    assert chips(fold).startswith("168 registers, nothing spilled, 192 KiB")
    assert "products by wgmma" in chips(fold)
    rows = [[cell.text for cell in row.select("td, th")] for row in fold.select("tr")]
    assert rows[:4] == [["BLOCK_M", "128"], ["warps", "8"], ["stages", "3"], ["registers", "168"]]
    assert "The code of BLOCK_M = 128, 8 warps, 168 registers:" in fold.text
    source = fold.select_one(".gallery-xray")["data-source"]
    written = (built.folder / "pages" / source).read_text()
    assert written.startswith('galleryXray("tile_kernel", {')
    assert built.warnings == ""


@pytest.mark.parametrize(("show", "inside"), [("", True), ("tile_kernel", False)])
def test_an_xray_stands_in_the_fold_that_hides_its_kernel(build, show, inside):
    settings = f'# sphinx_gallery_fold = "a kernel"\n# sphinx_gallery_show = "{show}"\n'
    built = built_with(build, {}, script=SCRIPT.replace("@triton.jit", f"{settings}@triton.jit"))
    (fold,) = built.page.select("details.gallery-tab-compiled")
    assert (fold.find_parent("details") is not None) == inside


def test_the_configuration_with_most_variants_stands_for_a_kernel(build):
    odd = FACTS | {"constants": {"BLOCK_M": 16384}, "registers": 255, "spills": 42}
    others = [FACTS | {"constants": {"BLOCK_M": 128, "n": n}} for n in (1, None)]
    built = built_with(build, {}, [odd, *others, FACTS | {"constants": {"BLOCK_M": 16}}])
    (fold,) = built.page.select("details.gallery-tab-compiled")
    assert "BLOCK_M = 128, 8 warps:" in fold.p.text
    assert chips(fold).startswith("168 registers, nothing spilled")
    assert [cell.text for cell in fold.select("th")] == ["BLOCK_M", "16384", "128", "16"]


def test_variants_that_differ_by_their_arguments_alone_are_all_shown(build):
    """A script checks in fp32 and times in bf16: neither is passed off as the other."""
    change = {"registers": 104, "spills": 2, "shared": 98304, "instructions": {"ld.global": 4}}
    room = {"programs": 2, "warps": 16, "of": 64, "limit": "registers"}
    other = FACTS | change | {"occupancy": room}
    twin = FACTS | {"constants": {"BLOCK_M": 128, "n": 1}}  # the same in all that the page shows
    built = built_with(build, {"tile_kernel": {"facts": other}}, [FACTS, twin, other])
    (fold,) = built.page.select("details.gallery-tab-compiled")
    line = chips(fold)
    assert "104 to 168 registers, 0 to 2 spilled, 96 KiB to 192 KiB of shared memory" in line
    assert "8 to 16 of 64 warps" in line
    assert "wgmma" not in line, "only one of them multiplies with it"
    rows = [[cell.text for cell in row.select("td, th")] for row in fold.select("tr")]
    assert ["registers", "168", "104"] in rows
    assert "Columns with the same settings differ by their arguments" in fold.text
    assert "The code of BLOCK_M = 128, 8 warps, 104 registers:" in fold.text


def test_each_configuration_has_a_column_before_any_has_a_second(build):
    first = [FACTS | {"constants": {"BLOCK_M": 128}, "registers": 100 + n} for n in range(9)]
    built = built_with(build, {}, [*first, FACTS | {"constants": {"BLOCK_M": 16}}])
    (fold,) = built.page.select("details.gallery-tab-compiled")
    assert [cell.text for cell in fold.select("th")] == ["BLOCK_M", *["128"] * 5, "16"]
    assert "6 of 10 variants." in fold.text


def test_the_words_for_a_shape_come_from_the_script(build):
    """Prose that was changed since the recording is shown as it is now."""
    comment = '# sphinx_gallery_xray = "tile_kernel: 8192 × 131,072"\n'
    launched = {"tile_kernel": {"shape": "8192 × 131 072", "kernel": 0}}
    script = SCRIPT.replace("@triton.jit", f"{comment}@triton.jit")
    built = built_with(build, {}, [FACTS], script, launched=launched)
    (fold,) = built.page.select("details.gallery-tab-compiled")
    assert "8192 × 131,072, the launch that this page is about:" in fold.text
    assert "131 072" not in fold.text


def test_a_trivial_kernel_has_no_fold(build):
    small = {"registers": 16, "shared": 0, "instructions": {"ld.global": 2, "st.global": 1}}
    assert built_with(build, {}, [FACTS | small]).page.select(".gallery-tab-compiled") == []
    for change in ({"registers": 18}, {"shared": 16}, {"spills": 2}):
        built = built_with(build, {}, [FACTS | small, FACTS | small | change])
        assert len(built.page.select(".gallery-tab-compiled")) == 1


def test_names_in_a_recording_are_neither_paths_nor_markup(build):
    evil = "../../../versions"
    facts = FACTS | {"constants": {"<script>": "<b>"}}
    code = {name: {"facts": FACTS | {"name": name}, "ptx": PTX} for name in (evil, "tile_kernel")}
    built = built_with(build, code, [facts, FACTS | {"name": evil}])
    files = [path.name for path in built.folder.parent.rglob("*.js") if "galleryXray" in read(path)]
    assert files == ["tile_kernel.js"]
    assert built.page.select("details.gallery-tab-compiled script, td b") == []


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


BOMB = gzip.compress(b'{"tile_kernel": "' + b"a" * 40_000_000)


@pytest.mark.parametrize(
    ("code", "facts", "file"),
    [
        (b"no gzip", [FACTS], xray.FILE_NAME),
        (BOMB, [FACTS], xray.FILE_NAME),
        (packed({"tile_kernel": {"facts": [], "ptx": PTX}}), [FACTS], xray.FILE_NAME),
        (packed({"tile_kernel": {"facts": FACTS | {"line": 1 << 62}}}), [FACTS], xray.FILE_NAME),
        (packed({}), [FACTS | {"registers": "168"}], xray_data.PROBE),
        (packed({}), "kernels", xray_data.PROBE),
        (packed({}), [FACTS | {"warps": 0}], xray_data.PROBE),
    ],
    ids=["no gzip", "bomb", "types", "size", "a text", "no list", "no warps"],
)
def test_a_recording_with_a_damaged_xray_is_refused(tmp_path, code, facts, file):
    (tmp_path / xray.FILE_NAME).write_bytes(code)
    probes = {xray_data.PROBE: {"kernels": facts}}
    made = SimpleNamespace(probes=probes, files={xray.FILE_NAME: ""})
    with pytest.raises(ReadingError, match=file):
        xray.kernels.check(tmp_path, made)


def test_code_that_the_recording_does_not_list_does_not_exist(tmp_path):
    (tmp_path / xray.FILE_NAME).write_bytes(packed({"tile_kernel": {"facts": FACTS}}))
    probes = {xray_data.PROBE: {"kernels": [FACTS]}}
    listed = RecordedFiles(tmp_path, frozenset({xray.FILE_NAME}))
    assert [*xray_data.read(listed, probes)[1]] == ["tile_kernel"]
    assert xray_data.read(RecordedFiles(tmp_path, frozenset()), probes)[1] == {}
