"""The published site on a local server, and a browser that reports what goes wrong on a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from gallery_recorder.publish import publish, versions
from tests.fixtures import chromium, fixture_site

ROOT = Path(__file__).resolve().parents[2]
#: Milliseconds after which nobody believes that it will happen, however busy the machine is.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)

#: A page that only the newest version has.
NEW_PAGE = "new-page.html"


@pytest.fixture(scope="session")
def published(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of one build under several names: a stable release, older ones, and the branch."""
    folder = tmp_path_factory.mktemp("published")
    built = versions.read(site / versions.FILE_NAME).all[0].name
    with pytest.MonkeyPatch.context() as patch:
        # All have the pages of the site, which is inspected in a test of its own.
        patch.setattr(
            publish, "inspect", lambda build, name: versions.read(build / versions.FILE_NAME)
        )
        for name in ("v1.0.0", "v0.9.0", "v1.0.0rc1", "main"):
            build = folder / "builds" / name
            shutil.copytree(site, build)
            _rename(build, built, name)
            publish.publish(build, folder / "site", name)
            shutil.rmtree(build)
    return folder / "site"


def _rename(build: Path, old: str, new: str) -> None:
    """Make *build* one of version *new*, in its list and on its pages."""
    listed = build / versions.FILE_NAME
    text = listed.read_text(encoding="utf-8").replace(f'"name": "{old}"', f'"name": "{new}"')
    if new == "main":
        shutil.copy(build / "contributing.html", build / NEW_PAGE)
        text = text.replace('"index.html"', f'"index.html", "{NEW_PAGE}"')
    listed.write_text(text, encoding="utf-8")
    for path in build.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for form in ('data-version="{}"', "<b>{}</b>"):
            text = text.replace(form.format(old), form.format(new))
        path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def address(published: Path) -> Iterator[str]:
    """Where the root of the site is served."""
    with fixture_site.served(published) as root:
        yield root


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium.executable(), args=chromium.FLAGS
        )
        yield running
        running.close()


@contextmanager
def reader(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """A reader who comes for the first time; what is waited for has all the time it needs."""
    made = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
    made.set_default_timeout(PATIENCE)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def context(browser: Browser, address: str) -> Iterator[BrowserContext]:
    """A reader who may use the clipboard."""
    with reader(browser, accept_downloads=True) as made:
        made.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        yield made


@pytest.fixture
def page(context: BrowserContext, address: str) -> Iterator[Page]:
    """An empty page. The test fails where the browser has something to complain about."""
    opened = context.new_page()
    complaints = watch(opened, address)
    yield opened
    assert not complaints, "\n".join(complaints)


def watch(page: Page, address: str) -> list[str]:
    """Collect errors in the console, failed requests, and requests to another host."""
    complaints: list[str] = []
    home = urlsplit(address).netloc

    def request(request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != home:
            complaints.append(f"{page.url}: asks another host: {request.url}")

    def message(message) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{page.url}: {message.type}: {message.text}")

    page.on("request", request)
    page.on("console", message)
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    return complaints
