"""What a lesson of the new form shows: measured on its built page, with all folds removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup, Tag

from tests.galleries import FILES, PAGES, ROOT

#: Lessons whose kernel cannot be read before its idea: a picture, or a few lines of PyTorch.
IDEA_FIRST = ("05b", "06", "06b", "06c", "09b", "12", "13", "14", "14b")
IDEA_LINES = 15
#: Screens of 1280 × 800 pixels of a page, and where its kernel begins.
SCREENS, KERNEL_AT, KERNEL_AFTER_IDEA = 12, 0.9, 2.6
HEADINGS = 9
WORDS = (900, 1700)
_VISIBLE = {"01": 60, "02": 110, "03": 110, "04": 110, "06c": 200, "09b": 200, "13": 200, "14": 200}
_BLOCK = dict.fromkeys(("06b", "06c", "09b", "12", "13", "14"), 60)
_SCRIPT = dict.fromkeys(("05", "05b", "06b", "06c", "10"), 700)

#: Names that belong to functions for programs, and how often a lesson may show them nevertheless.
FORBIDDEN = (
    "Launch", "key_of", "PLANS", "KEPT", "object.__new__", 'type("', "set_allocator", "sys.path",
    "lru_cache", "data_ptr", "is_compiling", "once_differentiable",
)  # fmt: skip
_ALLOWED = {
    "set_allocator": dict.fromkeys(("03b", "12", "14"), 1),
    "once_differentiable": dict.fromkeys(("05", "06b"), 2),  # its import and its use
}
#: How a kernel begins.
KERNEL = re.compile(r"^@(?:triton|gluon)\.jit|^@triton\.autotune", re.M)


class Lesson:
    """The built page of the lesson *name* of the site in *folder*."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.number = name, name.partition("-")[0]
        text = (folder / f"{PAGES[name]}.html").read_text(encoding="utf-8")
        body = BeautifulSoup(text, "html.parser").select_one('[itemprop="articleBody"]')
        assert body is not None
        self.body: Tag = body
        self.headings = [h.get_text().rstrip("\uf0c1#¶") for h in body.select("h2")]
        for gone in body.select("details, .sphx-glr-script-out, .sphx-glr-footer, script"):
            gone.decompose()

    def blocks(self) -> list[str]:
        """The code in sight, block by block, without blank lines."""
        found = self.body.select("div.highlight-Python pre, div.highlight-python pre")
        lines = (block.get_text().splitlines() for block in found)
        return ["\n".join(line for line in block if line.strip()) for block in lines]

    def words(self) -> int:
        """The number of words of prose."""
        for code in self.body.select("pre, table, math, .gallery-provenance"):
            code.decompose()
        return len(self.body.get_text(" ").split())


def problems(lesson: Lesson) -> Iterator[str]:
    """Where *lesson* exceeds what its form allows."""
    number, blocks = lesson.number, lesson.blocks()
    sizes = [len(block.splitlines()) for block in blocks]
    if sum(sizes) > (most := _VISIBLE.get(number, 160)):
        yield f"{sum(sizes)} lines of code in sight, {most} at most"
    if max(sizes, default=0) > (most := _BLOCK.get(number, 45)):
        yield f"a block of {max(sizes)} lines in sight, {most} at most"
    code = "\n".join(blocks)
    for name in FORBIDDEN:
        pattern = rf"(?<!\w){re.escape(name)}" + (r"\b" if name[-1].isalnum() else "")
        count = len(re.findall(pattern, code))
        if count > _ALLOWED.get(name, {}).get(number, 0):
            yield f"{name} in sight"
    kernel_first = blocks and KERNEL.search(blocks[0])
    short_idea = number in IDEA_FIRST and sizes and sizes[0] <= IDEA_LINES
    if not (kernel_first or short_idea):
        yield "its first code in sight is not its kernel"
    if len(lesson.headings) > HEADINGS:
        yield f"{len(lesson.headings)} headings, {HEADINGS} at most"
    script = ROOT / "tutorials" / f"{lesson.name}.py"
    if script.is_file():
        lines = len(script.read_text(encoding="utf-8").splitlines())
        if lines > (most := _SCRIPT.get(number, 600)):
            yield f"{lines} lines of script, {most} at most"
    words = lesson.words()
    if not WORDS[0] <= words <= WORDS[1]:
        yield f"{words} words, not {WORDS[0]} to {WORDS[1]}"


def lessons() -> list[str]:
    """The lessons that have the new form: the lesson, and then the function for programs."""
    return [
        name
        for name, file in FILES.items()
        if file.gallery == "tutorials"
        and "/" not in name
        and re.search(r"^# In a program\n# -{3,}$", file.path.read_text(encoding="utf-8"), re.M)
    ]
