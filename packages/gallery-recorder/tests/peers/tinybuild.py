"""sphinx-gallery's own tests over its test gallery, recorded first and then rendered.

``python -m tests.peers.tinybuild FOLDER`` fetches sphinx-gallery's source distribution from PyPI,
records its ``tests/tinybuild`` and runs its ``tests/test_full.py`` with the engine among the
extensions. It ends with 0 where at least 56 of the tests pass that pass plainly.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

SOURCE = Path(__file__).resolve().parents[2] / "src"
WANTED = 56

#: Tests that do not pass over recordings, and why that is right.
REASONS = {
    "test_junit": "builds the gallery once more with a script that it has just written, which "
    "nobody has recorded",
    "test_run_sphinx": "looks for `executed 22 out of 26`, and this build executes none",
    "test_rebuild": "counts pages; a recorded gallery has one more, which lists its recordings",
    "test_md5_hash": "looks for the sum that sphinx-gallery keeps of a script that it executed; "
    "nothing was executed, and with one, who leaves the engine would not have it executed either",
    "test_embed_links_and_styles": "needs the network, and fails plainly without",
    "test_backreferences_dirhtml": "needs the network, and fails plainly without",
    "test_thumbnail_expected_failing_examples": "depends on the version of Pillow, plainly too",
}


def main(folder: Path) -> int:
    """Fetch, record, test, tell; the exit status."""
    for program in ("ffmpeg", "dot", "pandoc"):
        if shutil.which(program) is None:
            print(f"{program} is missing: apt-get install ffmpeg graphviz pandoc")
            return 1
    source = _fetch(folder)
    tests = source / "sphinx_gallery" / "tests"
    recordings = folder / "recordings"
    conf = tests / "tinybuild" / "doc"
    paths = [str(source), str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    record = [sys.executable, "-m", "gallery_recorder", "record", "--device", "cpu"]
    command = [*record, "--conf", conf, "--recordings", recordings]
    if subprocess.run(command, env=environment, cwd=folder, check=False).returncode:
        return 1
    with open(conf / "conf.py", "a", encoding="utf-8") as file:
        file.write(
            f"\nextensions.append('gallery_recorder')\ngallery_recordings = [{str(recordings)!r}]\n"
        )
    report = folder / "report.xml"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, f"--junit-xml={report}"]
        + ["--rootdir", str(source), "-p", "no:cacheprovider", "test_full.py"],
        env=environment,
        cwd=tests,
        check=False,
    )
    return _tell(report)


def _fetch(folder: Path) -> Path:
    """The unpacked source distribution of the sphinx-gallery that is installed."""
    version = importlib.metadata.version("sphinx-gallery")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", ":all:", "--dest", str(folder), f"sphinx-gallery=={version}"]
    subprocess.run(command, check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


def _tell(report: Path) -> int:
    cases = [*ElementTree.parse(report).iter("testcase")]
    failed = [
        case.get("name", "")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - len(failed) - skipped
    print(f"\n{passed} of {len(cases)} tests of sphinx-gallery pass over recordings:")
    for name in failed:
        print(f"  {name}: {REASONS.get(name.partition('[')[0], 'NO REASON IS KNOWN')}")
    return 0 if passed >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
