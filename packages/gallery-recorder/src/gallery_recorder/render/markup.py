"""A block's outputs as reStructuredText for a page, with sphinx-gallery's markup.

The text of a recording is never markup. It reaches a page in one of three ways only:

* :func:`escaped`: text in a line, of which docutils changes nothing;
* :func:`indented`: the content of a directive that shows it as it is: code, or HTML of the author;
* values that the recording's format limits to harmless characters: lengths, classes, links, and
  :class:`Places` of files.
"""

import html
import posixpath
from collections.abc import Callable, Mapping
from textwrap import indent

from rich import filesize

from gallery_recorder import seam
from gallery_recorder.console import visible
from gallery_recorder.store.format import GALLERY_FOLDER, Block, Figure, Html, Image, Item, Video

#: From the name of a file in a recording to its path below the documentation's source folder.
Place = Callable[[str], str]


def escaped(text: str) -> str:
    r"""*text* as one line of reStructuredText that shows exactly this text.

    Each punctuation mark has a backslash before it, so none can be markup, an address, or a part
    of a role. Characters that would end the line are replaced.
    """
    line = visible(" ".join(text.split()))
    return "".join(f"\\{c}" if c.isascii() and not (c.isalnum() or c == " ") else c for c in line)


def indented(text: str) -> str:
    """*text* as the content of a directive: no line of it can end the directive."""
    return indent(text, " " * 4)


def code(text: str, language: str, *classes: str) -> str:
    """The markup of a block of code, with *classes*."""
    head = f"\n.. rst-class:: {' '.join(classes)}\n" if classes else ""
    return f"{head}\n.. code-block:: {language}\n\n{indented(text)}\n"


def output(block: Block, place: Place, pages: str, sizes: Mapping[str, int]) -> str:
    """The markup of a *block*'s outputs for a page in the folder *pages*, as in sphinx-gallery.

    Links lead to its data files, with their *sizes*. Standard error has a box of its own unless it
    is part of ``shown``.
    """
    above = [_figure(figure, place, block, pages) for figure in block.figures if not figure.below]
    below = [_figure(figure, place, block, pages) for figure in block.figures if figure.below]
    printed = block.stdout if block.shown is None else block.shown
    parts = ["", "\n".join(above)]
    if block.exception is not None:
        parts += [seam.exception_markup(block.exception), "\n\n\n"]
    else:
        text = block.value.get("text/plain")
        value = block.value.get("text/html")
        parts += ["", seam.printed_markup(f"{printed}\n{text}" if text else printed)]
        parts += [seam.html_markup(value) if value else "", "\n"]
    rst = "\n".join(parts)
    if block.shown is None and block.stderr:
        box = seam.printed_markup(block.stderr)
        rst += box.replace("sphx-glr-script-out", "sphx-glr-script-out gallery-stderr", 1)
    if block.failure:
        rst += seam.printed_markup(block.failure)
    if block.data:
        rst += "\n\n.. container:: gallery-data\n"
    for name in block.data:
        size = filesize.decimal(sizes[name])
        rst += f"\n   :download:`{escaped(name)} </{escaped(place(name))}>` ({size})\n"
    return f"{rst}\n" + "\n".join(below)


def _figure(figure: Figure, place: Place, block: Block, pages: str) -> str:
    """The markup of a *figure*."""
    items = [_item(item, place, block, pages) for item in figure.items]
    return seam.side_by_side(items) if len(items) > 1 else "".join(items)


def _item(item: Item, place: Place, block: Block, pages: str) -> str:
    """The markup of one *item* of a figure."""
    if isinstance(item, Html):
        markup = _html(item, place, block, pages)
    elif isinstance(item, Video):
        markup = _video(item, place)
    elif item.scraped:
        markup = _scraped_image(item, place)
    else:
        markup = _image(item, place)
    if item.container:
        return f"\n.. container:: {' '.join(item.container)}\n\n{indented(markup)}"
    return markup


def _scraped_image(image: Image, place: Place) -> str:
    paths = {0.0: place(image.file)}
    for scale, name in image.sources.items():
        paths[float(scale)] = place(name)
    # sphinx-gallery writes the text into HTML without escaping it.
    return seam.image_markup(paths, html.escape(image.alt or ""), image.classes)


def _image(image: Image, place: Place) -> str:
    options = {
        "alt": image.alt,
        "width": image.width,
        "height": image.height,
        "scale": image.scale,
        "align": image.align,
        "loading": image.loading,
        "class": " ".join(image.classes) or None,
        "target": image.link,
    }
    if image.caption:
        caption = f"\n   {escaped(image.caption)}\n"
        return _directive("figure", place(image.file), options) + caption
    return _directive("image", place(image.file), options)


def _video(video: Video, place: Place) -> str:
    options = {
        "alt": video.alt,
        "class": " ".join(video.classes) or None,
        "height": video.height,
        "width": video.width,
    }
    flags = {"autoplay": video.autoplay, "loop": video.loop, "muted": video.muted}
    set_flags = dict.fromkeys((name for name, is_set in flags.items() if is_set), "")
    return _directive("video", place(video.file), options, set_flags)


def _directive(
    name: str, path: str, options: Mapping[str, object], flags: Mapping[str, str] | None = None
) -> str:
    """The markup of a directive for the file at *path*, with those *options* that have a value."""
    lines = [f".. {name}:: /{path}"]
    for option, value in options.items():
        if value is not None:
            lines.append(f"   :{option}: {value}")
    for option in flags or {}:
        lines.append(f"   :{option}:")
    return "\n".join([*lines, ""])


def _html(item: Html, place: Place, block: Block, pages: str) -> str:
    """The markup of HTML of the author; its addresses lead to the files of the page."""
    if item.file is not None:
        path = posixpath.relpath(place(item.file), pages)
        return f".. raw:: html\n   :file: {path}\n"
    text = item.text
    for name in block.images:
        address = _address(name)
        text = text.replace(f"/{address}", f"/{place(name)}")
    text = text.replace(GALLERY_FOLDER, pages)
    return f".. raw:: html\n\n{indented(text)}\n"


def _address(name: str) -> str:
    """The path of the file *name* in HTML of a scraper."""
    outside = name.removeprefix("source/")
    return outside if outside != name else f"{GALLERY_FOLDER}/{name}"
