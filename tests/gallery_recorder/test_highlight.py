"""Code blocks with links: fewer elements, the same text, the same colours, the same links."""

from __future__ import annotations

from docutils import nodes

from triton_site.highlight import joined


def token(text: str, kind: str) -> nodes.inline:
    return nodes.inline(text, text, classes=[kind])


def test_neighbours_of_one_class_become_one() -> None:
    found = list(joined([token('"', "s2"), token("a", "s2"), token('"', "s2"), token("1", "mi")]))
    assert [(node.astext(), node["classes"]) for node in found] == [('"a"', ["s2"]), ("1", ["mi"])]


def test_what_has_no_colour_is_bare_text() -> None:
    line = [token("f", "n"), token("(", "p"), token("x", "n"), token(")", "p"), token("\n", "w")]
    (found,) = joined([*line, nodes.Text("y")])
    assert isinstance(found, nodes.Text)
    assert found.astext() == "f(x)\ny"


def test_links_stay_as_they_are() -> None:
    link = nodes.reference("", "", token("tl", "n"), token(".", "o"), token("load", "n"))
    found = list(joined([token("(", "p"), link, token(")", "p")]))
    assert found[1] is link
    assert "".join(node.astext() for node in found) == "(tl.load)"
