"""``gallery-recorder``: record scripts, see what is current, compare, publish."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gallery_recorder import console
from gallery_recorder.errors import RecorderError
from gallery_recorder.project import commands, galleries
from gallery_recorder.project.galleries import Project
from gallery_recorder.publish import publish


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 done, 1 a script failed or a check did not hold, 2 wrong usage."""
    console.make_lasting()
    options = parser().parse_args(arguments)
    try:
        return options.command(options)
    except RecorderError as error:
        return _complain(error, error.status)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else error
        return _complain(f"{what}; see what is there, and who may use it", 1)
    except KeyboardInterrupt:  # before anything is recorded; later the recorder sees to it
        return 130


def _record(options: argparse.Namespace) -> int:
    from gallery_recorder.run import recorder
    from gallery_recorder.run.progress import Progress, report

    if options.engine == "local" and (options.address or options.accelerator):
        return _complain("--address and --accelerator are of a cluster; add --engine ray", 2)
    plan = _project(options)
    if plan.missing:
        print(f"Not installed here, and left out: {', '.join(plan.missing)}")
    said = {field.name for field in dataclasses.fields(recorder.Options)}
    outcomes, stopped_by = recorder.record(
        plan,
        recorder.Options(**{name: getattr(options, name) for name in said}),
        Progress(),
    )
    print(report(outcomes))
    return recorder.exit_status(outcomes, stopped_by)


def _status(options: argparse.Namespace) -> int:
    from gallery_recorder.store import status

    plan = _project(options)
    rows = status.rows(plan, options.recordings)
    status.show(rows)
    preferred, again = status.reference(plan), plan.where.options
    if options.check == "reference" and (lacking := status.lacking(rows, preferred)):
        return _complain(status.what_is_lacking(lacking, preferred, again), 1)
    if options.check == "any" and (nowhere := status.recorded_nowhere(rows)):
        return _complain(status.what_is_recorded_nowhere(nowhere, again), 1)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from gallery_recorder.store import compare

    found = compare.compare(options.old, options.new)
    if options.html:
        try:
            options.html.write_text(found.html(), encoding="utf-8")
        except OSError as error:
            return _complain(error, 1)
    print(found.text())
    return 1 if found.lost else 0


def _project(options: argparse.Namespace) -> Project:
    plan = galleries.read(galleries.find(options.conf, options.source, options.tutorials or ()))
    if not plan.recorded:
        print(f"No file of the galleries is executed: {galleries.EXECUTED}.")
    return plan


def _complain(error: object, status: int) -> int:
    print(console.visible(f"gallery_recorder: {error}"), file=sys.stderr)
    return status


# --- what can be said on the command line ---------------------------------------------------------


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError("must be more than 0")
        return value

    return number


#: Options with a value: name, the word for the value, its type, help.
_Option = tuple[str, str, Callable[[str], Any], str]
_PROJECT: tuple[_Option, ...] = (
    ("--conf", "DIR", Path, "the folder of conf.py; default: where it is found from here"),
    ("--source", "DIR", Path, "the documentation's source folder; default: conf.py's or beside it"),
    ("--recordings", "DIR", Path, "the folder of recordings; default as in conf.py"),
)
_RECORD: tuple[_Option, ...] = (
    ("--timeout", "SECONDS", _positive(float), "what each script may take, whatever it says"),
    ("--jobs", "N", _positive(int), "scripts at the same time; default one a GPU, or one a core"),
    ("--address", "ADDRESS", str, "the Ray cluster, HOST:6379; default $RAY_ADDRESS, or this one"),
    ("--accelerator", "TYPE", str, "the type of GPU, where the cluster has several, such as H200"),
    ("--commit", "SHA", str, "the scripts' commit, where git is not; default $GALLERY_COMMIT"),
)


def parser() -> argparse.ArgumentParser:
    """What the command line understands."""
    parser = argparse.ArgumentParser(prog=commands.command(), description=__doc__)
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)

    record = verbs.add_parser(
        "record",
        help="execute scripts and record what they print, draw and write",
        description="Execute the scripts of a sphinx-gallery project whose recording is not "
        "current, each in a process of its own, and record what they print, draw and write.",
    )
    record.set_defaults(command=_record)
    add = record.add_argument
    add("names", nargs="*", metavar="NAME", help="a script's file name or number; default all")
    kinds = ("auto", "cuda", "cpu")
    add("--device", choices=kinds, default="auto", help="auto takes a GPU if there is one")
    engines, where = ("local", "ray"), "execute scripts on this machine, or on a Ray cluster"
    add("--engine", choices=engines, default="local", help=where)
    _add(record, *_PROJECT, *_RECORD)
    add = record.add_mutually_exclusive_group().add_argument
    add("--force", action="store_true", help="record also what is current")
    add("--missing", action="store_true", help="only what is current on no device")

    status = verbs.add_parser("status", help="list what is current, stale, damaged or missing")
    status.set_defaults(command=_status)
    _add(status, *_PROJECT)
    status.add_argument(
        "--check",
        nargs="?",
        choices=("reference", "any"),
        const="reference",
        help="fail where a script has no current recording of the first of gallery_devices in "
        "conf.py, or with `any` of no device at all",
    )

    compare = verbs.add_parser(
        "compare", help="compare two recordings, or two folders of them: speed and every output"
    )
    compare.add_argument("old", type=Path, metavar="OLD", help="a recording, or a folder of some")
    compare.add_argument("new", type=Path, metavar="NEW", help="what is compared with it")
    compare.add_argument("--html", type=Path, metavar="FILE", help="write a page with figures, too")
    compare.set_defaults(command=_compare)

    for verb in (record, status):
        verb.add_argument(
            "--tutorials",
            type=Path,
            action="append",
            metavar="DIR",
            help="a folder of scripts, may be given several times: these alone, without a "
            "conf.py, unless --conf names one",
        )
    publish.add_commands(verbs)
    return parser


def _add(parser: argparse.ArgumentParser, *options: _Option) -> None:
    for name, word, kind, text in options:
        parser.add_argument(name, metavar=word, type=kind, help=text)


if __name__ == "__main__":
    sys.exit(main())
