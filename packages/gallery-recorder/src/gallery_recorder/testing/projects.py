"""A sphinx-gallery project made by a test: conf.py, scripts, recordings, and what is left over."""

import hashlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest import mock

import msgspec
import psutil

from gallery_recorder.project import galleries
from gallery_recorder.project.galleries import Project
from gallery_recorder.run import recorder
from gallery_recorder.run.progress import Outcome
from gallery_recorder.store import recording
from gallery_recorder.store.format import Block, Provenance, Recording, RunFacts
from gallery_recorder.testing import in_process, processes
from gallery_recorder.testing.recordings import made_up

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
SECOND = HEAD.count("\n") + 1  # the line that the second block begins at
HEAD = HEAD.format(line=SECOND)

CONF = """
extensions = ["sphinx_gallery.gen_gallery", "gallery_recorder"]
sphinx_gallery_conf = {{
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["auto_examples"],
    "filename_pattern": "",
    "within_subsection_order": "FileNameSortKey",
    {options}
}}
gallery_recordings = ["../recordings"]
{more}
"""


@dataclass
class Gallery:
    """A project below *root*, as most have it: ``doc/conf.py`` and ``examples``.

    *options* are lines of ``sphinx_gallery_conf``, *more* are other lines of conf.py.
    """

    root: Path
    options: str = ""
    more: str = ""

    machine = "cpu"
    folders = ("doc", "doc", "examples")

    def __post_init__(self) -> None:
        #: The folders of conf.py, of pages, and of scripts.
        self.conf, self.source, self.examples = (self.root / name for name in self.folders)
        for folder in (self.conf, self.source, self.examples):
            folder.mkdir(parents=True, exist_ok=True)
        if not (self.conf / "conf.py").exists():
            (self.conf / "conf.py").write_text(self.settings())
        (self.source / "index.rst").write_text("Title\n=====\n")
        (self.examples / "GALLERY_HEADER.rst").write_text("Examples\n========\n")

    def settings(self) -> str:
        """The text of conf.py."""
        return CONF.format(options=self.options, more=dedent(self.more))

    @property
    def recordings(self) -> Path:
        """The folder of all recordings."""
        return self.root / "recordings"

    @property
    def device(self) -> Path:
        """The folder of recordings of this device."""
        return self.recordings / self.machine

    @property
    def recorded(self) -> Path:
        """Where recordings of the gallery lie."""
        return self.device / self.examples.name

    def write(self, name: str, code: str, head: str = HEAD) -> Path:
        """Make a script whose second block is *code*."""
        path = self.examples / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + dedent(code).strip("\n") + "\n")
        return path

    def project(self) -> Project:
        """What conf.py says."""
        return in_process.read(galleries.find(self.conf, self.source, ()))

    def record(
        self,
        *names: str,
        out: io.StringIO | None = None,
        plan: Project | None = None,
        **options: object,
    ) -> dict[str, Outcome]:
        """Record in this process, without a GPU; return the outcome of each script."""
        chosen = recorder.Options(**{"names": list(names), "device": "cpu", **options})
        return in_process.record(self, chosen, plan, out)

    def record_all(self) -> "Gallery":
        """Record; every script must be."""
        failed = [o.text for o in self.record().values() if o.status != "recorded"]
        assert not failed, "\n".join(failed)
        return self

    def load(self, name: str) -> Recording:
        """The recording of a script."""
        return recording.load(self.recorded / name)


ROOM = """
import sys
from pathlib import Path

from sphinx_gallery import gen_gallery

sys.path.insert(0, str(Path(__file__).parent))  # for figures.py

# It would import matplotlib for every script, and hardly one of ours draws.
gen_gallery._import_matplotlib = lambda: (None, None)

project = "Room"
extensions = ["sphinx_gallery.gen_gallery", "gallery_recorder"]
sphinx_gallery_conf = {
    "examples_dirs": ["../tutorials"],
    "gallery_dirs": ["tutorials"],
    "filename_pattern": "",
    "image_scrapers": ("figures.scraper",),
    "reset_modules": (),  # as this would
}
gallery_recordings = ["recordings"]
gallery_environment = {"cpu": {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}}
gallery_untimed = {"cpu": "interpreter"}
gallery_devices = ["nvidia-h200"]
gallery_data = ["*"]
gallery_stderr = "apart"
gallery_filters = [
    "gallery_recorder.run.text.mask_addresses",
    "gallery_recorder.run.text.name_paths",
]
"""


#: A scraper of the project's own. The same figure gives the same bytes.
FIGURES = """
import sys

from sphinx_gallery.scrapers import figure_rst


def scraper(block, block_vars, gallery_conf):
    if "matplotlib.pyplot" not in sys.modules:
        return ""
    import matplotlib.pyplot as plt

    paths = []
    with plt.rc_context({"svg.hashsalt": "figures"}):
        for number in plt.get_fignums():
            path = next(block_vars["image_path_iterator"]).replace(".png", ".svg")
            plt.figure(number).savefig(path, metadata={"Date": None})
            paths.append(path)
    plt.close("all")
    return figure_rst(paths, gallery_conf["src_dir"])
"""


class Room(Gallery):
    """A project with folders and settings as those of this one, and where a recorder may fail."""

    machine = "interpreter"
    folders = (".", "docs", "tutorials")

    def __post_init__(self) -> None:
        super().__post_init__()
        (self.root / "figures.py").write_text(FIGURES)

    def settings(self) -> str:
        """The text of conf.py."""
        return ROOM

    def record(self, *names: str, **options: Any) -> dict[str, Outcome]:
        """Record in this process; temporary files stay below the root."""
        with mock.patch.object(tempfile, "tempdir", str(self.root)):
            return super().record(*names, **{"recordings": self.recordings, **options})

    def command(self, verb: str, *arguments: str) -> list[str]:
        """The words of a command line for this project."""
        return [
            *(sys.executable, "-m", "gallery_recorder", verb, *arguments),
            *("--conf", str(self.root), "--source", str(self.source)),
            *("--recordings", str(self.recordings)),
        ]

    def run(
        self, verb: str, *arguments: str, env: Mapping[str, str] = os.environ
    ) -> subprocess.CompletedProcess:
        """Run the command line in a copy of a process that has its imports."""
        environment = {**env, "TMPDIR": str(self.root)}
        return processes.run(self.command(verb, *arguments), cwd=self.root, env=environment)

    def start(self, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen:
        """Start to record in a process of its own; *before* are words before the command."""
        return subprocess.Popen(
            [*before, *self.command("record", "--device", "cpu", *arguments)],
            cwd=self.root,
            env=os.environ | {"TMPDIR": str(self.root), "PYTHONPATH": processes.search_path()},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a group of its own, which a terminal's signals go to
        )

    def put_recording(self, name: str, seconds: float = 1.0) -> Path:
        """Put a made-up recording of other code in the place of that of *name*; its folder."""
        workspace = self.root / "made-up"
        workspace.mkdir()
        made = printed(workspace, name, ["0" * 64], "old\n", seconds)
        recording.save(made, workspace, self.recorded / name)
        return self.recorded / name

    def content(self, name: str) -> dict[str, str]:
        """The hash of each file of a recording."""
        folder = self.recorded / name
        return {
            p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in folder.rglob("*")
            if p.is_file()
        }

    def processes(self) -> list[str]:
        """The commands of processes that were started for this room and still run."""
        found = []
        for process in psutil.process_iter():
            try:
                command = " ".join(process.cmdline())
                inside = process.cwd().startswith(str(self.root)) or str(self.root) in command
                if inside and command:  # without one it has just ended
                    found.append(command)
            except psutil.Error:  # it has ended
                continue
        return found

    def left_over(self) -> list[str]:
        """Temporary files and processes that a recorder should have removed."""
        hidden = [
            str(path) for path in self.recordings.rglob(".*") if path.name != ".gitattributes"
        ]
        return hidden + [str(path) for path in self.root.glob("gallery-*")] + self.processes()


def printed(
    folder: Path, name: str, keys: Sequence[str], text: str, seconds: float = 1.0
) -> Recording:
    """A recording of nothing, with a file in *folder*; its last block printed *text*."""
    (folder / "data.csv").write_text("a,b\n1,2\n")
    *blocks, last = [Block(11, key, seconds) for key in keys]
    return made_up(
        folder,
        (*blocks, msgspec.structs.replace(last, stdout=text, data=("data.csv",))),
        name=name,
        run=RunFacts("2026-01-02T03:04:05Z", seconds, timed=False),
        provenance=Provenance(Room.machine, "cpu", "Linux", "3.12"),
    )
