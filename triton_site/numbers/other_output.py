"""``.. output-of:: NAME``: what a cell printed with another release of Triton.

A comment names the cell, ``# sphinx_gallery_name = "block pointers"``, and the option ``:release:``
chooses the recording, of the device that the page shows. A release without a recording of today's
code shows nothing. On the page of that release itself stands what the main page's release printed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.api import domain_of, seam, slug
from triton_site.numbers.recorded import current, release_of
from triton_site.references import REFERENCE_DEVICES


class OutputOfDirective(SphinxDirective):
    """``.. output-of:: NAME`` with ``:release:``."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {"release": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Make a literal block with a caption."""
        domain = domain_of(self.env)
        domain.depends("recordings")
        page, release = domain.pages.get(self.env.docname), self.options.get("release", "")
        if page is None or not release:
            raise self.error("output-of stands on the page of a script and needs :release:")
        settings = [seam.settings_in(code.block.content) for code in page.script.code]
        names = [str(setting.get("name", "")) for setting in settings]
        if names.count(self.arguments[0]) != 1:
            comment = f'# sphinx_gallery_name = "{self.arguments[0]}"'
            raise self.error(f"one cell of this script must have the comment {comment}")
        block = names.index(self.arguments[0])
        main = domain.pages[page.main]
        if page.view and main.shown and release_of(page.recording) == release:
            release = release_of(main.recording)  # the page of that release shows the main one's
        for item in current(self.env, page.main):
            if release_of(item.content) == release and slug(item.device) in REFERENCE_DEVICES:
                text = item.content.blocks[block].stdout.rstrip() or "(no output)"
                caption = f"Output of the cell above with Triton {release}, on {item.device}:"
                made = nodes.literal_block(text, text, language="none")
                return [nodes.paragraph("", caption, classes=["output-of"]), made]
        return []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("output-of", OutputOfDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
