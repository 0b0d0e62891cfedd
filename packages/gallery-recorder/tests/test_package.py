"""The package as an adopter gets it: what it holds, and the five minutes of its documentation."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

PACKAGE = Path(__file__).resolve().parents[1]

EXAMPLE = '''"""
A title
=======
"""

print("recorded once")
'''
INDEX = "Small\n=====\n\n.. toctree::\n\n   gallery/index\n"
CONF = """
extensions = ["sphinx_gallery.gen_gallery"]
sphinx_gallery_conf = {"examples_dirs": "../examples", "gallery_dirs": "gallery"}
"""


def build(folder: Path, target: str, out: Path) -> Path:
    """The wheel or the sdist that hatchling makes of the package in *folder*."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (made,) = out.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


def content(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, without the record of their hashes."""
    with ZipFile(wheel) as archive:
        return {
            name: archive.read(name)
            for name in archive.namelist()
            if not name.endswith((".dist-info/RECORD", "/"))
        }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install hatchling")
    return build(PACKAGE, "wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_engine_and_nothing_else(wheel: Path) -> None:
    modules = PACKAGE / "src" / "gallery_recorder"
    expected = {
        path.relative_to(PACKAGE / "src").as_posix()
        for path in modules.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    files = set(content(wheel))
    metadata = {name for name in files if ".dist-info/" in name}
    assert files - metadata == expected
    assert {name.rpartition("/")[2] for name in metadata} == {
        "METADATA",
        "WHEEL",
        "entry_points.txt",
        "LICENSE",
    }


def test_the_wheel_of_the_sdist_is_the_wheel_of_the_tree(wheel: Path, tmp_path: Path) -> None:
    archive = build(PACKAGE, "sdist", tmp_path / "sdist")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.glob("gallery_recorder-*")
    assert content(build(folder, "wheel", tmp_path / "again")) == content(wheel)


def five_minutes() -> list[str]:
    """The commands of *Five minutes* in the documentation, in their order, once each."""
    text = (PACKAGE / "docs" / "your-gallery.rst").read_text(encoding="utf-8")
    text = text.partition("Five minutes\n")[2].partition("What changes in your site")[0]
    shown = re.findall(r"^ +\$ (.+)$|``((?:sphinx-build|gallery-recorder) [^`]+)``", text, re.M)
    commands = [console or inline for console, inline in shown]
    return [command for command in commands if "NAME" not in command and "git+" not in command]


def test_the_five_minutes_of_the_documentation_work_in_an_empty_environment(
    tmp_path: Path,
) -> None:
    commands = five_minutes()
    assert commands == [
        "pip install packages/gallery-recorder",
        "gallery-recorder record",
        "sphinx-build doc build",
        "gallery-recorder status --check",
    ]
    checkout = tmp_path / "packages" / "gallery-recorder"
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(PACKAGE, checkout, ignore=ignored)
    venv.create(tmp_path / "venv", with_pip=True)
    for folder in ("doc", "examples"):
        (tmp_path / folder).mkdir()
    (tmp_path / "doc" / "index.rst").write_text(
        "Small\n=====\n\n.. toctree::\n\n   gallery/index\n"
    )
    conf = CONF.replace('gen_gallery"]', 'gen_gallery", "gallery_recorder"]')
    (tmp_path / "doc" / "conf.py").write_text(conf)
    (tmp_path / "examples" / "GALLERY_HEADER.rst").write_text("Examples\n========\n")
    (tmp_path / "examples" / "plot_a.py").write_text(EXAMPLE)

    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment["PATH"] = f"{tmp_path / 'venv' / 'bin'}:{environment['PATH']}"
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"

    def run(command: str) -> str:
        done = subprocess.run(
            command.split(), cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
        return done.stdout

    run("pip install --quiet matplotlib")  # sphinx-gallery's default scraper imports it
    for command in commands:
        run(command)
    page = (tmp_path / "build" / "gallery" / "plot_a.html").read_text()
    assert "recorded once" in page
    assert (tmp_path / "doc" / "recordings" / "cpu" / "examples" / "plot_a").is_dir()
    owned = run("pip show --files gallery-recorder").partition("Files:\n")[2].split()
    assert {name.partition("/")[0] for name in owned if not name.startswith("..")} == {
        "gallery_recorder",
        next(name.partition("/")[0] for name in owned if ".dist-info/" in name),
    }
