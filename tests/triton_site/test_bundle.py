"""One style sheet: addresses hold from where it lies, and fonts have one format."""

from __future__ import annotations

from pathlib import Path

from triton_site.pages import bundle


def test_addresses_are_moved_and_others_left(tmp_path: Path) -> None:
    (tmp_path / "_static" / "css").mkdir(parents=True)
    (tmp_path / "_static" / "css" / "theme.css").write_text(
        'a{background:url(img/a.png)}b{background:url("data:image/png;base64,AA==")}'
    )
    (tmp_path / "_static" / "own.css").write_text("c{background:url('x.svg#part')}d{fill:url(#e)}")
    found = bundle.joined(tmp_path, ["_static/css/theme.css", "_static/own.css"])
    assert found == (
        'a{background:url("css/img/a.png")}b{background:url("data:image/png;base64,AA==")}\n'
        'c{background:url("x.svg#part")}d{fill:url(#e)}'
    )


def test_a_font_has_one_format() -> None:
    face = (
        "@font-face{font-family:A;src:url(a.eot?1);src:url(a.eot?1#iefix) format('eot'),"
        "url(a.woff2?2) format('woff2'),url(a.woff?3) format('woff');font-weight:400}"
    )
    assert bundle.only_woff2(face) == (
        "@font-face{font-family:A;font-weight:400;src:url(a.woff2?2) format('woff2')}"
    )
    own = '@font-face {\n  font-family: B;\n  src: url("b.ttf");\n}'
    assert bundle.only_woff2(own) == own


def test_rules_that_nothing_matches_are_left_out() -> None:
    sheet = (
        ".fa-bars:before,.fa-bath:before{content:1}.wy-alert p{color:red}"
        "@media screen{.rst-content tt,.rst-content code{color:red}.btn-red{color:red}}"
        "@media print{.wy-tray-item{display:none}}@font-face{font-family:A}"
    )
    assert bundle.pruned(sheet) == (
        ".fa-bars:before{content:1}@media screen{.rst-content code{color:red}}"
        "@font-face{font-family:A}"
    )
