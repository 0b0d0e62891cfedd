"""Under which conditions recordings of the reference were made, and what went wrong in them.

``make check`` fails for a tree that was not committed, a GPU without a driver's version, a GPU that
was too hot, lessons that take long to record, an error in an output, many warnings, a figure that
is missing, and long numbers without separators. A block that shows an error on purpose says so::

    # sphinx_gallery_shows = "OutOfResources"
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from gallery_recorder.api import Block, Provenance, Script, ScriptError, load_script, seam
from triton_site.numbers import typed
from triton_site.numbers.recorded import Recorded
from triton_site.pages.assemble import AssembleError, assemble_gallery

#: Seconds that recording the lessons takes at most that everybody records first.
MOST_SECONDS = 150
_FIRST_LESSONS = (
    "01-vector-add",
    "02-fused-softmax",
    "03-matrix-multiplication",
    "03b-full-waves",
    "04-low-memory-dropout",
)
#: Lines with warnings that an output may have.
MOST_WARNINGS = 20
_ERROR = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception|Interrupt|Failure)\b|"
    r"\b(?:Stop(?:Async)?Iteration|SystemExit|GeneratorExit|ExceptionGroup|TimeoutExpired)\b|"
    r"\b(?:OutOfResources|UnsupportedLanguageConstruct)\b|"
    r"\b\w+\.[Ee]rror(?=:)|(?i:no module|cannot open)\b"
)
#: A warning of Python, or one of the loggers of PyTorch (W1126 21:57:38 …).
_WARNING = re.compile(r"(?i:warning)|\bWARN\b|^(?:\[rank\d+\]:)?\[?W(?:\d{4})?\d{4} ")
_TRACEBACK = "Traceback (most recent call last)"
_DRAWS = {"plt.show", "pyplot.show", "matplotlib.pyplot.show"}


def remarks(recordings: Iterable[Recorded], root: Path) -> Iterator[str]:
    """What is to say against *recordings* of the scripts of the repository *root*."""
    seconds = 0.0
    for item in recordings:
        made, script = item.content, item.script
        if script.name in _FIRST_LESSONS:
            seconds += made.run.seconds
        of_machine = _of_machine(made.provenance)
        for remark in (_of_commit(item, root), *of_machine, *_of_blocks(script, made.blocks)):
            if remark:
                yield f"{script.name}: {remark}"
    if seconds > MOST_SECONDS:
        yield f"the first lessons took {seconds:.0f} s to record, more than {MOST_SECONDS}"


# --- the machine --------------------------------------------------------------------------------


def _of_machine(where: Provenance) -> Iterator[str]:
    """What is unknown of the GPU, and whether it was slowed down."""
    if where.gpu is None or not where.gpu.driver or not where.gpu.compute_capability:
        yield "the GPU's driver or compute capability is unknown; record it again"
    if where.before is None or where.after is None:
        yield "the GPU's state before or after is unknown; record it again"
    # Tensor cores at full speed take all the power that the board may draw; heat is another matter.
    elif slowed := set(where.after.throttling) - {"power cap"}:
        yield f"the GPU was slowed down: {', '.join(sorted(slowed))}; record it again"


# --- the commit ---------------------------------------------------------------------------------


def _of_commit(item: Recorded, root: Path) -> str:
    commit = item.content.provenance.commit or ""
    if not commit or commit.endswith("-dirty"):
        return "recorded from a tree that was not committed"
    key = keys_at(root, commit).get((item.content.gallery, item.content.name))
    if key is None:
        return f"the commit {commit[:12]} that it names has no such script"
    return "" if key == item.content.key else f"the commit {commit[:12]} has other code"


@cache
def keys_at(root: Path, commit: str) -> dict[tuple[str, str], str]:
    """The key of each script of a *commit*, by gallery and name; empty if there is none."""
    if not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        return {}
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        tree, made = Path(scratch, "tree"), Path(scratch, "made")
        archive = ["git", "-C", str(root), "archive", commit, "tutorials", "guide"]
        done = subprocess.run(archive, capture_output=True, check=False)
        if done.returncode:
            return {}
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as packed:
            packed.extractall(tree, filter="data")
        folders = [tree / "tutorials", *sorted(tree.glob("guide/chapter-*"))]
        try:
            for folder in folders:
                assemble_gallery(folder, made / folder.name, tree / "tutorials/shared")
        except AssembleError:
            return {}
        for path in made.rglob("*.py"):
            name = path.relative_to(made).with_suffix("")
            try:
                found[name.parts[0], "/".join(name.parts[1:])] = load_script(path).key
            except ScriptError:
                continue
    return found


# --- what the blocks did ------------------------------------------------------------------------


def _of_blocks(script: Script, blocks: Iterable[Block]) -> Iterator[str]:
    draws = _drawing(script)
    for code, block, figure in zip(script.code, blocks, draws, strict=True):
        allowed = str(seam.settings_in(code.block.content).get("shows", ""))
        outputs = (block.stdout, block.shown, block.stderr, block.exception, *block.value.values())
        for wrong in errors_in("\n".join(filter(None, outputs))):
            meant = re.sub(r"^\d+ ", "", wrong)  # the number of warnings may differ in each run
            of_error = wrong == "a traceback" and allowed.replace(typed.PLAIN, "")
            if meant.lower() not in allowed.lower() and not of_error:
                yield f"line {code.line}: its output shows {wrong}"
        printed = f"{block.stdout}\n{block.value.get('text/plain', '')}"
        counts = list(typed.in_output(printed)) if typed.PLAIN not in allowed else []
        if counts:
            yield f"line {code.line}: it prints {', '.join(counts[:3])} without separators"
        if figure and not block.images:
            yield f"line {code.line}: its figure is missing"


def errors_in(text: str) -> Iterator[str]:
    """The errors that an output names, and whether it has too many warnings."""
    if _TRACEBACK in text:
        yield "a traceback"
    yield from dict.fromkeys(match[0] for match in _ERROR.finditer(text))
    warnings = sum(bool(_WARNING.search(line)) for line in text.splitlines())
    if warnings > MOST_WARNINGS:
        yield f"{warnings} lines of warnings"


def _drawing(script: Script) -> list[bool]:
    """Of each code block whether it draws a figure, itself or by functions of the script."""
    functions: dict[str, set[str]] = {}
    found = []
    for tree in (ast.parse(code.block.content) for code in script.code):
        draws = False
        for node in tree.body:  # in order: a later function may have the same name
            if isinstance(node, ast.FunctionDef):
                functions[node.name] = _names(node)
            draws |= not isinstance(node, _DEFINITIONS) and _reaches(node, functions)
        found.append(draws)
    return found


_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


def _names(node: ast.AST) -> set[str]:
    found = (n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))
    return {ast.unparse(n) for n in found}


def _reaches(node: ast.stmt, functions: dict[str, set[str]]) -> bool:
    found: set[str] = set()
    waiting = list(_names(node))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += functions.get(name, ())
    return not _DRAWS.isdisjoint(found)
