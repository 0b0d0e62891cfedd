"""Docstrings of Triton's kind become reStructuredText that builds without a warning."""

import pytest

from triton_site.kernels.docstrings import sound

NAMES = {"dot": "tl.dot", "tl.dot": "tl.dot", "dtype": "tl.dtype", "tensor": "tl.tensor"}
MEMBER = (
    "This function can also be called as a member function on :py:class:`tensor`,\n"
    "as :code:`x.sum(...)` instead of\n:code:`sum(x, ...)`.\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("If `x[i]` is\n:code:`[a,\nb)`, see `y`.", "If ``x[i]`` is\n:code:`[a,\nb)`, see ``y``."),
        ("`PTX <https://e.org>`_, *not* this", "`PTX <https://e.org>`__, *not* this"),
        (":func:`dot`, :py:class:`~other.x`", ":py:obj:`dot <tl.dot>`, ``other.x``"),
        ("As::\n\n    a = `b` * c\n\n`d`", "As::\n\n    a = `b` * c\n\n``d``"),
        (".. code-block:: python\n\n    x = `y`", ".. code-block:: python\n\n    x = `y`"),
        ('{"", ".ca"}, "two words"', '{``""``, ``".ca"``}, "two words"'),
        ("a *.ttgir file", r"a \*.ttgir file"),
        ("Text.\n\nNotes\n*****\nMore.", "Text.\n\n**Notes**\n\nMore."),
        (".. highlight:: python\nA.\n\n.. rubric:: Constructors\n..\n  B", "A."),
        (":param x: in\n     two lines\n:type x: int", ":param x: in two lines\n:type x: *int*"),
        (":type t: DType\n:rtype: Block", ":type t: :py:obj:`dtype <tl.dtype>`\n"
         ":rtype: :py:obj:`tensor <tl.tensor>`"),
        (":ivar a: b", ":param a: b"),
        ("Sums.\n\n:param x: a\n" + MEMBER + "End.", "Sums.\n\n\n\nEnd.\n\n:param x: a"),
        (":note: One of:\n\n     * one,\n     * two\nEnd.", "End.\n\nOne of:\n\n* one,\n* two"),
    ],
)  # fmt: skip
def test_markup_is_repaired_and_words_stay(text, expected):
    assert sound(text, NAMES.get) == expected
