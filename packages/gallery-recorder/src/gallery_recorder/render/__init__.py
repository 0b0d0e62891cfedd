"""The Sphinx extension: recordings in place of execution."""
