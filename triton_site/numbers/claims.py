"""Claims: what the pages teach as true of speed, memory and accuracy, and where it held.

A script computes its claims from what it has measured and writes ``claims.json``. Here those of all
current recordings are collected: into the site's ``_static/claims.json`` (described by
``claims.schema.json``), into a matrix of claims by device and release, ``.. gallery-claims::``, and
onto the pages: where a claim failed anywhere, its section says so.

    python -m triton_site.numbers.claims  # `make check`: do they hold on the reference?
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from docutils import nodes
from msgspec import Meta
from sphinx.application import Sphinx
from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from gallery_recorder.project.script import ScriptError
from gallery_recorder.render import downloads
from gallery_recorder.render.domain import domain_of
from gallery_recorder.store.format import slug
from gallery_recorder.store.recording import RecordingError
from triton_site.numbers import ceilings, recorded
from triton_site.numbers.ladder import significant
from triton_site.numbers.recorded import Recorded
from triton_site.probes import REFERENCE_DEVICE

FILE_NAME = "claims.json"

NOTHING = "No claim has been recorded on a GPU yet: ``make record`` does it."


class Measured(msgspec.Struct, frozen=True):
    """A claim as the script writes it."""

    statement: str
    value: float
    margin: float
    held: bool
    at_least: float | None = None
    at_most: float | None = None
    spread: float = 0.0
    section: str = ""


class Claim(msgspec.Struct, frozen=True):
    """A claim on one device with one release of Triton."""

    statement: Annotated[str, Meta(description="one sentence that is true where the limit is kept")]
    page: Annotated[str, Meta(description="the page, below the root of the site")]
    anchor: Annotated[str, Meta(description="the section of the page that the claim belongs to")]
    device: str
    release: Annotated[str, Meta(description="of Triton")]
    value: Annotated[float, Meta(description="what was measured: a ratio of rates, bytes or such")]
    limit: Annotated[float, Meta(description="what the value is held against")]
    kind: Annotated[Literal["at least", "at most"], Meta(description="what the limit is")]
    margin: Annotated[float, Meta(description="how far the value is from the limit, relative")]
    spread: Annotated[float, Meta(description="how far the value scatters, relative to itself")]
    held: bool
    recorded: Annotated[str, Meta(description="when, in UTC")]

    @property
    def docname(self) -> str:
        """The page, as Sphinx calls it."""
        return self.page.removesuffix(".html")

    @property
    def place(self) -> tuple[str, str]:
        """Device and release."""
        return self.device, self.release


class Claims(msgspec.Struct, frozen=True):
    """All claims of the site."""

    schema: Literal[1]
    claims: list[Claim]


class ClaimsError(Exception):
    """A claims file that cannot be used; says which, and what to do."""


def read(path: Path) -> list[Measured]:
    """The claims in a recording's file; none where there is no file.

    Raises:
        ClaimsError: It is no list of claims, or a claim says that it held and it did not.
    """
    if not path.is_file():
        return []
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[Measured])
    except (msgspec.DecodeError, OSError) as error:
        raise ClaimsError(f"{path}: {error}; record the tutorial again") from error
    for claim in found:
        limits = [limit for limit in (claim.at_least, claim.at_most) if limit is not None]
        if len(limits) != 1:
            raise ClaimsError(f"{path}: {claim.statement!r} must have one limit; has {limits}")
        below = claim.value < limits[0] if claim.at_least is not None else claim.value > limits[0]
        if claim.held == below:
            raise ClaimsError(
                f"{path}: {claim.statement!r} has {claim.value:g} against {limits[0]:g}, so `held` "
                f"cannot be {str(claim.held).lower()}; record the tutorial again"
            )
    return found


def collect(items: Iterable[Recorded]) -> list[Claim]:
    """The claims of the recordings *items*.

    Raises:
        ClaimsError: as :func:`read`.
    """
    return [
        Claim(
            statement=claim.statement,
            page=f"{item.docname}.html",
            anchor=nodes.make_id(claim.section),
            device=item.device,
            release=item.release,
            value=claim.value,
            limit=claim.at_most if claim.at_least is None else claim.at_least,  # type: ignore
            kind="at most" if claim.at_least is None else "at least",
            margin=claim.margin,
            spread=claim.spread,
            held=claim.held,
            recorded=item.content.run.recorded,
        )
        for item in items
        for claim in read(item.folder / FILE_NAME)
    ]


# --- on the site ----------------------------------------------------------------------------------


class Matrix(nodes.General, nodes.Element):
    """Where the matrix will stand; its links are made when the page is written."""


class MatrixDirective(SphinxDirective):
    """``.. gallery-claims::``: the claims of all pages, by device and release."""

    def run(self) -> list[nodes.Node]:
        """Leave a place for it."""
        domain_of(self.env).depends("recordings")
        return [Matrix()]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, the notes on pages, and the file."""
    app.add_domain(ClaimsDomain)
    app.add_directive("gallery-claims", MatrixDirective)
    app.add_node(Matrix)
    app.connect("env-before-read-docs", _collect)
    app.connect("env-get-outdated", _outdated_pages, priority=400)
    app.connect("doctree-read", _note_failures)
    app.connect("doctree-resolved", _fill_matrix)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class ClaimsDomain(Domain):
    """The claims of a build; its data say which of each page failed when the page was read."""

    name = "claims"
    label = "Claims"
    data_version = 1
    initial_data: ClassVar[dict[str, dict[str, str]]] = {"failures": {}}

    @cached_property
    def claims(self) -> list[Claim]:
        """Those of all recordings, collected once."""
        return collect(recorded.of_build(self.env))

    def merge_domaindata(self, docnames: Set[str], otherdata: dict[str, Any]) -> None:
        """Nothing is learned while pages are read."""
        del docnames, otherdata


def _domain(app: Sphinx) -> ClaimsDomain:
    domain = app.env.domains[ClaimsDomain.name]
    assert isinstance(domain, ClaimsDomain)
    return domain


def _claims(app: Sphinx) -> list[Claim]:
    return _domain(app).claims


def _collect(app: Sphinx, *_: object) -> None:
    _claims(app)


def failures(claims: Iterable[Claim], docname: str) -> list[Claim]:
    """The claims of a page that failed on some device or release."""
    return [claim for claim in claims if claim.docname == docname and not claim.held]


def _outdated_pages(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """A page is read again when a recording that it does not show fails one of its claims."""
    del env, added, changed, removed
    claims, data = _claims(app), _domain(app).data
    now = {
        docname: hashlib.sha256(msgspec.json.encode(failures(claims, docname))).hexdigest()
        for docname in {claim.docname for claim in claims}
    }
    before, data["failures"] = data["failures"], now
    return [name for name, digest in now.items() if before.get(name, digest) != digest]


def _note_failures(app: Sphinx, doctree: nodes.document) -> None:
    failed = failures(_claims(app), app.env.docname)
    if not failed:
        return
    sections = {section_id: s for s in doctree.findall(nodes.section) for section_id in s["ids"]}
    for claim in failed:
        section = sections.get(claim.anchor) or next(doctree.findall(nodes.section))
        text = (
            f"“{claim.statement}” did not hold on {claim.device} with Triton {claim.release}: it "
            f"was {significant(claim.value)}, where {claim.kind} {significant(claim.limit)} was "
            "claimed."
        )
        note = nodes.warning("", nodes.paragraph("", text), classes=["gallery-claim-failed"])
        section.insert(1, note)


def _fill_matrix(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for place in list(doctree.findall(Matrix)):
        claims = _claims(app)
        place.replace_self(
            _matrix(app, claims, docname) if claims else nodes.paragraph("", NOTHING)
        )


def places_of(claims: Iterable[Claim]) -> list[tuple[str, str]]:
    """Where the claims were computed, in order."""
    return in_order(claim.place for claim in claims)


def in_order(places: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Devices and releases, the reference device first and the newest release of each first."""
    return sorted(
        {*places},
        key=lambda place: (
            slug(place[0]) != REFERENCE_DEVICE,
            place[0],
            [-part for part in recorded.version_key(place[1])],
        ),
    )


def _matrix(app: Sphinx, claims: list[Claim], docname: str) -> nodes.table:
    places = places_of(claims)
    by_statement: dict[tuple[str, str], dict[tuple[str, str], Claim]] = {}
    for claim in claims:
        by_statement.setdefault((claim.docname, claim.statement), {})[claim.place] = claim
    table = nodes.table(classes=["gallery-claims"])
    group = nodes.tgroup(cols=1 + len(places))
    table += group
    group += [nodes.colspec(colwidth=60), *(nodes.colspec(colwidth=20) for _ in places)]
    head, body = nodes.thead(), nodes.tbody()
    group += [head, body]
    head += _row(["Claim", *(f"{device}, Triton {release}" for device, release in places)])
    titles = {name: app.env.titles[name].astext() for name, _ in by_statement}
    last = ""
    for (name, statement), found in by_statement.items():
        if name != last:
            uri = app.builder.get_relative_uri(docname, name)
            link = nodes.reference("", titles[name], refuri=uri, internal=True)
            strong = nodes.paragraph("", "", nodes.strong("", "", link))
            body += _row([strong, *("" for _ in places)])
            last = name
        first = next(iter(found.values()))
        uri = f"{app.builder.get_relative_uri(docname, name)}#{first.anchor}"
        link = nodes.reference("", statement, refuri=uri, internal=True)
        body += _row([nodes.paragraph("", "", link), *(_cell(found.get(p)) for p in places)])
    return table


def _cell(claim: Claim | None) -> nodes.paragraph:
    if claim is None:
        return nodes.paragraph("", "–")
    sign = "≥" if claim.kind == "at least" else "≤"
    text = f"{significant(claim.value)} ({sign} {significant(claim.limit)})"
    word = nodes.strong("", "holds" if claim.held else "does not hold")
    classes = ["claim-held" if claim.held else "claim-failed"]
    return nodes.paragraph("", "", word, nodes.Text(f": {text}"), classes=classes)


def _row(cells: Sequence[str | nodes.Element]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        content = nodes.paragraph("", cell) if isinstance(cell, str) else cell
        row += nodes.entry("", content)
    return row


def _write(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        static = Path(app.outdir, "_static")
        data = msgspec.json.encode(Claims(1, _claims(app)))
        downloads.write(static / "claims.json", msgspec.json.format(data, indent=1))
        schema = msgspec.json.encode(msgspec.json.schema(Claims))
        downloads.write(static / "claims.schema.json", msgspec.json.format(schema, indent=1))


# --- make check -----------------------------------------------------------------------------------


def problems(items: Sequence[Recorded]) -> list[str]:
    """Why the recordings *items* must not be published, one sentence each.

    These are claims that failed on the newest release of the reference device, and rates that the
    device of a tutorial cannot reach. (The guide makes mistakes on purpose, such as timing with a
    warm cache; its rates are left alone.)

    Raises:
        ClaimsError: as :func:`read`.
    """
    found = []
    for item in items:
        for name in item.content.data if item.content.gallery == "tutorials" else ():
            if name.endswith(".csv"):
                found += ceilings.impossible(item.folder / name, item.device)
    newest: dict[str, Recorded] = {}
    for item in items:
        if slug(item.device) == REFERENCE_DEVICE:
            old = newest.get(item.name)
            if old is None or recorded.version_key(old.release) < recorded.version_key(
                item.release
            ):
                newest[item.name] = item
    for item in newest.values():
        found += [
            f"{item.folder / FILE_NAME}: {claim.statement!r} does not hold on {item.device} with "
            f"Triton {item.release}: {claim.value:.4g}, where "
            f"{'at most' if claim.at_least is None else 'at least'} "
            f"{claim.at_most if claim.at_least is None else claim.at_least:g} is claimed; change "
            "the kernel or the sentence"
            for claim in read(item.folder / FILE_NAME)
            if not claim.held
        ]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the recordings below the folders given, by default ``recordings``; 1 for a problem."""
    roots = [Path(name) for name in (sys.argv[1:] if arguments is None else arguments)]
    try:
        items = recorded.of_checkout(roots or [Path("recordings")])
        found = problems(items)
        held = sum(len(read(item.folder / FILE_NAME)) for item in items)
    except (ClaimsError, RecordingError, ScriptError) as error:
        print(f"triton_site.numbers.claims: {error}", file=sys.stderr)
        return 1
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{held} claims and the rates of {len(items)} recordings: {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
