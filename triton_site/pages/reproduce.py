"""A script that times one provider of a benchmark alone, for a report to who makes the compiler.

It is cut out of the tutorial: the statement that writes the benchmark's file, and of those before
it the ones that it needs, by the names that they bind and use. What was recorded with both releases
is in it, so that one run on each shows whether another machine finds the same.
"""

from __future__ import annotations

import ast
import functools
import re
import symtable
from collections.abc import Iterator, Mapping

#: Calls that change what comes later, whatever becomes of their result.
_KEPT_CALLS = ("os.environ", "random.seed", "torch.manual_seed", "triton.set_", "warnings.")

_HEAD = '''"""{title}: {provider!r} of {benchmark}, with Triton {newer} and {older}.

On {device}, Triton {newer} reached {ratio:.3f} times the rate of {older}. Run this with both:

    pip install triton=={older} && python {name}
    pip install triton=={newer} && python {name}

It is cut out of {page} and times this provider alone.
"""
'''

_ONLY = '''
ONLY = {provider!r}
measure_all = measure


def measure(calls, *arguments, **named):
    """Time what is looked into; whatever else the benchmark asks for gets the same numbers."""
    if ONLY not in calls:
        return measure_all(calls, *arguments, **named)
    found = measure_all({{ONLY: calls[ONLY]}}, *arguments, **named)
    return dict.fromkeys(calls, found[ONLY])


'''

_TAIL = """

# What was recorded, by size: with Triton {older}, with Triton {newer}.
RECORDED = {recorded}

import csv
from pathlib import Path

import triton

if Path({file!r}).is_file():
    print(f"{{ONLY}}: median {unit} with Triton {{triton.__version__}}, and as recorded", end=" ")
    print("with {older} and {newer}")
    for row in csv.DictReader(open({file!r}, encoding="utf-8")):
        size = ", ".join(f"{{k}}={{v}}" for k, v in list(row.items())[:-5])
        if row["provider"] == ONLY and size in RECORDED:
            print(f"{{size}}: {{row['median']}}", *RECORDED[size])
"""


def reproduction(
    text: str,
    file: str,
    provider: str,
    recorded: Mapping[str, tuple[float, float]],
    said: Mapping[str, object],
) -> str:
    """The script; empty where the tutorial *text* does not say how the *file* is made.

    *recorded* are the medians with the older and the newer release, by size; *said* is what the
    head says: title, benchmark, device, newer, older, ratio, unit, name and page.
    """
    needed = _needed(text, file)
    measuring = [n for n, node in enumerate(needed) if "measure" in _names(node)[1]]
    if not measuring:
        return ""
    after = measuring[-1] + 1  # from there on, one provider alone is measured
    lines = text.splitlines()

    def source(node: ast.stmt) -> str:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        gap = "\n\n" if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""
        return gap + "\n".join(lines[first - 1 : node.end_lineno]) + "\n" + gap

    # What a recording says is text here, whatever characters it has.
    said = {k: re.sub(r'["\\{}\n]', "", v) if isinstance(v, str) else v for k, v in said.items()}
    shown = re.sub(r'["\\\n]', "", provider)
    table = "".join(f"    {size!r}: {values!r},\n" for size, values in recorded.items())
    made = "".join(
        [
            _HEAD.format(provider=shown, **said),
            *map(source, needed[:after]),
            _ONLY.format(provider=provider),
            *map(source, needed[after:]),
            _TAIL.format(file=file, recorded=f"{{\n{table}}}", **said),
        ]
    )
    return re.sub(r"\n{4,}", "\n\n\n", made)


def has_kernel(text: str, file: str, provider: str) -> bool:
    """Whether a provider of the benchmark leads to one of the tutorial's kernels.

    The code says so where a dictionary, or an assignment to one, has the provider under its name;
    otherwise, and where it is a step of the tutorial, it is taken to do so.
    """
    if provider.startswith("triton") or provider[:1].isdigit():
        return True
    needed = _needed(text, file)
    functions = (ast.FunctionDef, ast.ClassDef)
    bound = {node.name: node for node in needed if isinstance(node, functions)}
    seen: set[str] = set()
    waiting = [
        name.id
        for node in needed
        for value in _values(node, provider)
        for name in ast.walk(value)
        if isinstance(name, ast.Name)
    ]
    if not waiting:
        return True
    while waiting:
        name = waiting.pop()
        if name in seen or name not in bound:
            continue
        seen.add(name)
        node = bound[name]
        decorators = getattr(node, "decorator_list", ())
        if any("triton." in ast.unparse(decorator) for decorator in decorators):
            return True
        waiting += _names(node)[0]
    return False


def _values(node: ast.AST, provider: str) -> Iterator[ast.AST]:
    for part in ast.walk(node):
        if isinstance(part, ast.Dict):
            for key, value in zip(part.keys, part.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == provider:
                    yield value
        elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Subscript):
            index = part.targets[0].slice
            if isinstance(index, ast.Constant) and index.value == provider:
                yield part.value


@functools.lru_cache(16)  # it is asked for each provider and each release
def _needed(text: str, file: str) -> list[ast.stmt]:
    """The statement that writes *file*, last, and those before it that it needs."""
    body = ast.parse(text).body
    writing = [number for number, node in enumerate(body) if _writes(node, file)]
    if not writing:
        return []
    before = [(node, *_names(node)) for node in body[: writing[0] + 1]]
    chosen = {len(before) - 1}
    chosen |= {
        n for n, (node, *_) in enumerate(before) if ast.unparse(node).startswith(_KEPT_CALLS)
    }
    found = 0
    while found != len(chosen):  # a function may use what comes after it
        found = len(chosen)
        wanted = set().union(*(before[number][1] for number in chosen))
        chosen |= {
            number
            for number, (node, _, binds) in enumerate(before)
            if wanted & binds and not isinstance(node, ast.Expr)
        }
    return [before[number][0] for number in sorted(chosen)]


def _writes(node: ast.stmt, file: str) -> bool:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "write_rows" and call.args:
            parts = getattr(call.args[0], "values", [call.args[0]])
            pattern = "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+"
                for part in parts
            )
            if re.fullmatch(pattern, file):
                return True
    return False


def _names(node: ast.stmt) -> tuple[set[str], set[str]]:
    """The names of the module that a statement uses, and those that it binds or changes."""
    table = symtable.symtable(ast.unparse(node), "statement", "exec")
    uses = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    inner = list(table.get_children())
    while inner:
        scope = inner.pop()
        uses |= {s.get_name() for s in scope.get_symbols() if s.is_global()}
        inner += scope.get_children()
    binds = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    for part in ast.walk(node) if not isinstance(node, ast.FunctionDef | ast.ClassDef) else ():
        if isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store):
            root: ast.AST = part
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name):
                binds.add(root.id)
    return uses, binds
