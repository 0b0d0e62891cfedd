"""Each function as one operation of PyTorch, for what looks into a call: compilers, transforms.

An ordinary call of a function launches its kernels directly, because the dispatcher and
``register_autograd`` take some 25 µs of a call. In all other calls the function is an operation,
``torch.ops.gallery_kernels.<name>``. PyTorch knows the shape of its result and its gradient, and
never looks into it:

* ``torch.compile`` puts one operation into its graph, with numbers or with symbols as sizes.
* ``torch.func.grad``, ``vjp`` and ``jacrev`` differentiate it, and ``vmap`` calls it in a loop.
* Tensors without memory (``FakeTensor``) and classes that wrap tensors work.

Forward-mode derivatives (``jvp``, ``jacfwd``, dual numbers) are refused: no function has one.

This file uses names that PyTorch does not promise to keep. All of them are imported here.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active as transforms_are_active
from torch._C._functorch import TransformType, get_interpreter_stack, is_functorch_wrapped_tensor
from torch.autograd import forward_ad

#: Tensors of other classes may have no memory, or may see each operation.
ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter, type(None)})


def is_needed(*tensors: object) -> bool:
    """Return whether a call with these tensors has to be an operation."""
    return (
        torch.compiler.is_compiling()
        or transforms_are_active()
        or forward_ad._current_level >= 0
        or not ORDINARY.issuperset(map(type, tensors))
    )


def may_need_gradient(x: torch.Tensor) -> bool:
    """Return whether a gradient of *x* may be asked for.

    A tensor of an outer transform of ``torch.func`` does not tell.
    """
    if not torch.is_grad_enabled():
        return False
    if not torch.compiler.is_compiling() and transforms_are_active():
        return True
    return x.requires_grad


class Operation:
    """A function as one operation of PyTorch, with its shapes and its gradient.

    Args:
        name: Its name in ``torch.ops.gallery_kernels``, and in errors.
        schema: Its arguments and results in PyTorch's language. A whole number is a ``SymInt``: as
            an ``int``, each new value would be compiled anew.
        compute: Returns new tensors. It gets tensors that have memory and require no gradient.
        describe: Takes the same arguments. Returns empty tensors of the same shapes, strides and
            dtypes, without looking at numbers or addresses.
        keep: ``keep(ctx, inputs, output)`` keeps in *ctx* what the gradient needs.
        differentiate: ``differentiate(ctx, *gradients)`` returns a gradient, or None, for each
            argument. It calls operations only.
    """

    def __init__(
        self,
        name: str,
        schema: str,
        *,
        compute: Callable,
        describe: Callable,
        keep: Callable | None = None,
        differentiate: Callable | None = None,
    ):
        self.name = name
        self.operation = torch.library.custom_op(
            f"gallery_kernels::{name}", _on_plain_tensors(compute), mutates_args=(), schema=schema
        )
        self.operation.register_fake(describe)
        self.transformed = None
        if keep is not None and differentiate is not None:
            self.operation.register_autograd(differentiate, setup_context=keep)
            self.transformed = _autograd_function(name, self.operation, keep, differentiate)

    def __call__(self, *arguments: Any) -> Any:
        """Return the results for *arguments*, in the order of the schema.

        Raises:
            NotImplementedError: A tensor carries a tangent of forward-mode differentiation.
        """
        refuse_tangents(self.name, arguments)
        if torch.compiler.is_compiling() or not transforms_are_active():
            return self.operation(*arguments)
        if self.transformed is None:
            return self.operation(*arguments)
        return self.transformed.apply(*arguments)


def without_second_derivative(function: str) -> dict[str, Callable]:
    """Return the *keep* and *differentiate* of an operation that computes gradients."""

    def keep(ctx: Any, inputs: tuple, output: Any) -> None:
        pass

    def differentiate(ctx: Any, *gradients: torch.Tensor) -> None:
        raise second_derivative_error(function)

    return {"keep": keep, "differentiate": differentiate}


def second_derivative_error(function: str) -> RuntimeError:
    """Return the error for gradients of the gradients of *function*."""
    return RuntimeError(f"{function} has no second derivative; leave out create_graph=True")


def refuse_tangents(name: str, arguments: tuple) -> None:
    """Raise NotImplementedError if an argument carries a tangent, which would be lost."""
    if forward_ad._current_level < 0:
        return
    for x in arguments:
        if isinstance(x, torch.Tensor) and _has_tangent(x):
            raise NotImplementedError(
                f"{name} has no forward-mode derivative (jvp, jacfwd, dual numbers); use reverse "
                f"mode, such as torch.func.vjp or jacrev"
            )


def _has_tangent(x: torch.Tensor) -> bool:
    if not torch.compiler.is_compiling() and is_functorch_wrapped_tensor(x):
        # A tensor of an inner transform does not tell whether an outer jvp follows it.
        return any(level.key() == TransformType.Jvp for level in get_interpreter_stack() or ())
    return forward_ad.unpack_dual(x).tangent is not None


def _on_plain_tensors(compute: Callable) -> Callable:
    """Return *compute* for tensors of any class that has memory."""

    def compute_on_plain_tensors(*arguments: Any) -> Any:
        with torch.no_grad():
            return compute(*[_plain(x) for x in arguments])

    return compute_on_plain_tensors


def _plain(x: Any) -> Any:
    """Return a tensor as a plain one without a gradient, and anything else as it is."""
    if not isinstance(x, torch.Tensor):
        return x
    return x.detach().as_subclass(torch.Tensor)


def _autograd_function(
    name: str, operation: Callable, keep: Callable, differentiate: Callable
) -> type[torch.autograd.Function]:
    """Return what ``torch.func`` can differentiate and ``vmap`` can loop over."""

    def forward(*arguments: Any) -> Any:
        return operation(*arguments)

    members = {
        "generate_vmap_rule": True,
        "forward": staticmethod(forward),
        "setup_context": staticmethod(keep),
        "backward": staticmethod(differentiate),
    }
    return type(name, (torch.autograd.Function,), members)
