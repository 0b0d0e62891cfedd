"""The output of image scrapers as data: a closed list of images, videos and HTML.

A scraper returns reStructuredText. It is read once, when the example is recorded, and what it shows
is kept as :class:`~gallery_recorder.store.format.Figure`. Everything that is not in this list is
refused by its name:

* ``image-sg`` (sphinx-gallery's ``figure_rst``), ``image`` and ``figure`` with a caption;
* ``video`` (sphinxcontrib-video);
* ``raw:: html``, with a text or a file that the example wrote: HTML of the author;
* one of these in a ``container`` or in ``only:: html``; several as a horizontal list.

Each image, video and file of HTML is a file that the example wrote.
"""

import re
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gallery_recorder.store.format import GALLERY_FOLDER, Figure, Html, Image, Item, Video

#: A directive's first line, an option, and an item of a horizontal list.
_DIRECTIVE = re.compile(r"\.\. ([A-Za-z][\w.:+-]{0,99})::(?: (.*))?")
_OPTION = re.compile(r":([A-Za-z][\w-]{0,99}):(?: (.*))?")
_LIST_ITEM = re.compile(r"\*(?: (.*))?")

_HORIZONTAL = "sphx-glr-horizontal"
#: Characters that can be inline markup of reStructuredText.
_INLINE_MARKUP = re.compile(r"[`*|\\]|\w_(?!\w)")


class NotKeptError(ValueError):
    """A scraper returned something that a recording cannot hold; the message names it."""


@dataclass
class _Directive:
    """A directive: its name, argument, options, and the lines of its content."""

    name: str
    argument: str
    options: dict[str, str] = field(default_factory=dict)
    content: list[str] = field(default_factory=list)

    def take(self, name: str, default: str = "") -> str:
        """Remove the option *name* and return its value."""
        return self.options.pop(name, default)

    def end(self) -> None:
        """Refuse the options and the content that nothing has taken."""
        for name in self.options:
            raise NotKeptError(f"the option `:{name}:` of `.. {self.name}::`")
        if self.content:
            raise NotKeptError(f"content below `.. {self.name}::`")


def figures_of(rst: str, files: Container[str], below: bool = False) -> tuple[Figure, ...]:
    """The figures in the scrapers' output *rst*, whose files are among *files*.

    Paths below the folder of the page begin with ``/@@gallery@@/``. NotKeptError for anything else
    than the list above.
    """
    lines = [line.expandtabs(8).rstrip() for line in rst.splitlines()]
    figures = []
    for directive in _directives(lines):
        items = _items(directive, files)
        figures.append(Figure(tuple(items), below))
    return tuple(figures)


# --- lines ----------------------------------------------------------------------------------------


def _directives(lines: list[str]) -> list[_Directive]:
    """The directives in *lines*, all with the same indentation."""
    found = []
    for head, body in _paragraphs(lines):
        match = _DIRECTIVE.fullmatch(head)
        if match is None:
            raise NotKeptError(f"text: {head[:80]!r}")
        directive = _Directive(match[1], (match[2] or "").strip())
        _read_body(directive, body)
        found.append(directive)
    return found


def _paragraphs(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Each line with the least indentation, with the lines below it, without common indentation."""
    found: list[tuple[str, list[str]]] = []
    for line in _dedented(lines):
        if line and not line.startswith(" "):
            found.append((line, []))
        elif found:
            found[-1][1].append(line)
    return found


def _dedented(lines: list[str]) -> list[str]:
    """*lines* without their common indentation."""
    indentations = [len(line) - len(line.lstrip(" ")) for line in lines if line]
    common = min(indentations, default=0)
    return [line[common:] for line in lines]


def _read_body(directive: _Directive, body: list[str]) -> None:
    """Read the options and the content of *directive* from the lines below its first one."""
    lines = _dedented(body)
    number = 0
    last = ""
    while number < len(lines) and lines[number]:
        line = lines[number]
        match = _OPTION.fullmatch(line)
        if match:
            last = match[1]
            if last in directive.options:
                raise NotKeptError(f"`.. {directive.name}::` with two options `:{last}:`")
            directive.options[last] = (match[2] or "").strip()
        elif last and line.startswith(" "):  # the value continues
            value = f"{directive.options[last]} {line.strip()}"
            directive.options[last] = value.strip()
        else:
            raise NotKeptError(f"`.. {directive.name}::` with an argument of several lines")
        number += 1
    content = lines[number:]
    while content and not content[0]:
        del content[0]
    while content and not content[-1]:
        del content[-1]
    directive.content = _dedented(content)


# --- items ----------------------------------------------------------------------------------------


def _items(directive: _Directive, files: Container[str]) -> list[Item]:
    """The items of a *directive*: one, or those of a horizontal list."""
    if directive.name == "rst-class" and directive.argument == _HORIZONTAL:
        return _row(directive, files)
    return [_item(directive, files)]


def _row(directive: _Directive, files: Container[str]) -> list[Item]:
    """The items of a horizontal list."""
    items = []
    for head, body in _paragraphs(directive.content):
        match = _LIST_ITEM.fullmatch(head)
        if match is None:
            raise NotKeptError(f"text in a horizontal list: {head[:80]!r}")
        first = match[1] or ""
        # The text after the asterisk begins two columns to the right of it.
        inside = _directives([f"  {first}".rstrip(), *body])
        items.append(_only_one(inside, "an item of a horizontal list", files))
    if not items:
        raise NotKeptError(f"`.. rst-class:: {_HORIZONTAL}` without a list")
    return items


def _only_one(inside: list[_Directive], where: str, files: Container[str]) -> Item:
    if len(inside) != 1:
        raise NotKeptError(f"{where} with {len(inside)} things in it")
    return _item(inside[0], files)


def _item(directive: _Directive, files: Container[str]) -> Item:
    """The item of a *directive* that shows one thing."""
    if directive.name == "only" and directive.argument in ("html", "builder_html"):
        return _inside(directive, ("only",), files)
    if directive.name == "container":
        item = _inside(directive, ("only", "container"), files)
        classes = directive.argument.split()
        return _checked(msgspec.structs.replace(item, container=tuple(classes)))
    make = _MAKERS.get(directive.name)
    if make is None:
        raise NotKeptError(f"`.. {directive.name}::`")
    item = make(directive, files)
    directive.end()
    return _checked(item)


def _inside(directive: _Directive, refused: tuple[str, ...], files: Container[str]) -> Item:
    """The one thing inside *directive*, in which directives with *refused* names may not be."""
    content, directive.content = directive.content, []
    directive.end()
    inside = _directives(content)
    for inner in inside:
        if inner.name in refused:
            raise NotKeptError(f"`.. {inner.name}::` in `.. {directive.name}::`")
    return _only_one(inside, f"`.. {directive.name}::`", files)


def _checked(item: Item) -> Item:
    """*item*, whose fields have been compared with the format's."""
    try:
        return msgspec.convert(msgspec.to_builtins(item), type(item))
    except msgspec.ValidationError as error:
        raise NotKeptError(f"a value that is not allowed ({error})") from error


def _scraped_image(directive: _Directive, files: Container[str]) -> Item:
    """An image of sphinx-gallery's ``figure_rst``."""
    sources = {}
    for source in directive.take("srcset").split(","):
        path, _, scale = source.strip().partition(" ")
        if scale:  # the first one is the image itself
            sources[scale.strip().removesuffix("x")] = _file(path, files)
    return Image(
        file=_file(directive.argument, files),
        alt=directive.take("alt"),
        scraped=True,
        sources=sources,
        classes=tuple(directive.take("class").split()),
    )


def _image(directive: _Directive, files: Container[str]) -> Item:
    """An image as its author places it."""
    scale = directive.take("scale").removesuffix("%").strip()
    fields: dict[str, Any] = {
        "file": _file(directive.argument, files),
        "alt": directive.options.pop("alt", None),
        "classes": tuple(directive.take("class").split()),
    }
    for name in ("width", "height", "align", "loading"):
        value = directive.take(name).replace(" ", "")
        if value:
            fields[name] = value
    if scale:
        fields["scale"] = _whole_number(scale, "scale")
    link = directive.take("target")
    if link:
        fields["link"] = link
    return Image(**fields)


def _figure(directive: _Directive, files: Container[str]) -> Item:
    """An image with a caption of plain text."""
    lines, directive.content = directive.content, []
    caption = " ".join(lines)
    if "" in lines:
        raise NotKeptError("`.. figure::` with a legend below its caption")
    if _INLINE_MARKUP.search(caption):
        raise NotKeptError(f"`.. figure::` with markup in its caption: {caption[:80]!r}")
    return msgspec.structs.replace(_image(directive, files), caption=caption)


def _video(directive: _Directive, files: Container[str]) -> Item:
    fields: dict[str, Any] = {
        "file": _file(directive.argument, files),
        "alt": directive.options.pop("alt", None),
        "classes": tuple(directive.take("class").split()),
    }
    for name in ("width", "height"):
        value = directive.take(name)
        if value:
            fields[name] = _whole_number(value, name)
    for name in ("autoplay", "loop", "muted"):
        if name in directive.options and directive.take(name) == "":
            fields[name] = True
    return Video(**fields)


def _html(directive: _Directive, files: Container[str]) -> Item:
    if directive.argument.lower() != "html":
        raise NotKeptError(f"`.. raw:: {directive.argument}`")
    path = directive.take("file")
    if path:
        return Html(file=_file(path, files))
    text, directive.content = "\n".join(directive.content), []
    return Html(text=text)


_MAKERS: dict[str, Callable[[_Directive, Container[str]], Item]] = {
    "image-sg": _scraped_image,
    "image": _image,
    "figure": _figure,
    "video": _video,
    "raw": _html,
}


def _whole_number(text: str, what: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text):
        raise NotKeptError(f"`:{what}: {text[:80]}`, which is not a whole number")
    return int(text)


def _file(path: str, files: Container[str]) -> str:
    """The name in the recording of the file at *path*, from the source folder or the page's."""
    if not path.startswith("/"):
        name = path.removeprefix("./")
    elif path.startswith(f"/{GALLERY_FOLDER}/"):
        name = path.removeprefix(f"/{GALLERY_FOLDER}/")
    else:
        name = f"source{path}"
    if name not in files:
        raise NotKeptError(f"{path[:200]!r}, which is not a file that the example wrote")
    return name
