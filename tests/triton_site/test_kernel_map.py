"""The map of kernels has the result of a recording, or says that there is none."""

import re

from bs4 import BeautifulSoup


def test_every_row_has_a_result_and_every_tutorial_a_row(site):
    page = BeautifulSoup((site / "which-kernel.html").read_bytes(), "html.parser")
    rows = [[cell.text.strip() for cell in row.select("td")] for row in page.select("tbody tr")]
    results = [row[3] for row in rows if row[3] != "not recorded yet"]
    pattern = r"(even|faster|slower): \d+\.\d\d \(\d+\.\d\d to \d+\.\d\d\) on .+"
    assert results
    assert all(re.fullmatch(pattern, result) for result in results)
    tutorials = (site / "getting-started/tutorials").glob("[0-9][0-9]-*.html")
    linked = {re.sub(r".*/(\d\d)-.*", r"\1", a["href"]) for a in page.select("tbody a")}
    assert linked >= {path.name[:2] for path in tutorials}
