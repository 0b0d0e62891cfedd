"""What is installed: the modules of the package, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PACKAGE, check=True, capture_output=True)
    (path,) = folder.glob("gallery_kernels-*.whl")
    return zipfile.ZipFile(path)


def test_a_wheel_holds_the_modules_the_license_and_nothing_else(wheel):
    modules = {path.name for path in (PACKAGE / "src/gallery_kernels").glob("*.py")}
    expected = {f"gallery_kernels/{name}" for name in (*modules, "py.typed")}
    files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert files == expected
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_a_wheel_needs_torch_and_triton_only(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = wheel.read(name).decode()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    assert {line.split()[1].partition(">")[0] for line in needed} == {"torch", "triton"}
