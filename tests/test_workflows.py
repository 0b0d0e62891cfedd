"""The workflows: thin, pinned, with no more rights than they need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
VERBS = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
#: Verbs of the Makefile that change something elsewhere, and the rights that they need.
WRITING = {"pages": {"contents"}, "propose": {"contents", "pull-requests"}}


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(path: Path) -> list[dict]:
    return list(read(path)["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_is_a_verb_of_the_makefile(path):
    commands = [step["run"] for job in jobs(path) for step in job["steps"] if "run" in step]
    for command in commands:
        make, verb, *rest = command.split()
        assert make == "make"
        assert verb in VERBS
        assert all(re.fullmatch(r"[A-Z]+=[\w./-]+", word) for word in rest), command


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_say_their_version(path):
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_rights_are_given_job_by_job(path):
    assert read(path)["permissions"] == {}
    assert read(path)["concurrency"]["group"]
    for job in jobs(path):
        assert job["timeout-minutes"] <= 60
        verbs = {step["run"].split()[1] for step in job["steps"] if "run" in step}
        wanted = set().union(*(WRITING.get(verb, set()) for verb in verbs))
        deploys = any("deploy-pages" in step.get("uses", "") for step in job["steps"])
        wanted |= {"pages", "id-token"} if deploys else set()
        given = {name for name, right in job["permissions"].items() if right == "write"}
        assert given == wanted


def test_code_of_a_fork_never_reaches_a_gpu_machine():
    for path in WORKFLOWS:
        own_machines = [job for job in jobs(path) if "self-hosted" in job["runs-on"]]
        assert bool(own_machines) == (path.stem == "record")
        for job in own_machines:
            assert set(read(path)[True]) == {"push", "schedule", "workflow_dispatch"}  # `on:`
            assert read(path)[True]["push"]["branches"] == ["main"]
            assert "github.ref == 'refs/heads/main'" in job["if"]
            assert job["permissions"] == {"contents": "read"}
