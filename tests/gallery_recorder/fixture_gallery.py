"""A small gallery and recordings for it, made without executing anything.

The recordings are as the recorder writes them, through ``recording.save``; only their content is
made up, so that rendering can be tested by itself and fast.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gallery_recorder.source.script import load_script
from gallery_recorder.store import recording
from gallery_recorder.store.convert import Figure, output_rst
from triton_site.probes import SOFTWARE

PROJECT = Path(__file__).parents[2]

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


#: The engine, and what this site's extensions add to pages of recordings.
EXTENSIONS = ("gallery_recorder", "triton_site.facts", "triton_site.performance")

SPEED = "size,provider,unit,median,p20,p80\n4,triton,GB/s,2,1,3\n"


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
    (root / "tutorials").mkdir(parents=True)
    (root / "docs").mkdir()
    (root / "conf.py").write_text(CONF.format(theme=theme, extensions=list(extensions)))
    (root / "docs" / "index.rst").write_text(INDEX)
    (root / "docs" / "recordings.rst").write_text(RECORDINGS)
    (root / "tutorials" / "GALLERY_HEADER.rst").write_text("Tutorials\n=========\n")
    for number, name in enumerate(names):
        code = f"answer = 6 * {7 + number}\nanswer"
        more = "".join(SECTION.format(number=i) for i in range(1, sections + 1))
        text = TUTORIAL.format(code=code, sections=more)
        (root / "tutorials" / f"{name}.py").write_text(text)
    return root


def make_recording(
    root: Path,
    name: str,
    device: str = "nvidia-h200",
    recorded: str = "2026-11-20T12:00:00Z",
    speed: str = SPEED,
) -> Path:
    """Write a recording of the tutorial *name* as it is now; returns its folder."""
    interpreted = device == "interpreter"
    script = load_script(root / "tutorials" / f"{name}.py", root / "tutorials")
    base = root / "build" / "recordings" if interpreted else root / "recordings"
    folder = base / device / "tutorials" / name
    stem = Path(name).name
    staging = base / device / f".staging-{name.replace('/', '-')}"
    (staging / "images").mkdir(parents=True)
    figure, thumbnail = f"images/sphx_glr_{stem}_001.svg", f"images/sphx_glr_{stem}_thumbnail.png"
    (staging / figure).write_text(SVG)
    (staging / thumbnail).write_bytes(PNG)
    (staging / "speed.csv").write_text(speed)
    said = f"3.14159 on {device}\n"
    rows = "".join(f"row {row:3}  {row * row:9.3f} GB/s\n" for row in range(12))
    drawn = Figure(figure, "A rising line", 700, 400)
    value = recording.Value("text", "42")
    first, *middle, last = script.code
    software = {
        "torch": "2.11.0+cu130",
        "triton": "3.6.0",
        "numpy": "2.5.0",
        "matplotlib": "3.11.0",
    }
    if not interpreted:
        software |= {"toolkit": "CUDA 13.0", "peak_gpu_memory": 3 * 2**30}
    content = recording.Recording(
        schema=recording.SCHEMA,
        gallery="tutorials",
        name=name,
        title=script.title,
        key=script.key,
        run=recording.RunFacts(recorded, 12.5, peak_host_memory=2**30, timed=not interpreted),
        provenance=recording.Provenance(
            device="NVIDIA H200" if device == "nvidia-h200" else device,
            kind="cpu" if interpreted else "gpu",
            os="Linux",
            python="3.12.3",
            versions={"sphinx-gallery": "0.22.1"},
        ),
        probes={SOFTWARE: software},
        blocks=(
            recording.Block(
                line=first.block.lineno,
                key=first.key,
                seconds=0.5,
                rst=output_rst([], said, "a warning\n", None, {}, stem),
                stdout=said,
                stderr="a warning\n",
            ),
            *(
                recording.Block(
                    line=code.block.lineno,
                    key=code.key,
                    seconds=0.1,
                    rst=output_rst([], rows, "", None, {}, stem),
                    stdout=rows,
                )
                for code in middle
            ),
            recording.Block(
                line=last.block.lineno,
                key=last.key,
                seconds=12.0,
                rst=output_rst([drawn], "", "", value, {"speed.csv": len(speed)}, stem),
                value=value,
                images=(figure,),
                data=("speed.csv",),
            ),
        ),
        files={
            path.relative_to(staging).as_posix(): recording.digest(path)
            for path in sorted(staging.rglob("*"))
            if path.is_file()
        },
        thumbnail=thumbnail,
    )
    recording.save(content, staging, folder)
    return folder


def render(root: Path) -> None:
    """Build the gallery's site into ``build/html``, warnings as errors."""
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-c", ".", "-d", "build/doctrees", "-W", "-q"]
        + ["-b", "html", "docs", "build/html"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        check=True,
    )


def change(folder: Path, **fields: object) -> None:
    """Write the recording in *folder* again with other *fields*."""
    content = msgspec.structs.replace(recording.load(folder), **fields)
    (folder / recording.FILE_NAME).write_bytes(recording.encode(content))
