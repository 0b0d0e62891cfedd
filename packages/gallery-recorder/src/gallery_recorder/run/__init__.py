"""Executing scripts, each in a process of its own, and recording what they do."""
