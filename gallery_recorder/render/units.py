"""Bytes, seconds and dates as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def readable_bytes(count: int) -> str:
    """``3456789`` as ``3.3 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def readable_seconds(seconds: float) -> str:
    """``75.2`` as ``1 min 15 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def readable_date(recorded: str) -> str:
    """``2026-11-20T17:00:00Z`` as ``20 November 2026``."""
    date = datetime.strptime(recorded, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return f"{date.day} {date:%B %Y}"
