"""pytest: ``pytest --triton-watch`` watches the kernels of each test.

A test fails if one of its kernels does something undefined, also if the test catches the error. The
fixture ``triton_watch`` is the :class:`~triton_watch.Report` of the test.
"""

import os

import pytest


def pytest_addoption(parser):
    """Add ``--triton-watch``."""
    group = parser.getgroup("triton-watch")
    group.addoption(
        "--triton-watch",
        action="store_true",
        help="run Triton's kernels in its interpreter, and name what they do wrong",
    )
    group.addoption(
        "--triton-watch-no-compile",
        action="store_true",
        help="do not try whether the kernels compile for a GPU",
    )


def pytest_load_initial_conftests(early_config):
    """Choose the interpreter before a conftest.py imports Triton."""
    if early_config.known_args_namespace.triton_watch:
        os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def _watched(request):
    """Watch each test if ``--triton-watch`` asks for it."""
    if request.config.getoption("triton_watch"):
        request.getfixturevalue("triton_watch")


@pytest.fixture
def triton_watch(request):
    """The report of the kernels that this test launches."""
    from triton_watch.api import watch

    compiled = not request.config.getoption("triton_watch_no_compile")
    with watch(compile=compiled) as report:
        yield report
    if report.faults:
        pytest.fail(f"a kernel does something undefined:\n{report.faults[0]}", pytrace=False)
