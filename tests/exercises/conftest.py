"""Tests of exercises get the names of a lesson as those of lessons do."""

from tests.tutorials.conftest import reproducible, tutorial

__all__ = ["reproducible", "tutorial"]
