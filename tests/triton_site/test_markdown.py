"""Pages as Markdown: what reStructuredText says, and none of its markup."""

from __future__ import annotations

import pytest
from docutils import nodes
from docutils.core import publish_doctree

from triton_site.pages.markdown import Writer, code_span, fenced


def markdown(text: str) -> str:
    doctree = publish_doctree(text, settings_overrides={"report_level": 5})
    return Writer("https://example.org/stable/a/page.html").blocks(doctree.children)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*a* and **b** and ``c_d``", "*a* and **b** and `c_d`"),
        (":math:`x_i^2` costs $3", r"$x_i^2$ costs \$3"),
        ("2 * 3 < 7 and [x]", r"2 \* 3 \< 7 and \[x\]"),
        ("`here <../b.html>`_", "[here](https://example.org/stable/b.html)"),
        ("* one\n* two", "- one\n- two"),
        ("3. one\n4. two", "3. one\n4. two"),
        (".. note::\n\n   Mind it.", "> **Note**\n>\n> Mind it."),
        ("Code::\n\n   x = 1", "Code:\n\n```\nx = 1\n```"),
        (".. math::\n\n   a &= b \\\\\n   c &= d",
         "$$\n\\begin{aligned}\na &= b \\\\\nc &= d\n\\end{aligned}\n$$"),
        (".. comment", ""),
        ("\\# no heading", "\\# no heading"),
    ],
)  # fmt: skip
def test_each_kind_of_markup(text: str, expected: str) -> None:
    assert markdown(text) == expected


def test_a_definition_list_is_a_list_that_begins_with_its_terms() -> None:
    assert markdown("``tl.load``\n    Reads.\n\n    And more.") == (
        "- `tl.load`\n\n  Reads.\n\n  And more."
    )


def test_a_table_has_pipes_and_a_head() -> None:
    table = "=== =====\nN   rate\n=== =====\n1   a|b\n=== ====="
    assert markdown(table) == "| N | rate |\n| --- | --- |\n| 1 | a\\|b |"


def test_lists_within_lists_are_indented() -> None:
    found = markdown("* one\n\n  * inner\n\n* two")
    assert found == "- one\n\n  - inner\n\n- two"


def test_code_with_backticks_keeps_them() -> None:
    assert code_span("a`b") == "``a`b``"
    assert fenced("```").startswith("````\n")


def test_links_into_the_page_lead_to_the_site() -> None:
    node = nodes.paragraph("", "", nodes.reference("", "there", refid="step-1"))
    text = Writer("https://example.org/stable/a/page.html").block(node)
    assert text == "[there](https://example.org/stable/a/page.html#step-1)"
