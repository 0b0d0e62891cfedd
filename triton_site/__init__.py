"""This site's own part: its Sphinx extensions, and what they need. The engine knows none of it."""
