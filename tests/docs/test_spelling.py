"""Every word of the site's prose is in a dictionary of English, or in docs/words.txt.

codespell (``make lint``) finds the misspellings that it knows, also in code, and leaves the words
of the same list alone; this finds the others.
"""

from __future__ import annotations

import re
from pathlib import Path

from bs4 import BeautifulSoup
from spellchecker import SpellChecker

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "docs" / "words.txt"

#: What is no prose of ours: code, formulas, titles and names in references, what a script printed.
NO_PROSE = "pre, code, math, script, style, .citation-list, .gallery-provenance"
#: Pages that hold Triton's own documentation, lists of names, or what machines say of themselves.
NO_PROSE_PAGES = ("python-api/triton", "genindex", "search")
_RECORDS = re.compile(r"/recordings-[^/]+\.html$")

WORD = re.compile(r"(?<![\w.@/-])[A-Za-z]{3,}(?:['’][a-z]+)?(?![\w@/]|\.\w)")


def words_of(page: Path) -> set[str]:
    """The words of a page's prose, in lower case, without a possessive s."""
    main = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").find(role="main")
    if main is None:
        return set()
    for element in main.select(NO_PROSE):
        element.decompose()
    for reference in main.select("#references"):
        reference.decompose()
    found = (word.lower().replace("’", "'") for word in WORD.findall(main.get_text(" ")))
    return {word.removesuffix("'s") for word in found}


def test_every_word_is_known(site: Path) -> None:
    checker = SpellChecker()
    checker.word_frequency.load_words(LIST.read_text(encoding="utf-8").split())
    unknown: dict[str, str] = {}
    pages = [
        page
        for page in sorted(site.rglob("*.html"))
        if not page.relative_to(site).as_posix().startswith(("_static", *NO_PROSE_PAGES))
        and not _RECORDS.search(page.as_posix())
    ]
    words = {page: words_of(page) for page in pages}
    assert len(set().union(*words.values())) > 1000
    for page, on_page in words.items():
        for word in checker.unknown(on_page):
            unknown.setdefault(word, page.relative_to(site).as_posix())
    told = "\n".join(f"  {word} ({page})" for word, page in sorted(unknown.items()))
    assert not unknown, f"Correct these words, or add them to docs/words.txt:\n{told}"


def test_the_list_is_sorted() -> None:
    listed = LIST.read_text(encoding="utf-8").split()
    assert listed == sorted(set(listed))
