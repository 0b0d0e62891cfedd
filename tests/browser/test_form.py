"""How the pages read: the kernel first, machinery folded, a first visit light.

`make form` prints the figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from benchmarks import reading

SCRIPTS = sorted(
    path
    for pattern in ("tutorials/[0-9]*.py", "guide/chapter-*/*.py")
    for path in reading.ROOT.glob(pattern)
)
#: Every fifth is measured by ``make test``, all by ``make test-stress`` and ``make form``.
MEASURED = [
    pytest.param(path, id=path.stem, marks=pytest.mark.stress if number % 5 else ())
    for number, path in enumerate(SCRIPTS)
]


@pytest.mark.parametrize("script", MEASURED)
def test_the_kernel_comes_first_machinery_is_folded_and_a_first_visit_is_light(
    browser: Browser, address: str, script: Path
) -> None:
    form = reading.measure(
        browser, f"{address}stable/", reading.MADE / script.parent.name / script.name
    )
    assert form.visible > 20
    assert form.faults() == []


def test_a_page_that_breaks_the_limits_is_told() -> None:
    form = reading.Form("1", 61, 39, 9, 9, 41, 1801.0, 9000.0, 600.1, 150.1)
    assert len(form.faults()) == 4
    assert reading.Form("1", 60, 40, 9, 9, 40, 1800.0, 9000.0, 600.0, 150.0).faults() == []
