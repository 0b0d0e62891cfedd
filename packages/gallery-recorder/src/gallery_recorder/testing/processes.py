"""Run functions, modules and Sphinx, each in a process of its own that starts at once.

Importing Sphinx and matplotlib takes longer than most tests. One process imports them once, and
each call gets a copy of it.
"""

import functools
import multiprocessing
import operator
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import forkserver, reduction, resource_tracker
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

from sphinx.application import builtin_extensions

#: The folder that the engine is imported from.
SOURCE = Path(__file__).resolve().parents[2]
#: What the copied process has imported to build a site. The engine is not among it.
SPHINX = (
    "sphinx.cmd.build",
    "sphinx_gallery.gen_gallery",
    "matplotlib.pyplot",
    *builtin_extensions,
)

_ONE_AT_A_TIME = threading.Lock()


@functools.cache
def _server(imports: tuple[str, ...]) -> forkserver.ForkServer:
    server = forkserver.ForkServer()
    server.set_forkserver_preload([*imports])
    return server


def _start(
    imports: tuple[str, ...], target: Callable, *arguments: object
) -> multiprocessing.Process:
    process = multiprocessing.get_context("forkserver").Process(target=target, args=arguments)
    connect = _server(imports).connect_to_new_process
    with _ONE_AT_A_TIME, mock.patch.object(forkserver, "connect_to_new_process", connect):
        process.start()
    return process


def call(
    function: Callable,
    *arguments: object,
    folder: Path,
    environment: Mapping[str, str],
    imports: tuple[str, ...] = SPHINX,
) -> CompletedProcess:
    """Call *function* in a process of its own, in *folder* and with that *environment* alone.

    The process is a copy of one that has imported *imports*.
    """
    with tempfile.TemporaryDirectory() as printed:
        files = [Path(printed, name) for name in ("stdout", "stderr")]
        process = _start(imports, _called, function, arguments, folder, dict(environment), files)
        process.join()
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    return CompletedProcess(function, process.exitcode, *texts)


def _called(function, arguments, folder, environment, files) -> None:
    for descriptor, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    _enter(folder, environment)
    function(*arguments)


def _enter(folder: Path, environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:] = [path for path in sys.path if path and Path(path).resolve() != SOURCE]
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))


def search_path() -> str:
    """``PYTHONPATH`` of a process that imports the engine: its folder, then what is set here."""
    return os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))


# --- the process that reads conf.py ---------------------------------------------------------------


class Server:
    """As ``subprocess.Popen`` of ``gallery_recorder.run.server``."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        reading = os.open(os.devnull, os.O_RDONLY)
        output = options["stdout"].fileno()
        given = [_Descriptor(n) for n in (reading, output, output, *options["pass_fds"])]
        folder = options["cwd"] or Path.cwd()
        words = ["-c", *command[3:]]
        self._process = _start(SPHINX, _serve, words, folder, options["env"], given)
        os.close(reading)
        self.pid = self._process.pid
        self.kill = self._process.kill

    def poll(self) -> int | None:
        """The exit status; None while the process runs."""
        return self._process.exitcode

    def wait(self) -> int:
        """Wait for the end; the exit status."""
        self._process.join()
        return self._process.exitcode


class _Descriptor:
    """A file descriptor that a started process gets, under another number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple:
        return operator.methodcaller("detach"), (reduction.DupFd(self._number),)


def _serve(words, folder, environment, given) -> None:
    *standard, control = given
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
    os.closerange(3, control)
    os.closerange(control + 1, 256)
    resource_tracker._resource_tracker._fd = None  # it was closed
    _enter(folder, environment)
    os.setsid()
    from gallery_recorder.run import server

    sys.argv = [words[0], str(control), *words[2:]]
    server.main()


# --- our own programs -----------------------------------------------------------------------------


def run(command: Sequence[object], **options: Any) -> CompletedProcess[str]:
    """As ``subprocess.run``, where a module of ours is executed; what it prints is returned."""
    folder, environment = options.get("cwd", Path.cwd()), options.get("env", os.environ)
    done = call(_module, _words(command), folder=folder, environment=environment)
    if options.get("stderr") == subprocess.STDOUT:
        done.stdout += done.stderr
    return done


def _words(command: Sequence[object]) -> list[str]:
    """The module and the arguments of ``python [-P] -m module argument ...``."""
    words = [str(word) for word in command]
    assert words[0] == sys.executable
    return words[words.index("-m") + 1 :]


def _module(words: Sequence[str]) -> None:
    sys.path.append(str(SOURCE))
    sys.argv = ["-m", *words[1:]]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


# --- Sphinx ---------------------------------------------------------------------------------------


#: How a project is built that has ``conf.py``, ``docs`` and ``build`` below its root.
BUILD = ("-c", ".", "-d", "build/doctrees", "--keep-going", "-b", "html", "docs", "build/html")


def sphinx(
    folder: Path, *arguments: str, without: Iterable[str] = (), **variables: str
) -> CompletedProcess[str]:
    """``python -m sphinx`` in *folder*, where *without* cannot be imported."""
    environment = os.environ | {"PYTHONPATH": search_path(), "NO_COLOR": "1"} | variables
    words = [*map(str, arguments)]
    return call(_sphinx, words, tuple(without), folder=folder, environment=environment)


def build(root: Path, *options: str, **how: Any) -> CompletedProcess[str]:
    """The site of the project in *root*, in ``build/html``; *how* is as for `sphinx`."""
    return sphinx(root, *options, *BUILD, **how)


def _sphinx(arguments: Sequence[str], without: Iterable[str]) -> None:
    from sphinx.cmd.build import main

    for name in without:
        sys.modules[name] = None
    sys.path.insert(0, "")  # as `python -m` does
    sys.exit(main(arguments))
