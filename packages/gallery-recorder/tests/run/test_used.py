"""What an example used besides its code is kept, and a change of it makes the recording stale."""

import os
import sys
import textwrap

import pytest

from gallery_recorder.project.inputs import digest_of_file
from gallery_recorder.run import distributions, used
from gallery_recorder.store import status
from gallery_recorder.testing.projects import Gallery

#: Modules beside examples are no examples.
HELPERS = '"ignore_pattern": "^_",'
HELPER = '"""A helper."""\n\n\ndef value():\n    """Its value."""\n    return 1\n'


def why(gallery: Gallery) -> list[str]:
    """For each example whose recording is not current, why."""
    return [row.why for row in status.rows(gallery.project()) if row.state != "current"]


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def gallery(tmp_path):
    """An example with a helper, a package and a table, of which the helper reads one."""
    gallery = Gallery(tmp_path, HELPERS)
    put(gallery.examples / "_helper.py", HELPER + "import _inner\n")
    put(gallery.examples / "_inner.py", "open('inner.txt').close()\n")
    put(gallery.examples / "inner.txt", "1")
    put(gallery.examples / "unused.txt", "1")
    put(gallery.examples / "data/table.csv", "1,2\n3,4\n")
    put(gallery.examples / "tools/__init__.py", "")
    put(gallery.examples / "tools/part.py", "PART = 1\n")
    gallery.write(
        "a",
        """
        import os
        import subprocess
        from pathlib import Path
        import _helper
        from tools.part import PART

        subprocess.run(["cp", "unused.txt", "by_program.txt"], check=True)
        open("by_program.txt").close()
        os.chdir("data")
        print(_helper.value(), Path("table.csv").read_text())
        open("../made.txt", "w").write("made")
        print(open("../made.txt").read(), open("../a.py").read()[:3])
        """,
    )
    # Left over in the folder of an author who executed the example by hand.
    put(gallery.examples / "made.txt", "by hand")
    put(gallery.examples / "by_program.txt", "by hand")
    return gallery.record_all()


def test_what_an_example_imports_and_reads_is_kept_and_nothing_else(gallery):
    kept = gallery.load("a").inputs
    names = ("_helper.py", "_inner.py", "tools/__init__.py", "tools/part.py")
    assert [*kept.modules] == [f"../examples/{name}" for name in names]
    assert [*kept.files] == ["../examples/data/table.csv", "../examples/inner.txt"]
    assert why(gallery) == []


def test_a_changed_added_or_missing_input_is_named_and_a_time_stamp_is_no_change(gallery):
    examples = gallery.examples
    for path in examples.rglob("*.*"):
        os.utime(path, (1, 1))
    put(examples / "unused.txt", "2")
    put(examples / "made.txt", "2")
    helper = put(
        examples / "_helper.py", HELPER.replace("A helper", "Help") + "import _inner # x\n"
    )
    assert why(gallery) == []
    put(helper, HELPER.replace("return 1", "return 2"))
    table = put(examples / "data/table.csv", "5\n")
    (text,) = why(gallery)
    assert "../examples/_helper.py has changed" in text
    assert "../examples/data/table.csv has changed" in text
    table.unlink()
    (text,) = why(gallery)
    assert "../examples/data/table.csv is missing" in text
    put(table, "1,2\r\n3,4\r\n")  # as git writes it on Windows
    put(helper, HELPER + "import _inner\n")
    assert why(gallery) == []


def test_an_example_is_executed_again_when_an_input_has_changed(gallery):
    assert gallery.record()["a"].status == "current"
    put(gallery.examples / "data/table.csv", "7\n")
    assert gallery.record()["a"].status == "recorded"
    assert "7\n" in gallery.load("a").blocks[1].stdout
    assert why(gallery) == []


def test_a_module_that_conf_py_has_imported_counts_and_extensions_and_probes_do_not(tmp_path):
    more = """
    import sys
    from pathlib import Path
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import _early, _probe, _extension
    extensions.append("_extension")
    gallery_probes = ["_probe.seen"]
    """
    gallery = Gallery(tmp_path, HELPERS, more)
    put(gallery.examples / "_early.py", "VALUE = 1\n")
    put(gallery.examples / "_late.py", "import _early\n")
    put(gallery.examples / "_probe.py", "class seen:\n    pass\n")
    put(gallery.examples / "_extension.py", "def setup(app):\n    pass\n")
    gallery.write("a", "import importlib, _probe, _extension\nimportlib.import_module('_late')")
    gallery.record_all()
    kept = gallery.load("a").inputs.modules
    assert [*kept] == ["../examples/_early.py", "../examples/_late.py"]
    put(gallery.examples / "_early.py", "VALUE = 2\n")
    assert why(gallery) == ["../examples/_early.py has changed"]


def test_a_folder_counts_as_far_as_it_is_used_and_a_pattern_as_a_whole(tmp_path):
    more = """
    import sys
    from pathlib import Path
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    import mylib
    gallery_inputs = ["../src", "../data/*.csv"]
    """
    gallery = Gallery(tmp_path, HELPERS, more)
    put(tmp_path / "src/mylib/__init__.py", "")
    put(tmp_path / "src/mylib/used.py", "import mylib.also\nVALUE = 1\n")
    put(tmp_path / "src/mylib/also.py", "VALUE = 1\n")
    put(tmp_path / "src/mylib/unused.py", "VALUE = 1\n")
    put(tmp_path / "data/one.csv", "1\n")
    gallery.write("a", "from mylib import used\nprint(used.VALUE)")
    gallery.record_all()
    kept = gallery.load("a").inputs
    assert [*kept.modules] == [f"../src/mylib/{n}.py" for n in ("__init__", "also", "used")]
    assert [*kept.matched["../data/*.csv"]] == ["../data/one.csv"]
    put(tmp_path / "src/mylib/unused.py", "VALUE = 2\n")
    assert why(gallery) == []
    put(tmp_path / "src/mylib/also.py", "VALUE = 2\n")
    put(tmp_path / "data/two.csv", "1\n")
    assert why(gallery) == ["../src/mylib/also.py has changed; ../data/two.csv was added"]


def test_of_a_copied_gallery_the_source_counts(tmp_path):
    more = """
    import shutil
    from pathlib import Path
    root = Path(__file__).parents[1]
    shutil.copytree(root / "written", root / "examples", dirs_exist_ok=True)
    gallery_sources = {"../examples": "../written"}
    """
    gallery = Gallery(tmp_path, HELPERS, more)
    put(tmp_path / "written/_helper.py", "VALUE = 1\n")
    put(tmp_path / "written/table.csv", "1\n")
    gallery.write("a", "import _helper\nprint(open('table.csv').read())")
    gallery.record_all()
    kept = gallery.load("a").inputs
    assert [*kept.modules, *kept.files] == ["../written/_helper.py", "../written/table.csv"]
    put(tmp_path / "written/table.csv", "2\n")
    assert why(gallery) == ["../written/table.csv has changed"]


def test_what_scrapers_read_is_no_input(tmp_path):
    more = """
    import sys
    from pathlib import Path
    sys.path.insert(0, str(Path(__file__).parent))
    """
    gallery = Gallery(tmp_path, '"image_scrapers": ("scraping.reading",),', more)
    scraper = """
    def reading(block, block_vars, gallery_conf):
        open("scraped.txt").close()
        return ""
    """
    put(tmp_path / "doc/scraping.py", textwrap.dedent(scraper))
    put(gallery.examples / "scraped.txt", "1")
    gallery.write("a", "print(1)")
    gallery.record_all()
    assert not gallery.load("a").inputs.files


# --- distributions --------------------------------------------------------------------------------


def test_the_distributions_of_imported_packages_are_named_with_their_versions(tmp_path):
    gallery = Gallery(tmp_path)
    gallery.write("a", "import yaml\nimport packaging.version")
    gallery.record_all()
    versions = gallery.load("a").inputs.versions
    assert {"PyYAML", "packaging"} <= {*versions}
    assert "gallery-recorder" not in versions
    assert "pytest" not in versions


def test_an_editable_distribution_is_found_by_its_folder(tmp_path, monkeypatch):
    packages, source = tmp_path / "site-packages", tmp_path / "source"
    info = packages / "My_Lib-1.5.dist-info"
    put(info / "METADATA", "Metadata-Version: 2.1\nName: My-Lib\nVersion: 1.5\n")
    put(info / "RECORD", "_mylib.pth,,\nMy_Lib-1.5.dist-info/METADATA,,\n")
    put(packages / "_mylib.pth", f"{source}\n")
    module = put(source / "mylib/__init__.py", "")
    helper = put(source / "examples/_helper.py", "")
    monkeypatch.setattr(sys, "path", [str(packages), *sys.path])
    monkeypatch.setattr(distributions, "is_installed", lambda path: path.startswith(str(packages)))
    for cached in (distributions._owners, distributions.editable_roots):
        cached.cache_clear()
        monkeypatch.setattr(distributions, cached.__name__, cached.__wrapped__)
    modules = {"mylib": str(module), "_helper": str(helper)}
    assert distributions.versions_of(modules) == {"My-Lib": "1.5"}


# --- parts ----------------------------------------------------------------------------------------


def test_imports_are_read_with_their_packages():
    code = "import a.b as c\nfrom d import e\nfrom . import f\nfrom ..g import h\n"
    found = used.imports(code, "top.package")
    assert {"a.b", "d", "d.e", "top.package.f", "top.g", "top.g.h"} <= {*found}
    assert used.imports("%matplotlib inline") == []


def test_line_ends_of_a_text_are_no_change_and_those_of_other_files_are(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for content, same in ((b"a\nb\n" * 9999, True), (b"\0a\nb\n", False)):
        one.write_bytes(content)
        other.write_bytes(content.replace(b"\n", b"\r\n"))
        assert (digest_of_file(one) == digest_of_file(other)) is same
