"""Make the traces that do not belong to the current code: ``make traces``.

python -m traces.make            # makes those that are stale
python -m traces.make --check    # names them, and ends with status 1 if there are any
"""

import ast
import hashlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

FOLDER = Path(__file__).resolve().parent
LESSONS = FOLDER.parent / "tutorials"
MOST = 40_000  # bytes of a page's traces


def main(arguments=None):
    """Make or check all traces; return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    stale = [script for script in scripts() if not is_current(script)]
    if "--check" in arguments:
        for script in stale:
            print(f"{data_file(script).name} is not of the current kernels: make traces")
        return 1 if stale else 0
    os.environ["TRITON_INTERPRET"] = "1"
    for script in stale:
        text = make(script)
        data_file(script).write_text(text, encoding="utf-8")
        print(f"{data_file(script).name}: {len(text.encode())} bytes")
    return 0


def scripts():
    """The scripts of all lessons that have traces."""
    return sorted(FOLDER.glob("[0-9]*.py"))


def data_file(script):
    """The file in which the traces of a script are kept."""
    return script.with_suffix(".trace.json")


def lesson_of(script):
    """The lesson whose kernels a script launches."""
    return LESSONS / script.name


def is_current(script):
    """Whether the traces of a script are of its code and of the lesson's kernels."""
    file = data_file(script)
    return file.is_file() and json.loads(file.read_text(encoding="utf-8"))["key"] == key_of(script)


def key_of(script):
    """A number for the code of the kernels and of the script; prose and layout do not count."""
    parts = [ast.unparse(node) for node in kernel_statements(lesson_of(script))]
    parts.append(ast.unparse(ast.parse(script.read_text(encoding="utf-8"))))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def kernel_statements(lesson):
    """The statements of a lesson that its kernels consist of: imports, constants, kernels."""
    tree = ast.parse(lesson.read_text(encoding="utf-8"))
    made = [node.value for node in tree.body if _is_made_kernel(node)]
    functions = {name.id for call in made for name in ast.walk(call) if isinstance(name, ast.Name)}
    kept = []
    for node in tree.body:
        plain = isinstance(node, ast.FunctionDef) and node.name in functions
        kernel = _is_kernel(node) or _is_made_kernel(node) or _is_constexpr(node)
        if plain or kernel or _is_import(node):
            kept.append(node)
    return kept


def _is_import(node):
    if isinstance(node, ast.Import):
        known = ("torch", "triton", "triton.language", "math")
        return all(alias.name in known for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("triton")


def _is_kernel(node):
    """Whether a statement defines a kernel or a function that kernels call."""
    if not isinstance(node, ast.FunctionDef):
        return False
    return any("triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list)


def _is_made_kernel(node):
    """Whether a statement is ``name = triton.jit(function)``."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    return ast.unparse(node.value.func) == "triton.jit"


def _is_constexpr(node):
    return isinstance(node, ast.Assign) and "tl.constexpr" in ast.unparse(node.value)


def kernels_of(lesson):
    """The kernels of a lesson by name; nothing else of it is executed."""
    names = {"__name__": lesson.stem}
    code = compile(ast.Module(kernel_statements(lesson), []), str(lesson), "exec")
    exec(code, names)
    return SimpleNamespace(**names)


def make(script):
    """Return the traces of a script as JSON."""
    from triton_watch.trace import SCHEMA

    spec = importlib.util.spec_from_file_location("trace_script", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernels = kernels_of(lesson_of(script))
    traces = {}
    for name, function in vars(module).items():
        if callable(function) and getattr(function, "__module__", "") == "trace_script":
            traces[name] = trace(function, kernels)
    data = {"schema": SCHEMA, "key": key_of(script), "traces": traces}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n"
    size = len(text.encode())
    if size > MOST:
        raise SystemExit(f"{script.name}: {size} bytes, of {MOST}: use smaller inputs")
    return text


def trace(function, kernels):
    """One trace, with its caption."""
    from triton_watch.trace import Scene, Trace
    from triton_watch.watcher import Watch

    recorder = Trace()
    with Watch(recorder):
        result = function(kernels)
    launches = [result.data()] if isinstance(result, Scene) else recorder.data()["launches"]
    for launch in launches:
        _show_as_page(launch)
    caption = " ".join(function.__doc__.split())
    return {"caption": caption, "launches": launches}


def _show_as_page(launch):
    """Show the code as the page does: lines are numbered from 1, and have no marks."""
    for program in launch["programs"]:
        for step in program["steps"]:
            if "line" in step:
                step["line"] -= launch["functions"][step.get("function", 0)]["first"] - 1
    for function in launch["functions"]:
        function["first"] = 1
        # The page's mark of a key line is none for a reader of the trace.
        function["source"] = [line.removesuffix("# <-").rstrip() for line in function["source"]]
    launch["launched"] = ""


if __name__ == "__main__":
    sys.exit(main())
