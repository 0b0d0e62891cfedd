"""``python -m gallery_recorder``: record tutorials, see what is current, compare, publish."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gallery_recorder.publish import publish


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 done, 1 a tutorial failed or a check did not hold, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except KeyboardInterrupt:  # before anything is recorded; later the recorder sees to it
        return 130


def _record(options: argparse.Namespace) -> int:
    from gallery_recorder.run import recorder
    from gallery_recorder.run.progress import make_progress, report
    from gallery_recorder.run.provenance import DeviceError
    from gallery_recorder.source.script import ScriptError

    if options.engine == "local" and (options.address or options.accelerator):
        return _complain("--address and --accelerator are of a cluster; add --engine ray", 2)
    try:
        outcomes, stopped_by = recorder.record(
            recorder.Options(
                names=options.names,
                device=options.device,
                tutorials=_galleries(options),
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
    except ScriptError as error:
        return _complain(error, 2)
    except DeviceError as error:
        return _complain(error, 1)
    print(report(outcomes))
    return recorder.exit_status(outcomes, stopped_by)


def _status(options: argparse.Namespace) -> int:
    from gallery_recorder.source.script import ScriptError
    from gallery_recorder.store import status

    try:
        rows = status.rows(_galleries(options), options.recordings)
    except ScriptError as error:
        return _complain(error, 2)
    status.show(rows)
    if options.check == "reference" and (lacking := status.lacking(rows)):
        return _complain(status.what_is_lacking(lacking), 1)
    if options.check == "any" and (nowhere := status.recorded_nowhere(rows)):
        return _complain(status.what_is_recorded_nowhere(nowhere), 1)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from gallery_recorder.store import compare
    from gallery_recorder.store.recording import RecordingError

    try:
        text, lost = compare.compare(options.old, options.new)
    except (RecordingError, compare.CompareError) as error:
        return _complain(error, 1)
    print(text)
    return 1 if lost else 0


def _convert(options: argparse.Namespace) -> int:
    from gallery_recorder.source.script import select_scripts
    from gallery_recorder.store import convert
    from gallery_recorder.store.recording import RecordingError

    galleries = {file.name: file.gallery for file in select_scripts(_galleries(options), [])}
    try:
        written = convert.convert(
            options.old, options.new or options.old, galleries, options.variant, options.probe
        )
    except RecordingError as error:
        return _complain(error, 1)
    for folder in written:
        print(folder)
    return 0


def _galleries(options: argparse.Namespace) -> tuple[Path, ...]:
    from gallery_recorder.source.script import project_galleries

    return tuple(options.tutorials) if options.tutorials else project_galleries()


def _complain(error: object, status: int) -> int:
    print(f"gallery_recorder: {error}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gallery_recorder", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    record = commands.add_parser(
        "record",
        help="execute tutorials and record what they print, draw and write",
        description="Execute tutorials whose recording is not current, each in a process of its "
        "own, and record what they print, draw and write.",
    )
    record.add_argument(
        "names", nargs="*", metavar="NAME", help="a tutorial's file name or number; default all"
    )
    record.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="a GPU (NVIDIA or AMD), or the CPU with Triton's interpreter; "
        "auto takes a GPU if there is one",
    )
    _add_folders(record, "default: recordings on a GPU, build/recordings in the interpreter")
    record.add_argument(
        "--timeout",
        type=_positive(float),
        metavar="SECONDS",
        help="what each tutorial may take, whatever it says itself; default 600",
    )
    record.add_argument(
        "--jobs",
        type=_positive(int),
        metavar="N",
        help="tutorials at the same time; default one a GPU, or one a core without GPU",
    )
    record.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="where tutorials are executed: on this machine, or on a Ray cluster",
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
        help="the commit of the tutorials where there is no git; default $GALLERY_COMMIT",
    )
    record.set_defaults(command=_record)

    status = commands.add_parser(
        "status", help="list which recordings are current, stale, damaged or missing"
    )
    status.add_argument(
        "--check",
        nargs="?",
        choices=("reference", "any"),
        const="reference",
        help="fail where a tutorial has no current recording of the reference device, "
        "or with `any` of no device at all",
    )
    _add_folders(status, "default: recordings and build/recordings")
    status.set_defaults(command=_status)

    compare = commands.add_parser(
        "compare", help="compare the benchmarks of two recordings, or of two folders of them"
    )
    compare.add_argument("old", type=Path, metavar="OLD")
    compare.add_argument("new", type=Path, metavar="NEW")
    compare.set_defaults(command=_compare)

    convert = commands.add_parser(
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
    convert.add_argument("--tutorials", type=Path, action="append", metavar="DIR")
    convert.set_defaults(command=_convert)

    publish.add_commands(commands)
    return parser


def _add_folders(parser: argparse.ArgumentParser, default_recordings: str) -> None:
    parser.add_argument(
        "--tutorials",
        type=Path,
        action="append",
        metavar="DIR",
        help="a folder of tutorials; may be given several times; "
        "default: tutorials, and the chapters in guide that execute code",
    )
    parser.add_argument("--recordings", type=Path, metavar="DIR", help=default_recordings)


def _positive(kind: type) -> object:
    def parse(text: str) -> float:
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError("must be more than 0")
        return value

    return parse


if __name__ == "__main__":
    sys.exit(main())
