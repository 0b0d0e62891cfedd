"""``.. predict:: QUESTION``: the reader answers before the page shows what was measured.

One of three answers is chosen::

    .. predict:: How much faster than the five operations will one kernel be?
       :choices: twice | four times | eight times
       :answer: four times

       It moves a quarter of the bytes. On this GPU it is :measured:`faster` times as fast.

Or a number is typed, and ``:number:`` names the quantity of the page that answers::

    .. predict:: How many GB/s will a copy reach?
       :number: copy
       :unit: GB/s

The answer and the explanation are in a fold below the question. ``predict.js`` makes buttons or a
field of the question; what is answered stays in the reader's browser.
"""

from __future__ import annotations

from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from triton_site.numbers.measured import number_node
from triton_site.numbers.quantities import QuantityError
from triton_site.pages.assets import is_a, load_where
from triton_site.pages.folds import Fold, add_node

_OPTIONS = ("choices", "answer", "number", "unit")


class Predict(nodes.General, nodes.Element):
    """A question: its text, its ``choices`` as a list or the ``unit`` of a number, a fold."""


class PredictDirective(SphinxDirective):
    """``.. predict:: QUESTION`` with the options above."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = dict.fromkeys(_OPTIONS, directives.unchanged_required)

    def run(self) -> list[nodes.Node]:
        """Make the question and its fold."""
        self.assert_has_content()
        question = nodes.paragraph("", "", nodes.strong("", "Predict first:"), nodes.Text(" "))
        words, problems = self.parse_inline(self.arguments[0])
        question += words
        fold = Fold(summary="The answer", note="", kind="predict")
        node = Predict("", question, number=self.env.new_serialno("predict"))
        if "number" in self.options:
            answer = self._quantity()
            node["unit"] = self.options.get("unit", "")
        else:
            choices, right = self._choices()
            node["right"] = right
            node += nodes.bullet_list("", *choices, classes=["gallery-choices"])
            answer = [child.deepcopy() for child in choices[right][0].children]
        fold += nodes.paragraph("", "", nodes.strong("", "Answer:"), nodes.Text(" "), *answer)
        fold += self.parse_content_to_nodes()
        node += fold
        return [node, *problems]

    def _quantity(self) -> list[nodes.Node]:
        if "choices" in self.options or "answer" in self.options:
            raise self.error("predict: give either :choices: with :answer:, or :number:")
        script, _, name = self.options["number"].rpartition(":")
        try:
            found = number_node(self.env, script, name)
        except QuantityError as error:
            raise self.error(str(error)) from error
        unit = self.options.get("unit", "")
        return [found, nodes.Text(f" {unit}")] if unit else [found]

    def _choices(self) -> tuple[list[nodes.list_item], int]:
        texts = [text.strip() for text in self.options.get("choices", "").split("|")]
        answer = self.options.get("answer", "").strip()
        if len(texts) != 3 or len({*texts}) != 3 or not all(texts):
            raise self.error("predict: :choices: are three different answers, with | between them")
        if answer not in texts:
            raise self.error(f"predict: the :answer: {answer!r} is none of the :choices:")
        items = [
            nodes.list_item("", nodes.paragraph("", "", *self.parse_inline(text)[0]))
            for text in texts
        ]
        return items, texts.index(answer)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and its node."""
    app.add_directive("predict", PredictDirective)
    add_node(app, Predict, _open, lambda translator, node: translator.body.append("</div>\n"))
    load_where(app, "predict.js", is_a(Predict))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _open(translator: Any, node: Predict) -> None:
    data = f'data-right="{node["right"]}"' if "right" in node else ""
    if "unit" in node:
        data = f'data-unit="{translator.attval(node["unit"])}"'
    name = f"predict-{node['number']}"
    translator.body.append(f'<div class="gallery-predict" id="{name}" {data}>\n')
