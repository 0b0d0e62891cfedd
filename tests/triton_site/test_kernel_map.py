"""Which kernel next, and what a release changed: computed from recordings, where there are."""

import re

from bs4 import BeautifulSoup


def test_every_row_says_what_was_measured_or_that_nothing_was(site):
    page = BeautifulSoup((site / "which-kernel.html").read_bytes(), "html.parser")
    rows = [[cell.text.strip() for cell in row.select("td")] for row in page.select("tbody tr")]
    assert len(rows) > 15
    verdict = re.compile(r"(even|faster|slower): \d+\.\d\d \(\d+\.\d\d to \d+\.\d\d\) on .+")
    for row in rows:
        assert verdict.fullmatch(row[3]) or row[3] == "not recorded yet", row
    assert any(verdict.fullmatch(row[3]) for row in rows)


def test_the_map_names_every_tutorial(site):
    folder = site / "getting-started" / "tutorials"
    text = (site / "which-kernel.html").read_text(encoding="utf-8")
    numbers = {page.stem[:2] for page in folder.glob("[0-9][0-9]-*.html")}
    linked = set(re.findall(r'href="getting-started/tutorials/(\d\d)-', text))
    assert linked == numbers


def test_releases_are_compared_or_it_is_said_that_there_is_one(site):
    text = (site / "performance.html").read_text(encoding="utf-8")
    assert re.search(r"Triton [\d.]+ over [\d.]+|recordings are of one release", text)
