"""action.yml, executed step by step as a runner would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ENGINE = ROOT / "packages" / "gallery-recorder"
INSTALL = "-m pip install --quiet --disable-pip-version-check"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
CONF = """
extensions = ["sphinx_gallery.gen_gallery", "gallery_recorder"]
sphinx_gallery_conf = {
    "examples_dirs": "examples", "gallery_dirs": "gallery", "filename_pattern": "",
    "image_scrapers": (), "reset_modules": (),
}
"""


@pytest.fixture
def runner(tmp_path):
    """A function that runs the action with inputs in a project with a remote."""
    (tmp_path / "bin").mkdir()
    for name, script in (
        ("gallery-recorder", f'exec {sys.executable} -m gallery_recorder "$@"'),
        ("python", f'test "$*" = "{INSTALL} {ENGINE}"'),
    ):
        (path := tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    (work := tmp_path / "work" / "examples").mkdir(parents=True)
    (work.parent / "conf.py").write_text(CONF)
    for name in ("a", "b"):
        (work / f"{name}.py").write_text(f'"""\n{name}\n===\n"""\nprint("{name}")\n')
    git = ["git", "-C", str(work.parent)]
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "origin"], check=True)
    for words in (["init", "-q"], ["remote", "add", "origin", str(tmp_path / "origin")]):
        subprocess.run([*git, *words], check=True)
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ENGINE / "src")}
    env |= {"GITHUB_ACTION_PATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}

    def run(**given):
        inputs = {name: said["default"] for name, said in ACTION["inputs"].items()} | given
        failed = False
        for step in ACTION["runs"]["steps"]:
            condition = step.get("if", "")
            wanted = all(
                (inputs[name] == value) == (sign == "==")
                for name, sign, value in re.findall(r"inputs\.([\w-]+) (==|!=) '(\w*)'", condition)
            )
            if not wanted or (failed and "!cancelled()" not in condition):
                continue
            named = {
                n: inputs[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", v)[1]]
                for n, v in step.get("env", {}).items()
            }
            script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            at = work.parent / (inputs["directory"] if "working-directory" in step else "")
            failed |= subprocess.run(script, cwd=at, env=os.environ | env | named).returncode != 0
        return not failed

    run.folder = work.parent
    return run


def test_shares_are_recorded_and_kept_on_a_branch_whatever_fails(runner):
    recordings = runner.folder / "recordings"
    for number in (1, 2):
        assert runner(pull="branch:r", shard=f"{number}/2")
        assert len([*recordings.rglob("recording.json")]) == 1
        recordings.rename(runner.folder / f"shard-{number}")
    assert runner(record="false", pull="branch:r\nshard-1\nshard-2\n", push="branch:r")
    (runner.folder / "examples" / "b.py").write_text('"""\nb\n=\n"""\nexit(3)\n')
    (runner.folder / "examples" / "a.py").write_text('"""\na\n=\n"""\nprint("new")\n')
    assert not runner(names="a b", push="branch:r")
    origin = ["git", "-C", str(runner.folder.parent / "origin")]
    show = subprocess.run([*origin, "grep", "-h", "stdout", "r"], capture_output=True, text=True)
    assert sorted(re.findall(r'"(\w+)\\n"', show.stdout)) == ["b", "new"]
    assert "current" in (runner.folder.parent / "summary").read_text()


def test_a_name_is_never_an_option_and_a_failure_stays_in_its_block_of_the_summary(runner):
    evil = "-Dgallery_launcher=touch,launched"
    assert not runner(names=evil)
    runner(pull=evil, record="false")
    runner(push=evil)
    assert not [*runner.folder.rglob("launched")]
    (runner.folder / "examples" / "a.py").write_text(
        '"""\na\n=\n"""\nraise ValueError("x\\n```\\n# A title of the summary")\n'
    )
    assert not runner()
    summary = (runner.folder.parent / "summary").read_text()
    assert "# A title of the summary" in summary
    assert {line[:4] for line in summary.splitlines() if line} == {" " * 4}


def test_no_input_is_part_of_a_command():
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
