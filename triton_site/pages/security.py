"""The content security policy of each page: scripts are files of the site, and one that it names.

The one script that stands in a page sets the reader's colors before anything is drawn. Its hash is
part of the policy; any other script in a page, such as one in a damaged recording, does not run.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from sphinx.application import Sphinx

#: Before anything is drawn, so that a page never flashes in the other colors.
COLOR_SCRIPT = (
    'try { document.documentElement.dataset.theme = localStorage.getItem("triton-gallery theme") '
    '|| ""; } catch {}'
)


def policy(script: str) -> str:
    """The policy that allows *script* inside a page, and of other things those of the site."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = {
        "default-src": "'self'",
        "script-src": f"'self' 'sha256-{digest}'",
        "style-src": "'self' 'unsafe-inline'",  # widths of bars and columns
        "img-src": "'self' data:",
        "object-src": "'none'",
        "base-uri": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def setup(app: Sphinx) -> dict[str, Any]:
    """Give the templates both."""
    app.connect("html-page-context", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    del app, page, template, doctree
    context["color_script"] = COLOR_SCRIPT
    context["security_policy"] = policy(COLOR_SCRIPT)
