"""Check that images are whole and of the kind in their names.

A page shows images and makes thumbnails of them, so a damaged one would end the build. As in
sphinx-gallery, the content of an SVG image is its author's.
"""

from __future__ import annotations

from io import BytesIO
from xml.etree import ElementTree

_FORMATS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "gif": "GIF", "webp": "WEBP"}
#: The last bytes of a whole file, of formats whose checksum Pillow cannot compare.
_ENDS = {"JPEG": b"\xff\xd9", "GIF": b"\x3b"}
#: Files that a build would read as pages, or execute.
_SOURCES = {"inc", "ipynb", "md", "py", "rest", "rst", "txt"}


def _suffix(name: str) -> str:
    return name.rpartition(".")[2].lower()


def is_thumbnail(name: str) -> bool:
    """Whether sphinx-gallery can make a thumbnail of the file *name*."""
    return _suffix(name) in {"svg", *_FORMATS}


def is_image(name: str) -> bool:
    """Whether a build can have the file *name* among its sources without reading it as a page."""
    return _suffix(name) not in _SOURCES


def is_whole(name: str, content: bytes) -> bool:
    """Whether *content* is the image *name*, whole; True for an unknown kind of image."""
    kind = _FORMATS.get(_suffix(name))
    try:
        if _suffix(name) == "svg":
            return ElementTree.fromstring(content).tag.rpartition("}")[2] == "svg"
        if kind:
            from PIL import Image  # a dependency of sphinx-gallery; slow to import

            with Image.open(BytesIO(content), formats=[kind]) as image:
                image.verify()
    except Exception:  # whatever Pillow and expat raise for a damaged image
        return False
    return _ENDS.get(kind or "", b"") in content[-64:]
