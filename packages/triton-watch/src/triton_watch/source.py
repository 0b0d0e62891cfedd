"""Find in a kernel's source what Triton's compiler does not accept, before the kernel runs.

These are suspicions where a branch that is chosen when the kernel is compiled (``if BIAS:``) may
leave the code out, or where a release may accept more. The compiler of the installed release has
the last word where it can be asked (see compiles.py). A finding is *certain* if no branch can leave
the code out.
"""

import ast
import builtins
import inspect
import linecache
import textwrap
import types
from typing import NamedTuple


class Finding(NamedTuple):
    """What a kernel contains that the compiler does not accept."""

    line: int
    what: str
    instead: str
    certain: bool


STATEMENTS = {
    ast.Break: ("`break` in a kernel", "a `while` with the condition, or a mask"),
    ast.Continue: ("`continue` in a kernel", "an `if` around the rest of the loop, or a mask"),
    ast.Try: ("`try` in a kernel", "a mask, or a check in Python"),
    ast.Lambda: ("`lambda` in a kernel", "a function with `@triton.jit`"),
    ast.Raise: ("`raise` in a kernel", "`tl.device_assert`, or a check in Python"),
    ast.Dict: ("a dictionary in a kernel", "arguments of the kernel, or a tuple"),
    ast.Yield: ("`yield` in a kernel", "a loop in the kernel"),
}


def findings(function):
    """What the source of a kernel contains that the compiler does not accept, in order of lines.

    Args:
        function: The Python function of the kernel.
    """
    tree = definition_of(function)
    if tree is None:
        return []
    visitor = _Visitor(function.__globals__, _local_names(tree), _computed_names(tree))
    for statement in tree.body:
        visitor.visit(statement)
    return sorted(visitor.found)


def line_of_call(function, name):
    """The line in which a kernel calls the function *name*, or the line of its definition."""
    tree = definition_of(function)
    if tree is None:
        return function.__code__.co_firstlineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name:
            return node.lineno
    return tree.lineno


def definition_of(function):
    """The syntax tree of a function, with the line numbers of its file; None if it is unknown."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename)
    if not lines:
        return None
    try:
        source = "".join(inspect.getblock(lines[code.co_firstlineno - 1 :]))
        (tree,) = ast.parse(textwrap.dedent(source)).body
    except (SyntaxError, ValueError):
        return None
    ast.increment_lineno(tree, code.co_firstlineno - 1)
    return tree


def names_in(tree):
    """All names that a definition uses, those of its decorators left out."""
    parts = [tree.args, *tree.body]
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}


def _local_names(tree):
    names = {argument.arg for argument in tree.args.args + tree.args.kwonlyargs}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _computed_names(tree):
    """Local names whose values are computed when the kernel runs: by a call of ``tl.…``."""
    computed = set()
    for _ in range(2):  # a second time for what is computed from them
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AugAssign) and _is_computed(node.value, computed):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                computed |= {target.id for target in targets if isinstance(target, ast.Name)}
    return computed


def _is_computed(expression, computed):
    """Whether the value of an expression is known only when the kernel runs."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Name) and node.id in computed:
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in COMPUTING:
            return True
    return False


COMPUTING = ("tl.load", "tl.program_id", "tl.arange", "tl.sum", "tl.max", "tl.min", "tl.atomic_add")


class _Visitor(ast.NodeVisitor):
    """Collects findings; knows in how many branches and loops it is."""

    def __init__(self, names, local_names, computed_names):
        self.names = names
        self.local_names = local_names
        self.computed_names = computed_names
        self.found = []
        self.branches = 0
        self.loops = 0

    def add(self, node, what, instead, certain=True):
        certain = certain and not self.branches
        self.found.append(Finding(node.lineno, what, instead, certain))

    def visit(self, node):
        words = STATEMENTS.get(type(node))
        if words:
            self.add(node, *words)
        super().visit(node)

    def visit_If(self, node):
        self.visit(node.test)
        chosen_early = not _is_computed(node.test, self.computed_names)
        if chosen_early:
            self.branches += 1
        for statement in node.body + node.orelse:
            self.visit(statement)
        if chosen_early:
            self.branches -= 1

    def visit_IfExp(self, node):
        self.visit(node.test)
        self.branches += 1
        self.visit(node.body)
        self.visit(node.orelse)
        self.branches -= 1

    def visit_For(self, node):
        self._loop(node)

    def visit_While(self, node):
        self._loop(node)

    def _loop(self, node):
        self.loops += 1
        self.generic_visit(node)
        self.loops -= 1

    def visit_Return(self, node):
        if self.loops:
            self.add(
                node,
                "`return` inside of a loop",
                "a `while` with the condition, and one `return` at the end",
            )
        self.generic_visit(node)

    def visit_FunctionDef(self, node):
        self.add(node, "a function inside of a kernel", "a function outside, with `@triton.jit`")

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node):
        if len(node.ops) > 1:
            operands = [node.left, *node.comparators]
            parts = []
            for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
                parts.append(f"({ast.unparse(ast.Compare(left, [operator], [right]))})")
            self.add(node, f"a chained comparison, `{ast.unparse(node)}`", f"`{' & '.join(parts)}`")
        self.generic_visit(node)

    def visit_Assign(self, node):
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                text = ast.unparse(target)
                self.add(node, f"an assignment to elements of a block, `{text} = …`", "`tl.where`")
        self.generic_visit(node)

    def visit_Name(self, node):
        if node.id in self.local_names or node.id not in self.names:
            return
        value = self.names[node.id]
        if type(value) in (bool, int, float, str):
            self.add(
                node,
                f"the global variable `{node.id}`, which is no constexpr",
                f"`{node.id} = tl.constexpr({value!r})`, or an argument of the kernel",
            )

    def visit_Call(self, node):
        name = ast.unparse(node.func)
        value = self._value_of(node.func)
        if value is not None and _is_plain(value):
            self.add(
                node,
                f"a call of `{name}`, which is no Triton function",
                "`@triton.jit` above that function, or a function of `tl`",
                # The compiler itself computes a function of constants, such as math.floor(3.5).
                certain=not name.startswith("math."),
            )
        self.generic_visit(node)

    def _value_of(self, node):
        """The object that a dotted name stands for; None if that is unknown."""
        if isinstance(node, ast.Name):
            if node.id in self.local_names:
                return None
            return self.names.get(node.id, getattr(builtins, node.id, None))
        if isinstance(node, ast.Attribute):
            owner = self._value_of(node.value)
            return getattr(owner, node.attr, None) if isinstance(owner, types.ModuleType) else None
        return None


#: What kernels may call of Python itself.
ALLOWED = (range, len, print, float, int, bool, isinstance, max, min, getattr, hasattr, type, id)


def _is_plain(value):
    """Whether calling *value* in a kernel calls ordinary Python."""
    if value in ALLOWED or isinstance(value, type):
        return False
    if not isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return False
    module = getattr(value, "__module__", None) or ""
    if module == "triton" or module.startswith("triton."):
        return False
    return not getattr(value, "__triton_builtin__", False)
