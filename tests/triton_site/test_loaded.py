"""A built page that should load a script and does not is a problem of ``make check``."""

from pathlib import Path

import pytest

from triton_site.pages import loaded

PAGE = '<html><body><div class="a gallery-tiles"></div>{}</body></html>'
LOADED = '<script defer="defer" src="../_static/tiles.js?v=1"></script>'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/tiles.js").write_text("// Used by: gallery-tiles\n1;\n")
    (tmp_path / "_static/site.js").write_text("// On every page.\n")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/one.html").write_text(PAGE.format(LOADED))
    return tmp_path


def test_a_page_that_loads_what_it_needs_is_right(site):
    assert loaded.main(site) == 0


def test_a_page_without_the_script_of_its_element_is_named(site, capsys):
    (site / "pages/two.html").write_text(PAGE.format(""))
    assert loaded.main(site) == 1
    said = capsys.readouterr().err
    assert "pages/two.html" in said
    assert "tiles.js" in said


def test_a_script_that_no_page_uses_is_named(site, capsys):
    (site / "pages/one.html").write_text("<p>No tiles.</p>")
    assert loaded.main(site) == 1
    assert "tiles.js" in capsys.readouterr().err


def test_a_site_without_scripts_was_not_built(tmp_path):
    (tmp_path / "_static").mkdir()
    assert loaded.main(tmp_path) == 1


def test_every_script_of_a_node_says_what_it_is_used_by():
    """A script that is loaded on some pages alone would otherwise not be checked."""
    root = Path(__file__).resolve().parents[2]
    static = root / "docs/_static"
    on_some = {
        path.name
        for path in static.glob("*.js")
        if f'load_where(app, "{path.name}"'
        in "".join(p.read_text(encoding="utf-8") for p in (root / "triton_site").rglob("*.py"))
    }
    assert on_some
    assert on_some == set(loaded.users(static))
