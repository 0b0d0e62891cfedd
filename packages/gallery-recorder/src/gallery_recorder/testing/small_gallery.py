"""A small gallery and invented recordings of it, to test rendering without executing anything."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gallery_recorder.project.script import key_of, load_script
from gallery_recorder.store import recording
from gallery_recorder.store.format import (
    FILE_NAME,
    Block,
    Figure,
    Image,
    Provenance,
    RunFacts,
    encode,
)
from gallery_recorder.testing import processes
from gallery_recorder.testing.projects import Gallery
from gallery_recorder.testing.recordings import made_up

#: How the scraper of SVG figures shows a figure.
SHOWN: dict[str, Any] = {
    "width": "700",
    "height": "400",
    "loading": "lazy",
    "classes": ("sphx-glr-single-img",),
}

TUTORIAL = '''"""
First kernel
============

What you will build, and :math:`x + y`.
"""

# sphinx_gallery_thumbnail_number = 1

# %%
# A section
# ---------
# Prose before code.

import math

print(math.pi)

{sections}# %%
# More prose.

{code}
'''

SECTION = """# %%
# Section {number}
# ----------------
#
# A paragraph with a formula, :math:`x_{{{number}}} = 2^{{-{number}}}`, and ``code`` in it,
# as long as the paragraphs of a tutorial are.


def step_{number}(values):
    return [value * {number} for value in values]


print(step_{number}(range(8)))

"""

CONF = """
import sys

sys.path.insert(0, "{root}")  # for software_facts

project = "Fixture"
extensions = {extensions}
html_theme = "{theme}"
gallery_recordings = ["recordings", "build/recordings"]
sphinx_gallery_conf = {{
    "examples_dirs": ["../tutorials"],
    "gallery_dirs": ["tutorials"],
    "filename_pattern": "",
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "write_computation_times": False,
}}
"""

INDEX = """
Fixture
=======

.. toctree::

   tutorials/index
   recordings
"""

RECORDINGS = """
Recordings
==========

.. gallery-recordings::
"""

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="70" height="40"><circle r="9"/></svg>'
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
    "hgGAWjR9awAAAABJRU5ErkJggg=="
)


#: The name of the probe whose values invented recordings have.
PROBE = "my_gallery.software"

#: The engine, and an extension of the gallery's own, which pages show facts of.
EXTENSIONS = ("gallery_recorder", "software_facts")

SOFTWARE_FACTS = f"""
from gallery_recorder.api import Fact

def setup(app):
    app.connect("gallery-facts", facts)
    return {{"parallel_read_safe": True}}

def facts(app, recording):
    found = [
        Fact(name, str(value), f"{{name}} {{value}}")
        for name, value in recording.probe({PROBE!r}).items()
    ]
    if not recording.timed:
        found.append(Fact("Device", "an interpreter on a CPU", "in an interpreter"))
    return found
"""

SPEED = "size,provider,unit,median,p20,p80\n4,triton,GB/s,2,1,3\n"


@dataclass
class SmallGallery(Gallery):
    """A project with folders as those of this site, whose theme and extensions a test chooses."""

    theme: str = "basic"
    extensions: Sequence[str] = EXTENSIONS

    folders = (".", "docs", "tutorials")

    def settings(self) -> str:
        """The text of conf.py."""
        return CONF.format(root=self.root, theme=self.theme, extensions=list(self.extensions))


def make_gallery(
    root: Path,
    names: tuple[str, ...] = ("01-first", "02-second"),
    sections: int = 0,
    theme: str = "basic",
    extensions: Sequence[str] = EXTENSIONS,
) -> Path:
    """Write a Sphinx project with the tutorials *names* below *root*; no recordings yet.

    Each has two code cells, and as many more as *sections* says.
    """
    made = SmallGallery(root, theme=theme, extensions=extensions)
    (root / "software_facts.py").write_text(SOFTWARE_FACTS)
    (made.source / "index.rst").write_text(INDEX)
    (made.source / "recordings.rst").write_text(RECORDINGS)
    (made.examples / "GALLERY_HEADER.rst").write_text("Tutorials\n=========\n")
    for number, name in enumerate(names):
        code = f"answer = 6 * {7 + number}\nanswer"
        more = "".join(SECTION.format(number=i) for i in range(1, sections + 1))
        text = TUTORIAL.format(code=code, sections=more)
        (made.examples / f"{name}.py").write_text(text)
    return root


def make_recording(
    root: Path,
    name: str,
    device: str = "nvidia-h200",
    recorded: str = "2026-11-20T12:00:00Z",
    speed: str = SPEED,
    file: str = "speed.csv",
    probe: str = PROBE,
) -> Path:
    """Write a recording of the tutorial *name* as it is now; returns its folder.

    *device* may have a variant: ``nvidia-h200/release-9``. *speed* is the content of *file*,
    *probe* names the probe that saw the versions of PyTorch and Triton.
    """
    place, (device, _, variant) = device, device.partition("/")
    interpreted = device == "interpreter"
    script = load_script(root / "tutorials" / f"{name}.py", root / "tutorials")
    base = root / "build" / "recordings" if interpreted else root / "recordings"
    folder = base / place / "tutorials" / name
    stem = Path(name).name
    workspace = base / device / f".workspace-{name.replace('/', '-')}"
    (workspace / "images").mkdir(parents=True)
    figure, thumbnail = f"images/sphx_glr_{stem}_001.svg", f"images/sphx_glr_{stem}_thumbnail.png"
    (workspace / figure).write_text(SVG)
    (workspace / thumbnail).write_bytes(PNG)
    (workspace / file).write_text(speed)
    said = f"3.14159 on {place}\n"
    rows = "".join(f"row {row:3}  {row * row:9.3f} GB/s\n" for row in range(12))
    software = {"torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.5.0"}
    if not interpreted:
        software |= {"toolkit": "CUDA 13.0", "peak_gpu_memory": 3 * 2**30}
    outputs: list[dict[str, Any]] = [{"stdout": rows, "seconds": 0.1} for _ in script.code]
    outputs[0] = {
        "stdout": said,
        "stderr": "a warning\n",
        "seconds": 0.5,
    }
    outputs[-1] = {
        "figures": (Figure((Image(figure, "A rising line", **SHOWN),)),),
        "value": {"text/plain": "42"},
        "images": (figure,),
        "data": (file,),
        "seconds": 12.0,
    }
    content = made_up(
        workspace,
        [
            Block(line=code.block.lineno, key=code.key, code=code.block.content, **made)
            for code, made in zip(script.code, outputs, strict=True)
        ],
        name=name,
        title=script.title,
        key=script.key,
        variant=variant or None,
        run=RunFacts(recorded, 12.5, peak_host_memory=2**30, timed=not interpreted),
        provenance=Provenance(
            device="NVIDIA H200" if device == "nvidia-h200" else device,
            kind="cpu" if interpreted else "gpu",
            os="Linux",
            python="3.12.3",
            versions={"sphinx-gallery": "0.22.1"},
        ),
        probes={probe: software},
        thumbnail=thumbnail,
    )
    recording.save(content, workspace, folder)
    return folder


def render(root: Path) -> None:
    """Build the gallery's site into ``build/html``, warnings as errors."""
    processes.build(root, "-W", "-q").check_returncode()


def make_stale(folder: Path) -> None:
    """Make the recording in *folder* one of other code."""
    blocks = recording.load(folder).blocks
    keys = ["0" * 64 for _ in blocks]
    stale = [msgspec.structs.replace(b, key=key) for b, key in zip(blocks, keys, strict=True)]
    change(folder, key=key_of(keys), blocks=tuple(stale))


def change(folder: Path, **fields: object) -> None:
    """Write the recording in *folder* again with other *fields*."""
    content = msgspec.structs.replace(recording.load(folder), **fields)
    (folder / FILE_NAME).write_bytes(encode(content))
