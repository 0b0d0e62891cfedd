"""The engine's settings, with their defaults, and its commands, with their options.

Both are as the engine has them: ``.. gallery-settings::`` and ``.. gallery-command:: record``.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import sys
from typing import Any
from unittest import mock

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gallery_recorder import __main__ as command_line
from gallery_recorder.project.settings import Settings


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("gallery-settings", SettingsDirective)
    app.add_directive("gallery-command", CommandDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class SettingsDirective(SphinxDirective):
    """``.. gallery-settings::``: a table of the values of conf.py."""

    def run(self) -> list[nodes.Node]:
        """Write it."""
        self.env.note_dependency(inspect.getfile(Settings))
        head = [".. list-table::", "   :header-rows: 1", "   :widths: 26 20 54", ""]
        cells = [("Value", "Default", "What it says"), *rows()]
        lines = ["   * - " + "\n     - ".join(row) for row in cells]
        return self.parse_text_to_nodes("\n".join([*head, *lines]))


def rows() -> list[tuple[str, str, str]]:
    """The name, the default and the meaning of each setting, in reStructuredText."""
    said = re.split(r"^ {4}(\w+): ", inspect.cleandoc(Settings.__doc__ or ""), flags=re.M)
    texts = dict(zip(said[1::2], said[2::2], strict=True))
    found = []
    for name, default in msgspec.structs.asdict(Settings()).items():
        shown = "None" if default is None else json.dumps(default)
        found.append((f"``gallery_{name}``", f"``{shown}``", " ".join(texts[name].split())))
    return found


class CommandDirective(SphinxDirective):
    """``.. gallery-command:: record``: what ``gallery-recorder record --help`` prints."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Write it."""
        self.env.note_dependency(inspect.getfile(command_line))
        shown = help_of(self.arguments[0])
        return [nodes.literal_block(shown, shown, language="none", classes=["gallery-command"])]


def help_of(*command: str) -> str:
    """The help of the engine, or of a *command*, the same wherever it is asked for."""
    words = ["gallery-recorder", *command, "--help"]
    with (
        mock.patch.dict(os.environ, COLUMNS="88", NO_COLOR="1"),
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(io.StringIO()) as printed,
        contextlib.suppress(SystemExit),
    ):
        command_line.parser().parse_args()
    return printed.getvalue().strip()
