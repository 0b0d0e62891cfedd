"""Small faults, some for each promise of the engine, and the tests that must notice each.

``python -m tests.patches [WORD …]`` applies each patch (or those with a WORD in their line) to a
copy of the package and runs its tests there. It ends with 1 if a patch survives: then a test is
missing, or one cannot fail. ``make test-patches`` runs it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Patch(NamedTuple):
    """A fault in *file*: *new* stands in place of *old*; *tests* below ``tests`` must fail."""

    file: str
    old: str
    new: str
    tests: str


RECORDING, MIGRATIONS = "store/test_recording.py", "store/test_migrations.py"
FIGURES = "store/test_figures.py"
SUBSET, ORPHANS, STATUS = "run/test_subset.py", "store/test_orphans.py", "store/test_status.py"
TRANSPORT, SCRIPT, TEXT = "store/test_transport.py", "project/test_script.py", "run/test_text.py"
STALE, SELECTION = "render/test_stale.py", "render/test_selection.py"
COMPARE, GPUS, PROJECT = "store/test_compare.py", "run/test_gpus.py", "project/test_project.py"
USED, INPUTS = "run/test_used.py", "store/test_inputs.py"
SEEDS, RECORDER = "run/test_seeds.py", "run/test_recorder.py"
ENVIRONMENT, PUBLISH = "run/test_environment.py", "publish/test_publish.py"

PATCHES = [
    # A recording outlives the engine, and damage is noticed.
    Patch("store/migrations.py", "if schema > SCHEMA:", "if schema > 99:", RECORDING),
    Patch("store/migrations.py", "for number in range(schema, SCHEMA)", "for number in range(schema, SCHEMA - 1)", MIGRATIONS),
    Patch("store/migrations.py", 'if name not in ("class"', 'if not name.isascii() and name not in ("class"', MIGRATIONS),
    Patch("store/migrations.py", '"sphx-glr-multi-img" if len(made) > 1', '"sphx-glr-multi-img" if len(made) > 2', MIGRATIONS),
    Patch("store/figures.py", "if name not in files:", "if False:", FIGURES),
    Patch("store/figures.py", "if make is None:", "if make is None and False:", FIGURES),
    Patch("store/figures.py", "        for name in self.options:", "        for name in ():", FIGURES),
    Patch("store/figures.py", "if _INLINE_MARKUP.search(caption):", "if False:", FIGURES),
    Patch("store/figures.py", 'if directive.argument.lower() != "html":', "if False:", FIGURES),
    Patch("render/markup.py", "block.shown is None and block.stderr", "block.stderr", "run/test_fidelity.py"),
    Patch("store/recording.py", "!= sha256:", "== sha256:", RECORDING),
    Patch("store/recording.py", "if location.folder != folder:", "if False:", RECORDING),
    Patch("store/recording.py", "    load(staging)\n", "", RECORDING),
    Patch("store/recording.py", 'if name[0] != ".")', "if True)", RECORDING),
    Patch("store/format.py", "*recording.data} - recording.files.keys())", "*()} - recording.files.keys())", RECORDING),
    Patch("store/format.py", "if len(folded) <= len(recording.files):", "if False:", RECORDING),
    Patch("store/format.py", "endswith(_SOURCES)", "endswith(_THUMBNAILS)", RECORDING),
    Patch("store/atomic.py", "elif exchange(new, folder):", "elif True:", RECORDING),
    Patch("store/atomic.py", "os.rename(_aside(folder), folder)", "pass", RECORDING),
    Patch("store/reading.py", "if not stat.S_ISREG(status.st_mode):", "if False:", "store/test_reading.py -k 'link or large'"),
    Patch("store/reading.py", "if status.st_size > limit:", "if False:", "store/test_reading.py -k 'link or large'"),
    Patch("store/reading.py", "if len(unpacked) > limit:", "if False:", "store/test_reading.py"),
    # What is current, and what is said of the rest.
    Patch("store/recording.py", "    if why:\n", "    if False:\n", STATUS),
    Patch("store/recording.py", 'return "current" if expected_to_fail else "failed"', 'return "current"', "run/test_faults.py -k after_the_last"),
    Patch("store/recording.py", '        return "passed"\n', '        return "current"\n', "run/test_fidelity.py -k expected_failure_that_passes"),
    Patch("run/recorder.py", "return own.made.key == failed.key or", "return", "run/test_fidelity.py -k kept_beside"),
    Patch("run/used.py", "if not is_written and", "if", USED),
    Patch("run/used.py", " and not self._was_written(path)", "", USED),
    Patch("run/used.py", "        waiting += self._modules\n", "", USED),
    Patch("project/inputs.py", "return None if self._is_excluded(name) else name", "return name", USED + " -k probes"),
    Patch("project/inputs.py", "return original", "return name", USED + " -k copied"),
    Patch("store/inputs.py", "if not self._rules.allows(name):", "if False:", INPUTS),
    Patch("store/inputs.py", "(stale if is_asked else different)", "different", INPUTS),
    Patch("store/recording.py", "return found if is_current(found.key, script) else None", "return found", "run/test_faults.py -k over_a_good"),
    Patch("store/recording.py", "    atomic.replace_folder(staging, folder)\n    remove_failure(folder)", "    atomic.replace_folder(staging, folder)", "run/test_faults.py -k over_a_good"),
    Patch("store/status.py", 'if row.state in ("damaged", "unreadable"):', "if False:", STATUS),
    Patch("store/status.py", "if only in (None, row.state)", "if True", "run/test_faults.py -k over_a_good"),
    Patch("store/compare.py", "if one == other:", "if True:", COMPARE),
    Patch("store/compare.py", '"exception": block.exception,', "", COMPARE),
    Patch("store/compare.py", "yield from (f\"{path}{line}\"", "yield from (f\"{line}\"", COMPARE),
    # Orphans, shards, transport.
    Patch("store/recording.py", '"/".join(rest) not in labels', "True", ORPHANS + " -k prune"),
    Patch("store/recording.py", "now.encode())\n", "was.encode())\n", ORPHANS + " -k renamed"),
    Patch("__main__.py", "if orphans and not options.yes and not", "if False and not", ORPHANS + " -k prune"),
    Patch("store/transport.py", "if added or replaced or deleted:", "if added or replaced:", ORPHANS + " -k push"),
    Patch("store/transport.py", "return made.run.recorded > other.run.recorded", "return True", TRANSPORT),
    Patch("store/transport.py", "if any(map(is_held", "if any(map(bool", TRANSPORT),
    Patch("store/transport.py", "if old and branch.is_foreign(old):", "if False:", TRANSPORT),
    Patch("run/subset.py", "or number in found.begun", "", SUBSET),
    Patch("run/subset.py", "atomic.write(path, msgspec.json.encode(found))", "pass", SUBSET + " -k shares"),
    Patch("run/subset.py", "load_script(old).key != example.load().key", "False", SUBSET),
    Patch("run/subset.py", "waiting |= found - imported", "pass", SUBSET),
    # Keys of code.
    Patch("project/script.py", '- {"kind", "type_comment"}', "", SCRIPT),
    Patch("project/script.py", "and not keep_docstrings:", "and keep_docstrings:", SCRIPT),
    Patch("project/script.py", "key_of([code.key, *others]) if others", "key_of([code.key]) if others", SCRIPT),
    Patch("project/needs.py", "gpu.memory < int(memory)", "gpu.memory > int(memory)", SCRIPT),
    # Pages.
    Patch("render/selection.py", "not item.timed, order.get", "item.timed, order.get", SELECTION),
    Patch("render/selection.py", "key=age, reverse=True", "key=age", SELECTION),
    Patch("render/selection.py", "not self.shown.is_current(self.script)", "False", STALE),
    Patch("render/selection.py", "similarity > 0.6", "similarity > 2", STALE),
    Patch("publish/publish.py", "    if built.stale:", "    if False:", STALE),
    Patch("render/replay.py", "    if block.key == code.key:\n", "    if False:\n", STALE),
    # Recording.
    Patch("run/seeds.py", "    random.seed(seed)\n", "", SEEDS),
    Patch("run/seeds.py", "                execute(module)\n                _SEEDING", "                execute(module)\n                0 and _SEEDING", SEEDS),
    Patch("store/moving.py", " or not recording.is_current(made.key, script):", ":", ORPHANS + " -k renamed"),
    Patch("store/moving.py", "    return not here.changes(made.inputs, made.provenance.kind, script).stale", "    return True", ORPHANS + " -k other_inputs"),
    Patch("store/recording.py", 'if made.run.status == "failed" and not by_label[label].expected_to_fail:', "if False:", TRANSPORT),
    Patch("store/recording.py", "return not (here and here.changes(", "return not (None and here.changes(", TRANSPORT),
    Patch("run/recorder.py", "if size > limit:", "if size < limit:", ORPHANS + " -k sizes"),
    Patch("run/text.py", "shown += part[len(shown) :]", "shown += part", TEXT),
    Patch("run/text.py", "key=len, reverse=True", "key=len", TEXT),
    Patch("project/variables.py", " and not SECRET.search(name)\n    }\n", "\n    }\n", ENVIRONMENT),
    Patch("run/environment.py", 'and name not in {*VISIBLE_VARIABLES, "CUDA_DEVICE_ORDER"}', "", ENVIRONMENT),
    Patch("run/failure.py", "text = shown(failure.for_readers())", "text = failure.for_author('')", "run/test_faults.py -k 'finished and exits or finished and crash or finished and floods or finished and hangs'"),
    Patch("run/failure.py", "blocks[one.number - 1] = one.block", "pass", "run/test_faults.py -k 'finished and exits'"),
    Patch("run/process.py", "sys.path.remove(''); ", "", "run/test_process.py -k apart"),
    Patch("run/process.py", "stdin=subprocess.DEVNULL,", "stdin=None,", "run/test_process.py -k apart"),
    Patch("run/recorder.py", "if failed and not example.expected_to_fail:", "if failed:", "render/test_host.py -k crash"),
    Patch("run/protocol.py", "if self.line and self.is_exact else", "if self.line else", "render/test_host.py -k crash"),
    Patch("store/status.py", "for example in project.examples}", "for example in project.executed}", ORPHANS + " -k no_orphan"),
    # Versions.
    Patch("publish/publish.py", 'trees[name].all[0].kind == "tag" and not overwrite', "False", PUBLISH),
    Patch("publish/versions.py", "reverse=True)\n    branches", "reverse=False)\n    branches", PUBLISH),
]  # fmt: skip


def survives(patch: Patch, copy: Path) -> bool:
    """Whether no test fails in the *copy* of the package with this *patch*."""
    path = copy / "src" / "gallery_recorder" / patch.file
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(patch.old, patch.new), encoding="utf-8")
    words = patch.tests.partition(" -k ")
    tests = [f"tests/{name}" for name in words[0].split()]
    chosen = ["-k", words[2].strip("'")] if words[2] else []
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "--no-header", "-p"]
        done = subprocess.run(
            [*command, "no:cacheprovider", *tests, *chosen],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
    except subprocess.TimeoutExpired:
        return False  # a hang is noticed
    finally:
        path.write_text(before, encoding="utf-8")
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{patch.file}: the tests could not be run:\n{done.stdout[-2000:]}")
    return done.returncode == 0


def misfits() -> list[str]:
    """Patches whose old text is not in its file exactly once."""
    texts = {
        p.file: (ROOT / "src" / "gallery_recorder" / p.file).read_text("utf-8") for p in PATCHES
    }
    return [f"{p.file}: {p.old!r}" for p in PATCHES if texts[p.file].count(p.old) != 1]


def main(words: list[str]) -> int:
    """Try all patches, or those with one of *words* in them."""
    chosen = [p for p in PATCHES if not words or any(word in " ".join(p) for word in words)]
    survived = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for path in ROOT.iterdir():
            if path.name in ("src", "tests"):
                shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("*.pyc"))
            elif path.name not in (".git", "build"):
                (copy / path.name).symlink_to(path)
        for number, patch in enumerate(chosen, 1):
            result = "SURVIVED" if survives(patch, copy) else "noticed"
            survived += [patch] * (result == "SURVIVED")
            print(
                f"{number}/{len(chosen)} {result}: {patch.file}: {patch.old.strip()!r}", flush=True
            )
    print(f"{len(survived)} of {len(chosen)} patches survived")
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
