"""Whether a file is the image that its name says, whole and harmless.

A page shows images and makes thumbnails of them, so one that is none would stop the build of every
page; and an SVG that a reader opens by itself could run a script in the site's name.
"""

from __future__ import annotations

import re
import zlib

_MAX_PIXELS = 200_000_000
_SCRIPT = re.compile(
    rb"<\s*(\w+:)?script\b|\son[a-z]+\s*=\s*[\"']|javascript\s*:|<!ENTITY|<\?xml-stylesheet", re.I
)


def wrong(name: str, content: bytes) -> str:
    """What is wrong with the image *name*; nothing where it is one, or of a kind not known here."""
    suffix = name.rpartition(".")[2].lower()
    if suffix == "png":
        return _wrong_png(content)
    if suffix in ("jpg", "jpeg"):
        whole = content.startswith(b"\xff\xd8\xff") and b"\xff\xd9" in content[-64:]
        return "" if whole else "is no whole JPEG image"
    if suffix == "gif":
        whole = content[:6] in (b"GIF87a", b"GIF89a") and b"\x3b" in content[-2:]
        return "" if whole else "is no whole GIF image"
    if suffix == "webp":
        whole = content[:4] == b"RIFF" and content[8:12] == b"WEBP"
        return "" if whole else "is no WebP image"
    if suffix == "svg":
        return _wrong_svg(content)
    return ""


def _wrong_png(content: bytes) -> str:
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "is no PNG image"
    at = 8
    while at + 12 <= len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        kind, end = content[at + 4 : at + 8], at + 12 + length
        checksum = content[end - 4 : end]
        if zlib.crc32(content[at + 4 : end - 4]).to_bytes(4, "big") != checksum:
            break
        if at == 8:
            width, height = (int.from_bytes(content[n : n + 4], "big") for n in (16, 20))
            if kind != b"IHDR" or not 0 < width * height <= _MAX_PIXELS:
                break
        if kind == b"IEND":
            return ""
        at = end
    return "is no whole PNG image"


def _wrong_svg(content: bytes) -> str:
    whole = b"</svg>" in content[-64:] or re.search(rb"<svg\b[^>]*/>\s*$", content)
    if b"<svg" not in content[:8192] or b"\0" in content or not whole:
        return "is no whole SVG image"
    if _SCRIPT.search(content):
        return "is an SVG image with a script"
    return ""
