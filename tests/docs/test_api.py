"""The API reference: every public name of the installed Triton has an entry, and the links work.

``make test-matrix`` runs this file with every release of Triton that the project supports.
"""

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

#: Public names without an entry, and why; modules that define names of others, or Triton's own.
EXCEPTIONS = {
    "triton.max_shared_mem": "`__all__` names it, but it does not exist",
    "triton.profiler": "Proton, a package of its own",
    "triton.experimental": "Gluon, not part of triton by itself",
    "triton.language.math.T": "a type variable",
    **dict.fromkeys(
        (f"triton.language.{name}" for name in ("core", "random", "standard", "semantic")),
        "defines names of triton.language",
    ),
    **dict.fromkeys(
        (f"triton.runtime.{name}" for name in ("autotuner", "build", "cache", "errors", "jit")),
        "defines names of triton and triton.runtime",
    ),
    "triton.runtime.interpreter": "executes kernels where TRITON_INTERPRET is set; not called",
    "triton.tools.tensor_descriptor.canonicalize_dtype": "imported there",
    "triton.tools.tensor_descriptor.validate_block_shape": "imported there",
}


@pytest.fixture(scope="session")
def documented(site) -> set[str]:
    """The Python names with an entry."""
    found = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    return {name for kind, names in found.items() if kind.startswith("py:") for name in names}


def is_foreign(module: types.ModuleType, name: str) -> bool:
    """Whether *module* merely imports what *name* means."""
    value = getattr(module, name)
    home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", "") or ""
    if inspect.ismodule(value) and home != f"{module.__name__}.{name}":
        return True
    is_file = module.__spec__.submodule_search_locations is None
    elsewhere = not home.startswith("triton") or (is_file and home != module.__name__)
    return elsewhere and name not in getattr(module, "__all__", ())


@pytest.mark.parametrize("module_name", api.MODULES)
def test_every_public_name_has_an_entry(module_name, documented):
    module = importlib.import_module(module_name)
    public = {name for name in dir(module) if not name.startswith("_")}
    public |= set(getattr(module, "__all__", ()))
    names = {f"{module_name}.{name}": name for name in public}
    without = {
        full
        for full in names.keys() - documented - EXCEPTIONS.keys()
        if not is_foreign(module, names[full])
    }
    assert not without, f"add them in docs/python-api, or to EXCEPTIONS with a reason: {without}"


def test_every_entry_of_every_release_is_on_a_page(documented):
    names = {entry.name for entries in api.load(ROOT / api.FILE).values() for entry in entries}
    assert names - documented == EXCEPTIONS.keys() & names
    assert not documented & EXCEPTIONS.keys(), "an exception is stale"


def test_the_file_agrees_with_the_installed_triton(documented, tmp_path):
    # A process of its own: these tests run in the interpreter, whose functions are other objects.
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "triton_site.kernels.api", str(tmp_path / "triton.json")]
    subprocess.run(command, cwd=ROOT, env=plain, check=True, capture_output=True)
    found = {*api.load(tmp_path / "triton.json")[triton.__version__]}
    kept = api.load(ROOT / api.FILE).get(triton.__version__)
    assert kept is None or {*kept} == found, "run: make api"
    assert {entry.name for entry in found} - documented - EXCEPTIONS.keys() == set()


def entry_html(site: Path, name: str, page: str) -> str:
    html = (site / "python-api" / "triton.language" / f"{page}.html").read_text()
    start = html.index(f'id="triton.language.{name}"')
    return html[start : html.find('<dl class="py ', start)]


def test_entries_show_changes_and_their_source(site):
    assert "Added in version 3.9" in entry_html(site, "atomic_load", "atomics")
    assert "Removed in version 3.9" in entry_html(site, "advance", "memory")
    assert "In our words" in entry_html(site, "sort", "scan-and-sort")
    load = entry_html(site, "load", "memory")
    assert "Changed in version 3.9" in load
    assert "boundary_check" in load
    assert "Our note" in load
    assert "Copyright 2018-2020 Philippe Tillet" in (site / "python-api" / "index.html").read_text()
    for path in (site / "python-api").rglob("triton*/*.html"):
        assert not re.search(r"_semantic|_generator|_builder\b", path.read_text())


def test_code_of_tutorials_links_to_entries_and_back(site):
    tutorial = (site / "getting-started" / "tutorials" / "01-vector-add.html").read_text()
    for target in (
        "triton.language/memory.html#triton.language.load",
        "triton.html#triton.cdiv",
        "triton.html#triton.jit",  # a decorator
    ):
        assert f'href="../../python-api/{target}"' in tutorial
    assert 'href="../../getting-started/tutorials/01-vector-add.html"' in entry_html(
        site, "load", "memory"
    )


def test_what_stood_on_one_page_has_its_old_address_there(site):
    html = (site / "python-api" / "triton.language.html").read_text()
    for old in (
        *("triton.language.load", "triton.language.tensor", "module-triton.language.math"),
        *("triton.language.target_info.is_cuda", "triton.language.dtype.is_floating"),
        *("memory", "programming-model", "scan-and-sort"),  # its sections
    ):
        assert f'id="{old}"' in html, old
    assert 'href="triton.language/memory.html#triton.language.load"' in html
