"""Exercises: level and minutes, the command that checks a reader's answer, hints, the solution.

An exercise is an item of the list under the heading *Exercises*. Its link to a page below
``solutions/`` names it; that link gets a line of its own, behind the hints. An exercise without
such a page is known by its function, and the check's own function is its solution.

The folder ``exercises`` checks answers. :func:`write_checker` makes one file of it, which
``html_static_path`` puts into the site.
"""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
import zipapp
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from gallery_recorder.api import files
from triton_site.pages.assemble import assemble_script, defined, used
from triton_site.pages.cells import functions, page_of
from triton_site.pages.folds import Fold

#: The checks, below the folder of ``conf.py``.
TABLE = Path("exercises/tasks.py")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-read", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


@dataclass(frozen=True)
class Exercise:
    """What the checker's table says of an exercise."""

    function: str
    level: str = "medium"
    minutes: int = 30
    hints: tuple[str, ...] = ()
    gpu: str = ""  # that it needs, if the interpreter cannot execute it


def _add(app: Sphinx, doctree: nodes.document) -> None:
    docname = app.env.docname
    sections = (s for s in doctree.findall(nodes.section) if s[0].astext() == "Exercises")
    section = next(sections, None)
    if section is None or page_of(app, docname) is None:
        return
    table = Path(app.confdir, TABLE)
    app.env.note_dependency(str(table))
    exercises = read_table(table.read_text(encoding="utf-8"))
    checked: list[Exercise] = []
    names: list[str] = []
    for item in section.findall(nodes.list_item):
        link = _solution_of(item)
        name = link["reftarget"].rpartition("/")[2] if link else _asked_for(item, exercises)
        if exercise := exercises.get(name):
            _set_facts(item, exercise)
            item += _command(name, exercise)
            item += [_hint(i, hint) for i, hint in enumerate(exercise.hints)]
            checked.append(exercise)
            names.append(name)
        if link:
            _take_out(link)
            item += nodes.paragraph("", "", link, classes=["exercise-solution"])
        elif exercise and (code := _source(app, exercise.function)):
            fold = Fold(summary="Solution", note="", kind="solution")
            fold += nodes.literal_block(code, code, language="python")
            item += fold
    if checked:
        uri = f"{'../' * docname.count('/')}_static/exercise.pyz"
        section.insert(1, _how_to_check(uri, all(exercise.gpu for exercise in checked)))
        address = f"{app.config.html_baseurl}_static/exercise.pyz"
        section.insert(2, _in_colab(address, names[0], checked[0]))


#: What a lesson's text says of an exercise; the checker's table may have been changed since.
_FACTS = re.compile(r"\(\w+, \d+ minutes\)")


def _set_facts(item: nodes.list_item, exercise: Exercise) -> None:
    """Level and minutes of the checker's table, in the place of those in the text or as a line."""
    facts = f"({exercise.level}, {exercise.minutes} minutes)"
    for part in item.findall(nodes.emphasis):
        if _FACTS.fullmatch(part.astext()):
            part[:] = [nodes.Text(facts)]
            return
    item += nodes.paragraph("", facts, classes=["exercise-facts"])


def _command(name: str, exercise: Exercise) -> nodes.paragraph:
    text = nodes.paragraph("", "Check yours: ", classes=["exercise-check"])
    if exercise.gpu:
        text += nodes.literal("", f"python exercise.pyz {name} mine.py --gpu")
        text += nodes.Text(f", on {exercise.gpu}")
    else:
        text += nodes.literal("", f"python exercise.pyz {name} mine.py")
    return text


def _hint(number: int, text: str) -> Fold:
    fold = Fold(summary="Another hint" if number else "Hint", note="", kind="hint")
    paragraph = nodes.paragraph()
    for i, part in enumerate(text.split("``")):
        paragraph += nodes.literal("", part) if i % 2 else nodes.Text(part)
    fold += paragraph
    return fold


def _take_out(link: nodes.Element) -> None:
    """Remove a link from its sentence, with the full stop behind it."""
    paragraph = link.parent
    place = paragraph.index(link)
    paragraph.remove(link)
    if place < len(paragraph) and paragraph[place].astext().startswith("."):
        paragraph[place] = nodes.Text(paragraph[place].astext()[1:])
    if place and isinstance(paragraph[place - 1], nodes.Text):
        paragraph[place - 1] = nodes.Text(paragraph[place - 1].astext().rstrip())


def _solution_of(item: nodes.list_item) -> nodes.Element | None:
    """The link to the solution's page, if there is one."""
    links = item.findall(addnodes.pending_xref)
    return next((k for k in links if re.search(r"solutions/[\w-]+$", k["reftarget"])), None)


def _asked_for(item: nodes.list_item, exercises: dict[str, Exercise]) -> str:
    """The exercise of the function that *item* names first, if there is one."""
    literal = item.next_node(nodes.literal)
    asked = "" if literal is None else literal.astext().partition("(")[0]
    return next((name for name, one in exercises.items() if one.function == asked), "")


def _source(app: Sphinx, function: str) -> str:
    """The checker's own function of this name, if there is one."""
    for module in sorted(Path(app.confdir, TABLE).parent.glob("*.py")):
        if code := functions(module.read_text(encoding="utf-8")).get(function):
            return code
    return ""


def _how_to_check(uri: str, needs_gpu: bool) -> nodes.paragraph:
    text = nodes.paragraph("", "Save your answer as ", classes=["exercise-check"])
    text += [nodes.literal("", "mine.py"), nodes.Text(" and download ")]
    text += nodes.reference("", "exercise.pyz", refuri=uri, internal=True)
    text += nodes.Text(
        ", which checks it on the GPU: it names wrong elements, and times yours beside ours."
        if needs_gpu
        else ", which checks it without a GPU: it names wrong elements, watches every address that "
        "your kernel uses, and counts the bytes that it moves."
    )
    return text


def _in_colab(address: str, name: str, exercise: Exercise) -> Fold:
    """Two cells for a notebook: they fetch the checker, write a skeleton, and check it."""
    gpu = " --gpu" if exercise.gpu else ""
    code = (
        f"!wget -q {address}\n!python exercise.pyz {name} mine.py --start\n%load mine.py\n\n"
        f"# Behind %%writefile mine.py in a cell of its own, your answer; then:\n"
        f"!python exercise.pyz {name} mine.py{gpu}"
    )
    fold = Fold(summary="In a notebook, such as Colab", note="", kind="notebook")
    fold += nodes.literal_block(code, code, language="text")
    return fold


def read_table(code: str) -> dict[str, Exercise]:
    """The exercises in the source *code* of the checker's table, by name."""
    table = next(
        node.value
        for node in ast.parse(code).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TASKS"
    )
    assert isinstance(table, ast.Dict)
    found = {}
    for key, value in zip(table.keys, table.values, strict=True):
        assert key is not None
        assert isinstance(value, ast.Call)
        known = {field.name for field in fields(Exercise)}
        more = {k.arg: ast.literal_eval(k.value) for k in value.keywords if k.arg in known}
        function = ast.literal_eval(value.args[0]).partition("(")[0]
        found[ast.literal_eval(key)] = Exercise(function, **more)
    return found


def write_checker(root: Path, target: Path) -> Path:
    """Write the file that checks exercises, ``exercise.pyz``, and return its path, *target*.

    It is a zip of Python's standard library (:mod:`zipapp`): the package triton_watch, the folder
    ``exercises`` and our solutions, which the command times beside the reader's. ``exercise.py``
    beside it, its name until version 3, has the same bytes: Python executes them under any name.

    Args:
        root: The folder of ``conf.py``.
        target: The file to write. It is written only if its content differs.
    """
    parts = {"triton_watch": root / "packages/triton-watch/src/triton_watch"}
    parts["exercises"] = root / "exercises"
    tutorials = root / "tutorials"
    stamp = target.with_name(f"{target.name}.stamp")
    sources = [*parts.values(), tutorials / "shared", tutorials / "solutions"]
    state = files.digest(files.times([*sources, Path(__file__).parent]))
    if stamp.is_file() and target.is_file() and stamp.read_text() == state:
        return target
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder)
        for name, source in parts.items():
            shutil.copytree(source, inside / name, ignore=shutil.ignore_patterns("__pycache__"))
        _write_solutions(root, inside / "exercises/solutions")
        # zipapp's own start forgets the exit status.
        (inside / "__main__.py").write_text(
            "import sys\n\nfrom exercises.command import main\n\nsys.exit(main())\n"
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        zipapp.create_archive(inside, target, compressed=True)
    shutil.copyfile(target, target.with_name("exercise.py"))
    stamp.write_text(state)
    return target


def _write_solutions(root: Path, folder: Path) -> None:
    """Write each solution's function, with what it needs, to a file in *folder*."""
    folder.mkdir()
    table = read_table((root / TABLE).read_text(encoding="utf-8"))
    shared = root / "tutorials/shared"
    for name, exercise in table.items():
        script = root / "tutorials/solutions" / f"{name}.py"
        if script.is_file():
            text = assemble_script(script.read_text(encoding="utf-8"), shared)
            (folder / f"{name}.py").write_text(needed(text, exercise.function), encoding="utf-8")


def needed(code: str, name: str) -> str:
    """The statements of *code* that the function *name* needs, without checks and benchmarks."""
    lines, kept = code.splitlines(), set()
    statements = ast.parse(code).body
    waiting = [name]
    while waiting:
        wanted = waiting.pop()
        for i, node in enumerate(statements):
            if i not in kept and wanted in defined(node):
                kept.add(i)
                waiting += used(node)
    parts = []
    for i in sorted(kept):
        node = statements[i]
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    return "\n\n".join(parts) + "\n"
