"""The ladder: a table of the steps at the top of the page, each leading to its section."""

import pytest

TEXT = '''"""
First
=====

Words.

.. ladder::
"""

# %%
# Step 1: the ``row``'s
# ---------------------

x = 1
'''
HEAD = "section,change,rate,unit,share,ceiling,at\n"
ROW = 'Step 1: the row\'s,the simplest kernel,1234.5,GB/s,0.53,a copy,"N = 4096, fp32"\n'


def test_each_step_leads_to_its_section(build):
    built = build(TEXT, {"ladder.csv": HEAD + ROW})
    (table,) = built.page.select("table.gallery-ladder")
    (row,) = table.tbody.find_all("tr")
    cells = [cell.text.strip() for cell in row.find_all("td")]
    assert cells == ["Step 1: the row's", "the simplest kernel", "1230", "53 %"]
    assert built.page.find(id=row.a["href"].removeprefix("#")).h2.text.startswith("Step 1")
    assert "N = 4096, fp32" in table.caption.text
    assert built.warnings == ""


def test_without_a_gpu_there_is_no_ladder(build):
    assert not build(TEXT).page.find("table")
    assert not build(TEXT, {"ladder.csv": HEAD + ROW}, interpreted=True).page.find("table")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD + ROW.replace("Step 1", "Step 2"), 'names the section "Step 2: the row\'s"'),
        (HEAD + ROW.replace("0.53", "nan"), "ladder.csv: Expected `float` >= 0.0"),
        (HEAD.replace("share,", "") + ROW, "ladder.csv: Object missing required field `share`"),
        ((HEAD + ROW).encode("utf-16"), "ladder.csv: 'utf-8' codec can't decode"),
    ],
)
def test_a_damaged_ladder_is_a_warning_and_the_page_goes_on(build, content, message):
    built = build(TEXT, {"ladder.csv": content})
    assert message in built.warnings
    assert "Step 1" in built.page.text
