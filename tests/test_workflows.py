"""The workflows: thin, pinned, with no more rights than they need."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
VERBS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
#: Verbs of the Makefile that change something elsewhere, and the rights that they need.
WRITING = {
    "pages": {"contents"},
    "propose": {"contents", "pull-requests"},
    "comment": {"pull-requests"},
}


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


def test_our_own_files_give_the_gpu_machine_to_main_alone():
    """What a fork brings, settings have to keep off; see ``make runner``."""
    for path in WORKFLOWS:
        own_machines = [job for job in jobs(path) if "self-hosted" in job["runs-on"]]
        assert bool(own_machines) == (path.stem == "record")
        for job in own_machines:
            assert set(read(path)[True]) == {"push", "schedule", "workflow_dispatch"}  # `on:`
            assert read(path)[True]["push"]["branches"] == ["main"]
            assert "github.ref == 'refs/heads/main'" in job["if"]
            assert job["permissions"] == {"contents": "read"}


def test_the_settings_are_printed_and_explained():
    printed = subprocess.run(
        ["make", "--no-print-directory", "runner"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    for words in ("Approval", "Runner groups", "record.yml@refs/heads/main", "ephemeral"):
        assert words in printed
    assert "Allow public repositories" in printed
    assert (
        ".. literalinclude:: ../.github/runner.txt" in (ROOT / "docs/contributing.rst").read_text()
    )
    for path in (ROOT / "docs").rglob("*.rst"):
        assert "never reaches" not in path.read_text()


def test_an_artifact_is_unpacked_outside_the_checkout():
    """Before a step with a token, nothing in the checkout may come from a tutorial."""
    for path in WORKFLOWS:
        for job in jobs(path):
            for number, step in enumerate(job["steps"]):
                if "download-artifact" not in step.get("uses", ""):
                    continue
                assert step["with"]["path"].startswith("${{ runner.temp }}/")
                taken = job["steps"][number + 1]
                assert taken["run"] == "make take"
                assert taken["env"] == {"FROM": step["with"]["path"]}
                with_token = [s for s in job["steps"][number + 1 :] if "github.token" in str(s)]
                assert [s["run"].split()[1] for s in with_token] in (["propose"], ["comment"])


def test_of_a_pull_request_with_recordings_nothing_is_executed():
    """Its recordings are taken as data, by programs of the branch that it is for."""
    (job,) = jobs(ROOT / ".github/workflows/contribution.yml")
    programs, data = (s for s in job["steps"] if "actions/checkout" in s.get("uses", ""))
    assert programs["with"]["ref"] == "${{ github.event.pull_request.base.sha }}"
    assert (data["with"]["path"], data["with"]["sparse-checkout"]) == (
        "build/pull-request",
        "recordings",
    )
    assert job["permissions"] == {"contents": "read"}
    verbs = [step["run"] for step in job["steps"] if "run" in step]
    assert verbs == ["make take", "make contributed"]
    assert all("working-directory" not in step for step in job["steps"])


def test_who_may_comment_executes_the_default_branch_and_believes_nothing():
    path = ROOT / ".github/workflows/comment.yml"
    assert set(read(path)[True]) == {"workflow_run"}  # `on:`
    (job,) = jobs(path)
    (checkout,) = (s for s in job["steps"] if "actions/checkout" in s.get("uses", ""))
    assert checkout["with"] == {"persist-credentials": False}  # the default branch, and no token
    verbs = [step["run"] for step in job["steps"] if "run" in step]
    assert verbs == ["make take", "make contributed", "make comment"]
    # What a stranger chose is no part of a command.
    for step in job["steps"]:
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize("number", ["7", ""])
def test_a_comment_goes_to_the_pull_request_that_was_checked(tmp_path, number):
    evil = '$(touch evil)`touch evil`";touch evil;"'
    fake = tmp_path / "bin" / "gh"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/bash\nprintf "%s\\n" "$@" END >>calls\n[ "$1" = api ] && echo "$NUMBER"; exit 0\n'
    )
    fake.chmod(0o755)
    (tmp_path / "text.md").write_text("Text")
    subprocess.run(
        ["bash", ROOT / ".github/comment.sh", "text.md"],
        cwd=tmp_path,
        env=os.environ
        | {
            "PATH": f"{fake.parent}:{os.environ['PATH']}",
            "GITHUB_REPOSITORY": "a/b",
            "HEAD_OWNER": "stranger",
            "HEAD_BRANCH": evil,
            "HEAD_SHA": "f" * 40,
            "NUMBER": number,
        },
        check=True,
    )
    asked, *said = (tmp_path / "calls").read_text().split("END\n")[:-1]
    assert f"head=stranger:{evil}" in asked.splitlines()
    assert [call.splitlines()[:3] for call in said] == ([["pr", "comment", "7"]] if number else [])
    assert not (tmp_path / "evil").exists()


def test_a_push_to_main_never_takes_the_place_of_a_release_that_waits():
    publish = read(ROOT / ".github/workflows/publish.yml")
    assert publish["concurrency"] == {
        "group": "publish-${{ github.ref }}",
        "cancel-in-progress": False,
    }
    assert "concurrency" not in publish["jobs"]["publish"]
    # A tag, and main at the same commit: each build is of what was pushed.
    steps = {step["run"]: step.get("env", {}) for step in publish["jobs"]["publish"]["steps"][2:]}
    assert steps["make html"] == {"GALLERY_VERSION": steps["make pages"]["VERSION"]}
    # Who waits to deploy may give way: each deploys all that the branch holds by then.
    deploy = publish["jobs"]["deploy"]
    assert deploy["concurrency"] == {"group": "deploy", "cancel-in-progress": False}
    assert deploy["steps"][0]["with"]["ref"] == "gh-pages"


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", folder, "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_two_versions_that_are_pushed_at_once_are_both_published(tmp_path):
    """The second push is refused; then its version is put into what the first one made."""
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch", "gh-pages", "origin.git")
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    git(checkout, "remote", "add", "origin", str(tmp_path / "origin.git"))
    (checkout / "pages.sh").write_text((ROOT / ".github/pages.sh").read_text())
    # Stands for `make publish`: adds a folder, and lets another version come first, once.
    (checkout / "Makefile").write_text(
        "publish:\n\tmkdir -p $(SITE)/$(VERSION) && echo x >$(SITE)/$(VERSION)/index.html\n"
        "\ttest -e other || (touch other && sh ./other.sh)\n"
    )
    (checkout / "other.sh").write_text(
        f"git init -q -b gh-pages {tmp_path}/other && cd {tmp_path}/other && mkdir v1.0.0 && "
        f"echo x >v1.0.0/index.html && git add . && git commit -qm other && "
        f"git push -q {tmp_path}/origin.git gh-pages\n"
    )
    git(checkout, "add", "pages.sh")
    git(checkout, "commit", "--quiet", "--message", "First")
    identity = {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run(
        ["bash", "pages.sh", "main"],
        cwd=checkout,
        env=environment | identity,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = git(tmp_path / "origin.git", "ls-tree", "-r", "--name-only", "gh-pages").split()
    assert names == ["main/index.html", "v1.0.0/index.html"]
    assert "attempt 1 of 20" in done.stdout
