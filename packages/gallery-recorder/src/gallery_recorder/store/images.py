"""Check images of recordings before sphinx-gallery makes thumbnails of them."""

import io
import warnings
from pathlib import PurePosixPath

from gallery_recorder.store.reading import ReadingError, line

#: The most pixels of an image; more are a decompression bomb to Pillow.
MAX_PIXELS = 89_000_000
#: The formats of images that thumbnails are made of, by suffix.
_FORMATS = {
    ".gif": "GIF",
    ".jpeg": "JPEG",
    ".jpg": "JPEG",
    ".png": "PNG",
    ".webp": "WEBP",
}


def check(name: str, content: bytes) -> None:
    """Raise ReadingError if *name* says that *content* is an image, and it cannot be decoded.

    Memory is bounded by :data:`MAX_PIXELS`. Vector images and other files are not decoded.
    """
    kind = _FORMATS.get(PurePosixPath(name).suffix.lower())
    if kind is None:
        return
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=[kind]) as image:
                width, height = image.size
                if width * height > MAX_PIXELS:
                    raise ReadingError(f"has {width:,} × {height:,} pixels, which are too many")
                image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ReadingError(f"is not an image that can be shown ({line(error)})") from error
