"""How the pages read: the kernel first, machinery folded. `make form` prints the figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from benchmarks import reading
from tests.fixtures import fixture_site


@pytest.fixture(scope="module")
def root(site: Path) -> Iterator[str]:
    with fixture_site.served(site) as address:
        yield address


SCRIPTS = [*reading.ROOT.glob("tutorials/[0-9]*.py"), *reading.ROOT.glob("guide/chapter-*/*.py")]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_kernel_comes_first_and_machinery_is_folded(
    browser: Browser, root: str, script: Path
) -> None:
    form = reading.measure(browser, root, reading.MADE / script.parent.name / script.name)
    assert form.visible > 20
    assert form.faults() == []


def test_a_page_that_breaks_the_limits_is_told() -> None:
    form = reading.Form("1", 61, 39, 9, 9, 41, 1801.0, 9000.0, 1.0)
    assert len(form.faults()) == 3
    assert reading.Form("1", 60, 40, 9, 9, 40, 1800.0, 9000.0, 1.0).faults() == []
