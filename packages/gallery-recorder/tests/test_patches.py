"""The faults of ``make test-patches`` fit the code as it is."""

from tests import patches


def test_each_small_fault_of_the_stress_tests_still_applies() -> None:
    assert len(patches.PATCHES) >= 60
    assert not patches.misfits()
