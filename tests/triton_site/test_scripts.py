"""Downloaded scripts: numbers with their GPU and titles in place of roles, and the same code."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from gallery_recorder.project.script import load_script
from tests.galleries import FILES
from triton_site.numbers import scripts
from triton_site.numbers.quantities import QuantityError

TEXT = '''"""
First
=====

It reaches :measured:`share` % of :measured:`other:copy` GB/s. You need :doc:`02-second`.
"""

# %%
# It is :measured:`faster` times as fast as :doc:`a
# copy </other>`: see :ref:`costs`, :term:`bytes <byte>`.

code = ":measured:`share`"
'''


@pytest.fixture
def finished(monkeypatch):
    values = {"share": "95.0", "copy": "4310", "faster": "1.40"}
    pages = {"pages/01-first": SimpleNamespace(main="pages/01-first", shown=None)}
    titles = {"pages/02-second": SimpleNamespace(astext=lambda: "The second page")}
    std = SimpleNamespace(labels={"costs": ("page", "costs", "What it costs")})
    env = SimpleNamespace(titles=titles, get_domain=lambda name: std)
    monkeypatch.setattr(scripts, "domain_of", lambda env: SimpleNamespace(pages=pages))
    monkeypatch.setattr(scripts, "StandardDomain", SimpleNamespace)
    monkeypatch.setattr(scripts, "page_of_script", lambda env, name: pages["pages/01-first"])

    def quantity_of(page, name):
        if name not in values:
            raise QuantityError(f"no row {name}")
        return SimpleNamespace(text=values[name])

    monkeypatch.setattr(scripts, "quantity_of", quantity_of)

    def make(device: str | None, *, stale: bool = False, without: str = "") -> str:
        page = pages["pages/01-first"]
        page.is_stale = stale
        values.pop(without, None)
        page.shown = device and SimpleNamespace(timed=True)
        page.recording = SimpleNamespace(provenance=SimpleNamespace(device=device))
        return scripts.finish(SimpleNamespace(env=env), "pages/01-first", TEXT)

    return make


def test_numbers_have_their_gpu_and_links_their_titles(finished):
    text = finished("NVIDIA H200")
    first = "It reaches 95.0 % on an NVIDIA H200 of 4310 GB/s. You need *The second page*."
    assert first in text
    assert "# It is 1.40 (on an NVIDIA H200) times as fast as a copy: see *What it costs*" in text
    assert ", bytes." in text
    assert 'code = ":measured:`share`"' in text, "code stays"


def test_a_number_that_older_code_did_not_measure_is_a_dash(finished):
    text = finished("NVIDIA H200", stale=True, without="share")
    assert "It reaches – % of 4310 GB/s on an NVIDIA H200." in text
    with pytest.raises(QuantityError):
        finished("NVIDIA H200", stale=False, without="share")


def test_without_a_gpu_there_is_no_number(finished):
    assert "It reaches … % of … GB/s." in finished(None)


def test_each_download_of_the_site_belongs_to_its_recording(site: Path):
    found = {path.stem: path for path in site.glob("_downloads/*/*.py")}
    for name, example in FILES.items():
        path = found[example.path.stem]
        prose = "\n".join(b.content for b in load_script(path).blocks if b.type == "text")
        assert not re.search(r":(measured|doc|ref|term):`", prose), name
        ours = example.load()
        # what a script depends on lies elsewhere
        assert [c.key for c in load_script(path)._own_code] == [c.key for c in ours._own_code], name
