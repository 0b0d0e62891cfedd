"""List the lines of your code that Triton 3.9 refuses, or that 3.10 will.

    python find_call_sites.py FOLDER_OR_FILE …

Each call site is one line: ``path:line: what is gone, and the section that answers``. The sections
are those of the page *Moving to Triton 3.9*. The script reads the syntax tree of each ``.py`` file
and runs nothing. Calls count if their names lead to Triton through imports and assignments. A file
that does not parse is reported and skipped. Exit status: 0 if nothing was found, 1 if something
was, 2 for wrong usage.
"""

import ast
import os
import sys
import tokenize
import warnings
from pathlib import Path

LANGUAGE = "triton.language."
BLOCK_POINTER = "<block pointer>"
POINTERS = "With offsets / With descriptors"
# The arguments that may be passed by place, where it is fewer than before.
BY_PLACE = {"load": 3, "store": 3, "softmax": 2}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Scope:
    """The names that one module, class or function binds, with what they lead to in Triton."""

    def __init__(self, node, outer=None):
        self.outer, self.names = outer, {}
        if isinstance(node, FUNCTIONS):
            spec = node.args
            arguments = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
            self.names = {one.arg: None for one in arguments if one}
        bindings = list(self.bindings(node))
        for _ in range(3):  # an alias may be bound before what it leads to
            for name, value in bindings:
                self.names[name] = self.lead(value) or self.names.get(name)

    def bindings(self, node):
        """Yield (name, value) of each binding in the scope, without those of inner scopes."""
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield inner.name, None
            elif isinstance(inner, ast.Import):
                for alias in inner.names:
                    top = alias.name.partition(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (top, top)
            elif isinstance(inner, ast.ImportFrom):
                module = inner.module or ""
                for alias in inner.names:
                    # Libraries hand on Triton itself: from vllm.triton_utils import tl, triton
                    handed = {"tl": "triton.language", "triton": "triton"}.get(alias.name)
                    if module.partition(".")[0] == "triton" and not inner.level:
                        handed = f"{module}.{alias.name}"
                    elif "triton" not in module:
                        handed = None
                    yield alias.asname or alias.name, handed
            else:
                if isinstance(inner, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For)):
                    value = inner.iter if isinstance(inner, ast.For) else inner.value
                    for target in getattr(inner, "targets", None) or [inner.target]:
                        yield from self.unpacked(target, value)
                if not isinstance(inner, FUNCTIONS):
                    yield from self.bindings(inner)

    def unpacked(self, target, value):
        """Yield (name, value) of an assignment, also of tuples."""
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, (ast.Tuple, ast.List)):
            whole = isinstance(value, (ast.Tuple, ast.List))
            values = value.elts if whole and len(value.elts) == len(target.elts) else ()
            for number, element in enumerate(target.elts):
                yield from self.unpacked(element, values[number] if values else None)

    def lead(self, value):
        """Return the dotted name in Triton that an expression leads to, or None."""
        if isinstance(value, str):
            return value if value.partition(".")[0] == "triton" else None
        if isinstance(value, ast.Name):
            return self.find(value.id)
        if isinstance(value, ast.Attribute):
            base = self.lead(value.value)
            return f"{base}.{value.attr}" if base else None
        if isinstance(value, ast.Call):
            made = (LANGUAGE + "make_block_ptr", LANGUAGE + "advance", BLOCK_POINTER + ".advance")
            return BLOCK_POINTER if self.lead(value.func) in made else None
        return None

    def find(self, name):
        """Return what *name* leads to here or in the scopes around."""
        if name in self.names:
            return self.names[name]
        if self.outer is None:
            stars = self.names.get("*")  # from triton.language import *
            return stars.replace("*", name) if stars else None
        return self.outer.find(name)


def sites(node, scope):
    """Yield (line, message) of each call site below *node*."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, (*FUNCTIONS, ast.ClassDef)):
            if not isinstance(inner, ast.Lambda):
                for decorator in inner.decorator_list:
                    yield from unknown_keys(decorator, inner, scope)
            # The names of a class are not visible in its methods.
            outer = scope.outer if isinstance(node, ast.ClassDef) else scope
            yield from sites(inner, Scope(inner, outer))
            continue
        if isinstance(inner, ast.Call):
            yield from messages(inner, scope)
        yield from sites(inner, scope)


def messages(call, scope):
    """Yield (line, message) for one call."""
    function, arguments = call.func, call.args
    called = getattr(function, "id", getattr(function, "attr", ""))
    if called == "partial" and arguments:
        function, arguments = arguments[0], arguments[1:]
    lead = scope.lead(function) or ""
    name = lead.rpartition(".")[2]
    if lead.startswith(BLOCK_POINTER) and name == "advance":
        yield call.lineno, f"advance is gone: {POINTERS}"
    method = isinstance(function, ast.Attribute) and function.attr in ("reshape", "view")
    keywords = [keyword.arg for keyword in call.keywords]
    if "can_reorder" in keywords and (method or lead.startswith(LANGUAGE)):
        yield call.lineno, "can_reorder goes with 3.10: What else changed"
    spaces = [*arguments[1:2], *(k.value for k in call.keywords if k.arg == "address_space")]
    numbers = [one for one in spaces if isinstance(getattr(one, "value", None), int)]
    if lead == LANGUAGE + "pointer_type" and numbers:
        yield call.lineno, "address_space is a text: What else changed"
    if lead == LANGUAGE + name and name in ("make_block_ptr", "advance"):
        yield call.lineno, f"{name} is gone: {POINTERS}"
    if lead == LANGUAGE + name and name in BY_PLACE:
        gone = [word for word in keywords if word in ("boundary_check", "padding_option")]
        if gone:
            verb = "is" if len(gone) == 1 else "are"
            yield call.lineno, f"{' and '.join(gone)} {verb} gone: {POINTERS}"
        most = BY_PLACE[name]
        if len([one for one in arguments if not isinstance(one, ast.Starred)]) > most:
            text = f"{name} takes {most} arguments by place, the others by name"
            yield call.lineno, f"{text}: What else changed"


def unknown_keys(decorator, function, scope):
    """Yield (line, message) if an autotuner names arguments that *function* has not."""
    if not isinstance(decorator, ast.Call) or isinstance(function, ast.ClassDef):
        return
    if (scope.lead(decorator.func) or "") not in ("triton.autotune", "triton.runtime.autotune"):
        return
    given = {word.arg: word.value for word in decorator.keywords}
    given |= dict(zip(("configs", "key"), decorator.args, strict=False))
    spec = function.args
    names = {one.arg for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    for parameter in ("key", "reset_to_zero", "restore_value"):
        for element in getattr(given.get(parameter), "elts", ()):
            word = element.value if isinstance(element, ast.Constant) else None
            if isinstance(word, str) and word not in names:
                text = f"{parameter} names {word!r}, which is no argument of {function.name}"
                yield decorator.lineno, f"{text}: Autotuning refuses unknown keys"


def files_of(places):
    """Yield the Python files of folders, without hidden folders, and the files named."""
    for place in places:
        if place.is_file():
            yield place
        for folder, inner, names in os.walk(place):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def main(arguments):
    """Print the call sites of all files; return the exit status."""
    places = [Path(argument) for argument in arguments]
    if not places or arguments[0] in ("-h", "--help"):
        print(__doc__.partition("\n\n")[2], file=sys.stderr)
        return 2
    for place in places:
        if not place.exists():
            print(f"{place}: no such file or folder", file=sys.stderr)
            return 2
        if place.suffix == ".ipynb":
            text = f"{place}: a notebook; export it first: jupyter nbconvert --to script {place}"
            print(text, file=sys.stderr)
            return 2
    count = 0
    for path in files_of(places):
        try:
            with tokenize.open(path) as file, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(file.read())
            found = sorted(set(sites(tree, Scope(tree))))
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            print(f"{path}: skipped, it cannot be read: {error}", file=sys.stderr)
            continue
        count += len(found)
        for line, message in found:
            print(f"{path}:{line}: {message}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
