"""Whether kernels compile, and whether their arguments are such that Triton takes them."""

import inspect

from triton_watch.compiles import NAME_OF_TARGET, function_named_in, meaning_of
from triton_watch.places import FaultError, chain, here, line, line_in, root_of
from triton_watch.source import findings, line_of_call

REFUSED = "the compiler does not accept this kernel"


class Kernels:
    """The kernels that are launched while a watch is active."""

    def __init__(self, watch, compiler):
        self.watch = watch
        self.compiler = compiler
        self._findings = {}  # by code object
        self._launched = {}  # by request: the kernel's function, and the line that launched it
        self._request = None  # of the kernel that is running

    def check(self, executor, arguments, named):
        """Look at a kernel before it runs; raise a fault if it cannot compile."""
        function = executor.fn
        values = bound_arguments(executor, arguments, named)
        self._no_lists(function, values)
        code = function.__code__
        if code not in self._findings:
            self._findings[code] = findings(function)
        found = self._findings[code]
        request = None
        if self.compiler:
            options = {name: value for name, value in named.items() if name not in values}
            request = self.compiler.add(function, values, set(executor.constexprs), options)
        self._request = request
        if request:
            self._launched.setdefault(request, (function, here()))
            if found and self.compiler.wait(request):
                del self._launched[request]
                raise self.watch.note(self._refused(function, request.refusal, here(), found))
        certain = [one for one in found if one.certain]
        if certain and not request:
            raise self.watch.note(self._found(function, certain[0], here()))

    def fault_of_error(self, error, executor, arguments, named):
        """The fault of a kernel that ends with an error in the interpreter; None if it is unknown.

        The compiler may refuse the kernel as well, and says why more clearly.
        """
        if self._request and self.compiler.wait(self._request):
            function, launched = self._launched.pop(self._request)
            found = self._findings[function.__code__]
            refusal = self._request.refusal
            return self.watch.note(self._refused(function, refusal, launched, found))
        return self._fault_of_none(error, executor, arguments, named)

    def refused(self):
        """The faults of kernels that the compiler has refused in the meantime."""
        faults = []
        names = set()
        for request, (function, launched) in self._launched.items():
            refusal = self.compiler.wait(request)
            if refusal and function.__code__ not in names:
                names.add(function.__code__)
                found = self._findings[function.__code__]
                faults.append(self._refused(function, refusal, launched, found))
        self._launched = {}
        return faults

    def _no_lists(self, function, values):
        for name, value in values.items():
            if isinstance(value, list):
                kinds = {type(one).__name__ for one in value}
                raise self.watch.note(
                    FaultError(
                        "a list as an argument of a kernel",
                        ("kernel", _kernel(function)),
                        (
                            "argument",
                            f"`{name}`, a list of {', '.join(sorted(kinds)) or 'nothing'}",
                        ),
                        (
                            "cause",
                            "Triton takes tensors, numbers and tuples: `tuple(…)`, or a tensor",
                        ),
                        ("launched", here()),
                    )
                )

    def _fault_of_none(self, error, executor, arguments, named):
        """The fault of a kernel that fails because an argument is None, or None."""
        empty = [n for n, v in bound_arguments(executor, arguments, named).items() if v is None]
        root = root_of(error)
        says = " ".join(str(one) for one in chain(root))
        if not empty or "None" not in says:
            return None
        names = " and ".join(f"`{name}`" for name in empty)
        return self.watch.note(
            FaultError(
                "a kernel computes with an argument that is None",
                ("kernel", f"{executor.fn.__name__}, {line_in(error)}"),
                ("argument", names),
                ("cause", "a tensor is missing in the call, or `is not None` around its use"),
                ("launched", here()),
            )
        )

    def _refused(self, function, refusal, launched, found):
        """The fault of a kernel for which the compiler has said something."""
        what, instead = meaning_of(refusal.message)
        place = line(refusal.file, refusal.line) if refusal.line else ""
        same_line = [one for one in found if one.line == refusal.line]
        called = function_named_in(refusal.message)
        if same_line:
            what, instead = same_line[0].what, same_line[0].instead
        elif called and not place:
            place = line(function.__code__.co_filename, line_of_call(function, called))
        rows = [("kernel", f"{function.__name__}, {place}" if place else _kernel(function))]
        rows.append(("what", what))
        if instead:
            rows.append(("instead", instead))
        rows.append(("compiler", f"Triton {_release()} for {NAME_OF_TARGET}"))
        rows.append(("launched", launched))
        return FaultError(REFUSED, *rows)

    def _found(self, function, finding, launched):
        """The fault of a kernel that contains what no release compiles."""
        place = line(function.__code__.co_filename, finding.line)
        return FaultError(
            REFUSED,
            ("kernel", f"{function.__name__}, {place}"),
            ("what", finding.what),
            ("instead", finding.instead),
            ("launched", launched),
        )


def bound_arguments(executor, arguments, named):
    """The arguments of a launch by name."""
    known = inspect.getfullargspec(executor.fn)
    names = {*known.args, *known.kwonlyargs}
    named = {name: value for name, value in named.items() if name in names}
    return inspect.getcallargs(executor.fn, *arguments, **named)


def _kernel(function):
    code = function.__code__
    return f"{function.__name__}, {line(code.co_filename, code.co_firstlineno)}"


def _release():
    import triton

    return triton.__version__
