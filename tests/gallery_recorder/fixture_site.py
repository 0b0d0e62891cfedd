"""Builds of a few small files, made without Sphinx, and a server to read their site from."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from gallery_recorder.publish.inspection import KEPT
from gallery_recorder.publish.versions import Version, Versions

ADDRESS = "https://example.org/triton-gallery/"
GALLERY = "getting-started/tutorials"
TUTORIAL = f"{GALLERY}/01-first.html"

PAGE = """<!DOCTYPE html>
<html><head><title>{name}</title><link rel="stylesheet" href="{root}_static/look.css">
<link rel="canonical" href="https://example.org/triton-gallery/stable/{name}"></head>
<body><h1 id="title">{name}</h1><p>build {edition}</p>
<a href="{root}index.html#title">home</a>{body}</body></html>
"""
OUTPUT = """
<section class="sphx-glr-example-title" id="first">
<div class="sphx-glr-script-out"><div class="highlight"><pre>{text}</pre></div></div>
<img class="sphx-glr-single-img" src="../../_images/plot.svg" alt="A plot"></section>
"""


def make_build(
    folder: Path, name: str, edition: str = "1", more: tuple[str, ...] = (), files: int = 0
) -> Path:
    """Write a build of version *name*, with the pages *more* and *files* others, and return it.

    Every file of it says which *edition* it is of.
    """
    pages = sorted({*KEPT, TUTORIAL, "search.html", *more})
    for page in pages:
        body = OUTPUT.format(text=f"edition {edition}") if page == TUTORIAL else ""
        root = "../" * page.count("/")
        write(folder / page, PAGE.format(name=page, edition=edition, root=root, body=body))
    write(folder / "_static" / "look.css", f"/* build {edition} */")
    write(folder / "_images" / "plot.svg", f"<svg><!-- build {edition} --></svg>")
    for number in range(files):
        write(folder / "_downloads" / f"{number:03}.csv", f"size,build {edition}\n" * 50)
    version = Version(
        name=name,
        release=f"{name}-{edition}",
        pages=tuple(pages),
        date="2026-11-20T12:00:00Z",
    )
    write(folder / "versions.json", Versions("build", ADDRESS, [version]).encode().decode())
    return folder


def write(path: Path, text: str) -> None:
    """Write a file and the folders that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def tree(folder: Path) -> dict[str, bytes | str]:
    """All that is in *folder*: the content of each file, the target of each link."""
    return {
        path.relative_to(folder).as_posix(): f"-> {path.readlink()}"
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


class _Pages(http.server.SimpleHTTPRequestHandler):
    """As GitHub Pages: for what is not there, the root's 404.html, at whatever depth."""

    prefix = "/triton-gallery/"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and content are two packets, 40 ms apart otherwise

    def translate_path(self, path: str) -> str:
        if not path.startswith(self.prefix):
            return "/nonexistent"
        return super().translate_path("/" + path.removeprefix(self.prefix))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        page = Path(self.directory, "404.html")
        if code != 404 or not page.is_file():
            super().send_error(code, message, explain)
            return
        content = page.read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        del format, arguments


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve *site* below ``/triton-gallery/``, as GitHub Pages does; gives the root's address."""
    handler = partial(_Pages, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{_Pages.prefix}"
        finally:
            server.shutdown()
            thread.join()
