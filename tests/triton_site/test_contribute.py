"""A contribution from another GPU: recorded, checked, sent, taken, checked again and compared."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gallery_recorder.project import galleries as engine_galleries
from gallery_recorder.store import compare, recording
from gallery_recorder.store.format import DECODER, GpuState, encode
from tests import galleries
from tests.fixtures import second_device
from tests.fixtures.fixture_site import tree
from tests.fixtures.room import PROJECT
from triton_site.pages import contribute, take

NAMES = ("01-vector-add", "02-fused-softmax")
#: What a checkout is made of, besides its recordings.
LINKED = (
    *(".github", "Makefile", "conf.py", "docs", "gallery_recorder"),
    *("guide", "triton_site", "tutorials"),
)


@pytest.fixture(scope="module")
def plan():
    """The two tutorials of this site; to check all takes seconds."""
    examples = tuple(galleries.FILES[name] for name in NAMES)
    return msgspec.structs.replace(galleries.PROJECT, examples=examples)


@pytest.fixture(scope="module")
def scripts(plan):
    """Their code."""
    return [example.load() for example in plan.examples]


@pytest.fixture
def read_quickly(plan, monkeypatch):
    """What is executed in the test's own process reads nothing but them."""
    monkeypatch.setattr(engine_galleries, "read", lambda where: plan)


@pytest.fixture
def checkout(tmp_path):
    """A checkout in which the reference's recordings of two tutorials are committed."""

    def make(name: str) -> Path:
        folder = tmp_path / name
        for tutorial in NAMES:
            place = Path("recordings/nvidia-h200/triton-3.9.0/tutorials", tutorial)
            shutil.copytree(PROJECT / place, folder / place)
        for linked in LINKED:
            (folder / linked).symlink_to(PROJECT / linked)
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        for command in (
            ["init", "--quiet"],
            ["add", "recordings"],
            [*identity, "commit", "--quiet", "--message", "Recordings"],
        ):
            subprocess.run(["git", "-C", folder, *command], check=True)
        return folder

    return make


def verb(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Run a verb of the Makefile there."""
    return subprocess.run(
        ["make", "--no-print-directory", *arguments, f"PYTHON={sys.executable}"],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )


@pytest.mark.site
@pytest.mark.usefixtures("read_quickly")
def test_the_whole_path_from_a_reader_s_gpu_to_the_comment(checkout, tmp_path, monkeypatch, capsys):
    # On the reader's machine: what the recorder would have left there.
    theirs = checkout("theirs")
    monkeypatch.chdir(theirs)
    monkeypatch.setattr(contribute.gpus, "find_gpus", lambda: ["a GPU"])

    def record(arguments):
        assert arguments == ["record", "--device", "cuda", "02"]
        second_device.make(theirs / "recordings", NAMES[1:], fails="a fused softmax is over three")
        return 0

    monkeypatch.setattr(contribute.engine, "main", record)
    subprocess.run(["make", "-s", "committed", f"PYTHON={sys.executable}"], check=True)
    assert contribute.main(["--record", "02"]) == 0
    left = theirs / "build/contribution"
    assert sorted(os.listdir(left)) == [
        "comparison.html",
        "comparison.txt",
        "pull-request.md",
        "recordings",
    ]
    said = capsys.readouterr().out
    assert "1 recording; 5 of their claims hold" in said
    assert "'a fused softmax is over three times" in said
    assert "git add recordings/nvidia-a10 " in said
    # Where the pull request arrives: data is taken, and all is checked and compared anew.
    ours = checkout("ours")
    assert verb(ours, "take", FROM=str(left / "recordings")).returncode == 0
    done = verb(ours, "contributed")
    assert done.returncode == 0, done.stderr
    again = ours / "build/contribution"
    assert tree(again / "recordings") == tree(left / "recordings")
    assert (again / "pull-request.md").read_text() == (left / "pull-request.md").read_text()
    text = (again / "pull-request.md").read_text()
    assert text.startswith("## Recordings from nvidia-a10/triton-3.9.0\n\n```\n")
    assert "NVIDIA H200, triton-3.9.0" in text
    assert "softmax-performance  triton " in text
    assert "0.100 over 98 sizes" in text
    assert "The GPUs differ" in text
    assert "a fused softmax is over three times" in (again / "comparison.html").read_text()
    # The reference stays the reference: nothing of its recordings was touched.
    assert tree(ours / "recordings/nvidia-h200") == tree(theirs / "recordings/nvidia-h200")


@pytest.mark.usefixtures("read_quickly")
def test_what_is_refused_in_a_pull_request_is_said(checkout, monkeypatch, capsys):
    monkeypatch.chdir(ours := checkout("ours"))
    shutil.copytree("recordings", "build/committed/recordings")
    second_device.make(ours / "recordings", NAMES[:1], share=1.5)
    assert contribute.main([]) == 1
    assert "cannot do more than 600" in capsys.readouterr().out
    assert "Problem: " in (ours / "build/contribution/pull-request.md").read_text()


@pytest.mark.usefixtures("read_quickly")
def test_without_anything_new_there_is_nothing_to_contribute(checkout, monkeypatch, capsys):
    monkeypatch.chdir(checkout("ours"))
    shutil.copytree("recordings", "build/committed/recordings")
    assert contribute.main([]) == 0
    assert "nothing to contribute" in capsys.readouterr().out


def test_without_a_gpu_it_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(contribute.gpus, "find_gpus", list)
    assert contribute.main(["--record"]) == 1
    said = capsys.readouterr().err
    assert "no GPU was found" in said
    assert "docs/contributing.rst" in said
    assert "Record on your own GPU\n---" in (PROJECT / "docs/contributing.rst").read_text()


def checked(scripts, tmp_path, **changes):
    """What is said of the recording of a second device, made with *changes*."""
    new = tmp_path / "recordings"
    second_device.make(new, NAMES[:1], **changes)
    return contribute.check(scripts, new, tmp_path / "nothing")


def test_a_sound_recording_of_another_gpu_has_no_problem(scripts, tmp_path):
    found = checked(scripts, tmp_path)
    assert found.problems == []
    assert found.held >= 5
    assert found.places == ["nvidia-a10/triton-3.9.0"]


def test_what_is_committed_already_is_left_out(scripts, tmp_path):
    second_device.make(tmp_path / "recordings", NAMES[:1])
    found = contribute.check(scripts, tmp_path / "recordings", tmp_path / "recordings")
    assert (found.locations, found.problems) == ([], [])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"share": 0.5}, "cannot do more than 600"),
        ({"before": GpuState(other_processes=2)}, "2 other processes used the GPU"),
        (
            {"after": GpuState(throttling=("hardware thermal slowdown",), other_processes=0)},
            r"clocks were held down \(hardware thermal slowdown\); let the GPU cool",
        ),
    ],
)
def test_what_must_not_be_published(scripts, tmp_path, changes, problem):
    found = checked(scripts, tmp_path, **changes)
    assert found.problems
    assert any(re.search(problem, text) for text in found.problems)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"device": "NVIDIA Unheard-of"}, "no ceiling is known"),
        ({"before": GpuState()}, "does not tell whether others"),
        ({"after": GpuState(throttling=("power cap",), other_processes=0)}, "(power cap)"),
        ({"fails": ""}, ""),
    ],
)
def test_what_a_reviewer_should_know(scripts, tmp_path, changes, note):
    found = checked(scripts, tmp_path, **changes)
    assert found.problems == []
    assert any(note in text for text in found.notes) == bool(note)


def altered(place, **changes):
    """Write *changes* into a recording."""
    path = place.folder / "recording.json"
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"key": "0" * 64}, "is of other code"),
        ({"name": "99-unknown"}, "99-unknown; put it there"),
        ({"variant": "triton-4.0.0"}, "whose place is"),
        ({"blocks": []}, "names|is not|of other code"),
        ({"schema": 99}, "install a newer"),
        ({"probes": {}}, "but Triton was None"),
    ],
)
def test_a_forged_recording_is_a_problem(scripts, tmp_path, changes, problem):
    new = tmp_path / "recordings"
    (place,) = second_device.make(new, NAMES[:1])
    altered(place, **changes)
    found = contribute.check(scripts, new, tmp_path / "nothing")
    assert any(re.search(problem, text) for text in found.problems), found.problems


@pytest.mark.parametrize(
    "rst",
    [
        "a text\n",
        ".. include:: /etc/passwd\n",
        ".. raw:: html\n   :file: /etc/passwd\n",
        ".. image:: /../../../etc/logo.png\n",
        ".. image:: /@@gallery@@/images/a.png\n   :target: javascript:alert(1)\n",
        " .. code-block:: none\n    :include: x\n",
        " .. code-block:: none\n\n    x\x0b.. include:: /etc/passwd\n",
        " .. code-block:: none\n\n    x\u2028.. include:: /etc/passwd\n",
        ".. container:: gallery-data\n\n    .. toctree::\n",
        ".. container:: gallery-data\n\n   :download:`x </../../etc/passwd>` (1 byte)\n",
        "\n" * 3000 + " .. code-block:: none\n\n    x\n\n" * 3000 + ".. math::\n",
    ],
)
def test_what_lets_sphinx_read_other_files_is_a_problem(scripts, tmp_path, rst):
    new = tmp_path / "recordings"
    (place,) = second_device.make(new, NAMES[:1])
    blocks = json.loads((place.folder / "recording.json").read_text())["blocks"]
    blocks[1]["rst"] = blocks[1].get("rst", "") + rst
    altered(place, blocks=blocks)
    (problem,) = contribute.check(scripts, new, tmp_path / "nothing").problems
    assert "block 2 shows more than texts, figures and files" in problem


def test_all_that_is_recorded_here_is_made_of_these():
    for path in recording.all_recordings(PROJECT / "recordings"):
        for block in DECODER.decode((path / "recording.json").read_bytes()).blocks:
            assert contribute._SHOWN.fullmatch("\n".join([*block.rst.splitlines(), ""])), path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("claims.json", b"{"),
        ("claims.json", b'[{"statement": "x", "value": 1, "margin": 0, "held": true}]'),
        ("vector-add-performance.csv", b"size,provider,unit,median,p20,p80\n1,a,GB/s,x,1,1\n"),
        ("vector-add-performance.csv", b"size,provider,unit,median\n\xff,a,GB/s,1\n"),
        ("vector-add-performance.csv", b"size,provider,unit,median\n1,a\n"),
    ],
)
def test_a_stranger_s_file_that_cannot_be_read_is_a_problem_and_no_traceback(
    scripts, tmp_path, name, content
):
    new = tmp_path / "recordings"
    (place,) = second_device.make(new, NAMES[:1])
    (place.folder / name).write_bytes(content)
    made = json.loads((place.folder / "recording.json").read_text())
    made["files"][name] = recording.digest(place.folder / name)
    (place.folder / "recording.json").write_text(json.dumps(made))
    found = contribute.check(scripts, new, tmp_path / "nothing")
    assert len(found.problems) == 1


EVIL = "`\n```\n</details><script>alert(1)</script> @everyone ![x](https://example.org/x.png)"


def test_what_a_recording_says_stays_in_the_quotation(scripts, tmp_path):
    new = tmp_path / "recordings"
    (place,) = second_device.make(new, NAMES[:1], fails="")
    claims = json.loads((place.folder / "claims.json").read_text())
    claims[0] |= {"statement": EVIL, "held": False, "value": -1.0}
    claims[0] |= {"at_least": 1.0, "at_most": None}
    (place.folder / "claims.json").write_text(json.dumps(claims))
    made = DECODER.decode((place.folder / "recording.json").read_bytes())
    files = made.files | {"claims.json": recording.digest(place.folder / "claims.json")}
    blocks = [msgspec.structs.replace(block, stdout=EVIL) for block in made.blocks]
    changed = msgspec.structs.replace(made, files=files, blocks=tuple(blocks))
    (place.folder / "recording.json").write_bytes(encode(changed))
    found = contribute.check(scripts, new, tmp_path / "nothing")
    committed, place = tmp_path / "committed", "nvidia-h200/triton-3.9.0/tutorials/01-vector-add"
    shutil.copytree(PROJECT / "recordings" / place, committed / place)
    contribute.write(found, new, committed, tmp_path / "left")
    text = (tmp_path / "left" / "pull-request.md").read_text()
    before, inside, after = text.split("```")
    assert "alert" in inside
    assert "alert" not in before + after
    assert "`" not in inside
    assert "<script" not in (tmp_path / "left" / "comparison.html").read_text()
    # And what is left can be taken.
    assert take.take(tmp_path / "left" / "recordings", tmp_path / "taken")
    assert compare.compare(committed, tmp_path / "taken").pairs


def test_a_text_that_is_too_long_for_github_is_cut(tmp_path):
    found = contribute.Checked(notes=["×" * 90_000])
    assert len(contribute.pull_request(found, "").encode()) < 65_536 * 2
    assert "the rest is in comparison.html" in contribute.pull_request(found, "")
