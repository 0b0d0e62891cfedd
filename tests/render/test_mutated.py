"""Recordings, lists of versions and files that were changed at random, thousands of times.

Whatever was changed: one error of its own kind, or a page on which nothing is markup but the
site's. What survives loading is rendered, and looked at in a browser where there is one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gallery_recorder.publish import front, versions
from gallery_recorder.publish.versions import VersionsError
from gallery_recorder.store import recording
from gallery_recorder.store.format import FILE_NAME
from gallery_recorder.store.recording import RecordingError
from tests.fixtures import chromium, forked
from tests.fixtures.fixture_gallery import INDEX, make_gallery, make_recording
from tests.fixtures.fixture_site import make_build

#: How often each of the three is changed.
OFTEN = {"recording": 500, "versions": 200, "files": 100}
#: Under stress, as often again and again, each time otherwise: more than 20 000 times.
times = pytest.mark.parametrize("times", [1, pytest.param(26, marks=pytest.mark.stress)])
PAGES = 24  # of recordings that survived, each time: as many as hold what must not be executed

EVIL = (
    "<script>evil()</script>",
    "<img src=x onerror=evil()>",
    '"><svg onload="evil()">',
    "`x <javascript:evil()>`_",
    "\n\n.. raw:: html\n\n   <script>evil()</script>\n",
    "`` :raw-html:`<script>evil()</script>` |x| **",
    "]]><script>evil()</script>",
    "{{ 7*7 }}<script>evil()</script>{% raw %}",
    "\u202e</title><script>evil()</script>",
    "../../../../etc/passwd",
    "\x00\x1b[2J\r\n",
    "x" * 5000,
    "中文" * 200,
    "",
)
ODD = (None, True, -1, 0, 1.5, 1e308, 10**30, [], {}, [[]], {"a": 1}, "2026-02-30T00:00:00Z", *EVIL)

#: What a script's own output is: shown as it is, so no place for what must not be shown.
OWN = {"rst", "text", "stdout", "stderr", "exception"}


def often(what: str, times: int, check: Callable[[random.Random], None]) -> None:
    """Let *check* make changes at random: the same in each run of the tests."""

    @settings(max_examples=OFTEN[what] * times, deadline=None, database=None, derandomize=True)
    @given(seed=st.integers(0, 2**32))
    def tried(seed):
        check(random.Random(f"{seed}, {times}"))

    tried()


def mutated(content: bytes, chance: random.Random) -> bytes:
    """*content*, JSON, with one to three things changed at random."""
    for _ in range(chance.selection((1, 1, 1, 2, 3))):
        content = chance.selection((_bytes, _leaf, _leaf, _leaf, _structure))(content, chance)
    return content


def _bytes(content: bytes, chance: random.Random) -> bytes:
    at, length = chance.randrange(len(content) + 1), chance.selection((0, 1, 1, 7, 400))
    new = chance.selection(
        (b"", bytes(chance.randbytes(3)), b"\xff", b"\x00", b"[" * 3000, b'"', b"}", b"\\ud800")
    )
    return content[:at] + new + content[at + length :]


def _places(value, path=()):
    """Every place in *value*: the object or list that it is in, and its key there."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key, path
        if isinstance(inner, dict | list):
            yield from _places(inner, (*path, key))


def _parsed(content: bytes):
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found else None


def _leaf(content: bytes, chance: random.Random) -> bytes:
    value = _parsed(content)
    if value is None:
        return content
    holder, key, _ = chance.selection(list(_places(value)))
    if key not in OWN:
        old = holder[key]
        evil = chance.selection(EVIL)
        if isinstance(old, str) and chance.random() < 0.7:
            evil = chance.selection((evil, old + evil, evil + old))
        holder[key] = evil if chance.random() < 0.6 else chance.selection(ODD)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _structure(content: bytes, chance: random.Random) -> bytes:
    value = _parsed(content)
    if value is None:
        return content
    holder, key, _ = chance.selection(list(_places(value)))
    what = chance.randrange(4)
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, list):
        holder.append(holder[key])
    elif what == 1:
        holder[chance.selection(EVIL)] = holder[key]
    elif isinstance(holder, list):
        chance.shuffle(holder)
    else:
        holder[key] = [holder[key]]
    return json.dumps(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """A gallery with a recording, and what of its changed forms can be loaded."""
    root = make_gallery(tmp_path_factory.mktemp("mutated") / "g", names=("01-first",))
    folder = make_recording(root, "01-first")
    return root, folder, (folder / FILE_NAME).read_bytes()


SURVIVED: list[bytes] = []


@times
def test_a_changed_recording_is_one_error_or_is_whole(gallery, times):
    often("recording", times, partial(one_recording, gallery))


def one_recording(gallery, chance):
    _, folder, content = gallery
    changed = mutated(content, chance)
    (folder / FILE_NAME).write_bytes(changed)
    location = recording.Location(folder.parents[2], "nvidia-h200", None, "tutorials", "01-first")
    try:
        made = location.load([block["key"] for block in json.loads(content)["blocks"]])
    except RecordingError as error:
        made, told = None, str(error)
    finally:
        (folder / FILE_NAME).write_bytes(content)
    if made is None:
        assert told.startswith(str(folder))
    elif made.key == json.loads(content)["key"] and changed != content:
        SURVIVED.append(changed)


@times
def test_a_changed_file_is_one_error(gallery, times):
    often("files", times, partial(one_file, gallery))


def one_file(gallery, chance):
    _, folder, _ = gallery
    path = chance.selection([p for p in folder.rglob("*") if p.is_file() and p.suffix != ".json"])
    content = path.read_bytes()
    try:
        what = chance.randrange(5)
        if what == 0:
            path.unlink()
            os.mkfifo(path)
        elif what == 1:
            path.unlink()
            path.symlink_to(chance.selection(("/dev/zero", "/etc/passwd", path.name, "nowhere")))
        else:
            path.write_bytes(_bytes(content, chance))
        same = path.is_file() and not path.is_symlink() and path.read_bytes() == content
        if same:
            recording.load(folder)
        else:
            with pytest.raises(RecordingError):
                recording.load(folder)
    finally:
        path.unlink(missing_ok=True)
        path.write_bytes(content)


class Markup(HTMLParser):
    """What on a page could be executed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._script = tag == "script"
        for name, value in attrs:
            if name.startswith("on") or (value or "").strip().lower().startswith("javascript:"):
                self.found.append(f"<{tag} {name}={value}>")

    def handle_endtag(self, tag):
        self._script = False

    def handle_data(self, data):
        if self._script and "evil()" in data and "JSON" not in data:
            self.found.append(data)


def evil_in(text: str) -> list[str]:
    return [found for found in Markup(text).found if "evil" in found]


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    build = make_build(tmp_path_factory.mktemp("versions") / "b", "v1.0.0")
    return (build / "versions.json").read_bytes(), build / "changed.json"


@times
def test_a_changed_list_of_versions_is_one_error_or_harmless(listed, times):
    often("versions", times, partial(one_list, listed))


def one_list(listed, chance):
    content, path = listed
    path.write_bytes(mutated(content, chance))
    try:
        found = versions.read(path)
    except VersionsError as error:
        found, told = None, str(error)
    if found is None:
        assert told.startswith(str(path))
        return
    # A list without versions has no pages.
    for name, text in front.files(found, lambda *_: "").items() if found.stable else ():
        if name.endswith(".html"):
            assert evil_in(text.decode()) == []


@times
def test_what_survived_is_rendered_and_nothing_of_it_is_markup(gallery, tmp_path, times):
    assert len(SURVIVED) >= PAGES * times, "too little survives to say much"
    _, folder, _ = gallery
    # Those that hold what must not be executed come first.
    chosen = sorted(SURVIVED, key=lambda text: b"evil()" not in text)[: PAGES * times]
    assert sum(b"evil()" in text for text in chosen) >= len(chosen) // 2
    names = tuple(f"{number:03}-page" for number in range(len(chosen)))
    root = make_gallery(tmp_path / "g", names=names)
    (root / "docs" / "index.rst").write_text(
        INDEX + "\n.. gallery-headlines::\n\n.. gallery-performance::\n"
    )
    script = (gallery[0] / "tutorials" / "01-first.py").read_text()
    for name, text in zip(names, chosen, strict=True):
        (root / "tutorials" / f"{name}.py").write_text(script)
        place = root / "recordings" / "nvidia-h200" / "tutorials" / name
        shutil.copytree(folder, place)
        content = json.loads(text) | {"name": name}
        (place / FILE_NAME).write_text(json.dumps(content))
    done = forked.build(root)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    pages = sorted((root / "build" / "html").rglob("*.html"))
    assert len(pages) > len(names)
    for path in pages:
        text = path.read_text(encoding="utf-8", errors="replace")
        assert evil_in(text) == [], path
    # In a thread of its own: another test of this process may have a browser's loop running.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_look_in_a_browser, root / "build" / "html", pages).result()


def _look_in_a_browser(site: Path, pages: list[Path]) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # What a page asks of another host fails at once, and not after seconds.
        flags = [*chromium.FLAGS, "--host-resolver-rules=MAP * ~NOTFOUND"]
        running = playwright.chromium.launch(executable_path=chromium.executable(), args=flags)
        page = running.new_page()
        page.add_init_script("window.evil = () => { window.executed = true; }")
        for path in pages:
            page.goto(path.as_uri(), wait_until="load")  # which waits for images that fail
            assert page.evaluate("window.executed") is None, path.relative_to(site)
        running.close()
