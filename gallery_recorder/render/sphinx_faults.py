"""Faults of Sphinx that make a second build differ from a first, each with what corrects it.

This is the one place for them. Each names the fault and the place in Sphinx 9; where Sphinx has
corrected one, its lines here go.
"""

from __future__ import annotations

import gc
import os
import shutil
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from docutils.parsers.rst import states
from sphinx import search
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from gallery_recorder.render import downloads


def setup(app: Sphinx) -> None:
    """Correct what can be corrected by events."""
    _what_stays_is_left_alone(app)
    search.IndexBuilder = KeptIndex  # type: ignore[misc]
    app.connect("builder-inited", _downloads_are_copied_once)
    app.connect("builder-inited", _formatters_are_kept)
    app.connect("env-get-updated", _orders_are_fixed, priority=100)
    states.NestedStateMachine.add_states = _add_states
    _readers_send_what_they_read(app)


# --- what stays -----------------------------------------------------------------------------------


def _what_stays_is_left_alone(app: Sphinx) -> None:
    """Look for no garbage while Sphinx starts, nor among what it started with, nor when it is done.

    What Sphinx knows of 400 pages is half a million objects that stay. Python looks through them
    each time that there are some more, two thirds of the time of loading them, and takes each of
    them apart when the process ends, a third of the time of a build without change.
    """
    if gc.get_freeze_count():  # by a build before, in this process
        gc.unfreeze()
        gc.collect()
    gc.disable()
    app.connect("builder-inited", lambda app: gc.freeze(), priority=0)
    app.connect("builder-inited", lambda app: gc.enable(), priority=0)
    app.connect("build-finished", lambda app, error: gc.freeze(), priority=1000)


# --- the search index -----------------------------------------------------------------------------


class KeptIndex(search.IndexBuilder):
    """The search index, as a cold build makes it.

    ``IndexBuilder.load`` does not restore the entries of the index that were in the file ("no need
    to load keywords/objtypes"), so after any build that reads fewer than all pages the search finds
    no name of an API. ``freeze`` writes words that no page has any more, and entries in the order
    in which pages were written.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Stem a word once: Sphinx stems it for each page that has it."""
        super().__init__(*arguments, **options)
        self.lang.stem = cache(self.lang.stem)  # type: ignore[method-assign]

    def load(self, stream: Any, format: Any) -> None:
        """Read the file, and its entries too."""
        format = self.formats[format] if isinstance(format, str) else format
        frozen = format.load(stream)
        super().load(stream, SimpleNamespace(load=lambda stream: frozen))
        names = frozen["docnames"]
        self._index_entries.clear()
        for entry, places in frozen.get("indexentries", {}).items():
            for number, target, is_main in places:
                main = "main" if is_main else ""
                self._index_entries.setdefault(names[number], []).append((entry, target, main))

    def prune(self, docnames: Any) -> None:
        """Forget pages that are gone or written again, and words that nobody else has."""
        super().prune(docnames)
        kept = set(docnames)
        for found in (self._index_entries, self._mapping, self._title_mapping):
            for key, pages in list(found.items()):
                if not pages or (found is self._index_entries and key not in kept):
                    del found[key]

    def freeze(self) -> dict[str, Any]:
        """What is written, with the entries in the order of the pages' names."""
        self._index_entries = dict(sorted(self._index_entries.items()))
        return super().freeze()


# --- reading --------------------------------------------------------------------------------------


class _States(dict[str, Any]):
    """The states of one of docutils' parsers, each made when it is asked for.

    docutils makes all fifteen, and looks up a dozen patterns and methods for each, for every list,
    field and row of explicit markup on a page: a seventh of the time of a cold build. Most ask for
    one or two.
    """

    def __init__(self, machine: Any, classes: Any) -> None:
        super().__init__()
        self._machine = machine
        self._classes = {state.__name__: state for state in classes}

    def __missing__(self, name: str) -> Any:
        state = self[name] = self._classes[name](self._machine, self._machine.debug)
        if getattr(self._machine, "memo", None) is not None:  # it is running
            state.runtime_init()
        return state


def _add_states(machine: Any, state_classes: Any) -> None:
    machine.states = _States(machine, state_classes)


#: As many pages are read faster than a process is told of the others.
_FEW = 8

#: What is known of each page, and most of what is known.
_OF_PAGES = ("dependencies", "longtitles", "titles", "tocs")


def _readers_send_what_they_read(app: Sphinx) -> None:
    """Have a process that reads pages tell the main one of these alone.

    Sphinx has it send what is known of all pages, for each chunk that it reads: of 4000 pages, two
    fifths of the time of reading. Where there are few to be read, the main one reads them.
    """
    main, parallel = os.getpid(), app.parallel
    read: set[str] = set()

    def begin(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
        app.parallel = parallel if len(docnames) > _FEW else 1

    def note(app: Sphinx, docname: str, content: list[str]) -> None:
        if os.getpid() != main:
            read.add(docname)

    def state(env: BuildEnvironment) -> dict[str, Any]:
        made = _ALL_STATE(env)
        for name in _OF_PAGES if read else ():
            made[name] = {page: known for page, known in made[name].items() if page in read}
        return made

    app.connect("env-before-read-docs", begin, priority=1000)
    app.connect("env-updated", lambda app, env: setattr(app, "parallel", parallel), priority=0)
    app.connect("source-read", note)
    BuildEnvironment.__getstate__ = state  # type: ignore[assignment, method-assign]


_ALL_STATE: Any = BuildEnvironment.__getstate__


# --- orders ---------------------------------------------------------------------------------------


def _orders_are_fixed(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Put what other extensions go through in order: Sphinx keeps pages as they were read.

    Pages that were read again come last, and those that two processes read come as these end. Two
    images of one name get numbers in that order, too; here, in the order of their paths.
    """
    del app
    env.all_docs = dict(sorted(env.all_docs.items()))
    env.titles = dict(sorted(env.titles.items()))
    again: set[str] = set()
    taken: set[str] = set()
    for path, (docnames, name) in sorted(env.images.items()):
        place = Path(path)
        unique, number = place.name, 0
        while unique in taken:
            number += 1
            unique = f"{place.stem}{number}{place.suffix}"
        taken.add(unique)
        if unique != name:
            env.images[path] = (docnames, unique)
            again |= docnames
    env.images._existing = taken
    return sorted(again)


def leave_parents_alone(env: BuildEnvironment) -> None:
    """Where no title and no section changed, write no page again for the pages in its toctree.

    Sphinx writes it for every page of it that was read again, whatever changed there: the index of
    a gallery for each sentence. The environment has been saved by now.
    """
    env.files_to_rebuild = {}


#: What Sphinx makes anew in each build, of all pages and of the theme.
_OF_ALL = ["load_indexer", "copy_static_files", "gen_indices", "gen_additional_pages"]
_OF_ALL += ["dump_search_index", "dump_inventory", "write_buildinfo"]


def leave_what_is_there(builder: Any) -> None:
    """Where no page is written, have nothing made again that is made of all of them."""
    prepare = builder.prepare_writing

    def prepare_writing(docnames: Any) -> None:
        for name in () if docnames else _OF_ALL:
            setattr(builder, name, lambda *_: None)
        prepare(docnames)

    builder.prepare_writing = prepare_writing


# --- files ----------------------------------------------------------------------------------------


def _formatters_are_kept(app: Sphinx) -> None:
    """Make a formatter of code once: Sphinx makes one, with a whole style sheet, for each block."""
    bridge: Any = getattr(app.builder, "highlighter", None)
    if bridge is not None:
        made: dict[str, Any] = {}
        make = bridge.get_formatter
        bridge.get_formatter = lambda **o: made.get(repr(o)) or made.setdefault(repr(o), make(**o))


def _downloads_are_copied_once(app: Sphinx) -> None:
    """Copy downloads that changed: Sphinx compares the content of each of them, each time."""
    builder: Any = app.builder
    if getattr(builder, "download_support", False):  # an EPUB has none
        builder.copy_download_files = partial(downloads.copy_to_site, app, builder)


def remove(paths: list[Path], root: Path) -> None:
    """Remove files that no page has any more: Sphinx leaves them in the site. And empty folders."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        folder = path.parent
        while root in folder.parents and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent
