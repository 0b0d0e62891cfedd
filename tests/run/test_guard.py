"""The guard refuses writing outside, and lets libraries make their caches."""

import subprocess
import sys
from pathlib import Path

from gallery_recorder.run.guard import caches

ROOT = Path(__file__).parents[2]

# A process of its own: an audit hook can never be taken off again.
PROGRAM = """
import os
from pathlib import Path
from gallery_recorder.run.guard import Guard

refused = []
home = Path.cwd() / "home"
guard = Guard([home / ".config" / "matplotlib"], refused.append)
guard.switch_on()
guard.active = True
{code}
guard.active = False
print([Path(path).name for path in refused])
"""


def refused(code: str, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=code)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_a_cache_and_the_folders_above_it_may_be_made(tmp_path):
    code = "(home / '.config' / 'matplotlib' / 'deep').mkdir(parents=True)"
    assert refused(code, tmp_path) == "[]"
    assert (tmp_path / "home" / ".config" / "matplotlib" / "deep").is_dir()


def test_a_folder_beside_a_cache_may_not(tmp_path):
    (tmp_path / "home").mkdir()
    assert refused("(home / '.other').mkdir()", tmp_path) == "['.other']"


def test_a_folder_above_a_cache_may_not_be_removed(tmp_path):
    (tmp_path / "home" / ".config").mkdir(parents=True)
    assert refused("os.rename(home / '.config', 'gone')", tmp_path) == "['.config', 'gone']"


def test_a_process_may_say_what_it_is_called_and_change_no_other(tmp_path):
    assert refused("open('/proc/self/comm', 'w').close()", tmp_path) == "[]"
    assert refused("open('/proc/1/comm', 'w').close()", tmp_path) == "['comm']"


def test_a_cache_is_where_a_variable_says(monkeypatch):
    """Of whatever library; what is no path, such as a switch, is none."""
    said = {"KERNEL_CACHE_DIR": "/scratch/k", "CUDA_CACHE_PATH": "/scratch/c", "HUB_CACHE": "/h"}
    other = {"SOME_CACHE": "1", "CACHE_DIRECTORY_OF": "/o", "DATA_DIR": "/d"}
    for name, value in (said | other).items():
        monkeypatch.setenv(name, value)
    found = {str(path) for path in caches()}
    assert set(said.values()) <= found
    assert not set(other.values()) & found
