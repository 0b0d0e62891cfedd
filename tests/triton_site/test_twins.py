"""Pages for programs: a Markdown twin of every page, and lists that lead to them."""

import re

T = "getting-started/tutorials"


def test_every_page_has_a_twin_with_its_code_and_outputs(site):
    for page in (site / T).glob("0*.html"):
        twin = page.with_suffix(".md").read_text(encoding="utf-8")
        assert f'href="{page.stem}.md"' in page.read_text(encoding="utf-8")
        assert "\n@triton.jit\n" in twin
        assert not re.search(r"^\.\. |:(doc|ref|math):`|\{#|<div", twin, re.MULTILINE), page
    softmax = (site / T / "02-fused-softmax.md").read_text(encoding="utf-8")
    assert softmax.count("```") % 2 == 0
    assert "y_i = " in softmax


def test_the_reference_is_readable(site):
    text = (site / "python-api" / "triton.testing.md").read_text(encoding="utf-8")
    assert "**`triton.testing.do_bench(fn, warmup=25, rep=100" in text


def test_llms_lists_tutorials_first_with_a_sentence_each(site):
    text = (site / "llms.txt").read_text(encoding="utf-8")
    parts = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert parts[:3] == ["Tutorials", "Programming guide", "Python API"]
    entries = re.findall(r"^- \[(.+?)\]\((\S+)\): (.+)$", text, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^- ", text, re.MULTILINE))
    for _, address, sentence in entries:
        assert (site / address.partition("/stable/")[2]).is_file()
        assert sentence
    first = text.partition("## Programming guide")[0]
    assert sorted(re.findall(rf"{T}/(\S+?)\.md", first)) == sorted(
        page.stem
        for page in (site / T).glob("*.html")
        if page.stem != "index" and not page.stem.startswith("recordings-")
    )
    assert "@triton.jit" in (site / "llms-full.txt").read_text(encoding="utf-8")
