"""The menu: Sphinx's own where all fits, of bounded size where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from sphinx.testing.util import SphinxTestApp

from triton_site.pages import menu

CONF = """
extensions = ["triton_site.pages.menu"]
html_theme = "sphinx_rtd_theme"
html_theme_options = {"navigation_depth": DEPTH, "titles_only": TITLES}
"""
PAGE = "{title}\n{line}\n\nA part *of it*\n--------------\n\nText.\n\nDeeper\n^^^^^^\n\nMore.\n"


def make(root: Path, count: int, depth: int = 4, titles: bool = False) -> SphinxTestApp:
    (root / "below" / "more").mkdir(parents=True)
    (root / "conf.py").write_text(
        CONF.replace("DEPTH", str(depth)).replace("TITLES", str(titles)), encoding="utf-8"
    )
    (root / "index.rst").write_text(
        "Front\n=====\n\n.. toctree::\n   :caption: One & two\n\n   first\n   below/index\n\n"
        ".. toctree::\n   :hidden:\n\n   last\n   There <https://example.org>\n   genindex\n"
    )
    names = [f"page{number:03}" for number in range(count)]
    lines = "".join(f"   {name}\n" for name in names)
    (root / "below" / "index.rst").write_text(
        f"Below\n=====\n\nPart\n----\n\n.. toctree::\n\n{lines}   more/index\n\n"
        "Another\n-------\n\nText\n"
    )
    (root / "below" / "more" / "index.rst").write_text(
        "More ``code`` <here>\n====================\n\n"
        ".. toctree::\n   :hidden:\n\n   Named <leaf>\n"
    )
    pages = {f"below/{name}": name for name in names}
    pages |= {"first": "First", "last": "Last", "below/more/leaf": "Leaf"}
    for name, title in pages.items():
        text = PAGE.format(title=title, line="=" * len(title))
        (root / f"{name}.rst").write_text(text)
    return SphinxTestApp("html", srcdir=root)


def menus(app: SphinxTestApp) -> dict[str, str]:
    found = {}
    for path in sorted(Path(app.outdir).rglob("*.html")):
        soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        found[path.relative_to(app.outdir).as_posix()] = str(soup.select_one(".wy-menu-vertical"))
    return found


@pytest.mark.parametrize(("depth", "titles"), [(4, False), (2, False), (4, True), (-1, False)])
def test_where_all_fits_it_is_sphinx_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int, titles: bool
) -> None:
    app = make(tmp_path / "ours", 3, depth, titles)
    app.build()
    ours = menus(app)
    app.cleanup()
    monkeypatch.setattr(menu, "setup", lambda app: {"parallel_read_safe": True})
    app = make(tmp_path / "theirs", 3, depth, titles)
    app.build()
    theirs = menus(app)
    app.cleanup()
    assert len(ours) > 8
    for name, html in theirs.items():
        assert ours[name] == html, name


def test_of_many_pages_those_around_are_shown_and_a_link_to_all(tmp_path: Path) -> None:
    app = make(tmp_path, 40)
    app.build()
    found = menus(app)
    app.cleanup()
    for number, first in ((0, 0), (3, 0), (20, 15), (39, 31)):
        soup = BeautifulSoup(found[f"below/page{number:03}.html"], "html.parser")
        shown = [a.text for a in soup.select("li.toctree-l3 > a") if a.text.startswith("page")]
        assert shown == [f"page{n:03}" for n in range(first, min(first + menu.WINDOW, 40))]
        assert soup.select_one("a.current").text == f"page{number:03}"
        (link,) = soup.select("li.menu-all > a")
        assert (link.text, link["href"]) == ("All 41", "index.html#part")
    sizes = [len(html) for name, html in found.items() if name.startswith("below/page")]
    assert max(sizes) - min(sizes) < 200


def test_an_address_is_as_sphinx_writes_it() -> None:
    from sphinx.util.osutil import relative_uri

    names = ("index.html", "a/index.html", "a/b/c.html", "d.html", "a/b/", "")
    for base in names:
        for target in names:
            if target != base:
                assert menu.relative(base, target) == relative_uri(base, target)
    assert menu.relative("a.html", "a.html#x") == "#x"
    assert menu.relative("a.html", "https://example.org/#x") == "https://example.org/#x"
