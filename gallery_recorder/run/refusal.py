"""What a script does that no recording can hold."""

from __future__ import annotations


class Refusal(BaseException):
    """The script did something that no recording can hold.

    Not an ``Exception``, so that a script that catches those does not hide it.
    """

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy
