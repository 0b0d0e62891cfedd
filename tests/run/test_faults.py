"""Everything that can go wrong in a tutorial: each fault is a tutorial made to commit it.

All are recorded in one go, between two sound ones. Whatever a tutorial does, the others are
recorded, its previous recording stays byte for byte, nothing is left behind, and the report says
which tutorial, block and line, what happened and what to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import dedent

import pytest

from gallery_recorder.run import confine, process
from tests.fixtures import fault_table
from tests.fixtures.room import SECOND, Room


@dataclass(frozen=True)
class Fault:
    """A tutorial's second block, what the report says of it, and the line in the block (from 1)."""

    name: str
    code: str
    cause: str
    line: int | None = 1
    settings: str = ""


FAULTS = [
    Fault("segmentation-fault", "import ctypes\nctypes.string_at(0)", r"signal 11 \(SIGSEGV\)", 2),
    Fault("abort", "import os\nos.abort()", r"signal 6 \(SIGABRT\)", 2),
    Fault("killed", "import os, signal\nos.kill(os.getpid(), 9)", r"SIGKILL", 1),
    Fault("os-exit-0", "import os\nos._exit(0)", r"ended its process \(status 0\)"),
    Fault("os-exit-3", "import os\nos._exit(3)", r"ended its process \(status 3\)"),
    Fault("exec", "import os\nos.execvp('true', ['true'])", r"ended its process \(status 0\)"),
    Fault("sys-exit-0", "import sys\nsys.exit(0)", r"sys\.exit\(0\)", 2),
    Fault("sys-exit-1", "import sys\n\nsys.exit(1)", r"sys\.exit\(1\)", 3),
    Fault("quit", "quit()", r"sys\.exit\(None\)", 1),
    Fault("exception", "x = 1\n\n1 / 0", r"raised ZeroDivisionError\n(.|\n)*1 / 0", 3),
    Fault(
        "exception-in-function",
        "def divide(a):\n    return a / 0\n\n\ndivide(1)",
        rf"raised ZeroDivisionError\n(.|\n)*line {SECOND + 4}, in <module>",
        2,
    ),
    Fault(
        "exception-chained",
        "try:\n    {}['a']\nexcept KeyError as error:\n    raise RuntimeError('b') from error",
        r"raised RuntimeError\n(.|\n)*KeyError: 'a'(.|\n)*direct cause(.|\n)*RuntimeError: b",
        4,
    ),
    Fault("interrupts-itself", "raise KeyboardInterrupt", r"raised KeyboardInterrupt"),
    Fault(
        "endless-loop",
        "x = 0\nwhile True:\n    x += 1",
        r"took longer than 1 s.*\n(.|\n)*# sphinx_gallery_timeout = 2",
        None,
        "# sphinx_gallery_timeout = 1",
    ),
    Fault(
        "endless-c",
        "import time\ntime.sleep(1000)",
        r"took longer than 1 s",
        2,
        "# sphinx_gallery_timeout = 1",
    ),
    Fault(
        "ignores-sigterm",
        """
        import signal, time
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(0.1)
        """,
        r"took longer than 1 s",
        5,
        "# sphinx_gallery_timeout = 1",
    ),
    Fault(
        "hangs-with-child",
        "import subprocess\nsubprocess.run(['sleep', '987'])",
        r"took longer than 1 s",
        None,
        "# sphinx_gallery_timeout = 1",
    ),
    Fault(
        "process-left",
        "import subprocess\nchild = subprocess.Popen(['sleep', '987'])",
        r"left 1 process running: sleep 987",
        None,
    ),
    Fault(
        "daemon-left",
        "import subprocess\nchild = subprocess.Popen(['sleep', '987'], start_new_session=True)",
        r"left 1 process running: sleep 987",
        None,
    ),
    Fault(
        "thread-left",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
        r"did not end after its last block",
        None,
    ),
    Fault("memory", "block = bytearray(1 << 50)", r"raised MemoryError(.|\n)*smaller sizes"),
    Fault(
        "printed-200-mb",
        "for _ in range(200):\n    print('x' * 1_000_000)",
        r"more than 1,000,000 bytes to standard output in one block",
        2,
    ),
    Fault(
        "printed-by-child",
        "import subprocess\ndone = subprocess.run('yes | head -c 3000000 >&2', shell=True)",
        r"more than 1,000,000 bytes to standard error in one block",
        None,
    ),
    Fault(
        "printed-for-ever",
        "import subprocess\nsubprocess.run('yes')",
        r"more than 1,000,000 bytes to standard output in one block",
        None,
    ),
    Fault(
        "value-too-large",
        "'x' * 1_000_001",
        r"more than 1,000,000 bytes to its page, as the value of its last expression, in one blo",
    ),
    Fault("input", "name = input('Who? ')", r"Cannot use input\(\) builtin"),
    Fault("stdin", "import sys\nfor line in sys.stdin:\n    pass", r"reads from standard input", 2),
    Fault(
        "figure-too-large",
        """
        import matplotlib.pyplot as plt
        import numpy as np
        plt.figure(figsize=(16, 16))
        image = plt.imshow(np.random.default_rng(0).random((2400, 2400, 3)))
        """,
        r"made a file, \S+_001\.png, of [\d,]+ bytes; the limit is 8,000,000",
    ),
    Fault(
        "file-too-large",
        "open('big.bin', 'wb').truncate(8_000_001)\nNone",
        r"made a file, big\.bin, of 8,000,001 bytes; the limit is 8,000,000",
    ),
    Fault(
        "too-many-files",
        "for number in range(101):\n    open(f'{number}.txt', 'w').close()",
        r"more than 100 images and data files",
    ),
    Fault(
        "writes-above",
        "x = 1\nopen('../x', 'w')",
        r"written to \.\./x, outside its working directory",
        2,
    ),
    Fault(
        "writes-absolute",
        "from pathlib import Path\nPath('/var/tmp/gallery-x').write_text('a')",
        r"written to /var/tmp/gallery-x, outside",
        2,
    ),
    Fault(
        "writes-hidden",  # it catches what it can
        "try:\n    open('/var/tmp/gallery-x', 'w')\nexcept:\n    pass",
        r"written to /var/tmp/gallery-x, outside",
        None,
    ),
    Fault(
        "writes-through-link",
        "import os\nos.symlink('/var/tmp', 'link')\nopen('link/gallery-x', 'w')",
        r"written to link/gallery-x, outside",
        3,
    ),
    Fault(
        "writes-elsewhere",
        "import os\nos.chdir('/var/tmp')\nopen('gallery-x', 'w')",
        r"written to gallery-x, outside",
        3,
    ),
    Fault("moves-out", "import os\nos.rename('moves-out.py', '/var/tmp/x')", r"written to /var", 2),
    Fault(
        "removes-outside",
        "import os, shutil\nshutil.rmtree('/var/tmp/gallery-x', ignore_errors=True)\n"
        "os.remove('/var/tmp/gallery-x')",
        r"written to /var/tmp/gallery-x, outside",
        3,
    ),
    Fault(
        "child-writes-above",
        "import os\nstatus = os.system('echo x > ../x')",
        r"wrote outside its working directory: \.\./x",
        None,
    ),
    Fault("makes-folder", "import os\nos.mkdir('out')", r"made a folder, out,"),
    Fault("makes-link", "import os\nos.symlink('a', 'b')", r"made a symbolic link, b,"),
    Fault("makes-pipe", "import os\nos.mkfifo('pipe')", r"made a special file, pipe,"),
    Fault("odd-name", "open('a b.csv', 'w').close()", r"wrote a file called 'a b\.csv'"),
    Fault("our-name", "open('recording.json', 'w').close()", r"called 'recording\.json'"),
    Fault("own-file", "open('own-file.py', 'w').close()", r"changed its own file"),
    Fault("hides-folder", "import os\nos.makedirs('a/b')\nos.chmod('a', 0)", r"made a folder, a,"),
    Fault("device-name", "open('con.csv', 'w').close()", r"wrote a file called 'con\.csv'"),
    Fault(
        "twin-names",
        "for name in ('A.csv', 'a.csv'):\n    open(name, 'w').close()",
        r"wrote a file called '[Aa]\.csv' beside '[Aa]\.csv'",
        None,
    ),
    Fault(
        "no-benchmark",
        """
        rows = ["size,provider,unit,median,p20,p80", "4k,triton,GB/s,2,1,3"]
        _ = open("speed.csv", "w").write("\\n".join(rows))
        """,
        r"wrote a table that cannot be read as a benchmark: speed\.csv:2: .*'4k'",
    ),
    # With PYTHONOPTIMIZE=1 where the recorder is started, as all of these are.
    Fault("assertion", "assert 1 + 1 == 3", r"raised AssertionError"),
    Fault(
        "long-line",
        "print('x' * 30_000)\nraise ValueError('y' * 30_000)",
        r"raised ValueError\n(.|\n)*ValueError: yyy(.|\n)*29,.* characters",
        2,
    ),
    Fault(
        "cannot-be-said",
        """
        class Odd(Exception):
            def __str__(self):
                raise SystemExit(3)


        raise Odd
        """,
        r"raised Odd\n(.|\n)*exception str\(\) failed",
        6,
    ),
    Fault(
        "odd-status",
        """
        class Odd:
            def __repr__(self):
                raise ValueError


        raise SystemExit(Odd())
        """,
        r"ended itself with sys\.exit\(<repr\(\) of it raised ValueError>\)",
        6,
    ),
    Fault(
        "turns-its-name",
        "raise type('E\\u202e<x>', (Exception,), {})('x')",
        r"raised E\\u202e<x>\n",
    ),
    Fault(
        "lies-about-syntax",
        "raise SyntaxError('bad', ('a.py', 1, 1, 'x = 1', 1, 10**18))",
        r"raised SyntaxError, of which nothing more can be told",
    ),
    Fault(
        "hides-its-class",
        """
        class Hiding(type):
            def __getattribute__(cls, name):
                raise RuntimeError(name)


        class E(Exception, metaclass=Hiding):
            pass


        raise E("x")
        """,
        r"raised E, of which nothing more can be told",
        None,
    ),
    Fault(
        "exits-when-asked",
        """
        class E(BaseException):
            def __getattribute__(self, name):
                raise SystemExit(0)


        raise E
        """,
        r"raised E, of which nothing more can be told",
        None,
    ),
    Fault(
        "replaces-traceback",
        """
        import traceback
        traceback.extract_tb = traceback.format_exception = None
        1 / 0
        """,
        r"raised ZeroDivisionError, of which nothing more can be told",
        None,
    ),
    Fault(
        "replaces-builtins",
        "import builtins\nbuiltins.len = builtins.open = builtins.isinstance = None",
        r"raised TypeError",
        None,
    ),
    Fault(
        "closes-the-pipe",
        """
        import os
        for descriptor in range(3, 64):
            try:
                os.close(descriptor)
            except OSError:
                pass
        """,
        r"closed the pipe through which its process tells how far it is",
        None,
    ),
    Fault(
        "writes-a-page",
        """
        from pathlib import Path
        run = next(p for p in Path.cwd().parents if p.name.startswith(".workspace"))
        (run / "docs" / "conf.py").write_text("")
        """,
        r"wrote source/conf\.py where the documentation's pages are",
        None,
    ),
    Fault("turns-text", "raise ValueError('txt.\\u202eexe')", r"ValueError: txt\.\\u202eexe"),
    Fault(
        "prints-at-exit",
        "import atexit\n_ = atexit.register(print, 'late')",
        r"printed after its last block, where no page shows it\nIt printed:\n  late",
        None,
    ),
    Fault(
        "thread-prints-late",
        "import threading\nthreading.Timer(0.5, print, ('late',)).start()",
        r"printed after its last block, where no page shows it\nIt printed:\n  late",
        None,
    ),
    Fault(
        "process-hides",
        "import subprocess\n_ = subprocess.run('env -i setsid sleep 987 &', shell=True)",
        r"left 1 process running: sleep 987",
        None,
    ),
    Fault(
        "forks-twice",
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execve('/usr/bin/env', ['env', '-i', 'sleep', '987'], {})
            os._exit(0)
        time.sleep(0.5)
        """,
        r"left 1 process running: sleep 987",
        None,
    ),
    Fault(
        "writes-into-our-pipe",
        """
        import os
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b'garbage\\n' * 99_999)
            except OSError:
                pass
        """,
        r"wrote into the pipe through which its process tells how far it is",
        None,
    ),
    Fault(
        "forges-blocks",
        """
        import gc
        for found in gc.get_objects():
            if type(found).__name__ == 'Child':
                found.blocks.clear()
        """,
        r"told of 1 blocks where the script has 2",
        None,
    ),
    Fault(
        "forges-device",
        """
        import gc, msgspec
        for found in gc.get_objects():
            if type(found).__name__ == 'Child':
                found.run = msgspec.structs.replace(found.run, device='NVIDIA H200')
        """,
        r"told of another device, NVIDIA H200, than interpreter",
        None,
    ),
    Fault(
        "puts-a-pipe-among-what-is-recorded",
        "import subprocess\n_ = subprocess.run(['mkfifo', '../../../recording/x.csv'], check=True)",
        r"left what is no recording: recording/x\.csv: is no file",
        None,
    ),
    Fault(
        "puts-a-link-for-what-is-recorded",
        """
        import subprocess
        command = "cd ../../.. && rmdir recording && ln -s tmp recording"
        subprocess.run(command, shell=True, check=True)
        """,
        r"left what is no recording: recording: is no file",
        None,
    ),
    Fault(
        "puts-a-device-for-its-output",
        """
        import subprocess
        command = "ln -sf /dev/zero ../../../stdout"
        subprocess.run(command, shell=True, check=True)
        """,
        r"printed more than 1,000,000 bytes",
        None,
    ),
    Fault(
        "folders-without-end",
        """
        import subprocess, sys
        make = "import os\\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')"
        subprocess.run([sys.executable, "-c", make], cwd="../../../docs", check=True)
        """,
        r"raised RecursionError",
        None,
    ),
    Fault(
        "many-processes",
        """
        import subprocess
        for _ in range(40):
            subprocess.Popen(["sleep", "987"], start_new_session=True)
        """,
        r"left 40 processes running: sleep 987; sleep 987; sleep 987 and 37 more",
        None,
    ),
    Fault(
        "stops-itself",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        r"took longer than 4 s and was ended",
        None,
        "# sphinx_gallery_timeout = 4",
    ),
    Fault(
        "stops-the-clock",
        "import time\ntime.time = time.perf_counter = time.monotonic = None",
        r"raised TypeError",
        None,
    ),
]

#: What the kernel forbids, where it has Landlock: the script's own calls fail.
CONFINED = [
    Fault(
        "child-removes-another",
        "import subprocess\nsubprocess.run(['rm', '-r', ANOTHER], check=True)",
        r"raised CalledProcessError\n(.|\n)*Permission denied",
        2,
    ),
    Fault(
        "library-removes-another",
        """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unlink(f'{ANOTHER}/recording.json'.encode()):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        """,
        r"raised PermissionError",
        4,
    ),
    Fault(
        "changes-another-by-descriptor",
        """
        import os
        folder = os.open(ANOTHER, os.O_RDONLY)
        os.open('recording.json', os.O_WRONLY | os.O_TRUNC, dir_fd=folder)
        """,
        r"raised PermissionError|would have written",
        3,
    ),
    Fault(
        "takes-off-the-guard",
        """
        import gc
        for found in gc.get_objects():
            if type(found).__name__ == 'Guard':
                found._check = lambda *_, **__: None
        open(f'{ANOTHER}/recording.json', 'w')
        """,
        r"raised PermissionError",
        5,
    ),
    Fault(
        "ends-the-recorder",
        """
        import os, signal
        recorder = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])
        os.kill(recorder, signal.SIGQUIT)
        """,
        r"raised PermissionError",
        3,
    ),
    Fault(
        "ends-its-keeper",
        "import os\nos.kill(os.getppid(), 9)",
        r"raised PermissionError",
        2,
    ),
]


#: As a script sees the recording of another: above it are the copy of its project, and its run.
ANOTHER = "../../../../tutorials/00-sound"
RUN = [*FAULTS, *(CONFINED if confine.version() >= 6 else [])]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The room after everything is recorded once: what became of each, and what was there."""
    room = Room(tmp_path_factory.mktemp("faults"))
    for name in ("00-sound", "zz-sound"):
        room.write(name, "print('sound')")
        room.put_recording(name)
    for fault in RUN:
        code = dedent(fault.code).replace("ANOTHER", repr(ANOTHER))
        path = room.write(fault.name, code.replace(f"f'{{{ANOTHER!r}}}", f"f'{ANOTHER}"))
        if fault.settings:
            path.write_text(f"{path.read_text()}\n{fault.settings}\n")
        room.put_recording(fault.name)
    before = {fault.name: room.content(fault.name) for fault in RUN}
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONOPTIMIZE", "1")
    patch.setenv("PYTHONDEVMODE", "1")
    patch.setattr(process, "_GRACE", 1.0)
    patch.setattr(process, "_FAREWELL", 8.0)
    try:
        outcomes = room.record(force=True)
    finally:
        patch.undo()
    return room, outcomes, before


@pytest.mark.parametrize("fault", RUN, ids=lambda fault: fault.name)
def test_a_fault_is_refused(recorded, fault):
    room, outcomes, before = recorded
    outcome = outcomes[fault.name]
    assert outcome.status == "failed"
    where, block, _ = re.fullmatch(
        rf"tutorials/{fault.name}\.py(:\d+)?(?:, block (\d) of 2)?: ((?:.|\n)*)", outcome.text
    ).groups()
    assert re.search(fault.cause, outcome.text), outcome.text
    assert block == (None if re.search("forges|is-recorded", fault.name) else "2")
    if fault.line is not None:
        assert where == f":{SECOND + fault.line - 1}"
    assert len(outcome.text.splitlines()) > 1, "it does not say what to do next"
    assert str(room.folder) not in outcome.text
    assert room.content(fault.name) == before[fault.name]


def test_the_sound_ones_are_recorded(recorded):
    room, outcomes, _ = recorded
    for name in ("00-sound", "zz-sound"):
        assert outcomes[name].status == "recorded"
        assert room.load(name).blocks[1].stdout == "sound\n"


def test_nothing_is_left_behind(recorded):
    room, _, _ = recorded
    assert room.left_over() == []


@pytest.mark.parametrize(("name", "faults"), [("faults", FAULTS), ("faults-confined", CONFINED)])
def test_the_table_in_the_docs_is_what_was_seen(recorded, name, faults):
    _, outcomes, _ = recorded
    if not all(fault.name in outcomes for fault in faults):
        pytest.skip("this kernel has no Landlock, or one that knows no signals")
    rows = [
        fault_table.row(
            fault.name,
            f"{fault.code}\n\n{fault.settings}" if fault.settings else fault.code,
            outcomes[fault.name],
            tell_line=fault.line is not None,
        )
        for fault in faults
    ]
    fault_table.check(f"{name}.csv", rows, "tests/run/test_faults.py")


# --- what is refused before anything is executed ------------------------------------------------

NO_SCRIPTS = [
    ("syntax-error", '"""\nA\n=\n"""\n\nx = (\n', r"syntax-error\.py:6: is not valid Python"),
    ("no-title", "x = 1\n", r"has no title"),
    ("no-docstring-text", '"""  """\nx = 1\n', r"has no title"),
    ("label-only", '"""\n.. _label:\n"""\nx = 1\n', r"should have a header for the example title"),
    ("split-statement", '"""\nA\n=\n"""\n\nif 1:\n# %%\n# B\n\n    x = 1\n', r":6: a '# %%'"),
    ("bad-timeout", '"""\nA\n=\n"""\n\n# sphinx_gallery_timeout = "long"\nx = 1\n', r"is no time"),
    (
        "bad-needs",
        '"""\nA\n=\n"""\n\n# sphinx_gallery_needs = "luck"\nx = 1\n',
        r"understood at 'lu",
    ),
]


def test_what_is_no_tutorial_is_refused(tmp_path):
    room = Room(tmp_path)
    before = {}
    for name, text, _ in NO_SCRIPTS:
        (room.tutorials / f"{name}.py").write_text(text)
        room.put_recording(name)
        before[name] = room.content(name)
    outcomes = room.record(force=True)
    for name, _, cause in NO_SCRIPTS:
        assert outcomes[name].status == "failed"
        assert re.search(cause, outcomes[name].text)
        assert room.content(name) == before[name]
    assert room.left_over() == []
