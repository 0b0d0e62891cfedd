"""Seconds and memory of rendering, recording and publishing: ``make bench``."""
