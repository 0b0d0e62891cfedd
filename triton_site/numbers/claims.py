"""Claims: sentences on speed, memory and accuracy that the pages teach, and where they held.

A script computes its claims from its measurements and writes ``claims.json``. The table
``.. gallery-claims::`` shows them by device and release; on the page of a recording, a section says
so where its claim failed.

    python -m triton_site.numbers.claims  # `make check`: do they hold on the reference?
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from docutils import nodes
from msgspec import Meta
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.errors import RecorderError
from gallery_recorder.project import galleries, reader
from gallery_recorder.render.domain import domain_of
from gallery_recorder.store import recording
from gallery_recorder.store.format import Recording, slug
from gallery_recorder.store.reading import ReadingError, load
from triton_site.numbers import ceilings
from triton_site.numbers.ladder import significant
from triton_site.numbers.recorded import current, in_order, release_of, version_key
from triton_site.numbers.tables import table
from triton_site.probes import REFERENCE_DEVICE

logger = logging.getLogger(__name__)

FILE_NAME = "claims.json"

NOTHING = "No claim has been recorded on a GPU yet: ``make record`` does it."

_Number = Annotated[float, Meta(ge=-1e30, le=1e30)]
_Text = Annotated[str, Meta(max_length=1000)]


class Claim(msgspec.Struct, frozen=True):
    """A claim as the script writes it; one of the limits is given."""

    statement: _Text
    value: _Number
    margin: _Number
    held: bool
    at_least: _Number | None = None
    at_most: _Number | None = None
    spread: _Number = 0.0
    section: _Text = ""

    @property
    def limit(self) -> str:
        """The limit in words."""
        if self.at_least is not None:
            return f"at least {significant(self.at_least)}"
        return f"at most {significant(self.at_most or 0.0)}"


def read(folder: Path) -> list[Claim]:
    """The claims in the recording *folder*; none where it has no file of claims.

    Raises:
        ReadingError: the file is damaged or contradicts itself.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return []
    found = load(path, list[Claim], 1_000_000)
    for claim in found:
        limits = [limit for limit in (claim.at_least, claim.at_most) if limit is not None]
        if len(limits) != 1:
            raise ReadingError(f"{path}: {claim.statement!r} must have one limit; has {limits}")
        missed = claim.value < limits[0] if claim.at_least is not None else claim.value > limits[0]
        if claim.held == missed:
            raise ReadingError(
                f"{path}: {claim.statement!r} has {claim.value:g} against {limits[0]:g}, so `held` "
                f"cannot be {str(claim.held).lower()}"
            )
    return found


def _read_or_warn(folder: Path | None) -> list[Claim]:
    try:
        return read(folder) if folder else []
    except ReadingError as error:
        text = "%s; its claims are left out: record the example again"
        logger.warning(text, error, type="gallery", subtype="claims")
        return []


# --- on the site ----------------------------------------------------------------------------------


class Matrix(nodes.General, nodes.Element):
    """The place of the table until its page is written: its links need titles of other pages."""


class MatrixDirective(SphinxDirective):
    """``.. gallery-claims::``: the claims of all pages, by device and release."""

    def run(self) -> list[nodes.Node]:
        """Leave a place for it."""
        domain_of(self.env).depends("recordings")
        return [Matrix()]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the notes on pages."""
    app.add_directive("gallery-claims", MatrixDirective)
    app.add_node(Matrix)
    app.connect("doctree-read", _note_failures)
    app.connect("doctree-resolved", _fill_matrix)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _note_failures(app: Sphinx, doctree: nodes.document) -> None:
    page = domain_of(app.env).pages.get(app.env.docname)
    sections = {section_id: s for s in doctree.findall(nodes.section) for section_id in s["ids"]}
    for claim in _read_or_warn(page.folder) if page and page.folder and sections else ():
        if not claim.held:
            made = page.recording  # type: ignore[union-attr]
            text = (
                f"“{claim.statement}” did not hold on {made.provenance.device} with Triton "
                f"{release_of(made)}: it was {significant(claim.value)}, where {claim.limit} was "
                "claimed."
            )
            note = nodes.warning("", nodes.paragraph("", text), classes=["gallery-claim-failed"])
            section = sections.get(nodes.make_id(claim.section), next(iter(sections.values())))
            section.insert(1, note)


def _fill_matrix(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for place in list(doctree.findall(Matrix)):
        made = _matrix(app, docname)
        place.replace_self(made or nodes.paragraph("", NOTHING))


def _matrix(app: Sphinx, docname: str) -> nodes.table | None:
    found: dict[str, dict[str, dict[tuple[str, str], Claim]]] = {}
    for item in current(app.env):
        place = item.content.provenance.device, release_of(item.content)
        for claim in _read_or_warn(item.folder):
            found.setdefault(item.page, {}).setdefault(claim.statement, {})[place] = claim
    places = in_order(
        place for claims in found.values() for by_place in claims.values() for place in by_place
    )
    rows: list[list[str | nodes.Element]] = []
    for name, claims in found.items():
        uri = app.builder.get_relative_uri(docname, name)
        link = nodes.reference("", app.env.titles[name].astext(), refuri=uri, internal=True)
        rows.append([nodes.paragraph("", "", nodes.strong("", "", link)), *("" for _ in places)])
        for statement, by_place in claims.items():
            anchor = nodes.make_id(next(iter(by_place.values())).section)
            link = nodes.reference("", statement, refuri=f"{uri}#{anchor}", internal=True)
            rows.append(
                [nodes.paragraph("", "", link), *(_cell(by_place.get(place)) for place in places)]
            )
    head = ["Claim", *(f"{device}, Triton {release}" for device, release in places)]
    return table(head, rows, classes=["gallery-claims"]) if rows else None


def _cell(claim: Claim | None) -> nodes.paragraph:
    if claim is None:
        return nodes.paragraph("", "–")
    limit = claim.limit.replace("at least", "≥").replace("at most", "≤")
    word = nodes.strong("", "holds" if claim.held else "does not hold")
    text = nodes.Text(f": {significant(claim.value)} ({limit})")
    return nodes.paragraph(
        "", "", word, text, classes=["claim-held" if claim.held else "claim-failed"]
    )


# --- make check -----------------------------------------------------------------------------------


class Recorded(NamedTuple):
    """A timed recording of today's code."""

    folder: Path
    content: Recording


def of_checkout(roots: Iterable[Path]) -> list[Recorded]:
    """The timed recordings below *roots* of the current code in the working directory.

    Raises:
        RecorderError: a script or a recording is damaged.
    """
    scripts = [example.load() for example in reader.read(galleries.find(None, None, ())).recorded]
    keys = {(script.gallery, script.name): script.key for script in scripts}
    found = []
    for root in roots:
        for folder in recording.all_recordings(root):
            content = recording.load(folder)
            if content.timed and content.key == keys.get((content.gallery, content.name)):
                found.append(Recorded(folder, content))
    return found


def problems(items: Sequence[Recorded]) -> list[str]:
    """Reasons not to publish the recordings *items*, one sentence each.

    These are claims that failed with the newest release on the reference device, and rates above
    the ceiling of the device in a tutorial. (The guide makes such mistakes on purpose.)

    Raises:
        ReadingError: a file of claims is damaged.
        BenchmarkError: a benchmark is damaged.
    """
    found = []
    newest: dict[str, Recorded] = {}
    for item in sorted(items, key=lambda item: version_key(release_of(item.content))):
        device = item.content.provenance.device
        for name in item.content.data if item.content.gallery == "tutorials" else ():
            if name.endswith(".csv"):
                found += ceilings.impossible(item.folder / name, device)
        if slug(device) == REFERENCE_DEVICE:
            newest[item.content.name] = item
    for folder, content in newest.values():
        found += [
            f"{folder / FILE_NAME}: {claim.statement!r} does not hold on "
            f"{content.provenance.device} with Triton {release_of(content)}: {claim.value:.4g}, "
            f"where {claim.limit} is claimed; change the kernel or the sentence"
            for claim in read(folder)
            if not claim.held
        ]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the recordings below the folders given, by default ``recordings``; 1 for a problem."""
    roots = [Path(name) for name in (sys.argv[1:] if arguments is None else arguments)]
    try:
        items = of_checkout(roots or [Path("recordings")])
        found = problems(items)
        count = sum(len(read(item.folder)) for item in items)
    except RecorderError as error:
        print(f"triton_site.numbers.claims: {error}", file=sys.stderr)
        return 1
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{count} claims and the rates of {len(items)} recordings: {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
