"""Execute the reader's code in a process of its own, and stop it when it makes no progress.

The parent starts the same command again with ``REPORT`` in its environment: the path of a file.
The child touches that file every quarter of a second, and writes its exit status there when its
work is done. So the parent knows a crash, an early ``os._exit`` and a hang outside of Python.
"""

import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

REPORT = "TRITON_WATCH_REPORT"


def is_child():
    """Whether this process is the one that executes the reader's code."""
    return REPORT in os.environ


def command_of(module):
    """Return the command line that executes ``main`` of *module* in another Python.

    The current folder is the reader's, and may hold a file called torch.py, so it is taken off the
    import path first.
    """
    package = sys.modules[module.partition(".")[0]]
    folder = str(Path(package.__file__).resolve().parents[1])
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if p]; "
        f"sys.path.append({folder!r}); from {module} import main; sys.exit(main())"
    )
    return [sys.executable, "-c", code]


def run_apart(command, file, limit, interpret=True):
    """Execute *command* in a process of its own, and return its exit status.

    Prints one line if the process crashes, hangs or ends before it reports. *file* is the name of
    the reader's file in that line.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        report.touch()
        environment = dict(os.environ)
        environment[REPORT] = str(report)
        environment["TRITON_INTERPRET"] = "1" if interpret else "0"
        child = subprocess.Popen(command, env=environment)
        try:
            if not _wait(child, report, 3 * limit + 10):
                print(f"Not yet. {file} hangs, and its process was ended.")
                return 1
        except KeyboardInterrupt:
            child.wait()
            return 130
        text = report.read_text()
        if text.startswith("{"):
            return json.loads(text)["status"]
        print(f"Not yet. {file} {_ending(child.returncode)}{_crash_place(report)}.")
        return 1


def _wait(child, report, limit):
    """Wait for the child; end it and return False if its report is untouched for too long."""
    while child.poll() is None:
        time.sleep(0.02)
        if time.time() - report.stat().st_mtime > limit:
            child.kill()
            child.wait()
            return False
    return True


def _ending(status):
    """How a process ended that has not reported."""
    if status < 0:
        return f"crashes: {signal.Signals(-status).name}"
    return f"ends the process (exit status {status}) before the check does"


def _crash_place(report):
    """The reader's line in which the child crashed, if it is known."""
    from triton_watch.places import line, theirs

    crash = Path(f"{report}.crash")
    text = crash.read_text() if crash.exists() else ""
    for name, number in re.findall(r'File "(.+)", line (\d+)', text):
        if theirs(name):
            return f" in {line(name, int(number))}"
    return ""


class Child:
    """The process that executes the reader's code; it ends itself when nothing proceeds.

    Attributes:
        limit: seconds for one program of a kernel, or for code between kernels.
        what: what of the reader's is being executed, such as ``The function``.
        began: when that began; None while nothing of the reader's is waited for.
    """

    def __init__(self, limit):
        self.limit = limit
        self.report = Path(os.environ.pop(REPORT))
        self.what = ""
        self.began = None
        self.main_thread = threading.get_ident()

    def run(self, job):
        """Execute ``job(self)``, which returns an exit status, and end the process with that."""
        with open(f"{self.report}.crash", "w") as crash:
            faulthandler.enable(crash)
            threading.Thread(target=self._look_after, daemon=True).start()
            status = job(self)
            self._end(status)

    def begin(self, what="The function"):
        """The reader's code is about to be executed."""
        self.what = what
        self.began = time.monotonic()

    def finish(self):
        """The reader's code is done."""
        self.began = None

    def _end(self, status):
        sys.stdout.flush()
        sys.stderr.flush()
        self.report.write_text(json.dumps({"status": status}))
        os._exit(status)  # at an ordinary end, Triton 3.9 lists what Gluon's compiler left behind

    def _look_after(self):
        """Touch the report, and end the process when the reader's code makes no progress."""
        last_progress = 0.0
        busy_then = 0.0  # processor time of this process at the last progress
        while True:
            time.sleep(0.25)
            self.report.touch()
            progress = self._progress()
            if progress is None:
                continue
            if progress != last_progress:
                last_progress = progress
                busy_then = time.process_time()
            # A busy machine gives the process little time: wait for longer then.
            starved = time.process_time() - busy_then < self.limit / 4
            patience = 4 * self.limit if starved else self.limit
            waited = time.monotonic() - last_progress
            if waited > patience:
                print(f"Not yet. {self._what_does_not_end(waited)}", flush=True)
                self._end(1)

    def _progress(self):
        """When the reader's code made progress last; None if it is not being executed."""
        from triton_watch.watch import Watch

        watch = Watch.current
        began = self.began
        if began is not None and time.monotonic() - began > 15 * self.limit:
            return began  # it launches kernels for ever
        if watch and (watch.launch or began is not None):
            return max(watch.alive, began or 0.0)
        return began

    def _what_does_not_end(self, seconds):
        from triton_watch.places import line_of, program_name
        from triton_watch.watch import Watch

        place = line_of(sys._current_frames()[self.main_thread]) or "code of others"
        launch = Watch.current.launch if Watch.current else None
        if launch is None:
            return f"{self.what} does not end: after {seconds:.0f} s it is in {place}."
        number = program_name(launch.program(max(launch.order.program, 1)), launch.grid)
        return (
            f"A kernel does not end: after {seconds:.0f} s, program {number} of {launch.kernel} "
            f"is in {place}. Usual cause: a loop whose condition does not change, or a program "
            "that waits for a later one: the interpreter executes one after the other."
        )


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
        source = text.splitlines()
        number = error.lineno or 1
        code = source[number - 1].strip() if number <= len(source) else ""
        shown = f" `{code}`" if code else ""
        return f"{path.name} line {number}{shown}: {type(error).__name__}: {error.msg}"
    except (OSError, ValueError) as error:
        return f"{path} cannot be read as Python: {error}"
    return ""
