"""What the cells of a script would show: the values of their last expressions."""

from types import FunctionType

import pytest
from sphinx_gallery.py_source_parser import split_code_and_text_blocks

from tests.galleries import FILES


def shown_functions(name: str) -> list[str]:
    """Execute the cells of a script; return those whose last expression is a function.

    Sphinx-Gallery prints the last expression of a cell, and the address of a function says nothing.
    """
    import ast

    names = {"__name__": name, "__file__": str(FILES[name].path)}
    shown = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLBACKEND", "Agg")
        for block in split_code_and_text_blocks(str(FILES[name].path))[1]:
            if block[0] != "code":
                continue
            body = ast.parse(block[1]).body
            last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), str(FILES[name].path), "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), name, "eval"), names)
                if isinstance(value, FunctionType):
                    shown.append(ast.unparse(last))
    return shown
