"""The workflows: no foreign code on a GPU; zizmor checks rights, pins and injections."""

import os
import re
import subprocess
from pathlib import Path

import yaml

from tests import conftest

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
VERBS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def read(name):
    workflow = yaml.safe_load((ROOT / ".github/workflows" / f"{name}.yml").read_text())
    return workflow, workflow[True]  # YAML reads the key `on` as true


def commands(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def test_each_verb_that_a_workflow_calls_exists():
    text = "".join(path.read_text() for path in WORKFLOWS)
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= VERBS


def test_the_gpu_machine_executes_main_alone_and_only_by_hand():
    for path in WORKFLOWS:
        workflow, events = read(path.stem)
        for name, job in workflow["jobs"].items():
            if "self-hosted" in job["runs-on"]:
                assert (path.stem, name) == ("record", "record")
                assert set(events) == {"workflow_dispatch"}
                assert job["if"] == "github.ref == 'refs/heads/main'"
                assert job["permissions"] == {"contents": "read"}


def test_the_job_that_opens_a_pull_request_executes_nothing_of_the_checkout():
    propose = read("record")[0]["jobs"]["propose"]
    for command in commands(propose):
        assert not re.search(r"\b(make|python|bash|sh)\b|\./", command)


def test_only_a_tag_is_published():
    assert read("publish")[1] == {"push": {"tags": ["v*"]}}


def test_a_tag_is_added_to_the_versions_that_are_published(tmp_path):
    """Runs the steps of publish.yml with a `make publish` that writes one file."""
    *_, publish, push = commands(read("publish")[0]["jobs"]["publish"])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").symlink_to("/bin/true")
    subprocess.run(["git", "init", "--quiet", "--bare", remote := tmp_path / "remote"], check=True)
    for version in ("v1.0.0", "v2.0.0"):
        (checkout := tmp_path / version).mkdir()
        made = "publish:\n\tmkdir $(SITE)/$(VERSION)\n\ttouch $(SITE)/$(VERSION)/x\n"
        (checkout / "Makefile").write_text(made)
        for script in (publish, push):
            subprocess.run(
                ["bash", "-eo", "pipefail", "-c", script],
                cwd=checkout,
                env=os.environ
                | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "URL": f"file://{remote}"}
                | {"VERSION": version, "GITHUB_REF_NAME": version, "GITHUB_ACTOR": "somebody"},
                check=True,
            )
    listed = ["git", "-C", remote, "ls-tree", "-r", "--name-only", "gh-pages"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    assert names == ["v1.0.0/x", "v2.0.0/x"]


def test_the_last_line_of_a_run_says_what_was_not_tried_and_how_to_have_it() -> None:
    reasons = 2 * ["Skipped: no browser: install one"] + ["Skipped: no mpirun: apt-get"]
    assert conftest.not_tried(reasons) == (
        "2 tests: no browser: install one; 1 test: no mpirun: apt-get"
    )
