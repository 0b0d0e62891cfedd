"""Docstrings of Triton's kind, made sound."""

from triton_site.kernels import docstrings

NAMES = {"dot": "triton.language.dot", "tl.dot": "triton.language.dot", "dtype": "tl.dtype"}


def parse(text: str) -> docstrings.Docstring:
    return docstrings.parse(text, NAMES.get)


def test_parameters_are_taken_out_whatever_follows():
    parsed = parse(
        "Sums.\n\n:param x: the input\n    in two lines\n:type x: int, optional\n"
        ":param axis: where\nThis function can also be called as a member function on "
        ":py:class:`tensor`,\nas :code:`x.sum(...)` instead of\n:code:`sum(x, ...)`.\n"
    )
    assert parsed.body == "Sums."
    assert [(p.name, p.type, p.text) for p in parsed.parameters] == [
        ("x", "int, optional", "the input in two lines"),
        ("axis", "", "where"),
    ]


def test_single_backquotes_are_code_also_across_lines():
    assert parse("If `x[i]` is\n:code:`[a,\nb)`, see `y`.").body == (
        "If ``x[i]`` is\n:code:`[a,\nb)`, see ``y``."
    )


def test_links_keep_their_form():
    text = "See `PTX <https://example.org>`_ and *not* this."
    assert parse(text).body == text


def test_roles_resolve_or_become_code():
    assert parse(":func:`dot` and :py:class:`~other.thing`").body == (
        ":py:obj:`dot <triton.language.dot>` and ``other.thing``"
    )


def test_literal_blocks_are_left_alone():
    text = "As::\n\n    a = `b` * c\n\nAnd `d`."
    assert parse(text).body == "As::\n\n    a = `b` * c\n\nAnd ``d``."
    text = ".. code-block:: python\n\n    x = `y`\n"
    assert parse(text).body == text.rstrip()


def test_values_in_quotes_are_code():
    assert parse('one of {"", ".ca"}, ``"x"``, "two words"').body == (
        'one of {``""``, ``".ca"``}, ``"x"``, "two words"'
    )


def test_a_lone_star_is_escaped():
    assert parse("a *.ttgir file").body == r"a \*.ttgir file"


def test_headings_and_foreign_directives_go():
    parsed = parse("Text.\n\nNotes\n*****\nMore.\n\n.. highlight:: python\nEnd.")
    assert parsed.body == "Text.\n\n**Notes**\n\nMore.\n\nEnd."
    assert parse("Text.\n\n.. rubric:: Constructors\n..\n  Oops").body == "Text."


def test_types_lead_to_entries():
    parsed = parse(":param t: a type\n:type t: DType\n:return: it\n:rtype: Block")
    assert parsed.parameters[0].type == ":py:obj:`dtype <tl.dtype>`"
    assert (parsed.returns.text, parsed.returns.type) == ("it", "Block")
    assert parse(":note: careful").notes == ["careful"]


def test_a_list_in_a_field_stays_a_list():
    parsed = parse(":note: It may use:\n\n       * one,\n       * two\nEnd.")
    assert parsed.notes == ["It may use:\n\n* one,\n* two"]
    assert parsed.body == "End."
