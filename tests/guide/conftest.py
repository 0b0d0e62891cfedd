"""Execute a chapter once a session; tests get its names as those of tutorials do."""

from tests.tutorials.conftest import reproducible, tutorial

__all__ = ["reproducible", "tutorial"]
