"""Code blocks with links: fewer elements, the same text, the same colours, the same links."""

from __future__ import annotations

from pygments.lexers import get_lexer_by_name

from gallery_recorder.render import codeblocks


class Links:
    """Names that are documented."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def opening_tag(self, name: str) -> str:
        return f'<a href="#{name}">' if name in self.names else ""


def html(code: str, *names: str, plain: str = "") -> str:
    lexer, bare = get_lexer_by_name("python"), frozenset(plain)
    return codeblocks._joined(codeblocks._pieces(code, lexer, Links(*names), bare), bare)


def test_neighbours_of_one_class_share_an_element() -> None:
    assert html('"a" 1') == (
        '<span class="s2">"a"</span> <span class="mi">1</span><span class="w">\n</span>'
    )


def test_what_looks_like_text_is_bare() -> None:
    assert html("f(x <= y)", plain="nopw") == "f(x &lt;= y)\n"


def test_the_longest_documented_name_is_the_link() -> None:
    found = html("a.b.c(d)", "a.b", "a", plain="nopw")
    assert found == '<a href="#a.b">a.b</a>.c(d)\n'
    coloured = '<span class="n">a</span><span class="o">.</span><span class="n">b</span>'
    assert html("a.b", "a.b").startswith(f'<a href="#a.b">{coloured}</a>')


def test_a_name_after_a_call_is_no_name_of_its_own() -> None:
    assert "<a" not in html("f().load", "load")
    assert "<a" not in html("f() .load", "load")
