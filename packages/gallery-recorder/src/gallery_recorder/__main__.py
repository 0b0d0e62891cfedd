"""``gallery-recorder``: record examples, list recordings, compare and publish them."""

import argparse
import atexit
import dataclasses
import gc
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gallery_recorder import console, temporary
from gallery_recorder.errors import RecorderError
from gallery_recorder.project import galleries, reader
from gallery_recorder.project.galleries import Project, Where
from gallery_recorder.publish import publish
from gallery_recorder.store import compare, lock, moving, recording, status, transport
from gallery_recorder.store.inputs import Here
from gallery_recorder.store.lock import folders_locked
from gallery_recorder.temporary import TemporaryFolder


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return 0 if done, 1 if an example or a check failed, 2 for wrong usage."""
    if arguments is None and sys.getfilesystemencoding() != "utf-8":
        _start_again_in_utf8()
    console.make_lasting()
    gc.disable()  # imports create many objects to scan, and a command leaves few to collect
    atexit.register(gc.freeze)  # so that the end does not scan them either
    options = parser().parse_args(arguments)
    try:
        temporary.remove_leftovers()
        return options.command(options)
    except RecorderError as error:
        return _complain(error, error.status)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else error
        return _complain(f"{what}; check the path and its permissions", 1)
    except KeyboardInterrupt:  # before recording; during it, the recorder handles signals
        return 130


#: Without this folder in the path: no import finds an example called random.py.
_AGAIN = "import sys; sys.path.remove(''); from gallery_recorder import __main__; __main__.again()"


def _start_again_in_utf8() -> None:
    """Replace this process by one in which names of files are UTF-8, whatever the locale.

    In the locale C, ``PYTHONUTF8=0`` makes them ASCII: JSON could not hold a folder called ü.
    """
    os.execv(sys.executable, [sys.executable, "-X", "utf8", "-c", _AGAIN, *sys.argv[1:]])


def again() -> None:
    """The command line, in UTF-8."""
    sys.exit(main())


def _record(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("fcntl") is None:
        return _complain("`record` needs Linux or macOS; other commands and builds do not", 1)
    from gallery_recorder.run import recorder
    from gallery_recorder.run.executors import threads_of_a_job
    from gallery_recorder.run.process import Client
    from gallery_recorder.run.progress import Progress, report

    if options.engine == "local" and options.address:
        return _complain("--address requires --engine ray", 2)
    names = [field.name for field in dataclasses.fields(recorder.Options)]
    chosen = recorder.Options(**{name: getattr(options, name) for name in names})
    threads = None
    if options.engine == "local":
        threads = threads_of_a_job(options.device, options.jobs)
    with Client(_where(options), threads=threads) as server:
        plan = _noted(server.project)
        if plan.missing:
            print(f"Not installed here, though in conf.py's extensions: {', '.join(plan.missing)}")
        outcomes, stopped_by = recorder.record(plan, chosen, Progress(), server)
    print(report(outcomes))
    return recorder.exit_status(outcomes, stopped_by)


def _status(options: argparse.Namespace) -> int:
    plan = _noted(reader.read(_where(options)))
    for root in [options.recordings] if options.recordings else plan.settings.roots:
        lock.remove_leftovers(root)
    rows = status.rows(plan, options.recordings)
    if options.why:
        status.show_why(rows, options.only)
    else:
        status.show(rows, options.only, options.sizes)
    preferred = plan.settings.reference if options.check == "reference" else None
    lacking = status.lacking(rows, preferred) if options.check else None
    return _complain(lacking, 1) if lacking else 0


def _prune(options: argparse.Namespace) -> int:
    plan = reader.read(_where(options))
    rows = status.rows(plan, options.recordings)
    roots = [options.recordings] if options.recordings else plan.settings.roots
    orphans = [row.folder for row in rows if row.state == "orphan" and row.folder]
    for folder in orphans:
        print(console.visible(f"{folder}: {status.size_of(folder):,} bytes"))
    if orphans and not options.yes and not console.confirms(f"Delete {len(orphans)} recordings?"):
        return 1
    with folders_locked(*roots):
        for folder in orphans:
            recording.remove(folder, next(root for root in roots if root in folder.parents))
    print(f"Deleted: {len(orphans)}")
    return 0


def _move(options: argparse.Namespace) -> int:
    plan = reader.read(_where(options))
    roots = [options.recordings] if options.recordings else plan.settings.roots
    example, *others = galleries.select(plan, [options.new])
    if others:
        return _complain(f"{options.new}: is the name of several examples; add the gallery's", 2)
    for at in moving.move_all(plan, roots, options.old, example.load()):
        print(console.visible(f"{at.place}: {at.folder}"))
    return 0


def _compare(options: argparse.Namespace) -> int:
    print(compare.compare(options.old, options.new))
    return 0


def _transport(options: argparse.Namespace) -> int:
    root, repository, labels, more = options.recordings, Path.cwd(), None, {}
    if root is None:
        plan = reader.read(_where(options))
        root, repository = Path(plan.settings.recordings[0]), plan.top
        labels = {example.label for example in plan.examples}
        more["is_current"] = recording.current_among(plan.examples, Here.of(plan))
    lock.remove_leftovers(root)
    try:
        if options.verb == "push":
            changes = transport.push(options.place, root, repository, labels, options.prune, **more)
        else:
            changes = transport.pull(options.place, root, repository, **more)
    except transport.AbsentError as error:
        if not options.if_exists:
            raise
        print(f"{error}, so nothing was pulled")
        return 0
    print(f"{root if options.verb == 'pull' else options.place}: {changes}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from gallery_recorder.render import single

    with TemporaryFolder() as scratch:
        project = single.Single(_where(options), scratch, options.recordings)
        for page in project.pages(options.names, options.place):
            if options.to:
                print(project.export(page, options.output))
            else:
                single.show(page)
    return 0


def _where(options: argparse.Namespace) -> Where:
    found = galleries.find(options.conf, options.source, getattr(options, "tutorials", None) or ())
    overrides = dict(options.overrides)
    if options.pattern is not None:
        overrides["sphinx_gallery_conf.filename_pattern"] = options.pattern
    return msgspec.structs.replace(found, overrides=overrides, tags=tuple(options.tags))


def _noted(plan: Project) -> Project:
    if not plan.executed:
        print(f"No example is executed: {plan.unexecuted}.")
    for note in plan.notes:
        _complain(note, 0)
    return plan


def _complain(error: object, status: int) -> int:
    print(console.visible(f"gallery_recorder: {error}"), file=sys.stderr)
    return status


# --- options --------------------------------------------------------------------------------------


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if not 0 < value < 1e9:  # neither nan nor inf
            raise argparse.ArgumentTypeError("must be a number above 0 and below 1e9")
        return value

    return number


def _override(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError("must be SETTING=VALUE")
    return name, value


def _share(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError("must be K/N, such as 1/4, with K from 1 to N")
    return int(match[1]), int(match[2])


#: Options with a value: name, placeholder, type, help.
_Option = tuple[str, str, Callable[[str], Any], str]
_PROJECT: tuple[_Option, ...] = (
    ("--conf", "DIR", Path, "the folder of conf.py; default: this folder, doc or docs"),
    ("--source", "DIR", Path, "the documentation's source folder; default: conf.py's or beside it"),
    ("--recordings", "DIR", Path, "the folder of recordings; default: gallery_recordings"),
)
_RECORD: tuple[_Option, ...] = (
    ("--timeout", "SECONDS", _positive(float), "the time limit of each example"),
    ("--jobs", "N", _positive(int), "examples in parallel; default: one per GPU, or per core"),
    ("--address", "ADDRESS", str, "the Ray cluster, HOST:6379; default: $RAY_ADDRESS or local"),
)


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(prog="gallery-recorder", description=__doc__)
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)

    record = verbs.add_parser(
        "record",
        help="execute examples and record their outputs",
        description="Execute the examples of a sphinx-gallery project that have no current "
        "recording, each in a process of its own, and record their outputs.",
    )
    record.set_defaults(command=_record)
    add = record.add_argument
    add("names", nargs="*", metavar="NAME", help="an example's name or number; default: all")
    kinds = ("auto", "cuda", "cpu")
    add("--device", choices=kinds, default="auto", help="auto: a GPU if the machine has one")
    engines, where = ("local", "ray"), "execute examples on this machine or on a Ray cluster"
    add("--engine", choices=engines, default="local", help=where)
    _add(record, *_PROJECT, *_RECORD)
    add("--shard", metavar="K/N", type=_share, help="only share K of N, of about equal seconds")
    text = "only examples whose code, modules or data changed since this commit"
    add("--changed-since", metavar="REF", help=text)
    add = record.add_mutually_exclusive_group().add_argument
    add("--force", action="store_true", help="also record examples with a current recording")
    text = "only examples for which the build has no recording to show"
    add("--missing", action="store_true", help=text)

    listing = verbs.add_parser("status", help="list recordings and their states")
    listing.set_defaults(command=_status)
    _add(listing, *_PROJECT)
    listing.add_argument("--only", choices=status.STATES, help="list only examples in this state")
    text = "say in a line why an example is not current, or what is different on this machine"
    listing.add_argument("--why", action="store_true", help=text)
    listing.add_argument("--sizes", action="store_true", help="show the size of each recording")
    listing.add_argument(
        "--check",
        nargs="?",
        choices=("reference", "any"),
        const="reference",
        help="fail if a recording is damaged, or if an example has no current recording on the "
        "first of gallery_devices in conf.py (with `any`: on any device)",
    )

    prune = verbs.add_parser("prune", help="delete recordings without an example, after asking")
    prune.add_argument("--yes", action="store_true", help="do not ask")
    prune.set_defaults(command=_prune)
    _add(prune, *_PROJECT)

    move = verbs.add_parser(
        "move",
        help="give the recordings of a renamed example its new name",
        description="Give the recordings of a renamed example its new name, on all devices. "
        "Nothing is executed. `status` proposes this where the code and inputs are the same.",
    )
    text = "the old name, or GALLERY/NAME; no example may have it any longer"
    move.add_argument("old", metavar="OLD", help=text)
    move.add_argument("new", metavar="NEW", help="the example's new name")
    move.set_defaults(command=_move)
    _add(move, *_PROJECT)

    comparing = verbs.add_parser("compare", help="compare all outputs of recordings")
    text = "a recording, or a folder of recordings"
    comparing.add_argument("old", type=Path, metavar="OLD", help=text)
    comparing.add_argument("new", type=Path, metavar="NEW", help=f"{text}, to compare with OLD")
    comparing.set_defaults(command=_compare)

    show = verbs.add_parser("show", help="print a recording: its provenance and its outputs")
    export = verbs.add_parser("export", help="write a recording as a notebook with its outputs")
    for verb in (show, export):
        verb.add_argument("names", nargs="+", metavar="NAME", help="an example's name or number")
        text = "a device, or device/variant, such as nvidia-h200; default: as on its page"
        verb.add_argument("--place", metavar="PLACE", help=text)
        _add(verb, *_PROJECT)
        verb.set_defaults(command=_show, to=None)
    export.add_argument("--to", choices=("notebook",), default="notebook", help="the format")
    text = "the folder to write NAME.ipynb to; default: this folder"
    export.add_argument("--output", metavar="DIR", type=Path, default=Path(), help=text)

    places = "branch:NAME of this repository (of its remote origin, if it has one), a folder, or a "
    places += ".zip or .tar.gz archive"
    for name, word, help in (
        ("pull", "FROM", "take recordings from a branch, folder or archive"),
        ("push", "TO", "push recordings to a branch, folder or archive"),
    ):
        verb = verbs.add_parser(
            name,
            help=help,
            description=f"{help.capitalize()}. Of two recordings of the same example, device and "
            "variant, the newer one stays. All are checked before anything changes.",
        )
        verb.set_defaults(command=_transport, verb=name, if_exists=False)
        verb.add_argument("place", metavar=word, help=places)
        _add(verb, *_PROJECT)
        if name == "push":
            text = "do not push recordings without an example, and delete such recordings there"
            verb.add_argument("--prune", action="store_true", help=text)
        else:
            text = "succeed even if FROM does not exist, as before the first push"
            verb.add_argument("--if-exists", action="store_true", help=text)

    text = "a folder of examples instead of conf.py's galleries; conf.py is read only with --conf"
    for verb in (record, listing, show, export):
        verb.add_argument("--tutorials", type=Path, action="append", metavar="DIR", help=text)
    publish.add_commands(verbs)
    return parser


def _add(parser: argparse.ArgumentParser, *options: _Option) -> None:
    """Add *options*; with those of a project, also Sphinx's own options for conf.py."""
    for name, word, kind, text in options:
        parser.add_argument(name, metavar=word, type=kind, help=text)
    if _PROJECT[0] in options:
        add = partial(parser.add_argument, action="append", default=[])
        text = "override a setting of conf.py, as for sphinx-build"
        add("-D", dest="overrides", metavar="SETTING=VALUE", type=_override, help=text)
        add("-t", dest="tags", metavar="TAG", help="define a tag, as for sphinx-build")
        text = "override filename_pattern of sphinx-gallery, which selects the examples to execute"
        parser.add_argument("--pattern", metavar="REGEX", help=text)


if __name__ == "__main__":
    sys.exit(main())
