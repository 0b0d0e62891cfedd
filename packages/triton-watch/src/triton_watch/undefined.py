"""Follow undefined elements: those that a masked load without ``other`` leaves out.

A kernel may compute with them, as long as they reach no store, no address and no mask. While there
are any, a result of the interpreter has an array ``undefined``: which of its elements are. In the
same way ``wrapped`` says which integers of 32 bits have become too large: as a hash they are right,
as a part of an address they are not.
"""

import numpy as np

# What only moves elements moves those that are undefined in the same way.
MOVES = {
    "create_reshape", "create_trans", "create_expand_dims", "create_broadcast", "create_cat",
    "create_join", "create_split", "create_splat", "create_unsplat", "create_gather",
}  # fmt: skip
# What passes on that an integer has wrapped around; a remainder or an "and" makes it harmless.
ARITHMETIC = {"create_add", "create_sub", "create_mul", "create_int_cast", "create_addptr"}
# These keep what they are given, or are looked at elsewhere.
APART = {
    "create_masked_load", "create_masked_store", "create_load", "create_store",
    "create_atomic_rmw", "create_atomic_cas", "create_print", "create_assert", "create_assume",
    "create_barrier", "create_make_block_ptr", "create_advance", "create_make_tensor_descriptor",
    "create_tensor_pointer_load", "create_tensor_pointer_store", "create_get_program_id",
    "create_get_num_programs", "create_make_range",
}  # fmt: skip


def undefined(handle):
    """Which elements of a block are undefined; None if all are defined."""
    return getattr(handle, "undefined", None)


class Following:
    """Wraps the interpreter's operations, from the first undefined element to the launch's end."""

    def __init__(self, interpreter):
        self.interpreter = interpreter
        self.undo = []
        self.wraps = None  # which elements of the next sum or product wrap around

    def begin(self):
        """Follow from here on."""
        if self.undo:
            return
        builder = self.interpreter.InterpreterBuilder
        for name in dir(builder):
            apart = name in APART or name.startswith("create_descriptor")
            if name.startswith("create_") and not apart:
                self._wrap(builder, name, self._operation(name, getattr(builder, name)))
        for kind in (self.interpreter.ReduceOps, self.interpreter.ScanOps):
            self._wrap(kind, "apply_impl", self._reduction(kind.apply_impl))

    def end(self):
        """Follow no longer."""
        for owner, name, before in self.undo:
            setattr(owner, name, before)
        self.undo = []

    def _wrap(self, owner, name, function):
        self.undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)

    def _operation(self, name, before):
        handle = self.interpreter.TensorHandle

        def operation(builder, *arguments, **named):
            result = before(builder, *arguments, **named)
            blocks = [a for a in arguments if isinstance(a, handle)]
            for kind in ("undefined", "wrapped"):
                if all(getattr(block, kind, None) is None for block in blocks):
                    continue
                if name in MOVES:
                    masks = [moved(a, kind, blocks) for a in arguments]
                    found = before(builder, *masks, **named)
                elif kind == "undefined":
                    found = combined(name, blocks, result)
                elif name in ARITHMETIC:
                    found = in_any([where(block, kind) for block in blocks], result.data.shape)
                else:
                    continue
                if isinstance(result, tuple):
                    for one, mask in zip(result, found, strict=True):
                        setattr(one, kind, mask.data)
                elif isinstance(result, handle):
                    setattr(result, kind, found.data if isinstance(found, handle) else found)
            if self.wraps is not None and name in ("create_add", "create_sub", "create_mul"):
                result.wrapped = in_any([self.wraps, where(result, "wrapped")], result.data.shape)
                self.wraps = None
            return result

        def moved(argument, kind, blocks):
            if not isinstance(argument, handle) or (
                name == "create_gather" and argument is blocks[1]
            ):
                return argument
            return handle(where(argument, kind), self.interpreter.tl.int1)

        return operation

    def _reduction(self, before):
        def reduction(operation, blocks):
            results = before(operation, blocks)
            masks = [undefined(block.handle) for block in blocks]
            masks = [mask for mask in masks if mask is not None]
            if not masks:
                return results
            mask, axis = np.logical_or.reduce(masks), operation.axis
            if hasattr(operation, "reverse"):  # a scan: what comes behind an undefined element
                mask = np.flip(mask, axis) if operation.reverse else mask
                mask = np.logical_or.accumulate(mask, axis)
                mask = np.flip(mask, axis) if operation.reverse else mask
            else:
                mask = mask.any(axis=axis, keepdims=operation.keep_dims)
            for result in results if isinstance(results, list | tuple) else [results]:
                result.handle.undefined = np.broadcast_to(mask, result.handle.data.shape)
            return results

        return reduction


def in_any(masks, shape):
    """Which elements are in one of the masks."""
    return np.broadcast_to(np.logical_or.reduce(np.broadcast_arrays(*masks)), shape)


def where(handle, kind="undefined"):
    """Which elements of a block are undefined, or have wrapped, as an array of its shape."""
    found = getattr(handle, kind, None)
    return np.zeros(handle.data.shape, bool) if found is None else found


def combined(name, blocks, result):
    """Which elements of the result of an operation are undefined."""
    masks = [where(block) for block in blocks]
    if name == "create_select":
        condition = blocks[0].data.astype(bool)
        return masks[0] | np.where(condition, masks[1], masks[2])
    if name == "create_dot":  # a row of the result needs a row of a, a column a column of b
        rows, columns = masks[0].any(axis=-1), masks[1].any(axis=-2)
        return rows[..., :, None] | columns[..., None, :] | masks[2]
    if name == "create_histogram" and len(blocks) == 2:  # what its mask leaves out does not count
        masks[0] = masks[0] & blocks[1].data
    shape = result.data.shape if hasattr(result, "data") else ()
    if name in ("create_and", "create_or", "create_mul", "create_fmul") and len(blocks) == 2:
        # A defined zero decides an "and" and a product, all ones an "or". (Zero times NaN is NaN,
        # but GPUs load zeros there, and many kernels multiply with a mask.)
        deciding = [decides(name, block) & ~mask for block, mask in zip(blocks, masks, strict=True)]
        return np.broadcast_to((masks[0] | masks[1]) & ~deciding[0] & ~deciding[1], shape)
    if any(mask.shape not in (shape, (), (1,)) for mask in masks):  # a histogram, for example
        return np.full(shape, any(mask.any() for mask in masks))
    return in_any(masks, shape)


def decides(name, block):
    """Where one operand alone decides the result."""
    if name == "create_or":
        return block.data == ~np.zeros_like(block.data)
    return block.data == 0
