"""``gallery-recorder``: record scripts, see what is current, compare, publish."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gallery_recorder import console
from gallery_recorder.publish import publish
from gallery_recorder.source import commands

if TYPE_CHECKING:
    from gallery_recorder.source.project import Project


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 done, 1 a script failed or a check did not hold, 2 wrong usage."""
    console.make_lasting()
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except KeyboardInterrupt:  # before anything is recorded; later the recorder sees to it
        return 130


def _record(options: argparse.Namespace) -> int:
    from gallery_recorder.run import recorder
    from gallery_recorder.run.gpus import DeviceError
    from gallery_recorder.run.progress import make_progress, report
    from gallery_recorder.source import project
    from gallery_recorder.source.script import ScriptError

    if options.engine == "local" and (options.address or options.accelerator):
        return _complain("--address and --accelerator are of a cluster; add --engine ray", 2)
    try:
        plan = _project(options)
        if plan.missing:
            print(f"Not installed here, and left out: {', '.join(plan.missing)}")
        outcomes, stopped_by = recorder.record(
            plan,
            recorder.Options(
                names=options.names,
                device=options.device,
                recordings=options.recordings,
                timeout=options.timeout,
                jobs=options.jobs,
                force=options.force,
                missing=options.missing,
                commit=options.commit,
                engine=options.engine,
                address=options.address,
                accelerator=options.accelerator,
            ),
            make_progress(),
        )
    except (ScriptError, project.ProjectError) as error:
        return _complain(error, 2)
    except DeviceError as error:
        return _complain(error, 1)
    print(report(outcomes))
    return recorder.exit_status(outcomes, stopped_by)


def _status(options: argparse.Namespace) -> int:
    from gallery_recorder.source.project import ProjectError
    from gallery_recorder.store import status

    try:
        plan = _project(options)
    except ProjectError as error:
        return _complain(error, 2)
    rows = status.rows(plan, options.recordings)
    status.show(rows)
    preferred, again = status.reference(plan), plan.where.options
    if options.check == "reference" and (lacking := status.lacking(rows, preferred)):
        return _complain(status.what_is_lacking(lacking, preferred, again), 1)
    if options.check == "any" and (nowhere := status.recorded_nowhere(rows)):
        return _complain(status.what_is_recorded_nowhere(nowhere, again), 1)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from gallery_recorder.store import benchmarks, compare
    from gallery_recorder.store.recording import RecordingError

    try:
        found = compare.compare(options.old, options.new)
        if options.html:
            options.html.write_text(found.html(), encoding="utf-8")
    except (RecordingError, benchmarks.BenchmarkError, OSError) as error:
        return _complain(error, 1)
    print(found.text())
    return 1 if found.lost else 0


def _convert(options: argparse.Namespace) -> int:
    from gallery_recorder.source.project import ProjectError
    from gallery_recorder.store import convert
    from gallery_recorder.store.recording import RecordingError

    try:
        galleries = {example.name: example.gallery for example in _project(options).recorded}
        written = convert.convert(
            options.old, options.new or options.old, galleries, options.variant, options.probe
        )
    except ProjectError as error:
        return _complain(error, 2)
    except RecordingError as error:
        return _complain(error, 1)
    for folder in written:
        print(folder)
    return 0


def _project(options: argparse.Namespace) -> Project:
    from gallery_recorder.source import project

    return project.read(project.find(options.conf, options.source, options.tutorials or ()))


def _complain(error: object, status: int) -> int:
    print(f"gallery_recorder: {error}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=commands.command(), description=__doc__)
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_record(verbs)

    status = verbs.add_parser(
        "status", help="list which recordings are current, stale, damaged or missing"
    )
    status.add_argument(
        "--check",
        nargs="?",
        choices=("reference", "any"),
        const="reference",
        help="fail where a script has no current recording of the first of gallery_devices in "
        "conf.py, or with `any` of no device at all",
    )
    _add_project(status)
    status.set_defaults(command=_status)

    compare = verbs.add_parser(
        "compare", help="compare two recordings, or two folders of them: speed and every output"
    )
    compare.add_argument("old", type=Path, metavar="OLD")
    compare.add_argument("new", type=Path, metavar="NEW")
    compare.add_argument("--html", type=Path, metavar="FILE", help="write a page with figures, too")
    compare.set_defaults(command=_compare)

    convert = verbs.add_parser(
        "convert", help="write recordings of the schema before this one anew, in this one"
    )
    convert.add_argument("old", type=Path, metavar="RECORDINGS")
    convert.add_argument("new", type=Path, metavar="NEW", nargs="?", help="default: RECORDINGS")
    convert.add_argument(
        "--variant",
        metavar="PATTERN",
        help="the variant, from what a recording says of its software: 'numpy-{numpy}'",
    )
    convert.add_argument(
        "--probe",
        metavar="NAME",
        default="software",
        help="the probe under whose name versions of software are kept",
    )
    _add_project(convert)
    convert.set_defaults(command=_convert)

    publish.add_commands(verbs)
    return parser


def _add_record(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    record = verbs.add_parser(
        "record",
        help="execute scripts and record what they print, draw and write",
        description="Execute the scripts of a sphinx-gallery project whose recording is not "
        "current, each in a process of its own, and record what they print, draw and write.",
    )
    record.add_argument(
        "names", nargs="*", metavar="NAME", help="a script's file name or number; default all"
    )
    record.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="a GPU (NVIDIA or AMD), or the CPU; auto takes a GPU if there is one",
    )
    _add_project(record)
    record.add_argument(
        "--timeout",
        type=_positive(float),
        metavar="SECONDS",
        help="what each script may take, whatever it says itself; default as in conf.py, or 600",
    )
    record.add_argument(
        "--jobs",
        type=_positive(int),
        metavar="N",
        help="scripts at the same time; default one a GPU, or one a core without GPU",
    )
    record.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="where scripts are executed: on this machine, or on a Ray cluster",
    )
    record.add_argument(
        "--address",
        metavar="ADDRESS",
        help="the Ray cluster, such as HOST:6379; default $RAY_ADDRESS, or the cluster that this "
        "machine is in",
    )
    record.add_argument(
        "--accelerator",
        metavar="TYPE",
        help="the type of GPU, where the Ray cluster has several, such as H200",
    )
    which = record.add_mutually_exclusive_group()
    which.add_argument("--force", action="store_true", help="record also what is current")
    which.add_argument(
        "--missing",
        action="store_true",
        help="record only what has no current recording on any device",
    )
    record.add_argument(
        "--commit",
        metavar="SHA",
        help="the commit of the scripts where there is no git; default $GALLERY_COMMIT",
    )
    record.set_defaults(command=_record)


def _add_project(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--conf",
        type=Path,
        metavar="DIR",
        help="the folder of conf.py; default: where it is found from here",
    )
    parser.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help="the source folder of the documentation; default: that of conf.py, or the one beside "
        "it that has an index",
    )
    parser.add_argument(
        "--tutorials",
        type=Path,
        action="append",
        metavar="DIR",
        help="a folder of scripts, may be given several times: these alone, without a conf.py, "
        "unless --conf names one",
    )
    parser.add_argument(
        "--recordings",
        type=Path,
        metavar="DIR",
        help="the folder of recordings; default as in conf.py, or `recordings`",
    )


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError("must be more than 0")
        return value

    return parse


if __name__ == "__main__":
    sys.exit(main())
