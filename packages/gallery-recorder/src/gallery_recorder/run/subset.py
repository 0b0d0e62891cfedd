"""Select a part of the examples: a machine's share, or those that changed since a commit."""

import ast
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median

import msgspec

from gallery_recorder.errors import RecorderError
from gallery_recorder.project.galleries import Example, Project
from gallery_recorder.project.git import GitError, call, git
from gallery_recorder.project.script import ScriptError, load_script
from gallery_recorder.store import atomic, reading
from gallery_recorder.store.reading import ReadingError

#: Files that no example reads: headers of galleries and compiled Python.
_NOT_READ = re.compile(
    r"(^|/)(GALLERY_HEADER|README|index)\.(rst|md|txt)$|\.pyc$|^$", re.IGNORECASE
)

#: The modules that a script imports, and the text it contains.
_Uses = tuple[set[str], str]


class SubsetError(RecorderError):
    """The commit cannot be compared with the files here."""

    status = 2


class _Shares(msgspec.Struct):
    """The labels of the examples in each share, and the numbers of the shares that were started."""

    of: list[list[str]]
    begun: list[int]


def share(
    examples: Sequence[Example],
    number: int,
    of: int,
    seconds: Callable[[Example], float | None],
    folder: Path,
) -> list[Example]:
    """Share *number* of *of*; the first share saves all shares in *folder* for the others.

    Otherwise the times that the first share records would change the shares after it.
    """
    path, found = folder / ".shards.json", None
    with suppress(ReadingError):
        found = reading.load(path, _Shares)
    listed = sorted(example.label for example in examples)
    if (
        found is None
        or number in found.begun
        or (len(found.of), sorted(chain.from_iterable(found.of))) != (of, listed)
    ):
        made = shares(examples, of, seconds)
        found = _Shares([[example.label for example in share] for share in made], [])
    found.begun.append(number)
    atomic.make_folder(folder)
    if len(found.begun) == of:
        path.unlink(missing_ok=True)
    elif of > 1:
        atomic.write(path, msgspec.json.encode(found))
    return [example for example in examples if example.label in found.of[number - 1]]


def shares(
    examples: Sequence[Example], of: int, seconds: Callable[[Example], float | None]
) -> list[list[Example]]:
    """Shares of about equal recorded *seconds*; the same recordings give the same shares.

    An example without recorded seconds counts as the median.
    """
    known = {example.path: seconds(example) for example in examples}
    usual = median([value for value in known.values() if value is not None] or [1.0])
    # Plus a second for the start, so that examples that take no time are distributed, too.
    cost = {path: 1.0 + (usual if value is None else value) for path, value in known.items()}
    loads = [0.0] * of
    mine: list[list[Example]] = [[] for _ in loads]
    for example in sorted(examples, key=lambda example: (-cost[example.path], example.label)):
        lightest = loads.index(min(loads))
        loads[lightest] += cost[example.path]
        mine[lightest].append(example)
    return mine


def changed_since(ref: str, project: Project, examples: Sequence[Example]) -> dict[Path, str]:
    """The paths of *examples* that changed since *ref*, each with a changed file that it uses.

    The file is the script itself if its code changed, a file beside it, or a file that it names.
    *Since* means since the commit where this branch left *ref*.

    Raises:
        SubsetError: git cannot compare the files with *ref*.
    """
    try:
        root = Path(os.path.realpath(call(project.top, "rev-parse", "--show-toplevel")))
        base = call(root, "merge-base", ref, "HEAD")
        # Without renames: a renamed example needs a recording in another place.
        options = ("--name-only", "-z", "--no-renames", "--no-ext-diff")
        listed = call(root, "diff", *options, base, "--")
        new = call(root, "ls-files", "-oz", "--exclude-standard")
    except GitError as error:
        remedy = "Fetch the commit; in a shallow clone, all history (fetch-depth: 0 in a workflow)."
        raise SubsetError(f"--changed-since {ref}: {error}\n{remedy}") from error
    paths = [root / name for name in f"{listed}\0{new}".split("\0") if not _NOT_READ.search(name)]
    changed = [p for p in sorted(paths) if not {*p.parents} & {*project.settings.roots}]
    uses = {example.path: _uses(_real(example)) for example in project.examples}
    named = {file for file in changed for _, texts in uses.values() if file.name in texts}
    reasons = {}
    for example in examples:
        path = _real(example)
        if path in changed and _code_changed(example, path.relative_to(root), root, base):
            reasons[example.path] = str(example.path)
            continue
        imported, texts = uses[example.path]
        gallery = path.parents[example.name.count("/")]
        for file in changed:
            if file.suffix == ".py":
                below = file.relative_to(gallery) if gallery in file.parents else Path()
                is_used = not imported.isdisjoint((*below.parent.parts, below.stem))
            elif file in named:
                is_used = file.name in texts
            else:  # any script beside the file may read it
                is_used = path.parent in file.parents
            if is_used:
                reasons[example.path] = str(file)
    return reasons


def _real(example: Example) -> Path:
    return Path(os.path.realpath(example.path))


def _code_changed(example: Example, name: Path, root: Path, base: str) -> bool:
    """Whether the code of *example*, the file *name* of the repository, differs from *base*."""
    before = git(root, "cat-file", "blob", f"{base}:{name.as_posix()}")
    if before is None:
        return True
    with tempfile.TemporaryDirectory() as scratch:
        old = Path(scratch, name.name)
        old.write_text(before, encoding="utf-8", errors="surrogateescape")
        try:
            return load_script(old).key != example.load().key
        except ScriptError:
            return True


@cache
def _uses(path: Path) -> _Uses:
    """The imports and texts of a script and of the modules beside it that it imports."""
    imported: set[str] = set()
    texts, waiting = [], {path.stem}
    while waiting:
        try:
            tree = ast.parse(path.with_name(f"{waiting.pop()}.py").read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # a module from elsewhere
        found: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = (node.module or "").partition(".")[0]
                found.update([module] if module else [alias.name for alias in node.names])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
        waiting |= found - imported
        imported |= found
    return imported, "\n".join(texts)
