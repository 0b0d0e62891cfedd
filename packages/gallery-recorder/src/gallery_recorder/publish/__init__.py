"""Versions of a site: put a build beside the others, and write the files at the site's root."""
