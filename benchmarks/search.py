"""How often the first results of the search are right: the queries of searches.csv.

words.toml was written with most of these queries, so the shares say what a change costs, and not
how good the search is for words that nobody has tried.
"""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.fixtures import chromium
from tests.fixtures.served import served

ROOT = Path(__file__).resolve().parents[1]
#: The first results of a query as the places that each of them shows, and the milliseconds it took.
_FIRST = """words => {
  const start = performance.now();
  const found = gallerySearch(words).slice(0, 3);
  const took = performance.now() - start;
  const shown = (group) => [group, ...group.sections.slice(0, 3)];
  const places = (group) => shown(group).map((s) => `${s.address}#${s.anchor}`);
  return [found.map(places), took];
}"""


def main(arguments: list[str] | None = None) -> None:
    """Print the shares of right results by kind of query; ``--wrong`` lists those that are not."""
    with open(Path(__file__).with_name("searches.csv"), encoding="utf-8", newline="") as file:
        queries = list(csv.DictReader(file))
    asked, first, three = Counter[str](), Counter[str](), Counter[str]()
    wrong, times = [], []
    with served(ROOT / "build/html") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.executable(), args=chromium.FLAGS
        )
        page = browser.new_page()
        page.goto(f"{address}search.html")
        page.wait_for_function("() => window.gallerySearch !== undefined")
        for query in queries:
            found, took = page.evaluate(_FIRST, query["words"])
            right = [_leads_to(places, query) for places in found]
            asked[query["kind"]] += 1
            first[query["kind"]] += right[:1] == [True]
            three[query["kind"]] += any(right)
            times.append(took)
            if not any(right):
                wrong.append(f"{query['words']!r}: {[places[0] for places in found]}")
        browser.close()
    for kind, count in asked.items():
        print(f"{kind:40} {count:4} {first[kind] / count:7.1%} {three[kind] / count:7.1%}")
    print(f"{'all':40} {asked.total():4} {first.total() / asked.total():7.1%} "
          f"{three.total() / asked.total():7.1%}")  # fmt: skip
    print(f"median {sorted(times)[len(times) // 2]:.1f} ms, longest {max(times):.0f} ms")
    if "--wrong" in (arguments or []):
        print("\n".join(wrong))


def _leads_to(places: list[str], query: dict[str, Any]) -> bool:
    wanted = tuple(filter(None, (query["place"], query["or else"])))
    return any(place.startswith(wanted) for place in places)
