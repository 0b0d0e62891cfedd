"""Pages as Markdown: the text of reStructuredText without its markup."""

import pytest
from docutils import nodes
from docutils.core import publish_doctree

from triton_site.pages.folds import Fold
from triton_site.pages.markdown import Writer, code_span, fenced

ADDRESS = "https://example.org/stable/a/page.html"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*a* and **b** and ``c_d``", "*a* and **b** and `c_d`"),
        (":math:`x_i^2` costs $3", r"$x_i^2$ costs \$3"),
        ("2 * 3 < 7 and [x]", r"2 \* 3 \< 7 and \[x\]"),
        ("`here <../b.html>`_", "[here](https://example.org/stable/b.html)"),
        ("3. one\n4. two", "3. one\n4. two"),
        ("* one\n\n  * inner\n\n* two", "- one\n\n  - inner\n\n- two"),
        ("``tl.load``\n    Reads.\n\n    And more.", "- `tl.load`\n\n  Reads.\n\n  And more."),
        (".. note::\n\n   Mind it.", "> **Note**\n>\n> Mind it."),
        ("Code::\n\n   x = 1", "Code:\n\n```\nx = 1\n```"),
        (".. math::\n\n   a &= b \\\\\n   c &= d",
         "$$\n\\begin{aligned}\na &= b \\\\\nc &= d\n\\end{aligned}\n$$"),
        ("=== =====\nN   rate\n=== =====\n1   a|b\n=== =====",
         "| N | rate |\n| --- | --- |\n| 1 | a\\|b |"),
        (".. comment", ""),
        ("\\# no heading", "\\# no heading"),
    ],
)  # fmt: skip
def test_each_kind_of_markup(text: str, expected: str) -> None:
    doctree = publish_doctree(text, settings_overrides={"report_level": 5})
    assert Writer(ADDRESS).blocks(doctree.children) == expected


def test_code_with_backticks_keeps_them() -> None:
    assert code_span("a`b") == "``a`b``"
    assert fenced("```").startswith("````\n")


def test_links_into_the_page_lead_to_the_site() -> None:
    node = nodes.paragraph("", "", nodes.reference("", "there", refid="step-1"))
    assert Writer(ADDRESS).block(node) == f"[there]({ADDRESS}#step-1)"


def test_a_fold_needs_html_only_where_it_stays_folded() -> None:
    fold = Fold("", nodes.paragraph("", "Text."), summary="Solution", note="", kind="solution")
    assert Writer(ADDRESS).block(fold) == "*Solution:*\n\nText."
    assert Writer(ADDRESS, folded=True).block(fold).startswith("<details>")
