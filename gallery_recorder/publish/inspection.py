"""Whether a build is fit to be published: all pages there, with their outputs, and links whole."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from posixpath import normpath
from urllib.parse import unquote, urlsplit

from gallery_recorder.errors import RecorderError
from gallery_recorder.publish import versions
from gallery_recorder.publish.versions import Version, Versions, VersionsError

#: What an element refers to.
_REFERENCES = {"href", "src", "poster", "data"}
_SHOWN = 20


class InspectionError(RecorderError):
    """A build that must not be published; lists what is wrong with it."""


def inspect(build: Path, name: str) -> Versions:
    """Check that the finished build in *build* is version *name*, whole; return what it lists.

    Raises:
        InspectionError: it is no build, or another version's, or not whole.
    """
    listed = _read(build)
    (version,) = listed.all
    if version.name != name:
        raise InspectionError(
            f"{build}: is a build of {version.name} ({version.release}), not of {name}. Check out "
            f"{name} and build it, or publish this as {version.name}"
        )
    problems = _problems(build, version)
    if problems:
        more = len(problems) - _SHOWN
        raise InspectionError(
            f"{build}: is not fit to be published:\n"
            + "".join(f"  {problem}\n" for problem in problems[:_SHOWN])
            + (f"  and {more} more\n" if more > 0 else "")
            + "Correct it and build again, into an empty folder where pages are left over"
        )
    return listed


def _read(build: Path) -> Versions:
    remedy = "build the site first, with the extension gallery_recorder.publish.release"
    if not build.is_dir():
        raise InspectionError(f"{build}: is no folder; {remedy}")
    try:
        listed = versions.read(build / versions.FILE_NAME)
    except VersionsError as error:
        raise InspectionError(f"{build}: is no finished build ({error}); {remedy}") from error
    if listed.of != "build" or len(listed.all) != 1:
        raise InspectionError(f"{build}: is a site, not a build. Which folder did you mean?")
    if urlsplit(listed.address).scheme not in ("http", "https"):
        raise InspectionError(
            f"{build}: does not know where it will be served; set html_baseurl in conf.py to the "
            "address of the stable version, and build again"
        )
    return listed


def _problems(build: Path, version: Version) -> list[str]:
    problems = []
    files = {}
    for path in build.rglob("*"):
        name = path.relative_to(build).as_posix()
        if path.is_symlink():  # it could lead to any file of this machine
            problems.append(f"{name} is a symbolic link")
        elif path.is_file():
            files[name] = path
        elif not path.is_dir():
            problems.append(f"{name} is no plain file")
    pages: dict[str, _Page] = {}
    for name, path in sorted(files.items()):
        if name.startswith(("_static/", ".")):
            continue
        data = name.startswith("_downloads/")  # a script may have left an empty file
        if path.stat().st_size == 0 and not data:
            problems.append(f"{name} is empty")
        elif name.endswith(".html"):
            try:
                pages[name] = _Page(path.read_text(encoding="utf-8", errors="replace"))
            except (AssertionError, RecursionError) as error:  # of Python's parser
                problems.append(f"{name} is no page that can be read ({error})")
    for name in dict.fromkeys(("index.html", *version.pages)):
        if name not in files:
            problems.append(f"{name} is missing")
    for name, page in pages.items():
        if name not in version.pages and not name.startswith("_"):
            problems.append(f"{name} is left over from an earlier build")
        problems += [f"{name}: {text}" for text in page.output_problems()]
        for reference in page.references:
            if cause := _broken(name, reference, files, pages):
                problems.append(f"{name}: the link {reference} {cause}")
    return problems


def _broken(page: str, reference: str, files: dict[str, Path], pages: dict[str, _Page]) -> str:
    """What is wrong with a link from *page*; nothing where it is right or leaves the site."""
    try:
        parts = urlsplit(reference)
    except ValueError as error:
        return f"is no address ({error})"
    if parts.scheme or parts.netloc:
        return ""
    if parts.path.startswith("/"):
        return "is absolute, and would leave the version"
    target = page
    if parts.path:
        target = normpath((PurePosixPath(page).parent / unquote(parts.path)).as_posix())
        if target.startswith("../") or target == "..":
            return "leaves the version"
    if target not in files:
        target = normpath(f"{target}/index.html")
        if target not in files:
            return "leads nowhere"
    fragment = unquote(parts.fragment)
    if fragment and target in pages and fragment not in pages[target].anchors:
        return f"leads to no place in {target}"
    return ""


class _Page(HTMLParser):
    """What one page refers to, where it can be referred to, and which outputs it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.anchors: set[str] = set()
        self._is_example = False
        self._is_recorded = False
        self._outputs: list[str] = []
        self._depth = 0  # of <div> inside an output
        self.feed(text)
        self.close()

    def output_problems(self) -> list[str]:
        """The page of an example shows a recording, and no output of it is empty."""
        if not self._is_example:
            return []
        if not self._outputs and not self._is_recorded:
            return ["shows no output"]
        empty = sum(not text.strip() for text in self._outputs)
        return [f"{empty} of its outputs are empty"] if empty else []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        classes = values.get("class", "").split()
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and "name" in values:
            self.anchors.add(values["name"])
        for name in _REFERENCES & values.keys():
            self.references.append(values[name])
        for candidate in values.get("srcset", "").split(","):
            self.references += candidate.split()[:1]
        self._is_example |= "sphx-glr-example-title" in classes
        self._is_recorded |= "gallery-provenance" in classes
        if tag == "div":
            if "sphx-glr-script-out" in classes:
                self._outputs.append("")
                self._depth = 1
            elif self._depth:
                self._depth += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "div" and self._depth:
            self._depth -= 1

    def handle_data(self, data: str) -> None:
        if self._depth:
            self._outputs[-1] += data
