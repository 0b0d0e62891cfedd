"""``triton-watch SCRIPT [ARGUMENTS]``: execute a script, and say what its kernels do wrong."""

import argparse
import runpy
import sys
import traceback
from pathlib import Path

from triton_watch.limits import LIMIT
from triton_watch.process import Child, command_of, is_child, run_apart, unreadable


def main(arguments=None):
    """Watch a script: 0 if nothing is wrong, 1 if something is, 2 for wrong usage."""
    if arguments is None:
        arguments = sys.argv[1:]
    options = _parser().parse_args(arguments)
    return start([options.script, *options.arguments], options, [*command_of(__name__), *arguments])


def start(script, options, again):
    """Watch a script in a process of its own, which the command line *again* starts.

    Args:
        script: The path of the script, then its arguments.
        options: What :func:`add_options` has parsed.
        again: The command line that comes here once more, as the child.
    """
    if is_child():
        return Child(options.limit).run(lambda child: watch_script(script, options))
    wrong = unreadable(Path(script[0]))
    if wrong:
        print(f"Not yet. {wrong}")
        return 1
    return run_apart(again, script[0], options.limit)


def _parser():
    parser = argparse.ArgumentParser(
        prog="triton-watch",
        description="Execute a Python script in Triton's interpreter, without a GPU, and name what "
        "its kernels do wrong: accesses out of bounds, races, uninitialized memory, endless loops.",
    )
    add_options(parser)
    parser.add_argument("script", help="a Python script that launches kernels")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")
    return parser


def add_options(parser):
    """Add the options that are the same wherever a script is watched."""
    parser.add_argument(
        "--limit", type=float, default=LIMIT, help="seconds for one program of a kernel"
    )
    parser.add_argument(
        "--trace", metavar="FILE", help="write an HTML page that shows what each program touches"
    )
    parser.add_argument(
        "--strict", action="store_true", help="elements that no program has written are an error"
    )
    parser.add_argument(
        "--no-compile",
        dest="compile",
        action="store_false",
        help="do not try whether kernels compile for a GPU",
    )


def watch_script(command, options, watcher="triton-watch"):
    """Execute a script under the watch; 0 if it ends well and nothing is found.

    *watcher* is the name of the command, for the line at the end.
    """
    import numpy as np

    from triton_watch.places import FaultError, chain

    status = 0
    np.seterr(all="ignore")  # a GPU does not warn of infinity either
    sys.argv = command
    sys.path.insert(0, str(Path(command[0]).absolute().parent))
    names = None
    with new_watch(options) as watch:
        try:
            names = runpy.run_path(command[0], run_name="__main__")
        except SystemExit as error:
            status = _status_of(error)
        except BaseException as error:
            status = 1
            if not any(isinstance(e, FaultError) for e in chain(error)):
                print_error(error)
    watch.finish()
    write_trace(watch, options, Path(command[0]).name)
    for fault in watch.faults:
        print(f"Found: {fault}")
    wrong = bool(watch.faults)
    if not wrong:
        gaps = list(watch.gaps())
        for note in watch.notes:
            print(f"Note: {note}")
        for gap in gaps:
            print(f"{'Found' if options.strict else 'Note'}: {gap}")
        wrong = bool(gaps) and options.strict
        found = "nothing else" if gaps or watch.notes else "nothing wrong with memory"
        print(f"{watcher} watched {count_of_launches(watch.launches)} and found {found}.")
    del names  # the tensors of the script live until here
    return status or int(wrong)


def count_of_launches(launches):
    """How many kernels were launched, in words."""
    return "1 launch of kernels" if launches == 1 else f"{launches} launches of kernels"


def new_watch(options):
    """A watch as the options of the command ask for it."""
    from triton_watch.compiles import Compiler
    from triton_watch.trace import Trace
    from triton_watch.watch import Watch

    trace = Trace() if options.trace else None
    compiler = Compiler() if options.compile else None
    return Watch(trace, compiler, options.limit)


def write_trace(watch, options, title):
    """Write the page that ``--trace`` asks for."""
    if watch.trace:
        Path(options.trace).write_text(watch.trace.to_html(title), encoding="utf-8")
        print(f"{options.trace} shows what each program touches.")


def _status_of(error):
    """The exit status of a SystemExit; its text is printed, as Python does."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code)
    return 1


def print_error(error):
    """Print an error of the reader's script without our part of the traceback."""
    from triton_watch.places import line_in, root_of, theirs

    root = root_of(error)
    if root is not error:
        print(f"Found: a kernel ends with {type(root).__name__}: {root}")
        print(f"  line:     {line_in(error)}")
        return
    step = error.__traceback__
    while step and not theirs(step.tb_frame.f_code.co_filename):
        step = step.tb_next
    traceback.print_exception(type(error), error, step or error.__traceback__, file=sys.stdout)
    if "Torch not compiled with CUDA" in str(error) or "No CUDA GPUs" in str(error):
        print("Under the watch kernels run on the CPU: make the tensors with device='cpu'.")
    if "0 active drivers" in str(error):
        print("Under the watch there is no GPU whose properties Triton could ask for.")
