"""An address with a place in it leads there, whatever sections before it have not been laid out."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

GUIDE = "programming-guide/chapter-3/debugging.html"
API = "python-api/triton.language.html"


@pytest.mark.parametrize(
    "place", [f"{GUIDE}#compiled-again-and-again", f"{API}#triton.language.histogram"]
)
def test_a_place_is_at_the_top_and_stays_there(page: Page, address: str, place: str) -> None:
    page.goto(f"{address}stable/{place}")
    name = place.partition("#")[2]
    at = f"document.getElementById({name!r}).getBoundingClientRect().top"
    page.wait_for_function(f"Math.abs({at}) < 2")
    page.wait_for_load_state("networkidle")  # all that could move it has come
    page.wait_for_function(f"Math.abs({at}) < 2")
    page.mouse.move(800, 400)
    page.mouse.wheel(0, 400)  # and the reader can go on
    page.wait_for_function(f"{at} < -300")


def test_back_leads_to_where_the_reader_was(page: Page, address: str) -> None:
    page.goto(f"{address}stable/{GUIDE}")
    page.evaluate("scrollTo(0, 700)")
    page.evaluate("location.hash = '#files'")
    page.wait_for_function("scrollY > 2000")
    page.go_back()
    page.wait_for_function("Math.abs(scrollY - 700) < 200")
