"""What every room tells in its own words, and the command line in one place."""

from __future__ import annotations


class RecorderError(Exception):
    """What its reader can put right: it says what is wrong, where, and what to do.

    ``status`` is the exit status of a command that ends with it: 2 where its words were wrong.
    """

    status = 1
