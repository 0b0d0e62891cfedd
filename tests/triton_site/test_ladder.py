"""The ladder: a table of the steps at the top of the page, each leading to its section."""

from __future__ import annotations

from collections.abc import Callable

TEXT = '''"""
First
=====

Words.

.. ladder::
"""

# %%
# Step 1: one ``row``
# -------------------

x = 1
'''
ROWS = """section,change,rate,unit,share,ceiling,at
{section},the simplest right kernel,1234.5,GB/s,0.53,a copy,"N = 4096, fp32"
"""


def test_each_step_leads_to_its_section(build: Callable) -> None:
    built = build(TEXT, {"ladder.csv": ROWS.format(section="Step 1: one row")})
    (table,) = built.page.select("table.gallery-ladder")
    (row,) = table.tbody.find_all("tr")
    assert [cell.text.strip() for cell in row.find_all("td")] == [
        "Step 1: one row",
        "the simplest right kernel",
        "1230",
        "53 %",
    ]
    assert built.page.find(id=row.a["href"].removeprefix("#")).h2.text.startswith("Step 1")
    assert "N = 4096, fp32" in table.caption.text
    assert built.warnings == ""


def test_quotation_marks_that_sphinx_curls_are_the_same(build: Callable) -> None:
    text = TEXT.replace("one ``row``", "the row's")
    built = build(text, {"ladder.csv": ROWS.format(section="Step 1: the row's")})
    assert built.page.select("table.gallery-ladder td a")
    assert built.warnings == ""


def test_without_a_gpu_there_is_no_ladder(build: Callable) -> None:
    assert not build(TEXT).page.find("table")
    rows = {"ladder.csv": ROWS.format(section="Step 1: one row")}
    assert not build(TEXT, rows, interpreted=True).page.find("table")


def test_a_section_that_is_not_there_is_warned_of(build: Callable) -> None:
    built = build(TEXT, {"ladder.csv": ROWS.format(section="Step 2: gone")})
    assert "'Step 2: gone'" in built.warnings
    assert not built.page.select("table.gallery-ladder td a")
