"""Whether a file is the image that its name says, whole and harmless.

A page shows images and makes thumbnails of them, so one that is none would stop the build of every
page; and an SVG that a reader opens by itself could run a script in the site's name.
"""

from __future__ import annotations

import re
from io import BytesIO

_FORMATS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "gif": "GIF", "webp": "WEBP"}
#: How the last bytes of a whole file of the formats end whose checksum Pillow cannot compare.
_ENDS = {"JPEG": b"\xff\xd9", "GIF": b"\x3b"}
#: Kinds of images that a build may have among its sources, and of those that move.
_MEDIA = {*_FORMATS, "svg", "apng", "avif", "bmp", "mov", "mp4", "ogv", "pdf", "webm"}
#: Kinds of files that a build reads as pages, or executes.
_SOURCES = {"inc", "ipynb", "md", "py", "rest", "rst", "txt"}
_SCRIPT = re.compile(
    rb"<\s*(\w+:)?script\b|\son[a-z]+\s*=\s*[\"']|javascript\s*:|<!ENTITY|<\?xml-stylesheet", re.I
)


def is_image(name: str, thumbnail: bool = False) -> bool:
    """Whether a build can put the file *name* among its sources as an image, and no more.

    Libraries that draw may have other files in the folder of images, which their HTML asks for.
    """
    suffix = name.rpartition(".")[2].lower()
    if thumbnail:
        return suffix == "svg" or suffix in _FORMATS
    return suffix in _MEDIA or (name.startswith("images/") and suffix not in _SOURCES)


def wrong(name: str, content: bytes) -> str:
    """What is wrong with the image *name*; nothing where it is one, or of a kind not known here."""
    suffix = name.rpartition(".")[2].lower()
    if suffix == "svg":
        return _wrong_svg(content)
    if suffix not in _FORMATS:
        return ""
    from PIL import Image  # a dependency of sphinx-gallery; slow to import

    kind = _FORMATS[suffix]
    try:
        with Image.open(BytesIO(content), formats=[kind]) as image:
            image.verify()
        whole = _ENDS.get(kind, b"") in content[-64:]
    except Exception:  # whatever Pillow stumbles over in what is no such image
        whole = False
    return "" if whole else f"is no whole {kind} image"


def _wrong_svg(content: bytes) -> str:
    whole = b"</svg>" in content[-64:] or re.search(rb"<svg\b[^>]*/>\s*$", content)
    if b"<svg" not in content[:8192] or b"\0" in content or not whole:
        return "is no whole SVG image"
    if _SCRIPT.search(content):
        return "is an SVG image with a script"
    return ""
