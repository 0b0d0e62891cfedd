"""A chapter that is there is listed, with a link to it and what it is about."""

from bs4 import BeautifulSoup

from tests import galleries


def test_the_guide_lists_every_chapter_by_itself(site):
    page = BeautifulSoup((site / "programming-guide/index.html").read_bytes(), "html.parser")
    listed = {
        link["href"]: term.find_next_sibling("dd").text
        for term in page.select("[itemprop=articleBody] dt")
        for link in term.select("a")
    }
    pages = set(galleries.PAGES.values())
    chapters = {name.removeprefix("programming-guide/") for name in pages} - pages
    written = {"chapter-1/introduction", "chapter-2/related-work"}
    assert set(listed) == {f"{name}.html" for name in chapters | written}
    assert all(len(text.split()) > 5 for text in listed.values()), "says what it is about"
    assert not [text for text in listed.values() if "Recorded " in text or "2019" in text]
    numbers = [int(address.split("/")[0].removeprefix("chapter-")) for address in listed]
    assert numbers == sorted(numbers)
