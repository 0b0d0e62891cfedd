"""``torch.compile`` of a script's function, without a GPU: what its tracer makes of it."""

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch


@contextmanager
def compiled(
    function: Callable, user: Callable, *, whole: bool = True, dynamic: bool | None = None
) -> Iterator[Callable]:
    """Compile *user*, which calls *function* of an executed script, as a whole or in parts.

    The tracer imports the module of *function* by its name, as it would find it in a program.
    """
    names = inspect.unwrap(function).__globals__
    module = types.ModuleType(names["__name__"])
    module.__dict__.update(names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, names["__name__"], module)
        yield torch.compile(user, backend="aot_eager", fullgraph=whole, dynamic=dynamic)
    torch.compiler.reset()
