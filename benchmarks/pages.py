"""A first visit to a page: its bytes as they are and as they travel, and the time to load it.

This machine serves build/html with texts compressed, as hosts do, to Chromium with an empty cache.
*load* is the time to the load event, without the delays of a network.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from tests.fixtures import chromium
from tests.fixtures.served import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Response

ROOT = Path(__file__).parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PAGES = ("index.html", "python-api/triton.language.html")
TUTORIALS = "getting-started/tutorials"
LOAD = "performance.getEntriesByType('navigation')[0].loadEventStart"  # ms


def main() -> None:
    """Print a table."""
    from playwright.sync_api import sync_playwright

    build = ROOT / "build" / "html"
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None or not build.is_dir():
        print("left out: it needs " + ("a browser" if browser is None else "`make html` first"))
        return
    tutorials = sorted((ROOT / "tutorials").glob("[0-9]*.py"))
    names = [*PAGES, *(f"{TUTORIALS}/{path.stem}.html" for path in tutorials)]
    with sync_playwright() as playwright, served(build, compressed=True) as root:
        running = playwright.chromium.launch(executable_path=browser, args=list(chromium.FLAGS))
        rows = [(Path(name).stem, *_visit(running, root + name)) for name in names]
        running.close()
    print(tabulate(rows, ("page", "kB", "compressed kB", "load ms"), floatfmt=".0f"))


def _visit(browser: Browser, address: str) -> tuple[float, float, float]:
    """Kilobytes, kilobytes sent, and milliseconds of a first visit."""
    page = browser.new_context().new_page()
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer))
    page.goto(address, wait_until="networkidle")
    known = {answer.url: answer for answer in answers if answer.ok}.values()
    whole = sum(len(answer.body()) for answer in known)
    sent = sum(int(answer.headers["content-length"]) for answer in known)
    load = page.evaluate(LOAD)
    page.context.close()
    return whole / 1000, sent / 1000, load
