"""The base class of the engine's errors, which the command line shows."""


class RecorderError(Exception):
    """An error that its reader can correct: the message says what is wrong, where, and the remedy.

    ``status`` is the exit status of a command that ends with it: 2 for wrong usage.
    """

    status = 1
