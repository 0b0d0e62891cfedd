"""The site's lists: chapters, exercises' checks, terms, Markdown twins, settings."""

import ast
import re
import sys
import zipfile
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest
from bs4 import BeautifulSoup

from gallery_recorder.project.settings import Settings
from gallery_recorder.run.recorder import Options
from tests import galleries
from triton_site.pages import commands, tiles
from triton_site.pages.exercises import TABLE, read_table

ROOT = Path(__file__).resolve().parents[2]
T = "getting-started/tutorials"


def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_bytes(), "html.parser")


def test_the_guide_lists_every_chapter_with_what_it_is_about(site):
    listed = {
        row.a["href"]: row.select_one(".gallery-row-text").text
        for row in soup(site / "programming-guide/index.html").select(".gallery-row")
    }
    scripts = {name.partition("programming-guide/")[2] for name in galleries.PAGES.values()} - {""}
    written = {"chapter-1/gpu", "chapter-1/introduction", "chapter-2/related-work"}
    chapters = written | scripts
    assert list(listed) == [f"{name}.html" for name in sorted(chapters)]
    assert all(len(text.split()) > 3 for text in listed.values())
    assert not [text for text in listed.values() if "Recorded " in text or "2019" in text]


@pytest.mark.parametrize("place", ["index.html", f"{T}/index.html"])
def test_a_lesson_has_a_row_with_a_picture_a_sentence_and_minutes(site, place):
    page = site / place
    lessons = soup(page).select(".gallery-row")
    assert len(lessons) > 10
    for row in lessons:
        title, sentence, minutes = (p.text for p in row.select("p"))
        for picture in row.select("img"):
            assert (page.parent / picture["src"]).is_file(), title
            assert picture["alt"] == "", "the title says what the row is about"
        assert len(re.findall(r"[.!?](?= |$)", sentence)) == 1, sentence
        assert re.match(r"\d+ minutes", minutes), title


def test_programs_find_sections_with_a_sentence_a_page_and_no_recordings(site):
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# Triton Gallery\n\n> ")
    assert len(re.findall("^## ", text, re.M)) >= 5
    entries = re.findall(r"^- \[.+\]\((\S+)\)(: .+)?$", text, re.M)
    assert len(entries) > 60
    assert sum(bool(sentence) for _, sentence in entries) > 0.9 * len(entries)
    assert not [
        address for address, _ in entries if "recordings" in address or ".triton-" in address
    ]


def test_each_check_is_named_on_a_page(site):
    """At its exercise, or in a command of a lesson."""
    checks = read_table((ROOT / TABLE).read_text())
    html = "".join(page.read_text(encoding="utf-8") for page in (site / T).glob("[0-9]*.html"))
    words = re.sub("<[^>]+>", "", html)
    assert set(re.findall(r"python exercise\.pyz (\d\S+) mine\.py", words)) == set(checks)


def test_a_check_that_needs_a_gpu_says_so_at_its_exercise(site):
    """The command of 06c and 09b would be refused, below a promise to check without a GPU."""
    checks = read_table((ROOT / TABLE).read_text())
    for path in (site / T).glob("[0-9]*.html"):
        items = soup(path).select("#exercises li .exercise-check")
        needs = []
        for text in (item.text for item in items):
            exercise = checks[text.split()[4]]
            assert text.endswith(f" --gpu, on {exercise.gpu}" if exercise.gpu else " mine.py"), path
            needs.append(exercise.gpu)
        if needs:
            promise = soup(path).select_one("#exercises > .exercise-check").text
            assert ("without a GPU" in promise) == (not all(needs)), path


def test_a_notebook_fetches_the_checker_from_the_sites_own_address(site):
    page = soup(site / T / "01-vector-add.html")
    cell = page.select_one("#exercises > details pre").text
    assert "https://triton-gallery.github.io/triton-gallery/stable/_static/exercise.pyz" in cell
    assert "exercise.pyz 01-axpy mine.py --start" in cell


def test_the_checker_is_one_file_that_needs_no_other(site):
    """Readers download it alone; its old name serves the same file."""
    file = site / "_static/exercise.pyz"
    assert file.read_bytes() == (site / "_static/exercise.py").read_bytes()
    modules = set()
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            # Of a solution, the checker executes its functions; pytest loads its plugin itself.
            is_loaded = not name.startswith("exercises/solutions/") and "pytest_plugin" not in name
            if name.endswith(".py") and is_loaded:
                tree = ast.parse(archive.read(name))
                modules |= {module for node in ast.walk(tree) for module in modules_of(node)}
    others = modules - sys.stdlib_module_names - {"exercises", "triton_watch"}
    assert others == {"numpy", "torch", "triton"}


def modules_of(node):
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [node.module.partition(".")[0]] if isinstance(node, ast.ImportFrom) else []


def test_an_exercise_has_hints_and_its_solution_on_a_line_of_its_own(site):
    page = soup(site / T / "01-vector-add.html")
    items = page.select("#exercises li")
    item = next(item for item in items if "01-axpy" in item.text)
    assert item.select_one(".gallery-fold-hint summary").text.strip() == "Hint"
    (link,) = item.select("a[href*='solutions/']")
    assert "exercise-solution" in link.find_parent("p")["class"]
    assert re.search(r"\d+ minutes", item.text)


def test_solutions_are_listed_by_lesson(site):
    page = soup(site / T / "solutions/index.html")
    assert not page.select(".sphx-glr-thumbcontainer")
    lists = page.select("section > ul")
    lessons = page.select("section > p > strong > a")
    assert len(lists) == len(lessons) > 5
    assert lists[0].a["href"].startswith("01-")
    listed = {a["href"] for one in lists for a in one.select("a")}
    assert listed == {f"{path.stem}.html" for path in (ROOT / "tutorials/solutions").glob("*.py")}


def test_the_first_use_of_a_term_in_prose_leads_to_the_glossary(site):
    links = soup(site / T / "01-vector-add.html").select("a[href*='glossary.html#term-']")
    terms = [link["href"].partition("#")[2] for link in links]
    assert {"term-program", "term-grid", "term-mask"} <= set(terms)
    assert len(terms) == len(set(terms))
    assert not [link for link in links if link.find_parent(["h1", "h2", "h3", "pre", "code"])]


def test_each_page_has_its_code_and_no_markup_in_markdown(site):
    for page in (site / T).glob("0*.html"):
        text = page.with_suffix(".md").read_text(encoding="utf-8")
        assert f'href="{page.stem}.md"' in page.read_text(encoding="utf-8")
        assert "\n@triton.jit" in text or "\n@gluon.jit" in text
        prose = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.M | re.S)
        assert not re.search(r"^\.\. |:(doc|ref|math|term):`|\{#|<div|<details", prose, re.M), page
    reference = (site / "python-api/triton.testing.md").read_text(encoding="utf-8")
    assert "**`triton.testing.do_bench(fn, warmup=25, rep=100" in reference
    listed = re.findall(r"^- \[.+?\]\((\S+?)\)", (site / "llms.txt").read_text(), re.M)
    assert len(listed) > 50
    assert all((site / address.partition("/stable/")[2]).is_file() for address in listed)


def test_every_setting_and_every_option_of_a_command_is_in_the_reference():
    page = (ROOT / "packages/gallery-recorder/docs/engine.rst").read_text(encoding="utf-8")
    found = re.findall(r"^\.\. confval:: gallery_(\w+)\n   :default: ``(.+)``\n\n   \S", page, re.M)
    defaults = msgspec.structs.asdict(Settings()).items()
    assert [(name, ast.literal_eval(text)) for name, text in found] == [
        (name, [*value] if isinstance(value, tuple) else value) for name, value in defaults
    ]
    listed = re.findall(r"^\.\. gallery-command:: (\w+)$", page, re.M)
    assert re.findall(r"^ {4}(\w+)", commands.help_of(), re.M) == listed
    shown = commands.help_of("record")
    assert shown.startswith("usage: gallery-recorder record [-h]")
    names = (option.name.replace("_", "-") for option in fields(Options))
    assert all(f"--{name}" in shown for name in names if name != "names")


@pytest.mark.parametrize(("size", "group"), [(9, 1), (9, 4), (5, 7), (1, 1)])
def test_the_picture_of_waves_has_the_tutorials_order(size: int, group: int) -> None:
    script = ast.parse((ROOT / "tutorials/03-matrix-multiplication.py").read_text())
    functions = [node for node in script.body if isinstance(node, ast.FunctionDef)]
    (function,) = [node for node in functions if node.name == "tile_position"]
    names: dict = {}
    exec(compile(ast.Module([function], []), "matmul", "exec"), names)
    ours = [tiles.position(tile, size, group) for tile in range(size * size)]
    assert ours == [names["tile_position"](tile, size, size, group) for tile in range(size * size)]
