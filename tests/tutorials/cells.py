"""What the cells of a script would show: the values of their last expressions."""

import ast
from types import FunctionType

import pytest
from sphinx_gallery.py_source_parser import split_code_and_text_blocks

from tests.galleries import FILES


def shown_functions(name: str) -> list[str]:
    """Execute the cells of a script; return those whose last expression is a function.

    Sphinx-Gallery prints the last expression of a cell, and the address of a function says nothing.
    """
    names = {"__name__": name, "__file__": str(FILES[name].path)}
    shown = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLBACKEND", "Agg")
        for kind, code, line in split_code_and_text_blocks(str(FILES[name].path))[1]:
            if kind != "code":
                continue
            body = ast.parse("\n" * (line - 1) + code).body  # Triton reads the script's lines
            last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), str(FILES[name].path), "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), name, "eval"), names)
                if isinstance(value, FunctionType):
                    shown.append(ast.unparse(last))
    return shown
