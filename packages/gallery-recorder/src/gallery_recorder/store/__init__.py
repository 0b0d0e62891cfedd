"""Recordings on the disk: format, reading, replacement in one step, status, comparison."""
