"""``.. gallery-command:: record``: the output of ``gallery-recorder record --help``."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("gallery-command", CommandDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class CommandDirective(SphinxDirective):
    """``.. gallery-command:: NAME``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Write the help of the command."""
        self.env.note_dependency(str(files("gallery_recorder") / "__main__.py"))
        text = help_of(self.arguments[0])
        return [nodes.literal_block(text, text, language="none", classes=["gallery-command"])]


def help_of(*command: str) -> str:
    """The help of the engine, or of a *command*, 88 columns wide."""
    plain = os.environ | {"COLUMNS": "88", "NO_COLOR": "1"}
    words = [sys.executable, "-m", "gallery_recorder", *command, "--help"]
    done = subprocess.run(words, env=plain, capture_output=True, text=True, check=True)
    return done.stdout.strip()
