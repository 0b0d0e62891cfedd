"""Recordings on disk: format, locks, replacement in one step, comparison."""
