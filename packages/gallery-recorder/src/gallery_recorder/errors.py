"""The base class of the engine's errors, which the command line shows."""


class RecorderError(Exception):
    """An error that the user can correct: the message says what is wrong, where, and the remedy.

    ``status`` is the exit status of the command: 2 for wrong usage.
    """

    status = 1
