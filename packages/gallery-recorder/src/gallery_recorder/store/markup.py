"""A block's outputs as reStructuredText for a page, and the output of image scrapers as data."""

import re
from collections.abc import Callable, Container, Iterable, Mapping

from rich import filesize

from gallery_recorder import seam
from gallery_recorder.store.format import GALLERY_FOLDER, Block, Figure, Image

_IMAGE = re.compile(r"^ *\.\. (image|image-sg):: /(\S+) *\n((?: +:[\w-]+:.*\n?)*)", re.MULTILINE)
_OPTION = re.compile(r"^ +:([\w-]+): *(.*?) *$", re.MULTILINE)

#: From the name of a file in a recording to its path below the documentation's source folder.
Place = Callable[[str], str]


def figure_of(rst: str, files: Container[str], below: bool = False) -> Figure:
    """The figure for the scrapers' output *rst*: images among *files*, or else the markup."""
    images = []
    for kind, path, options in _IMAGE.findall(rst):
        said = dict(_OPTION.findall(options))
        alt, sources = said.pop("alt", ""), {}
        if kind == "image-sg":
            finer = [part.split(" ") for part in said.pop("srcset", "").split(", ")][1:]
            sources = {part[-1].removesuffix("x"): _name(part[0][1:]) for part in finer}
            said = {}
        images.append(Image(_name(path), alt, sources, said))
    made = Figure(images=tuple(images), below=below)
    named = (name for image in images for name in (image.file, *image.sources.values()))
    if all(name in files for name in named) and _lines(_drawn(made, _address)) == _lines(rst):
        return made
    return Figure(rst=rst, below=below)


def _name(path: str) -> str:
    """The name in a recording of the file at *path* below the source folder."""
    inside = path.removeprefix(f"{GALLERY_FOLDER}/")
    return inside if inside != path else f"source/{path}"


def _address(name: str) -> str:
    """The path that has this :func:`_name`."""
    outside = name.removeprefix("source/")
    return outside if outside != name else f"{GALLERY_FOLDER}/{name}"


def _lines(rst: str) -> list[str]:
    return [line.strip() for line in rst.splitlines() if line.strip()]


def _drawn(figure: Figure, place: Place, files: Iterable[str] = (), pages: str = "") -> str:
    """The markup of a *figure*; a scraper's own markup names *files* below the folder *pages*."""
    if figure.rst:
        rst = figure.rst
        for name in files:
            rst = rst.replace(f"/{_address(name)}", f"/{place(name)}")
        return rst.replace(GALLERY_FOLDER, pages)
    made = []
    for image in figure.images:
        if image.options:
            options = {"alt": image.alt, **image.options}
            listed = "".join(f"   :{name}: {value}\n" for name, value in options.items())
            made.append(f".. image:: /{place(image.file)}\n{listed}")
        else:
            finer = {float(scale): place(name) for scale, name in image.sources.items()}
            made.append(seam.image_markup({0.0: place(image.file), **finer}, image.alt))
    in_a_row = len(made) > 1 and not figure.images[0].options
    return seam.side_by_side(made) if in_a_row else "\n\n".join(made)


def output(block: Block, place: Place, pages: str, sizes: Mapping[str, int]) -> str:
    """The markup of a *block*'s outputs for a page in the folder *pages*, as in sphinx-gallery.

    Links lead to its data files, with their *sizes*. Standard error has a box of its own unless it
    is part of ``shown``.
    """

    def drawn(below: bool) -> str:
        figures = (figure for figure in block.figures if figure.below == below)
        return "\n".join(_drawn(figure, place, block.images, pages) for figure in figures)

    printed = block.stdout if block.shown is None else block.shown
    if block.exception is not None:
        rst = f"\n{drawn(False)}\n{seam.exception_markup(block.exception)}\n\n\n\n"
    else:
        text, html = block.value.get("text/plain"), block.value.get("text/html")
        box = seam.printed_markup(f"{printed}\n{text}" if text else printed)
        rst = f"\n{drawn(False)}\n\n{box}\n{seam.html_markup(html) if html else ''}\n\n"
    if block.shown is None and block.stderr:
        box = seam.printed_markup(block.stderr)
        rst += box.replace("sphx-glr-script-out", "sphx-glr-script-out gallery-stderr", 1)
    if block.failure:
        rst += seam.printed_markup(block.failure)
    if block.data:
        rst += "\n\n.. container:: gallery-data\n"
    for name in block.data:
        link = f"{name} </{place(name)}>` ({filesize.decimal(sizes[name])})"
        rst += f"\n   :download:`{link}\n"
    return f"{rst}\n{drawn(True)}"
