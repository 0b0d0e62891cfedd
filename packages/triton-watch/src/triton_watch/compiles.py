"""Compile kernels for compute capability 9.0 in another process, without a GPU.

The interpreter executes nearly all of Python, the compiler a part of it. So a kernel that is right
in the interpreter may not compile. The process of the interpreter cannot compile, because Triton
chooses when it is imported. :class:`Compiler` starts a process that imports Triton once more, sends
it each kernel with the types of its arguments, and collects what the compiler says.

The reader's file is not executed again. Its functions are taken out of their files, and get the
globals that they use: modules, other kernels, constants.
"""

import ast
import builtins
import contextlib
import inspect
import linecache
import os
import pickle
import queue
import re
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import NamedTuple

from triton_watch.source import definition_of, names_in

TARGET = ("cuda", 90, 32)  # the backend, compute capability 9.0, and the threads of a warp
NAME_OF_TARGET = "compute capability 9.0"
MOST_SHARED = 232_448  # bytes of shared memory that one program may have there
VARIANTS = 4  # of one kernel that are compiled; each takes seconds
KERNELS = 64
PATIENCE = 120  # seconds for one kernel


UNKNOWN = "unknown"  # the answer where a kernel could not be built again in the other process


class Refusal(NamedTuple):
    """What the compiler says of a kernel that it does not compile."""

    message: str
    file: str  # "" where the compiler names no line
    line: int


class CannotDescribeError(Exception):
    """A kernel uses something that cannot be sent to another process."""


# --- this process: what is sent -------------------------------------------------------------------


class Compiler:
    """Compiles the variants of kernels, one after the other, while the interpreter goes on."""

    def __init__(self):
        self._requests = {}  # by key: a _Request
        self._waiting = queue.SimpleQueue()
        self._thread = None
        self._process = None

    def add(self, function, arguments, constexprs, options):
        """Compile a kernel for these arguments; return its request, or None if it is not compiled.

        Args:
            function: The Python function of the kernel.
            arguments: Its arguments by name.
            constexprs: The names of those that are ``tl.constexpr``.
            options: ``num_warps`` and other options of the launch.
        """
        try:
            described = {
                name: _describe_argument(value, name in constexprs)
                for name, value in arguments.items()
            }
        except CannotDescribeError:
            return None
        variant = repr((sorted(map(repr, map(_kind_of, described.items()))), sorted(options)))
        key = (function.__code__.co_filename, function.__code__.co_firstlineno, variant)
        if key in self._requests:
            return self._requests[key]
        of_this_kernel = sum(other[:2] == key[:2] for other in self._requests)
        if of_this_kernel >= VARIANTS or len(self._requests) >= KERNELS:
            return None
        request = None
        try:
            functions = _Functions()
            functions.add(function)
            message = {
                "functions": functions.described,
                "kernel": 0,
                "arguments": described,
                "options": options,
                "path": list(sys.path),
            }
            request = _Request(function.__name__, pickle.dumps(message))
        except (CannotDescribeError, pickle.PicklingError, TypeError, AttributeError):
            pass
        self._requests[key] = request
        if request:
            self._waiting.put(request)
            self._start()
        return request

    def _start(self):
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def wait(self, request, meanwhile=lambda: None):
        """Wait until a kernel is compiled; return a Refusal, or None if nothing is wrong.

        *meanwhile* is called every half second, to say that this process is not hanging.
        """
        end = time.monotonic() + PATIENCE
        while not request.done.wait(0.5) and time.monotonic() < end:
            meanwhile()
        return request.refusal

    def close(self):
        """End the other process."""
        self._waiting.put(None)
        if self._process:
            self._process.kill()

    def _work(self):
        while True:
            request = self._waiting.get()
            if request is None:
                return
            # Whatever goes wrong in the compiler's process says nothing of the kernel.
            with contextlib.suppress(Exception):
                request.refusal = self._ask(request.message)
                request.answered = True
            request.done.set()

    def _ask(self, message):
        if self._process is None or self._process.poll() is not None:
            self._process = _start_process()
        self._process.stdin.write(len(message).to_bytes(8, "little") + message)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)
        if answer == UNKNOWN:
            raise CannotDescribeError
        return Refusal(*answer) if answer else None


class _Request:
    """A kernel that is being compiled."""

    def __init__(self, name, message):
        self.name = name
        self.message = message
        self.done = threading.Event()
        self.answered = False  # whether the compiler could be asked
        self.refusal = None


def _start_process():
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if p]; "
        f"sys.path.append({str(Path(__file__).resolve().parents[1])!r}); "
        "from triton_watch.compiles import serve; serve()"
    )
    environment = dict(os.environ)
    environment["TRITON_INTERPRET"] = "0"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _kind_of(item):
    """What of a described argument makes another variant of a kernel."""
    name, (kind, value) = item
    if kind == "number" and type(value) is int and value != 1:
        return name, "int", -(2**31) <= value < 2**31
    if kind == "number" and type(value) is float:
        return name, "float"
    return name, kind, value


def _describe_argument(value, constexpr):
    """An argument as what can be sent."""
    if constexpr:
        return "constexpr", _describe_value(value)
    if type(value).__name__ == "TensorDescriptor":
        dtype = str(value.base.dtype)
        shape = tuple(int(n) for n in value.shape)
        strides = tuple(int(n) for n in value.strides)
        return "descriptor", (dtype, shape, strides, tuple(value.block_shape))
    if hasattr(value, "data_ptr"):
        return "tensor", str(value.dtype)
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            raise CannotDescribeError
        return "tuple", tuple(_describe_argument(one, False) for one in value)
    if value is None or isinstance(value, bool | int | float | str):
        return "number", value
    raise CannotDescribeError


def _describe_value(value):
    """A constant as what can be sent."""
    from triton.runtime.interpreter import InterpretedFunction

    if isinstance(value, InterpretedFunction):
        raise CannotDescribeError
    return value


class _Functions:
    """Functions that a kernel consists of, as what can be sent; the kernel is number 0."""

    def __init__(self):
        self.described = []
        self._numbers = {}  # by code object

    def add(self, function, kernel=True):
        """Describe a function and those that it uses; return its number."""
        code = function.__code__
        if code in self._numbers:
            return self._numbers[code]
        tree = definition_of(function)
        if tree is None:
            raise CannotDescribeError
        number = self._numbers[code] = len(self.described)
        described = {
            "file": code.co_filename,
            "line": code.co_firstlineno,
            "name": function.__name__,
            "module": function.__module__,
            "kernel": kernel,
            "globals": {},
        }
        self.described.append(described)
        known = dict(function.__globals__)
        known.update(inspect.getclosurevars(function).nonlocals)
        # The interpreter has rewritten the function, which uses names of the interpreter, too.
        for name in sorted(names_in(tree)):
            if name in known:
                described["globals"][name] = self._describe_global(known[name])
        return number

    def _describe_global(self, value):
        from triton import language as tl
        from triton.runtime.interpreter import InterpretedFunction

        if isinstance(value, types.ModuleType):
            return "module", value.__name__
        if isinstance(value, tl.constexpr):
            return "constexpr", value.value
        if isinstance(value, InterpretedFunction):
            if value.fn.__module__.startswith("triton."):
                return "import", (value.fn.__module__, value.fn.__name__)
            return "kernel", self.add(value.fn)
        module = getattr(value, "__module__", None) or ""
        if module.startswith("triton.") and hasattr(value, "__name__"):
            return "import", (module, value.__name__)
        if isinstance(value, types.FunctionType):
            return "kernel", self.add(value, kernel=False)
        if callable(value) and module and module != "__main__" and hasattr(value, "__name__"):
            return "import", (module, value.__name__)
        if value is None or isinstance(value, bool | int | float | str | tuple | tl.dtype):
            return "value", value
        raise CannotDescribeError


# --- the other process ----------------------------------------------------------------------------


def serve():
    """Compile what comes from the standard input, until it ends."""
    commands, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # a kernel's `print` while it is compiled is no answer
    import triton

    triton.runtime.driver.set_active(_Driver())
    while True:
        size = commands.read(8)
        if len(size) < 8:
            return
        message = pickle.loads(commands.read(int.from_bytes(size, "little")))
        pickle.dump(_compile(message), answers)
        answers.flush()


class _Driver:
    """As far as compiling asks, the driver of a GPU."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget(*TARGET)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


class _Tensor:
    """As far as compiling asks, a tensor."""

    def __init__(self, dtype, shape=(1,), strides=(1,)):
        self.dtype = dtype
        self.shape = shape
        self.strides = strides

    def data_ptr(self):
        return 0

    def ptr_range(self):
        return 0

    def stride(self):
        return self.strides

    @property
    def ndim(self):
        return len(self.shape)

    def dim(self):
        return len(self.shape)


def _compile(message):
    """Compile a kernel; return a Refusal as a tuple, None if there is none, or UNKNOWN."""
    from triton.compiler.errors import CompilationError

    sys.path[:] = message["path"]
    try:
        built = _Built(message["functions"])
        kernel = built.functions[message["kernel"]]
        arguments = {name: _argument(one) for name, one in message["arguments"].items()}
    except Exception:  # what the reader's file needs is not here, so nothing is known of the kernel
        return UNKNOWN
    try:
        compiled = kernel.warmup(grid=(1,), **arguments, **message["options"])
    except CompilationError as error:
        return built.refusal(error)
    except RuntimeError as error:
        text = str(error)
        if "PassManager" in text:
            return f"{text}: a pass of the compiler fails, and says no more", "", 0
        if "Unsupported function referenced" in text:
            return text, "", 0
        return UNKNOWN
    except Exception:  # the compiler itself failed, which says nothing of the kernel
        return UNKNOWN
    shared = getattr(getattr(compiled, "metadata", None), "shared", 0)
    if shared > MOST_SHARED:
        text = f"a program needs {shared} bytes of shared memory, and can have {MOST_SHARED}"
        return text, "", 0
    return None


def _argument(described):
    kind, value = described
    if kind == "tensor":
        return _Tensor(_Dtype(value))
    if kind == "tuple":
        return tuple(_argument(one) for one in value)
    if kind == "descriptor":
        from triton.tools.tensor_descriptor import TensorDescriptor

        dtype, shape, strides, block = value
        return TensorDescriptor(
            _Tensor(_Dtype(dtype), shape, strides), list(shape), list(strides), list(block)
        )
    return value


class _Dtype:
    """As far as compiling asks, a dtype of PyTorch, whose import takes seconds."""

    def __init__(self, name):
        self.name = name

    def __str__(self):
        return self.name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return str(other) == self.name


class _Built:
    """The functions of a kernel, made anew from their files."""

    def __init__(self, described):
        self._described = described
        self.functions = {}
        self._spaces = {}
        for number in range(len(described)):
            self._make(number)
        for number, one in enumerate(described):
            for name, value in one["globals"].items():
                self._spaces[number][name] = self._global(*value)

    def _make(self, number):
        import triton

        one = self._described[number]
        text = "".join(linecache.getlines(one["file"]))
        node = _definition(ast.parse(text), one["name"], one["line"])
        options = _options_of_jit(node)
        node.decorator_list = []
        code = compile(ast.Module([node], []), one["file"], "exec", dont_inherit=True)
        space = {"__name__": one["module"], "__builtins__": builtins}
        self._spaces[number] = space
        # Annotations and default values are evaluated here, so their names are needed now.
        for name, value in one["globals"].items():
            if value[0] != "kernel":
                space[name] = self._global(*value)
        space.setdefault("tl", triton.language)
        space.setdefault("triton", triton)
        exec(code, space)
        function = space[one["name"]]
        self.functions[number] = triton.jit(function, **options) if one["kernel"] else function

    def _global(self, kind, value):
        import importlib

        import triton.language as tl

        if kind == "kernel":
            return self.functions[value]
        if kind == "module":
            return importlib.import_module(value)
        if kind == "import":
            module, name = value
            return getattr(importlib.import_module(module), name)
        if kind == "constexpr":
            return tl.constexpr(value)
        return value

    def refusal(self, error):
        """The innermost of the compiler's errors, with the line of the reader's file."""
        errors = []
        while error is not None:
            errors.append(error)
            error = error.__cause__ or error.__context__
        file, line, message = "", 0, str(errors[-1])
        for one in errors:
            node, src = getattr(one, "node", None), getattr(one, "src", None)
            place = self._place(src, node)
            if place:
                file, line = place
            if getattr(one, "error_message", None):
                message = one.error_message
        if not hasattr(errors[-1], "error_message"):
            message = str(errors[-1])
        return message, file, line

    def _place(self, src, node):
        """The file and the line of a node; None if the function is not the reader's."""
        if src is None or not hasattr(node, "lineno"):
            return None
        for number, function in self.functions.items():
            if getattr(function, "src", None) == src:
                one = self._described[number]
                return one["file"], function.fn.__code__.co_firstlineno + node.lineno - 1
        return None


def _options_of_jit(node):
    """The options of ``@triton.jit(…)`` above a function, such as ``do_not_specialize``."""
    options = {}
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] == "jit":
            for keyword in decorator.keywords:
                if keyword.arg in (
                    "do_not_specialize",
                    "do_not_specialize_on_alignment",
                    "noinline",
                ):
                    options[keyword.arg] = ast.literal_eval(keyword.value)
    return options


def _definition(tree, name, line):
    """The definition of a function that begins, or whose decorators begin, in a line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            lines = [node.lineno, *(one.lineno for one in node.decorator_list)]
            if min(lines) <= line <= node.lineno:
                return node
    raise LookupError(name)


# --- what the compiler's messages mean ------------------------------------------------------------

#: What the compiler says, what that is in the reader's words, and what to write instead.
MEANINGS = [
    (r"unsupported AST node type: Break", "`break` in a kernel",
     "a `while` with the condition, or a mask for what comes after it"),
    (r"unsupported AST node type: Continue", "`continue` in a kernel",
     "an `if` around the rest of the loop, or a mask"),
    (r"`return` statements inside", "`return` inside of a loop or a `with`",
     "a `while` with the condition, and one `return` at the end"),
    (r"simultaneous multiple comparison", "a chained comparison such as `a <= x < b`",
     "`(a <= x) & (x < b)`"),
    (r"chained boolean operators|multiple boolean operators",
     "several `and` or `or` in one expression", "`&` and `|`, with parentheses"),
    (r"[Ll]oop-carried variable (\w+) has initial type (.+?) but is re-assigned to (.+?) in loop",
     "`{0}` changes its type in a loop, from {1} to {2}",
     "a first value of that type, such as `tl.zeros(…, dtype=…)`, or `.to(…)` in the loop"),
    (r"Mismatched type for (\w+) between then block \((.+?)\) and else block \((.+?)\)",
     "`{0}` has another type in `if`, {1}, than in `else`, {2}", "`.to(…)` in one of them"),
    (r"initial value for `(\w+)` is of type (.+?), but .*redefine[sd] it as (.+?)[.;]?$",
     "`{0}` changes its type in an `if`, from {1} to {2}", "`.to(…)`"),
    (r"unsupported AST node type: Try", "`try` in a kernel", "a mask, or a check in Python"),
    (r"unsupported AST node type: Lambda", "`lambda` in a kernel",
     "a function with `@triton.jit`"),
    (r"unsupported AST node type: (\w+)", "`{0}` (a part of Python's grammar) in a kernel",
     "what Triton's language has"),
    (r"nested function definition", "a function inside of a kernel",
     "a function outside of it, with `@triton.jit`"),
    (r"Cannot access global variable (\w+)", "the global variable `{0}`, which is no constexpr",
     "`{0} = tl.constexpr(…)`, or an argument of the kernel"),
    (r"unsupported tensor index|__getitem__", "an index into a block, such as `v[0]`",
     "a load of that element, `tl.gather`, or `tl.sum` of the block with a mask"),
    (r"__setitem__", "an assignment to elements of a block, `v[i] = …`", "`tl.where`"),
    (r"Unsupported function referenced: <(?:function|built-in method|class '?)\s*([\w.]+)",
     "a call of `{0}`, which is no Triton function",
     "`@triton.jit` above that function, or the function of `tl` in place of torch's or math's"),
    (r"must be real number, not tensor", "a call of a function of `math`", "the one of `tl`"),
    (r"Only `range` and `static_range` iterators", "a loop over something else than a range",
     "`range`, `tl.range` or `tl.static_range`"),
    (r"object has no attribute append", "a list that grows", "a tuple, or one block"),
    (r"[Dd]id you forget to add @triton\.jit", "a call of a function that is no Triton function",
     "`@triton.jit` above that function, or the function of `tl` in place of torch's or math's"),
]  # fmt: skip


def function_named_in(message):
    """The function that a message without a line is about, or nothing."""
    found = re.search(r"Unsupported function referenced: <\S+(?: method)? ([\w.]+)", message)
    return found[1] if found else ""


def meaning_of(message):
    """What the compiler's *message* means, and what to write instead ("" if we do not know)."""
    for pattern, what, instead in MEANINGS:
        found = re.search(pattern, message, re.S)
        if found:
            words = found.groups()
            return what.format(*words), instead.format(*words)
    lines = [line for line in message.splitlines() if line.strip()]
    return (lines[-1].strip() if lines else "an error without a message"), ""
