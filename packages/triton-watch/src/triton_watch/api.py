"""What programs call: :func:`watch` and the report that it gives."""

import contextlib
from pathlib import Path

from triton_watch.compiles import Compiler
from triton_watch.limits import LIMIT
from triton_watch.places import FaultError
from triton_watch.trace import Trace
from triton_watch.watch import Watch


class Report:
    """What kernels did while they were watched."""

    def __init__(self, watch):
        self._watch = watch

    @property
    def faults(self):
        """The faults, each a :class:`FaultError`, in the order in which they happened."""
        return list(self._watch.faults)

    @property
    def notes(self):
        """What is no fault by itself, such as elements that no kernel has written: sentences."""
        return self._watch.remarks()

    @property
    def launches(self):
        """The number of kernels that were launched."""
        return self._watch.launches

    @property
    def loaded(self):
        """The bytes that kernels loaded, each access counted."""
        return self._watch.loaded

    @property
    def stored(self):
        """The bytes that kernels stored, each access counted."""
        return self._watch.stored

    def to_html(self, path=None, title="Trace"):
        """Show which elements each program touched, step by step, as one HTML page.

        The page needs no server and no other file.

        Args:
            path: The file to write; None to write none.
            title: The title of the page.

        Returns:
            The page, as text.

        Raises:
            ValueError: The kernels were watched without ``trace=True``.
        """
        if self._watch.trace is None:
            raise ValueError("there is no trace: use `watch(trace=True)`")
        text = self._watch.trace.to_html(title)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @property
    def copied(self):
        """The bytes that PyTorch loaded and stored for copies such as ``.contiguous()``."""
        return self._watch.copied

    def __str__(self):
        lines = [f"{self.launches} launches: {self.loaded} bytes loaded, {self.stored} stored"]
        lines += [f"Found: {fault}" for fault in self.faults]
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines)


@contextlib.contextmanager
def watch(trace=False, compile=True, strict=False, limit=LIMIT):
    """Watch the kernels that are launched inside the ``with`` block.

    A launch that does something undefined raises :class:`FaultError`; the report keeps it, too.

    Args:
        trace: Whether to keep what each program touches, for :meth:`Report.to_html`.
        compile: Whether kernels are also compiled for compute capability 9.0, in another process;
            the end of the block waits for that.
        strict: Whether elements that no program has written are a fault at the end of the block.
        limit: The seconds of processor time that one program of a kernel may take.

    Yields:
        The :class:`Report`, which can be read inside the block and behind it.

    Raises:
        FaultError: The compiler does not accept a kernel, or, with *strict*, elements were never
            written. Raised at the end of the block, if nothing else was raised in it.
        RuntimeError: Triton does not interpret kernels in this process, or a watch is active.
    """
    from triton import knobs

    if not knobs.runtime.interpret:
        raise RuntimeError(
            "triton_watch needs Triton's interpreter, which Triton chooses when a kernel is "
            "defined: set TRITON_INTERPRET=1 before Python starts"
        )
    if Watch.current:
        raise RuntimeError("kernels are already being watched: use the report of the outer block")
    compiler = Compiler() if compile else None
    active = Watch(Trace() if trace else None, compiler, limit)
    try:
        with active:
            yield Report(active)
        before = len(active.faults)
        active.finish()
        if strict:
            active.faults += [FaultError(gap) for gap in active.gaps()]
        if active.faults[before:]:
            raise active.faults[before]
    finally:
        if compiler:
            compiler.close()
