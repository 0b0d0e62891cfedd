"""Pages on a phone: bytes of a first visit, and Lighthouse scores where there is a Node.js.

A first visit loads the page and all it shows. Bytes are counted as they are and as they travel:
texts are compressed, as hosts do. Scores are of 100 for Lighthouse's phone, a slow one on a slow
line; higher is better. The build in build/html is served from this machine, so performance is that
of the page and not of a host. Lighthouse comes from npm, at the version named here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from gallery_recorder.publish import publish, versions
from tests.fixtures import fixture_site

if TYPE_CHECKING:
    from playwright.sync_api import Response

ROOT = Path(__file__).parents[1]

LIGHTHOUSE = "lighthouse@12.8.2"
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
GALLERY = "getting-started/tutorials"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]


def main() -> None:
    """Print a table."""
    browser = find_browser()
    build = ROOT / "build" / "html"
    if browser is None or not build.is_dir():
        print("left out: it needs " + ("a browser" if browser is None else "`make html` first"))
        return
    names = ["index.html", *_scripts(), "python-api/triton.language.html"]
    with tempfile.TemporaryDirectory() as folder:
        version = versions.read(build / versions.FILE_NAME).all[0].name
        publish.publish(build, Path(folder, "site"), version)
        with fixture_site.served(Path(folder, "site"), compressed=True) as root:
            weights = _weights(browser, [f"{root}stable/{name}" for name in names])
            rows = [
                (Path(name).stem, *weight, *_scores(browser, f"{root}stable/{name}", folder))
                for name, weight in zip(names, weights, strict=True)
            ]
    head = ("page", "kB", "compressed kB", *CATEGORIES)
    print(tabulate(rows, head, floatfmt=".0f", missingval="-"))


def find_browser() -> str | None:
    """The path of a browser of Chromium's kind."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def _scripts() -> list[str]:
    """The pages of the tutorials, without solutions, and of the chapters that execute code."""
    tutorials = sorted((ROOT / "tutorials").glob("[0-9]*.py"))
    chapters = sorted((ROOT / "guide").glob("*/*.py"))
    return [f"{GALLERY}/{path.stem}.html" for path in tutorials] + [
        f"programming-guide/{path.parent.name}/{path.stem}.html" for path in chapters
    ]


def _weights(browser: str, addresses: list[str]) -> list[tuple[float, float]]:
    """Kilobytes of a first visit to each address: as they are, and as they travel."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        for address in addresses:
            page = running.new_context().new_page()
            answers: list[Response] = []
            page.on("response", lambda answer, answers=answers: answers.append(answer))
            page.goto(address, wait_until="networkidle")
            known = {answer.url: answer for answer in answers if answer.ok}.values()
            whole = sum(len(answer.body()) for answer in known)
            sent = sum(int(answer.headers["content-length"]) for answer in known)
            found.append((whole / 1000, sent / 1000))
            page.context.close()
        running.close()
    return found


def _scores(browser: str, address: str, folder: str) -> list[float | None]:
    """Lighthouse's scores; nothing where it cannot be run."""
    if not shutil.which("npx"):
        return [None] * len(CATEGORIES)
    report = Path(folder, "report.json")
    done = subprocess.run(
        [
            *("npx", "--yes", LIGHTHOUSE, address, "--quiet"),
            *("--output=json", f"--output-path={report}"),
            f"--only-categories={','.join(CATEGORIES)}",
            f"--chrome-flags=--headless {' '.join(FLAGS)} --user-data-dir={folder}/profile",
        ],
        env=os.environ | {"CHROME_PATH": browser},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not report.exists():
        print(f"lighthouse: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return [None] * len(CATEGORIES)
    categories = json.loads(report.read_text())["categories"]
    report.unlink()
    return [100 * categories[name]["score"] for name in CATEGORIES]
