"""Use the functions of another script, without what it checks and times."""

import ast
import sys
from pathlib import Path

HERE = Path(globals().get("__file__", "a notebook")).resolve().parent
FOLDERS = [HERE, HERE.parent, HERE.parent / "tutorials"]


def lesson(name):
    """Return the names that the script *name* defines, as an object: ``lesson("01-add").add``.

    Its imports, constants (names of two or more capitals, and what ``triton.jit(…)`` returns),
    functions and classes are executed, and nothing else.

    Raises:
        FileNotFoundError: the script lies neither beside this one nor in ``tutorials``.
    """
    path = next((p for f in FOLDERS if (p := f / f"{name}.py").is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{name}.py is needed: put it beside this script")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if defines(node)]
    module = type(sys)(f"lesson_{name.replace('-', '_')}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(tree, str(path), "exec"), vars(module))  # lines stay: Triton reads the source
    return module


def defines(node):
    """Whether the statement *node* defines something, and neither checks nor times."""
    if isinstance(node, ast.If):  # such as the properties of a GPU, if there is one
        inner = [*node.body, *node.orelse]
        return any(map(defines, inner)) and all(isinstance(n, ast.Assign) for n in inner)
    if isinstance(node, ast.Assign):
        names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        in_capitals = any(name.isupper() and len(name) > 1 for name in names)
        return in_capitals or ast.unparse(node.value).startswith("triton.jit(")
    return isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
