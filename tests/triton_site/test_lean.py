"""Lean code: the same text, fewer elements."""

from __future__ import annotations

from types import SimpleNamespace

from pygments import highlight
from pygments.lexers import PythonLexer

from triton_site.pages import garbage, lean


def test_tokens_that_look_like_text_are_bare() -> None:
    code = "x = tl.load(p)  # 0\n"
    found = highlight(code, PythonLexer(), lean.LeanFormatter(("n", "o", "p", "w"), nowrap=True))
    assert found == 'x = tl.load(p)  <span class="c1"># 0</span>\n'
    assert '<span class="n">x</span>' in highlight(
        code, PythonLexer(), lean.LeanFormatter(nowrap=True)
    )


def test_links_and_words_keep_their_text() -> None:
    link = '<a class="sphx-glr-backref-module-a reference" href="#b" title="a.b"><i>b</i></a>'
    assert lean.lean(link) == '<a href="#b" title="a.b"><i>b</i></a>'
    word = '<code class="literal"><span class="pre">a</span> <span class="pre">&lt;b</span></code>'
    assert lean.lean(word) == '<code class="literal">a &lt;b</code>'
    entry = '<div role="list" class="citation-list"><div class="citation" role="doc-biblioentry">'
    assert lean.lean(entry) == '<div class="citation-list"><div class="citation">'
    assert lean.lean('<ul role="list">') == '<ul role="list">'


def test_scripts_that_are_recorded_have_the_collector_of_python() -> None:
    """A recorder reads conf.py up to 498; a build makes pages at 500."""
    asked: dict[str, int] = {}
    garbage.setup(SimpleNamespace(connect=lambda name, _, priority: asked.update({name: priority})))
    assert asked["builder-inited"] == 499
