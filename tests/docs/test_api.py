"""The API reference: every public name of the installed Triton has an entry, and the links work.

The names come from Triton itself, through ``__all__`` and ``dir()``. ``make test-matrix`` runs this
file with every version of Triton that the project supports.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

from triton_site.kernels import api

triton = pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]

#: Public names without an entry, and why.
EXCEPTIONS = {
    "triton.max_shared_mem": "`__all__` names it, but it does not exist",
    "triton.profiler": "Proton, a package of its own; there once somebody imports it",
    "triton.experimental": "not part of triton by itself; there once somebody imports Gluon",
    "triton.language.math.T": "a type variable of its annotations",
    "triton.language.core": "defines names of triton.language, where they have their entries",
    "triton.language.random": "defines names of triton.language, where they have their entries",
    "triton.language.standard": "defines names of triton.language, where they have their entries",
    "triton.language.semantic": "the compiler's; loaded with triton.language, not part of it",
    "triton.runtime.autotuner": "defines names of triton.runtime, where they have their entries",
    "triton.runtime.build": "compiles the launcher of a kernel; Triton's own use",
    "triton.runtime.cache": "defines names of triton.runtime, where they have their entries",
    "triton.runtime.errors": "defines exceptions of triton, where they have their entries",
    "triton.runtime.interpreter": "executes kernels where TRITON_INTERPRET is set; not called",
    "triton.runtime.jit": "defines names of triton, where they have their entries",
    "triton.tools.tensor_descriptor.canonicalize_dtype": "imported there for its own use",
    "triton.tools.tensor_descriptor.validate_block_shape": "imported there for its own use",
}


@pytest.fixture(scope="session")
def documented(site) -> set[str]:
    """Every Python name that the site has an entry for."""
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    return {
        name for kind, names in inventory.data.items() if kind.startswith("py:") for name in names
    }


def reason_to_leave_out(module: types.ModuleType, name: str) -> str | None:
    if f"{module.__name__}.{name}" in EXCEPTIONS:
        return EXCEPTIONS[f"{module.__name__}.{name}"]
    value = getattr(module, name)
    home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", "") or ""
    if not home.startswith("triton") and name not in getattr(module, "__all__", ()):
        return f"not Triton's: imported from {home or type(value).__module__}"
    if inspect.ismodule(value) and home != f"{module.__name__}.{name}":
        return f"the module {home}, imported there"
    is_file = module.__spec__.submodule_search_locations is None
    if is_file and home != module.__name__ and name not in getattr(module, "__all__", ()):
        return f"defined in {home}, imported there"
    return None


@pytest.mark.parametrize("module_name", api.MODULES)
def test_every_public_name_has_an_entry(module_name, documented):
    module = importlib.import_module(module_name)
    public = {name for name in dir(module) if not name.startswith("_")}
    public |= set(getattr(module, "__all__", ()))
    without = {
        f"{module_name}.{name}"
        for name in public
        if f"{module_name}.{name}" not in documented and not reason_to_leave_out(module, name)
    }
    assert not without, f"add them in docs/python-api, or to EXCEPTIONS with a reason: {without}"


def test_no_exception_is_stale(documented):
    for name, reason in EXCEPTIONS.items():
        assert name not in documented, f"{name} has an entry; the exception ({reason}) can go"


def test_the_file_of_this_version_is_what_is_installed(tmp_path):
    # A process of its own: these tests run in the interpreter, whose functions are other objects.
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run(
        [sys.executable, "-m", "triton_site.kernels.api", str(tmp_path / "triton.json")],
        cwd=ROOT,
        env=plain,
        check=True,
        capture_output=True,
    )
    (installed,) = api.load(tmp_path / "triton.json")
    kept = {item.triton: item for item in api.load(ROOT / api.FILE)}
    assert kept[triton.__version__] == installed, f"{api.FILE} is out of date: make api"


def test_every_entry_of_every_version_is_on_a_page(documented):
    names = {
        entry.name
        for item in api.load(ROOT / api.FILE)
        for entry in item.entries
        if entry.name not in EXCEPTIONS
    }
    # In newer versions a name may be another for an object that an older one kept apart.
    assert names - documented == set()


def entry_html(site: Path, page: str, name: str) -> str:
    html = (site / "python-api" / f"{page}.html").read_text()
    start = html.index(f'id="{name}"')
    return html[start : html.find('<dl class="py ', start)]


def test_versions_are_marked(site):
    assert "Added in version 3.9" in entry_html(
        site, "triton.language", "triton.language.atomic_load"
    )
    assert "Removed in version 3.9" in entry_html(
        site, "triton.language", "triton.language.advance"
    )
    load = entry_html(site, "triton.language", "triton.language.load")
    assert "Changed in version 3.9" in load
    assert "boundary_check" in load


def test_builder_arguments_are_hidden(site):
    for path in (site / "python-api").glob("triton*.html"):
        assert not re.search(r"_semantic|_generator|_builder\b", path.read_text())


def test_words_of_ours_are_marked(site):
    sort = entry_html(site, "triton.language", "triton.language.sort")
    assert "In our words" in sort
    assert "Our note" in entry_html(site, "triton.language", "triton.language.load")
    assert "Copyright 2018-2020 Philippe Tillet" in (site / "python-api" / "index.html").read_text()


def test_code_of_tutorials_links_to_entries_and_back(site):
    tutorial = (site / "getting-started" / "tutorials" / "01-vector-add.html").read_text()
    for target in (
        "triton.language.html#triton.language.load",
        "triton.html#triton.cdiv",
        "triton.html#triton.jit",  # a decorator
    ):
        assert f'href="../../python-api/{target}"' in tutorial
    load = entry_html(site, "triton.language", "triton.language.load")
    assert 'href="../getting-started/tutorials/01-vector-add.html"' in load


WITHOUT_GPU_PACKAGES = """
import sys
for name in ("torch", "triton", "numpy", "matplotlib", "pynvml"):
    sys.modules[name] = None
import importlib
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_a_plain_render_needs_no_triton():
    """Rendering loads the extension, and autodoc every module of ours."""
    package = ROOT / "gallery_recorder"
    modules = [f"{package.name}.{path.stem}" for path in package.glob("[!_]*.py")]
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_GPU_PACKAGES, *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


def test_the_file_is_written_for_git():
    """One key a line, so that a new version gives a diff that can be read."""
    text = (ROOT / api.FILE).read_text()
    assert text.endswith("}\n")
    assert text.count("\n") > 5000
