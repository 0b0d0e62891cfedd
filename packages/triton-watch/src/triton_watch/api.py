"""What programs call: :func:`watch` and the report that it gives."""

import contextlib
from pathlib import Path

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
        return list(self._watch.gaps())

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

    def __str__(self):
        lines = [f"{self.launches} launches: {self.loaded} bytes loaded, {self.stored} stored"]
        lines += [f"Found: {fault}" for fault in self.faults]
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines)


@contextlib.contextmanager
def watch(trace=False):
    """Watch the kernels that are launched inside the ``with`` block.

    A launch that does something undefined raises :class:`FaultError`; the report keeps it, too.

    Args:
        trace: Whether to keep what each program touches, for :meth:`Report.to_html`.

    Yields:
        The :class:`Report`, which can be read inside the block and behind it.

    Raises:
        RuntimeError: Triton does not interpret kernels in this process.
    """
    from triton import knobs

    if not knobs.runtime.interpret:
        raise RuntimeError(
            "triton_watch needs Triton's interpreter, which Triton chooses when a kernel is "
            "defined: set TRITON_INTERPRET=1 before Python starts"
        )
    if Watch.current:
        raise RuntimeError("kernels are already being watched: use the report of the outer block")
    with Watch(Trace() if trace else None) as active:
        yield Report(active)
