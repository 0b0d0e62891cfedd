"""Pages state numbers of the recording that they show.

``:measured:`faster` ``
    The quantity ``faster`` of the page, as ``tutorials/numbers.toml`` defines it;
    ``:measured:`02-fused-softmax:faster` `` on another page.
``.. steps:: ceiling``
    The steps of a page as bars; *ceiling* is the quantity at 100 %. Each line of the content names
    a quantity and says what changed. A library is no ceiling, so ``:of:`` names it::

        .. steps:: cublas
           :unit: TFLOPS
           :of: cuBLAS

           plain: a plain loop over K
           grouped: tiles in groups

All quantities of all current recordings are in the site's ``_static/numbers.json``. ::

    python -m triton_site.numbers.measured  # `make check`: is the reference right, and in limits?
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from gallery_recorder.api import Page, RecorderError, domain_of, downloads, slug
from triton_site.numbers import conditions, typed
from triton_site.numbers.launched import of_launches
from triton_site.numbers.performance import ABOVE, above_ceilings
from triton_site.numbers.quantities import Definition, Numbers, Quantity, QuantityError, load
from triton_site.numbers.recorded import (
    CALLS,
    Recorded,
    current,
    of_checkout,
    release_of,
    scripts_of_checkout,
)
from triton_site.numbers.tables import link, table
from triton_site.pages.folds import add_node
from triton_site.references import REFERENCES

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tutorials/numbers.toml"


class Bar(nodes.Inline, nodes.TextElement):
    """A bar of ``percent`` of the width of its ceiling; its text says the percentage."""


class MeasuredRole(SphinxRole):
    """A number in prose."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The number; a quantity that cannot be computed is an error at its line."""
        script, _, name = self.text.rpartition(":")
        try:
            shown = number_node(self.env, script, name)
        except QuantityError as error:
            message = self.inliner.reporter.error(str(error), line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]
        return [shown], []


class StepsDirective(SphinxDirective):
    """The steps of a page, as bars."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "unit": directives.unchanged_required,
        "of": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """A table with a row for each step; nothing where no times were recorded."""
        page = _page(self.env, "")
        if page is None or page.shown is None or not page.shown.timed:
            return []
        rows = [line.partition(":") for line in self.content if line.strip()]
        try:
            numbers = _numbers(self.env, page)
            ceiling = numbers[self.arguments[0]]
            found = [(text.strip(), numbers[name.strip()]) for name, _, text in rows]
        except QuantityError as error:
            if page.is_stale:  # the older code did not measure it
                _warn(self.env.docname, error)
                return []
            raise self.error(str(error)) from error
        head = ["Step", self.options["unit"], f"Of {self.options.get('of', 'the ceiling')}"]
        body = [_row(text, step, ceiling) for text, step in found]
        return [table(head, body, classes=["gallery-steps"])]


class LimitsDirective(SphinxDirective):
    """``.. limits::``: every number of the shown recordings that has a limit."""

    def run(self) -> list[nodes.Node]:
        """A table with a row for each limit."""
        domain_of(self.env).depends("recordings")
        pages = (
            p
            for p in domain_of(self.env).selection.main
            if p.shown and p.shown.timed and not p.is_stale
        )
        rows = []
        for page in pages:
            to = link("doc", page.docname, page.recording.title, self.env.docname)
            numbers = _numbers(self.env, page)
            for name in definitions(page.example.name):
                try:
                    quantity, unit = numbers[name], numbers.unit_of(name)
                except QuantityError as error:  # its own page says so, too
                    logger.warning("%s", error, type="gallery", subtype="recording")
                    continue
                if quantity.limit_text:
                    cell = nodes.paragraph("", "", to.deepcopy())
                    rows.append([cell, name, quantity.text, unit, quantity.limit_text])
        return [table(["Page", "Number", "Value", "Unit", "Expected"], rows)] if rows else []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the role and the directives."""
    app.add_role("measured", MeasuredRole())
    app.add_directive("limits", LimitsDirective)
    app.add_directive("steps", StepsDirective)
    add_node(app, Bar, _visit_bar, lambda translator, node: translator.body.append("</span>"))
    app.connect("build-finished", _publish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


@cache
def _read(changed: int) -> dict[str, dict[str, Definition]]:
    """The file as it was when it was *changed*, for all pages of a build."""
    del changed
    return load(FILE)


def definitions(script: str) -> dict[str, Definition]:
    """The quantities of the page of a *script*."""
    return _read(FILE.stat().st_mtime_ns).get(script, {})


def page_of_script(env: BuildEnvironment, script: str) -> Page | None:
    """The main page of a *script*."""
    return next((p for p in domain_of(env).selection.main if p.example.name == script), None)


def quantity_of(page: Page, name: str) -> Quantity:
    """The quantity *name* of the recording that *page* shows.

    Raises:
        QuantityError: it cannot be computed.
    """
    assert page.files is not None
    return Numbers(page.files, page.example.name, definitions(page.example.name))[name]


def _page(env: BuildEnvironment, script: str) -> Page | None:
    """The page that is read, or the main page of another *script*, which it then depends on."""
    if not script:
        return domain_of(env).pages.get(env.docname)
    domain_of(env).depends("recordings")
    return page_of_script(env, script)


def _numbers(env: BuildEnvironment, page: Page) -> Numbers:
    """The quantities of *page*, from the recording that it shows."""
    env.note_dependency(str(FILE))
    assert page.files is not None
    return Numbers(page.files, page.example.name, definitions(page.example.name))


def number_node(env: BuildEnvironment, script: str, name: str) -> nodes.Node:
    """The quantity *name* of the page that is read, or of that of another *script*, as text.

    Raises:
        QuantityError: it cannot be computed.
    """
    page = _page(env, script)
    if page is None:
        raise QuantityError(f"{script or env.docname} is not the page of a script")
    if page.shown is None or not page.shown.timed:
        return nodes.inline("", "…", classes=["measured"])  # only a GPU has times
    try:
        quantity = _numbers(env, page)[name]
    except QuantityError as error:
        if not page.is_stale or name not in definitions(page.example.name):
            raise
        _warn(env.docname, error)
        return nodes.inline("", "–", classes=["measured"])
    text = quantity.text
    if not quantity.held:
        text += f" (expected {quantity.limit_text})"
    device = page.recording.provenance.device
    return nodes.inline("", text, classes=["measured"], device=device)


def _warn(docname: str, error: QuantityError) -> None:
    """Say what a recording of older code lacks."""
    text = f"{error}; the recording is of older code"
    logger.warning("%s", text, location=docname, type="gallery", subtype="stale")


def _row(text: str, step: Quantity, ceiling: Quantity) -> list[str | nodes.Element]:
    share = 100 * step.value / ceiling.value
    bar = Bar("", f"{share:.0f} %", percent=share)
    return [text, step.text, nodes.paragraph("", "", bar)]


def _visit_bar(translator: Any, node: Bar) -> None:
    # The ceiling is at 5/6 of the cell, so a step above it stays inside.
    width = min(node["percent"], 120) / 1.2
    translator.body.append(f'<span class="bar" style="--share: {width:.1f}%">')


def _publish(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    found = []
    for item in current(app.env):
        at = item.location
        numbers = Numbers(item.files, at.name, definitions(at.name))
        for name in definitions(at.name):
            made: dict[str, Any] = {"recording": f"{at.place}/{at.gallery}/{at.name}", "name": name}
            try:
                quantity = numbers[name]
            except QuantityError as error:  # a recording without one of the files
                logger.warning("%s: %s", item.folder, error, type="gallery", subtype="recording")
                continue
            made |= {"value": quantity.value, "limit": quantity.limit_text, "held": quantity.held}
            found.append(made)
    content = msgspec.json.format(msgspec.json.encode(found), indent=1)
    downloads.write(Path(app.outdir, "_static/numbers.json"), content)


# --- make check -----------------------------------------------------------------------------------

_ANY = " or ".join(REFERENCES)


def of_reference(roots: Sequence[Path]) -> dict[str, Recorded]:
    """The current recordings below *roots* that pages show, by the name of their scripts.

    Of several references, the first one that has a recording of today's code.

    Raises:
        RecorderError: a script or a recording is damaged.
    """
    found: dict[str, tuple[int, Recorded]] = {}
    for item in of_checkout(roots):
        place = f"{slug(item.content.provenance.device)}/triton-{release_of(item.content)}"
        if place in REFERENCES:
            rank = REFERENCES.index(place)
            if item.content.name not in found or rank < found[item.content.name][0]:
                found[item.content.name] = rank, item
    return {name: item for name, (_, item) in found.items()}


def problems(recordings: Mapping[str, Recorded]) -> tuple[int, list[str]]:
    """How many quantities the reference's *recordings* have, and what is wrong with them.

    Raises:
        QuantityError: ``numbers.toml`` cannot be read.
    """
    count, found = 0, []
    for script, quantities in load(FILE).items():
        if script not in recordings:
            found.append(f"{FILE.name}: {script} is no recorded script")
            continue
        numbers = Numbers(recordings[script].files, script, quantities)
        for name in quantities:
            count += 1
            try:
                quantity = numbers[name]
            except QuantityError as error:
                found.append(str(error))
                continue
            if not quantity.held:
                found.append(
                    f"{script}.{name} is {quantity.text} on "
                    f"{recordings[script].content.provenance.device}, but the page says "
                    f"{quantity.limit_text}; change the kernel or the page"
                )
    return count, found


def _above_ceilings(item: Recorded) -> Iterator[str]:
    for name in sorted(item.content.data):
        if name.endswith(".csv") and name != CALLS and not name.endswith("-values.csv"):
            for said in above_ceilings(item.folder / name):
                yield f"{item.script.name}: {said}"


_STEPS = re.compile(r"^\.\. steps:: *(\S+)\n((?: +.*\n|\n)*)", re.MULTILINE)


def _above_steps(item: Recorded) -> Iterator[str]:
    """The steps that are faster than their table's ceiling, unless that is a library."""
    name = item.script.name
    numbers = Numbers(item.files, name, definitions(name))
    for block in item.script.blocks:
        for ceiling, body in _STEPS.findall(f"{block.content}\n") if block.type == "text" else ():
            for step in () if ":of:" in body else re.findall(r"^ +(\w+):", body, re.MULTILINE):
                if numbers[step].value > ABOVE * numbers[ceiling].value:
                    yield f"{name}: {step} is above its ceiling, {ceiling}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the recordings below the folders given, by default ``recordings``; 1 for a problem."""
    roots = [Path(name) for name in (sys.argv[1:] if arguments is None else arguments)]
    try:
        recordings = of_reference(roots or [Path("recordings")])
        count, found = problems(recordings)
        scripts = scripts_of_checkout()
        names = [script.name for script in scripts]
        without = [name for name in names if name not in recordings]
        found += [f"{name} has no current recording of {_ANY}" for name in without]
        for script in scripts:
            found += typed.in_prose(script)
        found += typed.in_pages(ROOT)
        for item in recordings.values():
            found += of_launches(item)
            found += _above_ceilings(item)
            found += _above_steps(item)
        found += conditions.remarks(recordings.values(), ROOT)
    except (QuantityError, RecorderError, OSError) as error:  # such as: there is no git
        print(f"triton_site.numbers.measured: {error}", file=sys.stderr)
        return 1
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{count} numbers of {_ANY}: {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
