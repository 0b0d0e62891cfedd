"""Check your solution of an exercise: is it right, and does it move more than it has to?

    python exercise.pyz 02-log-softmax mine.py          # in Triton's interpreter: without a GPU
    python exercise.pyz 02-log-softmax mine.py --gpu    # on the GPU, beside our time and PyTorch's
    python exercise.pyz --watch my_script.py            # watches the kernels of any script
    python exercise.pyz                                 # lists the exercises

*mine.py* defines the function that the exercise asks for. It is called with awkward shapes, and its
results are compared with PyTorch's. The interpreter watches each address that a kernel uses: it
names accesses out of bounds, races, uninitialized memory and endless loops, by their lines. It also
counts the bytes that your kernels load and store; beside them stands what cannot be avoided.
"""

import argparse
import contextlib
import importlib.util
import sys
import zipimport
from pathlib import Path

from triton_watch.command import add_options, new_watch, watch_script, write_trace
from triton_watch.process import Child, command_of, is_child, run_apart, unreadable


def main(arguments=None):
    """Check or watch a file: 0 if nothing is wrong, 1 if something is, 2 for wrong usage."""
    if arguments is None:
        arguments = sys.argv[1:]
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.watch is None:
        return _check(options, arguments)
    if not options.watch:
        parser.error("--watch needs a script")
    job = lambda child: watch_script(options.watch, options, Path(sys.argv[0]).name)  # noqa: E731
    return _run(job, options.watch[0], options, arguments)


def _parser():
    parser = argparse.ArgumentParser(
        usage="exercise.pyz [EXERCISE FILE [--gpu]] [--watch SCRIPT …]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("exercise", nargs="?", help="its name, or the beginning of it")
    parser.add_argument("file", nargs="?", help="the file with your function")
    parser.add_argument("--gpu", action="store_true", help="run on the GPU, and compare the speed")
    add_options(parser)
    parser.add_argument(
        "--watch", nargs=argparse.REMAINDER, metavar="SCRIPT", help="a script and its arguments"
    )
    return parser


def _check(options, arguments):
    from exercises.table import EXERCISES

    names = names_beginning_with(options.exercise or "", EXERCISES)
    if not options.file or len(names) != 1:
        if not names:
            print(f"There is no exercise {options.exercise}. These are all:")
        print_list(names or EXERCISES)
        return 2 if options.exercise else 0
    (name,) = names
    needed_gpu = EXERCISES[name].gpu
    if needed_gpu and not options.gpu:
        print(f"{name} needs {needed_gpu}, since no interpreter executes Gluon: add --gpu.")
        return 2
    job = lambda child: check_file(name, options, child)  # noqa: E731
    return _run(job, options.file, options, arguments)


def names_beginning_with(beginning, names):
    """The names that begin so; the one that is equal, if there is one."""
    if beginning in names:
        return [beginning]
    return [name for name in names if name.startswith(beginning)]


def print_list(names):
    """Print exercises with their functions."""
    from exercises.table import EXERCISES

    for name in names:
        exercise = EXERCISES[name]
        about = f"{exercise.level}, {exercise.minutes} minutes"
        print(f"{name + ':':33s} {exercise.function}  ({about})")


def _run(job, file, options, arguments):
    """Execute ``job(child)`` in a process of its own."""
    if options.gpu:
        import torch

        if not torch.accelerator.is_available():
            print("PyTorch finds no GPU here. Without --gpu, Triton's interpreter checks the file.")
            return 2
    # On a GPU a call also compiles, and perhaps tunes.
    limit = 10 * options.limit if options.gpu else options.limit
    if is_child():
        return Child(limit).run(job)
    wrong = unreadable(Path(file))
    if wrong:
        print(f"Not yet. {wrong}")
        return 1
    return run_apart([*_this_command(), *arguments], file, limit, interpret=not options.gpu)


def _this_command():
    """The command line that starts this program again."""
    if isinstance(__loader__, zipimport.zipimporter):
        return [sys.executable, __loader__.archive]
    return command_of(__name__)


def check_file(name, options, child):
    """Check the function in the file that the options name; 0 if it is right."""
    import numpy as np

    from exercises.check import check
    from exercises.timing import compare_speed
    from triton_watch.places import line_in, not_theirs

    file, on_gpu = options.file, options.gpu
    not_theirs(str(Path(__file__).parent))
    path = Path(file).absolute()
    importlib.import_module("triton.language")  # before a file of the reader's takes its name
    # Python's cache would answer for a file that is saved twice in a second, with as many bytes.
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(path.parent))
    name_of_module = f"my_{path.stem}" if path.stem in sys.modules else path.stem
    spec = importlib.util.spec_from_file_location(name_of_module, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name_of_module] = module
    watch = None
    try:
        np.seterr(all="ignore")  # a GPU does not warn of infinity either
        watch = None if on_gpu else new_watch(options)
        with watch or contextlib.nullcontext():
            child.begin("The import of the file")
            spec.loader.exec_module(module)
        wrong = check(name, module, on_gpu, child.begin, watch)
    except BaseException as error:  # sys.exit and KeyboardInterrupt, too
        wrong = f"{line_in(error) or file}: {type(error).__name__}: {error}"
    child.finish()
    if watch:
        write_trace(watch, options, name)
    if wrong:
        print(f"Not yet. {wrong}")
        return 1
    if on_gpu:
        compare_speed(name, module)
    return 0
