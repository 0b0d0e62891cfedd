"""Code blocks with links: fewer elements, the same text, the same colours, the same links."""

from __future__ import annotations

from docutils import nodes

from gallery_recorder import seam
from gallery_recorder.render import codeblocks


class Links:
    """Names that are documented."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def resolve(self, name: str) -> str | None:
        return name if name in self.names else None

    def reference(self, name: str, children: list) -> nodes.reference:
        return nodes.reference("", "", *children, refid=name, classes=["x"], reftitle=name)


def html(code: str, *names: str, plain: str = "") -> str:
    known = {name: name for name in (*names, "a.b.c")}  # one of them is not documented
    tokens = seam.CodeLinks(known, Links(*names)).tokens("python", code)
    return codeblocks.joined(tokens, frozenset(plain))


def test_neighbours_of_one_class_share_an_element() -> None:
    assert html('"a" 1') == (
        '<span class="s2">"a"</span> <span class="mi">1</span><span class="w">\n</span>'
    )


def test_what_looks_like_text_is_bare() -> None:
    assert html("f(x <= y)", plain="nopw") == "f(x &lt;= y)\n"


def test_the_longest_documented_name_is_the_link() -> None:
    found = html("a.b.c(d)", "a.b", "a", plain="nopw")
    link = '<a class="x reference external" href="#a.b" title="a.b">'
    assert found == f"{link}a.b</a>.c(d)\n"
    coloured = '<span class="n">a</span><span class="o">.</span><span class="n">b</span>'
    assert html("a.b", "a.b").startswith(f"{link}{coloured}</a>")


def test_a_name_after_a_call_is_no_name_of_its_own() -> None:
    assert "<a" not in html("f().load", "load")
    assert "<a" not in html("f() .load", "load")
