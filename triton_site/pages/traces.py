"""``.. trace:: NAME``: the player with a trace of this lesson's kernels, from ``traces/``.

The page loads the data when the reader comes near; rendering executes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from triton_site.pages import assets
from triton_site.pages.folds import add_node

#: The folder of the data, below the folder of ``conf.py``.
FOLDER = Path("traces")


class TracePlayer(nodes.General, nodes.Element):
    """The player; its child is the caption, which stands for it where there is no script."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and its node."""
    add_node(app, TracePlayer, _open, _close)
    app.add_directive("trace", TraceDirective)
    assets.load_where(app, "player.js", assets.is_a(TracePlayer))
    app.connect("build-finished", _copy_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class TraceDirective(SphinxDirective):
    """``.. trace:: NAME``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the player with the caption of the trace."""
        # A page of another recording is called 01-vector-add.triton-3.6.0.
        lesson = self.env.docname.rpartition("/")[2].partition(".")[0]
        file = Path(self.env.srcdir).parent / FOLDER / f"{lesson}.trace.json"
        self.env.note_dependency(str(file))
        name = self.arguments[0]
        try:
            trace = json.loads(file.read_text(encoding="utf-8"))["traces"][name]
        except (OSError, KeyError):
            raise self.error(f"{FOLDER}/{lesson}.trace.json has no trace {name}") from None
        player = TracePlayer(file=file.name, trace=name)
        player += nodes.paragraph("", trace["caption"])
        return [player]


def _open(translator: Any, node: TracePlayer) -> None:
    up = "../" * translator.builder.current_docname.count("/")
    source = f"{up}_static/traces/{_script_name(node['file'])}"
    player = f'<triton-trace src="{source}" name="{node["trace"]}"></triton-trace>'
    translator.body.append(f'<figure class="trace">{player}\n')


def _close(translator: Any, node: TracePlayer) -> None:
    translator.body.append("</figure>\n")


def _copy_data(app: Sphinx, error: Exception | None) -> None:
    """Write the traces as scripts, which a page that was opened from a disk can load."""
    if error is not None or app.builder.format != "html":
        return
    target = Path(app.outdir, "_static/traces")
    target.mkdir(parents=True, exist_ok=True)
    for file in (Path(app.confdir) / FOLDER).glob("*.trace.json"):
        script = _script_name(file.name)
        data = file.read_text(encoding="utf-8")
        text = f"(globalThis.tritonTraces ??= {{}})[{json.dumps(script)}] = {data.rstrip()};\n"
        (target / script).write_text(text, encoding="utf-8")


def _script_name(file: str) -> str:
    """The name of the script with the data of the *file* ``NAME.trace.json``."""
    return file.removesuffix(".json") + ".js"
