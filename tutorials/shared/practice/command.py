"""The command: check an answer, or watch a script, in a process of its own."""

import argparse
import contextlib
import faulthandler
import importlib.util
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import torch

from shared.practice.check import check
from shared.practice.exercises import EXERCISES
from shared.practice.places import (
    FaultError,
    chain,
    line,
    line_in,
    line_of,
    program_name,
    root_of,
    theirs,
)
from shared.practice.timing import compare_speed
from shared.practice.watch import Watch

INSIDE = "EXERCISE_INSIDE"  # names, in the process that executes the reader's code, a file for it
LIMIT = (
    20  # seconds for one program of a kernel, or for what the reader's function does without one
)


def main(arguments=None):
    """Check or watch a file: 0 if nothing is wrong, 1 if something is, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        usage="exercise.py [EXERCISE FILE [--gpu]] [--watch SCRIPT …]",
        description=sys.modules["__main__"].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("exercise", nargs="?", help="its name, or the beginning of it")
    parser.add_argument("file", nargs="?", help="the file with your function")
    parser.add_argument("--gpu", action="store_true", help="run on the GPU, and compare the speed")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one program")
    parser.add_argument(
        "--watch", nargs=argparse.REMAINDER, metavar="SCRIPT", help="a script and its arguments"
    )
    options = parser.parse_args(arguments)
    if options.watch is not None:
        if not options.watch:
            parser.error("--watch needs a script")
        file, job = options.watch[0], lambda inside: watch_script(options.watch, inside)
    else:
        names = [name for name in EXERCISES if name.startswith(options.exercise or "")]
        names = [name for name in names if name == options.exercise] or names
        if not options.file or len(names) != 1:
            if not names:
                print(f"There is no exercise {options.exercise}. These are all:")
            list_of(names or EXERCISES)
            return 2 if options.exercise else 0
        if (need := EXERCISES[names[0]].gpu) and not options.gpu:
            print(f"{names[0]} needs {need}, since no interpreter executes Gluon: add --gpu.")
            return 2
        file = options.file
        job = lambda inside: check_file(names[0], file, options.gpu, inside)  # noqa: E731
    if options.gpu and not torch.accelerator.is_available():
        print("PyTorch finds no GPU here. Without --gpu, Triton's interpreter checks the file.")
        return 2
    if INSIDE in os.environ:
        # On a GPU a call also compiles, and perhaps tunes.
        status = Inside(options.limit * (10 if options.gpu else 1)).run(job)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # at an ordinary end, Triton 3.9 lists what Gluon's compiler left behind
    if wrong := unreadable(Path(file)):
        print(f"Not yet. {wrong}")
        return 1
    return in_a_process(sys.argv[1:] if arguments is None else arguments, file, options)


def list_of(names):
    """Print exercises."""
    for name in names:
        exercise = EXERCISES[name]
        about = f"{exercise.level}, {exercise.minutes} minutes"
        print(f"{name + ':':33s} {exercise.function}  ({about})")


def unreadable(path):
    """Why a file cannot be read as Python, or nothing."""
    if not path.exists():
        near = [p.name for p in sorted(path.absolute().parent.glob("*.py"))][:5]
        beside = f" There are: {', '.join(near)}." if near else ""
        return f"There is no file {path} in {path.absolute().parent}.{beside}"
    if path.is_dir():
        return f"{path} is a folder: name the file with your function."
    try:
        text = path.read_text(encoding="utf-8")
        compile(text, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = line(str(path.absolute()), error.lineno or 1)
        return f"{where}: {type(error).__name__}: {error.msg}"
    except (OSError, ValueError) as error:
        return f"{path} cannot be read as Python: {error}"
    return ""


# --- two processes --------------------------------------------------------------------------------


def in_a_process(arguments, file, options):
    """Execute the command in a process of its own; say so in a line if that crashes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        report.touch()
        interpret = "0" if options.gpu else "1"
        environment = {**os.environ, INSIDE: str(report), "TRITON_INTERPRET": interpret}
        command = [sys.executable, os.path.abspath(sys.modules["__main__"].__file__), *arguments]
        child = subprocess.Popen(command, env=environment)
        try:
            # The process touches its report each second, unless it hangs outside of Python.
            while child.poll() is None:
                time.sleep(0.02)
                if time.time() - report.stat().st_mtime > 3 * options.limit + 10:
                    child.kill()
                    child.wait()
                    print(f"Not yet. {file} hangs, and its process was ended.")
                    return 1
        except KeyboardInterrupt:
            child.wait()
            return 130
        text = report.read_text()
        if text.startswith("{"):
            return json.loads(text)["status"]
        if child.returncode == 0 or child.returncode > 0:
            what = f"ends the process (exit status {child.returncode}) before the check does"
        else:
            what = f"crashes: {signal.Signals(-child.returncode).name}"
        crash = Path(f"{report}.crash")
        where = crash_line(crash.read_text() if crash.exists() else "")
        print(f"Not yet. {file} {what}{where}.")
        return 1


def crash_line(text):
    """The reader's line in what ``faulthandler`` writes."""
    for name, number in re.findall(r'File "(.+)", line (\d+)', text):
        if theirs(name):
            return f" in {line(name, int(number))}"
    return ""


class Inside:
    """The process that executes the reader's code; it ends when nothing proceeds."""

    def __init__(self, limit):
        self.limit, self.report = limit, Path(os.environ.pop(INSIDE))
        self.what, self.began = (
            "",
            None,
        )  # when the reader's function was called last, or is not waited for
        self.main = threading.get_ident()

    def run(self, job):
        """Execute a job, and report its exit status."""
        with open(f"{self.report}.crash", "w") as crash:
            faulthandler.enable(crash)
            threading.Thread(target=self._look, daemon=True).start()
            status = job(self)
            self.end(status)
            return status

    def end(self, status):
        """Report an exit status."""
        sys.stdout.flush()
        sys.stderr.flush()
        self.report.write_text(json.dumps({"status": status}))

    def call(self, what="The function"):
        """The reader's code is called now."""
        self.what, self.began = what, time.monotonic()

    def _look(self):
        last, worked = 0.0, 0.0
        while True:
            time.sleep(0.25)
            self.report.touch()
            watch = Watch.current
            launch = watch.launch if watch else None
            since = [self.began] if self.began else []
            since += [watch.alive] if launch or (watch and self.began) else []
            now = time.monotonic()
            if self.began and now - self.began > 15 * self.limit:
                since = [self.began]  # it launches kernels for ever
            if since and max(since) != last:
                last, worked = max(since), time.process_time()
            # A busy machine gives the process little time: wait for longer then.
            idle = time.process_time() - worked < self.limit / 4
            if since and now - last > self.limit * (4 if idle else 1):
                place = line_of(sys._current_frames()[self.main])
                text = does_not_end(self.what, now - last, launch, place or "code of others")
                print(f"Not yet. {text}", flush=True)
                self.end(1)
                os._exit(1)


def does_not_end(what, seconds, launch, place):
    """What does not end, in a sentence."""
    if launch is None:
        return f"{what} does not end: after {seconds:.0f} s it is in {place}."
    number = program_name(launch.program(max(launch.order.program, 1)), launch.grid)
    return (
        f"A kernel does not end: after {seconds:.0f} s, program {number} of {launch.kernel} is in "
        f"{place}. Usual cause: a loop whose condition does not change, or a program that waits "
        "for a later one: the interpreter executes one after the other."
    )


# --- what the reader's file does ------------------------------------------------------------------


def check_file(name, file, on_gpu, inside):
    """Check the function in a file; 0 if it is right."""
    path = Path(file).absolute()

    importlib.import_module("triton.language")  # before a file of the reader's takes its name
    # Python's cache would answer for a file that is saved twice in a second, with as many bytes.
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(path.parent))
    name_of_module = f"my_{path.stem}" if path.stem in sys.modules else path.stem
    spec = importlib.util.spec_from_file_location(name_of_module, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name_of_module] = module
    try:
        np.seterr(all="ignore")  # a GPU does not warn of infinity either
        with contextlib.nullcontext() if on_gpu else Watch():
            inside.call("The import of the file")
            spec.loader.exec_module(module)
        wrong = check(name, module, on_gpu, inside.call)
    except BaseException as error:  # sys.exit and KeyboardInterrupt, too
        wrong = f"{line_in(error) or file}: {type(error).__name__}: {error}"
    inside.began = None
    if wrong:
        print(f"Not yet. {wrong}")
    elif on_gpu:
        compare_speed(name, module)
    return 1 if wrong else 0


def watch_script(command, inside):
    """Execute a script under the watch; 0 if it ends well and nothing is found."""
    status = 0
    sys.argv = command
    sys.path.insert(0, str(Path(command[0]).absolute().parent))
    names = None
    with Watch() as watch:
        try:
            names = runpy.run_path(command[0], run_name="__main__")
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            if status and not isinstance(error.code, int):
                print(error.code)
        except BaseException as error:
            status = 1
            if not any(isinstance(e, FaultError) for e in chain(error)):
                print_error(error)
    for fault in watch.faults:
        print(f"Found: {fault}")
    if not watch.faults:
        gaps = list(watch.gaps())
        for gap in gaps:
            print(f"Note: {gap}")
        launches = f"{watch.launches} {'launch' if watch.launches == 1 else 'launches'}"
        found = "nothing else" if gaps else "nothing wrong with memory"
        print(f"exercise.py watched {launches} of kernels and found {found}.")
    del names  # the tensors of the script live until here
    return status or int(bool(watch.faults))


def print_error(error):
    """Print an error of the reader's script without our part of the traceback."""
    root = root_of(error)
    if root is not error:
        print(
            f"Found: a kernel ends with {type(root).__name__}: {root}\n  line:     {line_in(error)}"
        )
        return
    step = error.__traceback__
    while step and not theirs(step.tb_frame.f_code.co_filename):
        step = step.tb_next
    traceback.print_exception(type(error), error, step or error.__traceback__, file=sys.stdout)
    if "Torch not compiled with CUDA" in str(error) or "No CUDA GPUs" in str(error):
        print("Under the watch kernels run on the CPU: make the tensors with device='cpu'.")
