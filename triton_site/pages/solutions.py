"""The index of the tutorials: lessons by level, and solutions by lesson, instead of tiles.

sphinx-gallery's tiles have no order and no minutes, and most solutions have no figure. Lessons are
rows, as on the front page; a solution is named with the level and the minutes of its exercise.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from gallery_recorder.api import domain_of
from triton_site.pages.cards import CardsPlace
from triton_site.pages.exercises import TABLE, read_table
from triton_site.pages.path import LEVELS, path_of

#: The titles in ``tutorials/GALLERY_HEADER.rst`` and ``tutorials/solutions/GALLERY_HEADER.rst``.
LESSONS, SOLUTIONS = "Tutorials", "Solutions to the exercises"


class SolutionsPlace(nodes.General, nodes.Element):
    """The place of the list, which is filled when the titles of all pages are known."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_node(SolutionsPlace)
    app.connect("doctree-read", _replace_tiles)
    app.connect("doctree-resolved", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _replace_tiles(app: Sphinx, doctree: nodes.document) -> None:
    for section in list(doctree.findall(nodes.section)):
        title = section[0].astext()
        if title not in (LESSONS, SOLUTIONS) or not any(_is_tile(node) for node in section):
            continue
        for node in [node for node in section if _is_tile(node)]:
            section.remove(node)
        paragraphs = [i for i, node in enumerate(section) if isinstance(node, nodes.paragraph)]
        place = paragraphs[-1] + 1
        section[place:place] = _levels() if title == LESSONS else [SolutionsPlace()]
        domain = domain_of(app.env)
        domain.depends("introductions")
        domain.depends("recordings")
        app.env.note_dependency(str(Path(app.confdir, TABLE)))


def _levels() -> list[nodes.Node]:
    """A section with rows for each level of the path."""
    found: list[nodes.Node] = []
    for level, title in LEVELS.items():
        name = nodes.make_id(title)
        rows = CardsPlace(level=level, large=False)
        found.append(nodes.section("", nodes.title("", title), rows, ids=[name], names=[name]))
    return found


def _is_tile(node: nodes.Node) -> bool:
    """Whether a node is raw HTML or a picture of the tiles; downloads stay."""
    return isinstance(node, nodes.raw) or (
        node.tagname == "only" and next(node.findall(nodes.image), None) is not None
    )


def by_lesson(names: list[str], lessons: list[str]) -> dict[str, list[str]]:
    """The solutions of each lesson, in the order of *lessons*; their numbers are the same."""
    number = {lesson: lesson.rpartition("/")[2].partition("-")[0] for lesson in lessons}
    of = {name: name.rpartition("/")[2].partition("-")[0] for name in names}
    found = {lesson: sorted(n for n in names if of[n] == number[lesson]) for lesson in lessons}
    return {lesson: solutions for lesson, solutions in found.items() if solutions}


def _fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    places = list(doctree.findall(SolutionsPlace))
    if not places:
        return
    pages = [page.docname for page in domain_of(app.env).selection.main]
    solutions = [name for name in pages if "/solutions/" in name]
    lessons = list(chain.from_iterable(path_of(app.env).values()))
    table = read_table(Path(app.confdir, TABLE).read_text(encoding="utf-8"))

    def link(name: str) -> nodes.reference:
        uri = app.builder.get_relative_uri(docname, name)
        return nodes.reference("", app.env.titles[name].astext(), internal=True, refuri=uri)

    rows: list[nodes.Node] = []
    for lesson, names in by_lesson(solutions, lessons).items():
        rows.append(nodes.paragraph("", "", nodes.strong("", "", link(lesson))))
        items = nodes.bullet_list()
        for name in names:
            paragraph = nodes.paragraph("", "", link(name))
            if exercise := table.get(name.rpartition("/")[2]):
                paragraph += nodes.Text(f" ({exercise.level}, {exercise.minutes} minutes)")
            items += nodes.list_item("", paragraph)
        rows.append(items)
    for place in places:
        place.parent.replace(place, [row.deepcopy() for row in rows])
