"""Whether a file is the image that its name says, whole and harmless.

A page shows images and makes thumbnails of them, so one that is none would stop the build of every
page; and an SVG that a reader opens by itself could run a script in the site's name.
"""

from __future__ import annotations

import re
from io import BytesIO
from xml.parsers import expat

_FORMATS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "gif": "GIF", "webp": "WEBP"}
#: How the last bytes of a whole file of the formats end whose checksum Pillow cannot compare.
_ENDS = {"JPEG": b"\xff\xd9", "GIF": b"\x3b"}
#: Kinds of images that a build may have among its sources, and of those that move.
_MEDIA = {*_FORMATS, "svg", "apng", "avif", "bmp", "mov", "mp4", "ogv", "pdf", "webm"}
#: Kinds of files that a build reads as pages, or executes.
_SOURCES = {"inc", "ipynb", "md", "py", "rest", "rst", "txt"}
#: Elements of SVG, and of HTML within it, that execute something or show another page.
_ACTIVE = {"script", "handler", "listener", "iframe", "object", "embed", "frame", "base", "meta"}
_ADDRESS = re.compile(r"(java|vb)script:|data:(text|application)/(x?html|xml|javascript)", re.I)


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
    """As a browser's parser of XML reads it: other encodings and entities hide nothing."""
    parser = expat.ParserCreate()
    found: list[str] = []

    def refuse(*_: object) -> None:
        raise _ScriptFoundError

    def element(name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(":")[2].lower()
        found[:] = found or [local]
        if local in _ACTIVE:
            refuse()
        for attribute, value in attributes.items():
            is_handler = attribute.rpartition(":")[2].lower().startswith("on")
            if is_handler or _ADDRESS.search("".join(value.split())):
                refuse()

    parser.StartElementHandler = element
    parser.EntityDeclHandler = parser.ProcessingInstructionHandler = refuse
    try:
        parser.Parse(content, True)
    except _ScriptFoundError:
        return "is an SVG image with a script"
    except (expat.ExpatError, ValueError, LookupError):
        return "is no whole SVG image"
    return "" if found == ["svg"] else "is no whole SVG image"


class _ScriptFoundError(Exception):
    """Ends the parsing of an image."""
