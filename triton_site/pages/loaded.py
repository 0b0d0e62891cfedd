"""Whether each page of a built site loads the scripts that it needs: ``make check``.

A script of ours begins with a line ``// Used by: CLASS``. It has to be loaded by each page with an
element of that class, and by one page at least. The pages decide by their nodes what they load
(:mod:`triton_site.pages.assets`); here their finished HTML is read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

_USED_BY = re.compile(r"// Used by: ([\w-]+)$")


class _Page(HTMLParser):
    """The classes of a page's elements, and the names of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.classes: set[str] = set()
        self.scripts: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.classes.update((values.get("class") or "").split())
        source = values.get("src")
        if tag == "script" and source:
            self.scripts.add(source.partition("?")[0].rpartition("/")[2])


def users(static: Path) -> dict[str, str]:
    """The class of the elements that use each script in the folder *static*, by its name."""
    found = {}
    for path in sorted(static.glob("*.js")):
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        if named := _USED_BY.match(first):
            found[path.name] = named[1]
    return found


def problems(site: Path) -> Iterator[str]:
    """What a built site's pages lack, a line each."""
    needed = users(site / "_static")
    if not needed:
        yield f"{site}/_static: no script says what it is used by; run make html"
    unseen = set(needed)
    for path in sorted(site.rglob("*.html")):
        page = _Page(path.read_text(encoding="utf-8"))
        for script, name in needed.items():
            if name in page.classes:
                unseen.discard(script)
            if name in page.classes and script not in page.scripts:
                yield f"{path.relative_to(site)}: has .{name} and does not load {script}"
    for script in sorted(unseen):
        yield f"{script}: no page has .{needed[script]}; correct its line *Used by*, or delete it"


def main(site: Path) -> int:
    """Print the problems of *site*; 1 if there are any."""
    found = list(problems(site))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
