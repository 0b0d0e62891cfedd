"""Versions of a site: inspection, publishing in one step, the files at its root."""
