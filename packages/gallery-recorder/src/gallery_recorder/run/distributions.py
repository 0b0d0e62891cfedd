"""The installed distributions that an example imports, such as ``numpy`` or ``scikit-learn``."""

import contextlib
import functools
import os
import sys
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path

from gallery_recorder.project.inputs import is_installed


def versions_of(modules: dict[str, str]) -> dict[str, str]:
    """The versions of the distributions that *modules*, each with its file, belong to."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    for module, file in modules.items():
        package = ".".join(module.split(".")[:2])  # several distributions may share the first part
        place = (package, import_root(module, file))
        if place in seen:
            continue
        seen.add(place)
        owner = distribution_of(module, file)
        if owner is not None and owner.name and owner.version:  # its metadata may be damaged
            found[owner.name] = owner.version
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def import_root(module: str, file: str) -> str:
    """The folder of the search path in which Python found the *file* of *module*."""
    levels = len(module.split("."))
    if Path(file).stem == "__init__":
        levels += 1
    above = Path(file).parents
    return str(above[min(levels, len(above)) - 1])


def distribution_of(module: str, file: str) -> Distribution | None:
    """The distribution that *module*, in *file*, belongs to; None for a module of the project."""
    owners = _owners().get(module.partition(".")[0], [])
    if is_installed(file):
        if len(owners) > 1:
            owners = [owner for owner in owners if _has_installed(owner, file)]
        return owners[0] if owners else None
    root = os.path.realpath(import_root(module, file))
    if root not in editable_roots():
        return None
    return editable_roots()[root] or (owners[0] if owners else None)


def _has_installed(owner: Distribution, file: str) -> bool:
    """Whether *owner* has installed *file*."""
    paths = (str(owner.locate_file(path)) for path in owner.files or ())
    return any(os.path.normpath(path) == file for path in paths)


@functools.cache
def _owners() -> dict[str, list[Distribution]]:
    """The distributions that have each package or file at the top of ``site-packages``.

    ``metadata.packages_distributions`` parses every line and takes twenty times as long.
    """
    found: dict[str, list[Distribution]] = {}
    for one in metadata.distributions():
        declared = one.read_text("top_level.txt")
        names = set((declared or "").split())
        for line in (one.read_text("RECORD") or "").splitlines():
            first = line.partition(",")[0].partition("/")[0]
            if first.endswith(".pth") or not declared:
                names.add(first.removesuffix(".py"))
        for name in names:
            found.setdefault(name, []).append(one)
    return found


@functools.cache
def editable_roots() -> dict[str, Distribution | None]:
    """The folders of the search path that hold editable distributions; None if its name is unknown.

    They are in ``.pth`` files, or in the finders of setuptools.
    """
    found: dict[str, Distribution | None] = {}
    for folder in sys.path:
        if not is_installed(folder + os.sep) or not os.path.isdir(folder):
            continue
        for path in sorted(Path(folder).glob("*.pth")):
            owner = _first(path.name)
            lines: list[str] = []
            with contextlib.suppress(OSError):
                lines = path.read_text(errors="replace").splitlines()
            for line in lines:
                if line and not line.startswith(("import ", "import\t", "#")):
                    found[os.path.realpath(os.path.join(folder, line))] = owner
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            mapping: dict[str, str] = getattr(module, "MAPPING", {})
            for package, place in mapping.items():
                found[os.path.realpath(Path(place).parent)] = _first(package)
    return found


def _first(name: str) -> Distribution | None:
    return next(iter(_owners().get(name, [])), None)
