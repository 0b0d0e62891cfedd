"""The files that can be inputs of a recording: their names, and digests of their content.

An input is a file that an example uses besides its own code. Its name is its path relative to the
folder of conf.py, so it is the same on every machine.
"""

import functools
import glob
import hashlib
import os
import posixpath
import site
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gallery_recorder.project.script import module_key

_ENGINE = str(Path(__file__).resolve().parents[1])
#: Folders whose files are no inputs.
_IGNORED = {"__pycache__", ".git"}


class InputRules(msgspec.Struct, frozen=True, dict=True):
    """Which files of a project can be inputs. All but *base* are paths relative to *base*.

    Attributes:
        base: the folder of conf.py, or of the examples without conf.py.
        folders: what an example imports or reads below these is an input.
        named: those of *folders* that ``gallery_inputs`` names.
        copies: the source of each gallery that is a copy, by the folder of the copy.
        patterns: each file that matches one of these is an input of every example.
        never: modules that are no inputs, by dotted name: conf.py, extensions, probes, filters.
    """

    base: Path = Path()
    folders: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    copies: dict[str, str] = {}
    patterns: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def name_of(self, path: str) -> str | None:
        """The name of the file with the absolute *path*; None if it cannot be an input."""
        if is_installed(path):
            return None
        for file in dict.fromkeys((os.path.normpath(path), os.path.realpath(path))):
            if is_installed(file) or _IGNORED.intersection(Path(file).parts):
                return None
            for root, folder in self._roots:
                if file.startswith(root):
                    return self._allowed(posixpath.join(folder, _posix(file[len(root) :])))
        return None

    def _allowed(self, name: str) -> str | None:
        name = self._source_of(posixpath.normpath(name))
        return None if self._is_excluded(name) else name

    def _is_excluded(self, name: str) -> bool:
        """Whether the file *name* is conf.py, an extension or a probe."""
        if not name.endswith(".py"):
            return False
        dotted = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return any(f".{dotted}".endswith(f".{module}") for module in self.never)

    @functools.cached_property
    def _roots(self) -> list[tuple[str, str]]:
        """The absolute path of each folder, with a slash, and the folder's name."""
        found = []
        for folder in self.folders:
            root = os.path.normpath(self.base / folder)
            found += [(path + os.sep, folder) for path in (root, os.path.realpath(root))]
        return found

    def _source_of(self, name: str) -> str:
        """The name of the file that *name*, in a copied gallery, is a copy of."""
        for copy, source in self.copies.items():
            if name.startswith(f"{copy}/"):
                original = posixpath.normpath(source + name[len(copy) :])
                if self.path_of(original).is_file():
                    return original
        return name

    def allows(self, name: str) -> bool:
        """Whether *name*, from a recording, is below one of the folders."""
        return self._is_below(name, self.folders)

    def is_named(self, name: str) -> bool:
        """Whether the file *name* is in a folder of ``gallery_inputs``."""
        return self._is_below(name, self.named)

    def _is_below(self, name: str, folders: Iterable[str]) -> bool:
        path = self.path_of(name)
        return any(path.is_relative_to(self.path_of(folder)) for folder in folders)

    def path_of(self, name: str) -> Path:
        """The path of the input *name*."""
        return Path(os.path.normpath(self.base / name))

    def matching(self, pattern: str) -> list[str]:
        """The names of the files that match *pattern*."""
        found = []
        for match in glob.glob(pattern, root_dir=self.base, recursive=True):
            name = posixpath.normpath(_posix(match))
            path = self.path_of(name)
            ignored = _IGNORED.intersection(path.parts) or is_installed(str(path))
            if path.is_file() and not self._is_excluded(name) and not ignored:
                found.append(name)
        return sorted(set(found))

    def matched(self, pattern: str) -> dict[str, str]:
        """The digest of each file that matches *pattern*, by name."""
        found = {}
        for name in self.matching(pattern):
            if name.endswith(".py"):
                found[name] = digest_of_module(self.path_of(name), False)
            else:
                found[name] = digest_of_file(self.path_of(name))
        return found


def relative(path: str | Path, base: Path) -> str:
    """*path* relative to the folder *base*, with slashes."""
    return _posix(os.path.relpath(base / path, base))


def _posix(path: str) -> str:
    return path.replace(os.sep, "/")


@functools.cache
def _installed() -> tuple[str, ...]:
    """The folders of Python's library and of installed packages, and the engine's own."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = [sysconfig.get_path(name) for name in names]
    paths += [site.getusersitepackages(), *site.getsitepackages(), _ENGINE]
    both = {path for one in paths for path in (os.path.normpath(one), os.path.realpath(one))}
    return tuple(sorted(path + os.sep for path in both))


def is_installed(path: str) -> bool:
    """Whether *path* belongs to Python, to an installed package or to the engine."""
    return path.startswith(_installed())


def digest_of_module(path: Path, keep_docstrings: bool) -> str:
    """The digest of a module's code, as in :func:`module_key`; OSError if it cannot be read."""
    return module_key(path.read_bytes(), keep_docstrings)


_TEXT = 8000  # bytes at the beginning of a file: as for git, it is a text if none of them is 0
_CHUNK = 1 << 24


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file; OSError if it cannot be read.

    The line ends of a text count as those of Linux: git may write others on Windows.
    """
    found = hashlib.sha256()
    with path.open("rb") as file:
        chunk = file.read(_CHUNK)
        is_text = b"\0" not in chunk[:_TEXT]
        while chunk:
            if is_text:
                if chunk.endswith(b"\r"):  # the end of the line may be in the next chunk
                    chunk += file.read(1)
                chunk = chunk.replace(b"\r\n", b"\n")
            found.update(chunk)
            chunk = file.read(_CHUNK)
    return found.hexdigest()
