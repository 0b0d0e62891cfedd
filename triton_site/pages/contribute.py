"""A contribution: recordings of somebody else's GPU, checked, and the text of their pull request.

    python -m triton_site.pages.contribute --record [NAME…]   # `make contribute`, on the GPU
    python -m triton_site.pages.contribute                     # `make contributed`, anywhere

A contribution is whatever recordings differ from the committed ones, which ``make`` puts into
``build/committed``. They are checked, and put into ``build/contribution``, beside a comparison with
the nearest recordings that are committed. The recordings may be a stranger's: what they say goes
into a quotation, and only names of folders stand outside it.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gallery_recorder import __main__ as engine
from gallery_recorder import console
from gallery_recorder.project import galleries
from gallery_recorder.project.script import Script
from gallery_recorder.run import gpus
from gallery_recorder.store import compare, recording
from gallery_recorder.store.benchmarks import BenchmarkError
from gallery_recorder.store.format import GpuState, Recording
from gallery_recorder.store.recording import Location, RecordingError
from triton_site.numbers import ceilings, claims
from triton_site.numbers.recorded import Recorded
from triton_site.pages import take
from triton_site.probes import SOFTWARE

RECORDINGS = Path("recordings")
COMMITTED = Path("build/committed/recordings")
FOLDER = Path("build/contribution")

#: What a driver does to a GPU that is too hot or gets too little power; its power cap is normal.
_SLOWED = {
    "hardware slowdown",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "power brake",
}
#: The reStructuredText that is made of a block's output here: texts, figures, links to its files.
#: Any other could show files of the machine that builds, or stop Sphinx.
_SHOWN = re.compile(
    r"(?:\n|\.\. rst-class:: [\w -]+\n"
    r"| \.\. code-block:: none\n(?=\n)(?:\n| {4}.*\n)*+"
    r"|\.\. container:: gallery-data\n\n"
    r"   :download:`[\w.-]+ </@@gallery@@/[\w-]+/[\w.-]+>` \([\d.,]+ \w+\)\n"
    r"|\.\. image:: /@@gallery@@/images/[\w.-]+\n"
    r"(?: {3}:(?:alt|width|height|loading|class): .*\n)*+)*+"
)
#: GitHub takes no longer text.
_MAX_TEXT = 55_000

NO_GPU = """no GPU was found, and a contribution is what a GPU did.
With a GPU here: see whether `nvidia-smi` (or `rocm-smi`) lists it, and whether the Python package
nvidia-ml-py is installed.
Without one: the section "Record on your own GPU" of docs/contributing.rst says how to rent one for
minutes, and how to use Colab's. `make html` needs none: it shows what Triton's interpreter does."""


@dataclass
class Checked:
    """What is contributed: ``problems`` have to be solved, ``notes`` are for who reviews it."""

    locations: list[Location] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    held: int = 0

    @property
    def places(self) -> list[str]:
        """Devices and variants, as their folders are called."""
        return sorted({location.place for location in self.locations})


def check(scripts: Sequence[Script], new: Path, committed: Path) -> Checked:
    """Check the recordings in *new* that are not in *committed* as they are."""
    found = Checked()
    by_name = {(script.gallery, script.name): script for script in scripts}
    for folder in recording.all_recordings(new):
        try:
            location = recording.location_of(folder, new)
            made = location.load()
            if made == _load(committed / folder.relative_to(new)):
                continue
            found.locations.append(location)
            _check_one(found, location, made, by_name.get((made.gallery, made.name)))
        except RecordingError as error:
            found.problems.append(str(error))
    for device in sorted({_load_device(location) for location in found.locations}):
        if ceilings.ceiling_of(device) is None:
            found.notes.append(
                f"{device}: no ceiling is known, so its rates are held against none; add its "
                "maker's figures to triton_site/numbers/ceilings.py"
            )
    return found


def _load(folder: Path) -> Recording | None:
    try:
        return recording.load(folder)
    except RecordingError:
        return None


def _load_device(location: Location) -> str:
    return location.load().provenance.device


def _check_one(found: Checked, at: Location, made: Recording, script: Script | None) -> None:
    name, problems = f"{at.place}/{at.gallery}/{at.name}", found.problems
    if script is None:
        problems.append(f"{name}: there is no such tutorial")
        return
    at.load([block.key for block in script.code])
    if made.key != script.key:
        problems.append(
            f"{name}: is of other code than the tutorial has; bring the checkout up to date and "
            "record it again"
        )
    for number, block in enumerate(made.blocks, 1):
        if not _SHOWN.fullmatch("\n".join([*block.rst.splitlines(), ""])):  # as docutils reads it
            problems.append(f"{name}: block {number} shows more than texts, figures and files")
    if made.provenance.kind != "gpu" or not made.timed:
        problems.append(f"{name}: was not made on a GPU; such recordings are not kept")
        return
    release = made.probe(SOFTWARE).get("triton")
    if at.variant != f"triton-{release}":
        problems.append(f"{name}: lies below {at.variant}, but Triton was {release}")
    _check_gpu(found, name, made)
    item = Recorded("", at.name, at.folder, made)
    try:
        for table in made.data if made.gallery == "tutorials" else ():
            if table.endswith(".csv"):
                problems += ceilings.impossible(at.folder / table, item.device)
        for claim in claims.read(at.folder / claims.FILE_NAME):
            found.held += claim.held
            if not claim.held:
                found.notes.append(
                    f"{name}: {claim.statement!r} does not hold: {claim.value:.4g}, where "
                    f"{'at most' if claim.at_least is None else 'at least'} "
                    f"{claim.at_most if claim.at_least is None else claim.at_least:g} is claimed"
                )
    except (claims.ClaimsError, ValueError, TypeError, csv.Error) as error:
        problems.append(f"{name}: {error}")


def _check_gpu(found: Checked, name: str, made: Recording) -> None:
    states = (made.provenance.before or GpuState(), made.provenance.after or GpuState())
    if any(state.other_processes is None for state in states):
        found.notes.append(f"{name}: the driver does not tell whether others used the GPU")
    if others := max(state.other_processes or 0 for state in states):
        found.problems.append(
            f"{name}: {others} other processes used the GPU; record it again without them (FORCE=1)"
        )
    if reasons := sorted({reason for state in states for reason in state.throttling}):
        words = f"{name}: its clocks were held down ({', '.join(reasons)})"
        if _SLOWED.intersection(reasons):
            found.problems.append(f"{words}; let the GPU cool, and record it again (FORCE=1)")
        else:
            found.notes.append(words)


# --- what is left ---------------------------------------------------------------------------------


def write(found: Checked, new: Path, committed: Path, folder: Path) -> None:
    """Make *folder*: the recordings, their comparison, and the text of a pull request."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for location in found.locations:
        take.copy(location, folder / "recordings")
    try:
        compared = compare.compare(committed, folder / "recordings")
        (folder / "comparison.html").write_text(compared.html(), encoding="utf-8")
        comparison = compared.text()
    except (RecordingError, BenchmarkError) as error:
        comparison = f"Not compared: {error}"
    (folder / "comparison.txt").write_text(comparison + "\n", encoding="utf-8")
    text = pull_request(found, comparison)
    (folder / "pull-request.md").write_text(text, encoding="utf-8")


def pull_request(found: Checked, comparison: str) -> str:
    """The text of a pull request; what recordings say is quoted, and cannot end the quotation."""
    count = len(found.locations)
    parts = [
        f"{count} recording{'s' * (count != 1)}; {found.held} of their claims hold. Checked: keys "
        "and blocks, ceilings, claims, clocks, other processes on the GPU.",
        *(f"Problem: {problem}" for problem in found.problems),
        *(f"Note: {note}" for note in found.notes),
        comparison,
    ]
    quoted = "\n\n".join(parts).replace("`", "'")
    quoted = "".join(c if c == "\n" or c.isprintable() else "\ufffd" for c in quoted)
    if len(quoted) > _MAX_TEXT:
        quoted = f"{quoted[:_MAX_TEXT]}\n… the rest is in comparison.html"
    return f"## Recordings from {', '.join(found.places)}\n\n```\n{quoted}\n```\n"


def report(found: Checked, folder: Path) -> str:
    """What to do next, for the terminal."""
    text = pull_request(found, "").split("```\n")[1].strip()
    branch = found.places[0].partition("/")[0]
    return f"""{text}

The contribution: {folder}
  recordings/       {", ".join(found.places)}
  comparison.html   what differs from the nearest recordings that are committed
  pull-request.md   the text of the pull request

To send it, from your fork of the repository:
  git switch --create recordings-{branch}
  git add recordings/{branch} && git commit --message "Recordings from {branch}"
  git push --set-upstream origin recordings-{branch}
  gh pr create --title "Recordings from {branch}" --body-file {folder}/pull-request.md
If your fork is on another machine, copy the folder there, and begin with
  make take FROM={folder}/recordings"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Record if asked to, check, and leave the folder; 1 where something has to be solved."""
    console.make_lasting()
    parser = argparse.ArgumentParser(prog="python -m triton_site.pages.contribute")
    parser.add_argument("--record", action="store_true", help="record first, on the GPU here")
    parser.add_argument("--force", action="store_true", help="record also what is current")
    parser.add_argument("names", nargs="*", help="tutorials; default all")
    options = parser.parse_args(arguments)
    status = 0
    if options.record:
        if not gpus.find_gpus():
            return _complain(NO_GPU)
        force = ["--force"] if options.force else []
        status = engine.main(["record", "--device", "cuda", *force, *options.names])
        if status > 1:
            return status
    try:
        plan = galleries.read(galleries.find(None, None, ()))
    except galleries.ProjectError as error:
        return _complain(error)
    if not COMMITTED.is_dir():
        return _complain(
            f"{COMMITTED}: is missing, so what is new cannot be told. Contribute from a clone of "
            "the repository, with `make contribute`"
        )
    found = check([example.load() for example in plan.recorded], RECORDINGS, COMMITTED)
    if not found.locations and not found.problems:
        print("Every recording is as it is committed: there is nothing to contribute.")
        return status
    write(found, RECORDINGS, COMMITTED, FOLDER)
    if not found.locations:
        return _complain("\n".join(found.problems))
    print(report(found, FOLDER))
    return 1 if found.problems else status


def _complain(error: object) -> int:
    print(f"triton_site.pages.contribute: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
