"""``.. gallery-settings::``: the engine's settings, with their defaults, as the engine has them."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.source.settings import Settings


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("gallery-settings", SettingsDirective)
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
