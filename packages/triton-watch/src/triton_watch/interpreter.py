"""Triton's interpreter, with operations that tell the watch what they are about to do.

This is the only module that knows names of the interpreter.
"""

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from triton_watch.accesses import chosen_by
from triton_watch.launch import Launch
from triton_watch.places import FaultError, chain, count_of, here
from triton_watch.undefined import Following, undefined


class Interpreter:
    """Replaces functions of Triton and PyTorch while a watch is active."""

    def __init__(self, watch, accesses):
        self.watch = watch
        self.accesses = accesses
        self.undo = []
        self.other = False  # whether the load being executed has an ``other``

    def begin(self):
        """Replace the functions."""
        from triton.runtime import autotuner, interpreter

        self.module = interpreter
        self.following = Following(interpreter)
        semantic = interpreter.interpreter_semantic.__class__
        self._replace_operations(interpreter.InterpreterBuilder)
        self.replace(interpreter.GridExecutor, "__call__", self._execute)
        self.replace(interpreter, "_implicit_cvt", self._convert)
        if hasattr(interpreter, "_convert_float"):
            self.replace(interpreter, "_convert_float", self._round)
        self.replace(interpreter, "_patch_lang_tensor", self._to_python)
        self.replace(semantic, "binary_op_sanitize_overflow_impl", self._notice_overflow)
        self.replace(semantic, "load", self._with_other)
        self.replace(autotuner.Autotuner, "_bench", self._first_configuration)
        self.replace(autotuner.Autotuner, "run", self.watch.trials.tuned)
        self.replace(torch.Tensor, "data_ptr", self._data_ptr)
        self.replace(torch.Tensor, "__repr__", self._shown)
        self.replace(torch.Tensor, "tolist", self._shown)
        self.watch.limits.replace(self.replace, interpreter)

    def end(self):
        """Bring the functions back."""
        for owner, name, before in reversed(self.undo):
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self.undo = []

    @property
    def program(self):
        """The indices of the program that is running."""
        return self.module.interpreter_builder.grid_idx

    def replace(self, owner, name, function):
        """Replace an attribute by ``function(original, *arguments)`` until the end."""
        original = getattr(owner, name)
        self.undo.append((owner, name, owner.__dict__.get(name)))

        def replaced(*arguments, **named):
            return function(original, *arguments, **named)

        setattr(owner, name, replaced)

    def _replace_operations(self, builder):
        functions = {
            "create_load": self._plain,
            "create_store": self._plain,
            "create_masked_load": self._load,
            "create_masked_store": self._store,
            "create_atomic_rmw": self._atomic_rmw,
            "create_atomic_cas": self._atomic_cas,
            "create_dot": self._dot,
            "create_gather": self._gather,
            "binary_op": self._compute,
            "unary_op": self._compute,
            "create_int_to_ptr": self._int_to_ptr,
            "create_ptr_to_int": self._ptr_to_int,
            "set_grid_idx": self._program,
            "create_tensor_pointer_load": self._of("block pointer"),
            "create_tensor_pointer_store": self._of("block pointer"),
            "create_descriptor_load": self._of("descriptor"),
            "create_descriptor_store": self._of("descriptor"),
            "create_atomic_load": self._atomically,
            "create_atomic_store": self._atomically,
            "create_atomic_poll": self._atomically,
        }
        for name, function in functions.items():
            if hasattr(builder, name):  # block pointers, for example, are gone in Triton 3.9
                self.replace(builder, name, function)

    def _of(self, kind):
        def access(original, *arguments, **named):
            self.accesses.kind = kind
            try:
                return original(*arguments, **named)
            finally:
                self.accesses.kind = ""

        return access

    def _plain(self, original, *arguments, **named):
        self.accesses.plain = True
        try:
            return original(*arguments, **named)
        finally:
            self.accesses.plain = False

    def _atomically(self, original, *arguments, **named):
        self.accesses.atomic = True
        try:
            return original(*arguments, **named)
        finally:
            self.accesses.atomic = False

    def _handle(self, data, like):
        return self.module.TensorHandle(data, like.dtype)

    def _with_other(self, original, semantic, pointers, mask, other, *rest, **named):
        """The interpreter takes the ``other`` of one element that is 0 for none."""
        self.other = other is not None
        try:
            return original(semantic, pointers, mask, other, *rest, **named)
        finally:
            self.other = False

    def _load(self, original, builder, pointers, mask, other, *rest, **named):
        volatile = named.get("is_volatile", rest[-1] if rest else False)
        real = self.accesses.load(pointers, mask, bool(volatile))
        value = original(builder, self._handle(real, pointers), mask, other, *rest, **named)
        if pointers.get_element_ty().is_ptr():
            value.data = self.accesses.to_pointers(value.data)
        lost = self._left_out(mask, other, value)
        if lost.any():
            self.following.begin()
            value.undefined = lost
        return value

    def _left_out(self, mask, other, value):
        """Which elements of a loaded *value* are undefined."""
        lost = ~chosen_by(mask, value.data.shape)
        if other is None:
            return np.zeros_like(lost) if self.other else lost
        missing = undefined(other)
        return np.zeros_like(lost) if missing is None else lost & missing

    def _store(self, original, builder, pointers, value, mask, *rest, **named):
        real = self.accesses.store(pointers, value, mask)
        if pointers.get_element_ty().is_ptr():
            value = self._handle(self.accesses.to_integers(value.data), value)
        return original(builder, self._handle(real, pointers), value, mask, *rest, **named)

    def _atomic_rmw(self, original, builder, operation, pointers, value, mask, sem, scope):
        real = self.accesses.update(pointers, mask, *orders(sem))
        self.accesses.is_defined(
            value, np.broadcast_to(mask.data, pointers.data.shape), "an update"
        )
        return original(builder, operation, self._handle(real, pointers), value, mask, sem, scope)

    def _atomic_cas(self, original, builder, pointers, expected, value, sem, scope):
        mask = np.ones(pointers.data.shape, bool)
        real = self.accesses.update(pointers, mask, *orders(sem))
        self.accesses.is_defined(expected, mask, "an update")
        self.accesses.is_defined(value, mask, "an update")
        return original(builder, self._handle(real, pointers), expected, value, sem, scope)

    def _dot(self, original, builder, a, b, *rest):
        self.watch.limits.dot(a, b)
        self.watch.dots += 1
        self.watch.multiplied += a.data.size * b.data.shape[-1]
        return original(builder, self._in_fp32(a), self._in_fp32(b), *rest)

    def _in_fp32(self, block):
        """A block; of bf16 as fp32, since the interpreter computes with bf16 as with integers."""
        if block.data.dtype != np.uint16 or block.dtype.scalar != self.module.tl.bfloat16:
            return block
        data = (block.data.astype(np.uint32) << 16).view(np.float32)
        return self.module.TensorHandle(data, self.module.tl.float32)

    def _compute(self, original, builder, first, *rest):
        self.watch.limits.time()
        wide = self._in_fp32(first)
        if wide is first:
            return original(builder, first, *rest)
        result = original(builder, wide, *map(self._in_fp32, rest[:-1]), rest[-1])
        if result.data.dtype == np.float32:
            return builder.cast_impl(result, self.module.tl.bfloat16)
        return self._handle(result.data, first)

    def _gather(self, original, builder, source, indices, axis):
        length = source.data.shape[axis]
        outside = (indices.data < 0) | (indices.data >= length)
        if outside.any():
            index = indices.data[outside].reshape(-1)[0]
            raise self.watch.fault(
                "out of bounds: a gather",
                ("index", f"{index} of a block which has {count_of(length, 'element')} there"),
                ("cause", "an index into the tensor, and not into the block that was loaded"),
            )
        return original(builder, source, indices, axis)

    def _int_to_ptr(self, original, builder, value, kind):
        found = original(builder, value, kind)
        found.data = self.accesses.to_pointers(found.data)
        return found

    def _ptr_to_int(self, original, builder, pointer, kind):
        return original(
            builder, self._handle(self.accesses.to_integers(pointer.data), pointer), kind
        )

    def _to_python(self, original, tensor, *scope):
        """Branches and loops make numbers of Python of the elements that they depend on."""
        original(tensor, *scope)
        for name in ("__bool__", "__index__"):
            before = getattr(tensor, name)

            def number(block, name=name, before=before):
                lost = undefined(block.handle)
                if self.watch.launch and lost is not None and lost.size == 1 and lost.all():
                    raise self.accesses.undefined("a branch or a loop")
                # Triton 3.6 expects an older NumPy, which makes a number of an array.
                return before(block) if name == "__bool__" else int(block.handle.data.item())

            setattr(tensor, name, number)

    def _program(self, original, builder, *place):
        self.watch.launch.grid = builder.grid_dim
        self.watch.launch.order.begin()
        self.watch.limits.begin()
        self.watch.launch.wrapped = ""
        self.watch.goes_on()
        return original(builder, *place)

    def _execute(self, original, executor, *arguments, **named):
        watch = self.watch
        if watch.launch:  # of another thread: the interpreter has one state for all
            return original(executor, *arguments, **named)
        watch.kernels.check(executor, arguments, named)
        watch.begin_launch(Launch(watch, executor, arguments, named), arguments, named)
        try:
            with _disable_current_modes():
                result = original(executor, *arguments, **named)
            watch.check_launch()
            return result
        except self.module.InterpreterError as error:
            fault = self._fault_in(error)
            if fault is None:
                fault = watch.kernels.fault_of_error(error, executor, arguments, named)
            if fault:
                raise fault from None
            raise error from error.__cause__
        finally:
            self.following.end()
            watch.end_launch()

    def _fault_in(self, error):
        """The fault that has ended a kernel; None if it was another error."""
        for one in chain(error):
            if isinstance(one, FaultError):
                return one
        return None

    def _convert(self, original, argument):
        found = original(argument)
        if hasattr(argument, "data_ptr") and self.watch.launch:
            found.handle.data[0] = self.watch.launch.address_of(argument)
        return found

    def _data_ptr(self, original, tensor):
        if not self.watch.launch:
            self.watch.memory.points_to(tensor)
        return original(tensor)

    def _shown(self, original, tensor, **named):
        """The script prints a tensor: what was never written in it is named at the end."""
        if not self.watch.launch:
            self.watch.operations.shown(tensor)
        return original(tensor, **named)

    def _first_configuration(self, original, tuner, *arguments, config, **named):
        """Without a GPU there is nothing to time: the first configuration is as good as any."""
        return [0.0 if config is tuner.configs[0] else 1.0] * 3

    def _notice_overflow(self, original, semantic, left, right, operation):
        """Notice where an integer wraps around; the interpreter only prepares to."""
        if not self.watch.launch:
            return
        kind = left.type.scalar
        width = kind.int_bitwidth if kind.is_int_signed() else 64
        if width not in (8, 16, 32):
            return
        a, b = left.handle.data, right.handle.data
        if not a.size or not b.size:
            return
        end = 2 ** (width - 1)
        multiplies = operation.__name__ == "mul"
        largest = [max(abs(int(x.min())), abs(int(x.max()))) for x in (a, b)]
        most = largest[0] * largest[1] if multiplies else sum(largest)
        if most < end:
            return
        function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[operation.__name__]
        exact = function(a.astype(np.int64), b.astype(np.int64))
        wraps = (exact >= end) | (exact < -end)
        if wraps.any():
            place = here().partition(" `")[0]
            self.watch.launch.wrapped = (
                f"an integer of {kind.int_bitwidth} bits wraps around in {place}"
            )
            self.following.begin()
            self.following.wraps = wraps

    def _round(self, original, values, source, target, mode):
        """Round fp32 to a narrower type as a GPU does; the interpreter cuts bits off."""
        kinds = {
            "fp8e4nv": (torch.float8_e4m3fn, torch.uint8),
            "fp8e5": (torch.float8_e5m2, torch.uint8),
            "bf16": (torch.bfloat16, torch.uint16),
        }
        if str(source) != "fp32" or str(target) not in kinds:
            return original(values, source, target, mode)
        kind, bits_of = kinds[str(target)]
        most = torch.finfo(kind).max if bits_of == torch.uint8 else torch.inf  # fp8 saturates
        return torch.tensor(values).clamp(-most, most).to(kind).view(bits_of).numpy()


def orders(sem):
    """Whether an atomic operation acquires, and whether it releases."""
    name = str(sem).rpartition(".")[2].lower()
    return name in ("acquire", "acquire_release"), name in ("release", "acquire_release")
