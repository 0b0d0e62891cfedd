r"""Formulas as MathML, which needs no script and no image.

Sphinx has no MathML renderer; docutils has a converter from LaTeX. In ``conf.py``::

    html_math_renderer = "mathml"

A formula that the converter does not know is a warning at its line and is shown as LaTeX. Displayed
formulas may align at ``&`` and break at ``\\``, as in a bare ``.. math::`` directive.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

#: The converter puts the index of ``\hat{x}_j`` below *x*, as that of a sum.
_ACCENT_AND_INDEX = re.compile(
    r"""<(munderover|msubsup)>\s*(<m[ion][^>]*>[^<]*</m[ion]>)\s*(<(m[ion]|mrow)>(?:(?!<m).)*?</\4>)
    \s*<mo\ stretchy="false">([ˆˉˇ˜˘˙¨´`→])</mo>\s*</\1>""",
    re.VERBOSE,
)
#: The converter makes ``\overline{x}`` a letter with an underscore above it.
_LINE_ABOVE = re.compile(
    r'<mover accent="false">((?:(?!<mover accent="false").)*?)<mo accent="true">_</mo>\s*</mover>',
    re.DOTALL,
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _visit_inline(self: HTML5Translator, node: nodes.math) -> NoReturn:
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append(f"{_mathml(self, node)}</span>")
    raise nodes.SkipNode


def _visit_displayed(self: HTML5Translator, node: nodes.math_block) -> NoReturn:
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(f"{_mathml(self, node)}</div>\n")
    raise nodes.SkipNode


def _mathml(self: HTML5Translator, node: nodes.math | nodes.math_block) -> str:
    latex = node.astext()
    try:
        mathml = tex2mathml(latex, as_block=isinstance(node, nodes.math_block))
    except MathError as error:
        logger.warning("formula %r: %s", latex, error, location=node, type="math")
        return f"<code>{self.encode(latex)}</code>"
    mathml = _ACCENT_AND_INDEX.sub(
        r'<msub><mover accent="true">\2<mo stretchy="false">\5</mo></mover>\3</msub>', mathml
    )
    return _LINE_ABOVE.sub(r'<mrow class="overline">\1</mrow>', mathml)
