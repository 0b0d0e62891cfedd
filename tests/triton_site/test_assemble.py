"""An assembled script has its shared code: nothing missing, nothing twice."""

from pathlib import Path

import pytest

from triton_site.pages.assemble import AssembleError, assemble_gallery, assemble_script

SHARED = {
    "base.py": '"""Base."""\n\nimport os\n\nLIMIT = 3\nif os.sep:\n    LIMIT = 4\n',
    "more.py": '"""More."""\n\nimport math\nimport random\n\nfrom shared.base import LIMIT\n\n'
    "# As far as it goes.\nTOP = LIMIT * 2\n\n\n"
    "def least(x):\n    return math.floor(x)\n\n\n"
    "def most(x):\n    return min(TOP, least(x))\n\n\n"
    "def unused():\n    return random.random()\n",
}
SCRIPT = """'''Title'''
import math
import sys  # for shared/
sys.path.insert(0, ".")  # for shared/
from shared.more import most
from shared.base import LIMIT

print(most(9.5), LIMIT)
"""


@pytest.fixture
def shared(tmp_path) -> Path:
    folder = tmp_path / "gallery" / "shared"
    folder.mkdir(parents=True)
    for name, text in SHARED.items():
        (folder / name).write_text(text)
    return folder


def test_a_script_runs_alone_with_each_statement_once_and_nothing_unused(shared, capsys):
    whole = assemble_script(SCRIPT, shared)
    exec(compile(whole, "whole", "exec"), {})
    assert capsys.readouterr().out == "8 4\n"
    for text in ("LIMIT = 3", "import os", "import math", "# As far as it goes.\nTOP"):
        assert whole.count(text) == 1
    for text in ("shared", "import sys", "unused", "random"):
        assert text not in whole


@pytest.mark.parametrize("line", ["from shared.more import nobody", "from shared.none import x"])
def test_a_missing_name_is_reported_with_its_script(shared, line):
    with pytest.raises(AssembleError, match=r"script\.py.*(nobody|none\.py)"):
        assemble_script(line, shared, name="script.py")


def test_a_gallery_is_copied_unchanged_files_stay_and_deleted_ones_go(shared, tmp_path):
    source, target = shared.parent, tmp_path / "made"
    (source / "01-a.py").write_text(SCRIPT)
    (source / "sub").mkdir()
    (source / "sub" / "data.csv").write_bytes(b"\xff\n")
    assemble_gallery(source, target, shared)
    made = {p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()}
    assert made == {"01-a.py", "sub/data.csv"}
    before = (target / "01-a.py").stat().st_mtime_ns
    (source / "sub" / "data.csv").unlink()
    assemble_gallery(source, target, shared)
    assert (target / "01-a.py").stat().st_mtime_ns == before
    assert not (target / "sub").exists()
    (shared / "base.py").write_text(SHARED["base.py"].replace("4", "5"))
    assemble_gallery(source, target, shared)
    assert "LIMIT = 5" in (target / "01-a.py").read_text()


def test_a_module_that_the_script_imports_for_shared_alone_stays_in_shared_code(shared):
    (shared / "path.py").write_text("import sys\n\n\ndef first():\n    return sys.argv[0]\n")
    whole = assemble_script(
        "'''T'''\nimport sys  # for shared/\nfrom shared.path import first\n\nfirst()\n", shared
    )
    exec(compile(whole, "whole", "exec"), {})
