"""The published site on a local server, and a browser that reports what goes wrong on a page."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from gallery_recorder.publish import publish, versions
from tests.fixtures import chromium
from tests.fixtures.served import served

#: Milliseconds that a busy machine may need.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)

#: A page that only the newest version has.
NEW_PAGE = "new-page.html"


@pytest.fixture(scope="session")
def published(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One build published under three names: a stable release, an old one, and the branch."""
    folder = tmp_path_factory.mktemp("published")
    built = versions.read_build(site).all[0].name
    for name in ("v1.0.0", "v0.9.0", "main"):
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
    text = re.sub('"kind": "[a-z]+"', f'"kind": "{"branch" if new == "main" else "tag"}"', text)
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
    """The address of the site's root."""
    with served(published) as root:
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
    """A reader who comes for the first time."""
    made = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
    made.set_default_timeout(PATIENCE)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """An empty page; the test fails if the browser complains."""
    with reader(browser) as context:
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        opened = context.new_page()
        complaints = watch(opened, address)
        yield opened
        assert not complaints, "\n".join(complaints)


def watch(page: Page, address: str) -> list[str]:
    """Collect messages in the console, errors, and requests to another host."""
    complaints: list[str] = []
    home = urlsplit(address).netloc

    def request(request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != home:
            complaints.append(f"{page.url}: requests {request.url}")

    def message(message) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{page.url}: {message.type}: {message.text}")

    page.on("request", request)
    page.on("console", message)
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    return complaints
