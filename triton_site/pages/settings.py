"""``.. gallery-settings::`` and ``.. gallery-command:: record``: the engine's own reference.

The first is a table of the engine's settings with their defaults, from the docstring of its class;
the second is what ``gallery-recorder record --help`` prints.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from typing import Any

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import Settings


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("gallery-settings", SettingsDirective)
    app.add_directive("gallery-command", CommandDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class SettingsDirective(SphinxDirective):
    """``.. gallery-settings::``."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        self.env.note_dependency(inspect.getfile(Settings))
        text = ".. list-table::\n   :header-rows: 1\n   :widths: 26 20 54\n\n"
        for row in [("Setting", "Default", "Meaning"), *rows()]:
            text += "   * - " + "\n     - ".join(row) + "\n"
        return self.parse_text_to_nodes(text)


def rows() -> list[tuple[str, str, str]]:
    """The name, the default and the meaning of each setting, in reStructuredText."""
    parts = re.split(r"^ {4}(\w+): ", inspect.cleandoc(Settings.__doc__ or ""), flags=re.M)
    meanings = dict(zip(parts[1::2], parts[2::2], strict=True))
    return [
        (
            f"``gallery_{name}``",
            f"``{'None' if default is None else json.dumps(default)}``",
            " ".join(meanings[name].split()),
        )
        for name, default in msgspec.structs.asdict(Settings()).items()
    ]


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
