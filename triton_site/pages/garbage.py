"""Python looks for garbage less often while the site is built, which takes less time so.

A page is some ten thousand nodes that refer to one another, and most of them stay. By default
Python looks through the newest of them 700 at a time.
"""

from __future__ import annotations

import gc
from typing import Any

from sphinx.application import Sphinx

#: New objects before Python looks through them: fewer looks, for more memory.
THRESHOLD = 100_000


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx; what only reads the settings, such as a recorder, is left alone."""
    usual = gc.get_threshold()
    # A recorder goes on up to 498: it must not change how scripts are executed.
    app.connect("builder-inited", lambda app: gc.set_threshold(THRESHOLD, 20, 100), priority=499)
    app.connect("build-finished", lambda app, error: gc.set_threshold(*usual), priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
