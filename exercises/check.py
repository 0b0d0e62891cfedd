"""Check an answer: call it with awkward arguments, and say what is wrong or what it moves."""

import difflib
import functools
import inspect
import warnings

import torch

from exercises.compare import difference, shown
from exercises.table import EXERCISES
from triton_watch.operations import results_with_gaps
from triton_watch.places import FaultError, count_of, line_in, root_of
from triton_watch.watcher import Watch


def check(name, module, on_gpu=False, began=lambda: None, watch=None):
    """Check the function of the exercise *name* in *module*; return what is wrong, or nothing.

    Prints what was tried and, in the interpreter, what the last call moved.

    Args:
        name: The exercise.
        module: The module with the reader's function.
        on_gpu: Whether the function is called with tensors on the GPU.
        began: Called whenever the function is.
        watch: The watch of the interpreter; a new one if there is none.
    """
    exercise = EXERCISES[name]
    call = getattr(module, exercise.name, None)
    if wrong := is_no_answer(exercise, call, module):
        return wrong
    device = torch.accelerator.current_accelerator() if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    # On a GPU, what is never written becomes NaN, and not what happened to lie there.
    warnings.filterwarnings("ignore", message=".*determinis")
    torch.use_deterministic_algorithms(True, warn_only=True)
    if on_gpu:
        watch = Counting()
    elif watch is None:
        watch = Watch()
    tried = 0
    for arguments in exercise.cases(device):
        began()
        shapes = ", ".join(shown(value) for value in arguments)
        watch.reset()
        result, wrong = use(exercise, call, arguments, watch)
        wrong = wrong or what_is_wrong(exercise, arguments, result, watch)
        wrong = wrong or a_copy(exercise, watch)
        if wrong:
            return f"{exercise.name}({shapes}){'' if wrong.startswith(' ') else ': '}{wrong}"
        tried += 1
    launches = watch.launches
    moved = watch.loaded, watch.stored, watch.copied, watch.dots, watch.multiplied
    for wrong in exercise.properties:
        began()
        try:
            with watch:
                found = wrong(call, device)
        except Exception as error:
            found = failed(error)
        if found := found or "\n".join(map(str, watch.faults[:1])):
            return f"{exercise.name}: {found}"
    if exercise.kernels and not launches:
        return f"{exercise.name} is right, but launches no kernel of Triton: PyTorch computes it."
    if not on_gpu:
        watch.finish()
        if watch.faults:
            return f"{exercise.name} is right in the interpreter, but {watch.faults[0]}"
    rules = ""
    if exercise.properties:
        rules = f", and keeps {count_of(len(exercise.properties), 'rule')}"
    print(f"{exercise.function} is right on {count_of(tried, 'input')}{rules}.")
    least = exercise.least(arguments, result) if launches else 0
    if least and not on_gpu:
        products = exercise.multiplied(*arguments) if exercise.multiplied else 0
        tell(launches, *moved, least, products, shapes)
    elif launches:
        print(f"For {shapes}: {launches} {'launch' if launches == 1 else 'launches'} of kernels.")
    for note in dict.fromkeys(watch.notes):
        print(f"Note: {note}")
    return ""


def a_copy(exercise, watch):
    """What is wrong if PyTorch has copied tensors where the kernel should use their strides."""
    if exercise.copies or not watch.copied:
        return ""
    return (
        f"it copies {watch.copied} bytes by `.contiguous()` before the kernel runs: pass the "
        "strides to the kernel instead."
    )


class Counting:
    """Counts launches on a GPU."""

    def __init__(self):
        self.faults = []
        self.notes = []
        self.reset()

    def reset(self):
        """Count from 0."""
        self.loaded = self.stored = self.copied = self.dots = self.multiplied = self.launches = 0

    def _launched(self, metadata):
        self.launches += 1

    def __enter__(self):
        from triton import knobs

        knobs.runtime.launch_enter_hook.add(self._launched)
        return self

    def __exit__(self, *error):
        from triton import knobs

        knobs.runtime.launch_enter_hook.remove(self._launched)
        torch.accelerator.synchronize()  # an error of a kernel shows here


def is_no_answer(exercise, call, module):
    """Why a module's attribute cannot be an answer, or nothing."""
    file = f"{module.__name__}.py" if hasattr(module, "__file__") else module.__name__
    if call is None:
        others = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        near = difflib.get_close_matches(exercise.name, others, 1, 0.5)
        more = f"; is it {near[0]}?" if near else "."
        return f"{file} defines no {exercise.function}{more}"
    if not callable(call):
        return f"{exercise.name} in {file} is no function, but of the type {type(call).__name__}."
    if hasattr(call, "run") and hasattr(call, "arg_names"):
        return f"{exercise.name} in {file} is a kernel: write a Python function that launches it."
    try:
        found = inspect.signature(call)
        found.bind(*exercise.parameters)
    except TypeError:
        return f"{file} defines {exercise.name}{found}; the exercise asks for {exercise.function}."
    except ValueError:  # of a function that Python cannot look into
        return ""
    names = list(found.parameters)[: len(exercise.parameters)]
    if names != exercise.parameters and sorted(names) == sorted(exercise.parameters):
        return f"{file} defines {exercise.name}{found}: the order should be {exercise.function}."
    return ""


def use(exercise, call, arguments, watch):
    """Call the function; return its result and what went wrong."""
    before = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    try:
        with watch:
            result = exercise.use(call, arguments)
    except Exception as error:
        return None, failed(error)
    if watch.faults:  # the function has caught the error
        return None, str(watch.faults[0])
    results = result if isinstance(result, tuple) else (result,)
    for name, old, new in zip(exercise.parameters, before, arguments, strict=False):
        if not isinstance(new, torch.Tensor):
            continue
        if not torch.equal(old, new.detach()):
            return None, f"it changes its input {name} in place; the input must stay as it is."
        for one in results:
            if isinstance(one, torch.Tensor) and shares_memory(one, new):
                return (
                    None,
                    f"its result is the memory of its input {name}; it must be a new tensor.",
                )
    return result, ""


def shares_memory(a, b):
    """Whether two tensors lie in one piece of memory."""
    if a.layout != torch.strided or b.layout != torch.strided or not a.numel() or not b.numel():
        return False
    return a.device == b.device and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def failed(error):
    """An exception in a line."""
    if isinstance(error, FaultError):
        return str(error)
    where, error = line_in(error), root_of(error)
    text = str(error).strip() or "without a text"
    if "illegal memory access" in text:
        text = "an illegal memory access. Without --gpu, the checker names the line and the index"
    return f" ends with {type(error).__name__}: {text}" + (f" (in {where})" if where else "")


def what_is_wrong(exercise, arguments, result, watch):
    """What is wrong with a result, or nothing."""
    results = result if isinstance(result, tuple) else (result,)
    gaps = results_with_gaps(watch, results) if isinstance(watch, Watch) else None
    if exercise.reference:
        hint = functools.partial(exercise.hint, arguments)
        try:
            expected = exercise.reference(*arguments)
            seen = exercise.seen(result)
            tolerance = exercise.tolerance
            tolerance = tolerance(arguments) if callable(tolerance) else tolerance
            found = difference(seen, expected, tolerance, hint, exercise.names)
        except ValueError as error:
            found = str(error)
        if found:
            return found if gaps is None or " elements are wrong" not in found else str(gaps)
    return "" if gaps is None else str(gaps)


def tell(launches, loaded, stored, copied, dots, multiplied, least, products, shapes):
    """Print what a call moved, beside what it had to move."""
    moved = loaded + stored + copied
    print(f"For {shapes}:")
    print(f"  {launches} {'launch' if launches == 1 else 'launches'} of kernels")
    if copied:
        print(f"  copies by PyTorch, such as .contiguous(), moved {copied} bytes")
    print(f"  loaded {loaded} bytes, stored {stored}: together {moved}")
    print(f"  at least {least} bytes have to move: {moved / least:.2f} times as many")
    if dots:
        print(f"  {dots} products of tiles, with {multiplied} of two numbers")
    if dots and products:
        print(f"  {products} of two numbers are needed: {multiplied / products:.2f} times as many")
    if moved > 1.6 * least and not dots:
        print("  Something is loaded more often than once. Can it stay in registers?")
    if dots:
        print("  (Loads that several programs share are met by the cache, up to a point.)")
