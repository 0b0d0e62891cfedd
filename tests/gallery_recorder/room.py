"""A room to record in: tutorials made by a test, their recordings, and what is left over."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from gallery_recorder.run import recorder
from gallery_recorder.run.messages import MARK
from gallery_recorder.run.progress import Outcome, Progress
from gallery_recorder.source import project
from gallery_recorder.store import recording
from gallery_recorder.store.recording import Block, Provenance, Recording, RunFacts

PROJECT = Path(__file__).parents[2]

HEAD = '''"""
A title
=======

An introduction.
"""

# %%
# The first block, which is line 11.

print("begun")

# %%
# The second block, which begins at line {line}.

'''
CONF = """
project = "Room"
extensions = ["sphinx_gallery.gen_gallery", "gallery_recorder"]
sphinx_gallery_conf = {
    "examples_dirs": ["../tutorials"],
    "gallery_dirs": ["tutorials"],
    "filename_pattern": "",
    "image_scrapers": ("gallery_recorder.run.figures.svg_scraper",),
}
gallery_recordings = ["recordings"]
gallery_environment = {"cpu": {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}}
gallery_untimed = {"cpu": "interpreter"}
gallery_devices = ["nvidia-h200"]
gallery_writable = ["~/.triton"]
gallery_data = ["*"]
gallery_stderr = "apart"
gallery_filters = [
    "gallery_recorder.run.text.mask_addresses",
    "gallery_recorder.run.text.name_paths",
]
"""
DEVICE = "interpreter"

SECOND = HEAD.count("\n") + 1  # the line that the second block begins at
HEAD = HEAD.format(line=SECOND)


@dataclass
class Room:
    """A folder with ``tutorials`` and ``recordings``."""

    folder: Path

    def __post_init__(self) -> None:
        self.tutorials.mkdir(parents=True, exist_ok=True)
        self.docs.mkdir(exist_ok=True)
        (self.docs / "index.rst").write_text("Index\n=====\n")
        if not (self.folder / "conf.py").exists():
            (self.folder / "conf.py").write_text(CONF)

    @property
    def docs(self) -> Path:
        return self.folder / "docs"

    @property
    def tutorials(self) -> Path:
        return self.folder / "tutorials"

    @property
    def recordings(self) -> Path:
        return self.folder / "recordings"

    @property
    def device(self) -> Path:
        return self.recordings / DEVICE

    @property
    def gallery(self) -> Path:
        """Where recordings of the gallery lie."""
        return self.device / "tutorials"

    def write(self, name: str, code: str, head: str = HEAD) -> Path:
        """Make a tutorial whose second block is *code*."""
        path = self.tutorials / f"{name}.py"
        path.write_text(head + dedent(code).strip("\n") + "\n")
        return path

    def record(
        self,
        *names: str,
        out: io.StringIO | None = None,
        plan: project.Project | None = None,
        **options: object,
    ) -> dict[str, Outcome]:
        """Record in this process, in the interpreter; return what became of each tutorial."""
        said = recorder.Options(
            **{"names": list(names), "device": "cpu", "recordings": self.recordings, **options}
        )
        outcomes, _ = recorder.record(plan or self.project(), said, Progress(out or io.StringIO()))
        return {outcome.script: outcome for outcome in outcomes}

    def project(self) -> project.Project:
        return project.read(project.find(self.folder, self.docs, ()))

    def command(self, verb: str, *arguments: str) -> list[str]:
        return [
            *(sys.executable, "-m", "gallery_recorder", verb, *arguments),
            *("--conf", str(self.folder), "--source", str(self.docs)),
            *("--recordings", str(self.recordings)),
        ]

    def run(self, verb: str, *arguments: str, **options: object) -> subprocess.CompletedProcess:
        """Run the command line in a process of its own."""
        command = self.command(verb, *arguments)
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, **options)

    def start(self, *arguments: str, **options: object) -> subprocess.Popen:
        """Start to record in a process of its own."""
        return subprocess.Popen(
            self.command("record", "--device", "cpu", *arguments), cwd=PROJECT, **options
        )

    def load(self, name: str) -> Recording:
        return recording.load(self.gallery / name)

    def put_recording(self, name: str, seconds: float = 1.0, key: str = "0" * 64) -> Path:
        """Make up a recording of *name*, with a file; return its folder."""
        staging = self.folder / "made-up"
        staging.mkdir()
        (staging / "data.csv").write_text("a,b\n1,2\n")
        made = Recording(
            schema=recording.SCHEMA,
            gallery="tutorials",
            name=name,
            title="A title",
            key=key,
            run=RunFacts("2026-01-02T03:04:05Z", seconds, timed=False),
            provenance=Provenance(DEVICE, "cpu", "Linux", "3.12"),
            blocks=(Block(11, key, seconds, stdout="old\n", data=("data.csv",)),),
            files={"data.csv": recording.digest(staging / "data.csv")},
        )
        recording.save(made, staging, self.gallery / name)
        return self.gallery / name

    def content(self, name: str) -> dict[str, str]:
        """The hash of each file of a recording."""
        folder = self.gallery / name
        return {
            p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in folder.rglob("*")
            if p.is_file()
        }

    def left_over(self) -> list[str]:
        """Files and processes that a recorder should have removed."""
        files = [
            os.path.join(folder, name)
            for folder, folders, names in os.walk(self.recordings)
            for name in [*folders, *names]
            if name.startswith(".")
        ]
        processes = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                environment = path.read_bytes()
                alive = (path.parent / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
            except OSError:
                continue
            if alive and f"{MARK}={self.folder.resolve()}{os.sep}".encode() in environment:
                processes.append((path.parent / "cmdline").read_text().replace("\0", " "))
        return files + processes
