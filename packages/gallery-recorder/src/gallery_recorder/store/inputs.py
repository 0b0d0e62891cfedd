"""What has changed since a recording was made, besides its example's code.

The inputs that a recording keeps are compared with the project, the installed distributions and
the environment of this machine.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import metadata

from packaging.utils import canonicalize_name

from gallery_recorder import seam
from gallery_recorder.project import inputs, needs, settings, variables
from gallery_recorder.project.galleries import Project
from gallery_recorder.project.inputs import InputRules
from gallery_recorder.project.script import Script
from gallery_recorder.project.settings import Settings
from gallery_recorder.store.format import Inputs


@dataclass(frozen=True)
class Changes:
    """Changes since a recording was made, in words.

    Those in *stale* make it stale; *different* is only reported, such as another version.
    """

    stale: tuple[str, ...] = ()
    different: tuple[str, ...] = ()


NO_CHANGES = Changes()


class Here:
    """The inputs of a project on this machine; each file is read once."""

    def __init__(self, rules: InputRules, said: Settings, changing_outputs: dict[str, str]) -> None:
        self._rules, self._said, self._outputs = rules, said, changing_outputs
        self._filters = [*_filters(said.filters)]
        self._matched = functools.cache(rules.matched)
        self._digest_of_module = functools.cache(self._read_module)
        self._digest_of_file = functools.cache(self._read_file)
        self._shown_variables = functools.cache(self._variables_of)

    @classmethod
    def of(cls, project: Project) -> "Here":
        """Those of *project*."""
        return cls(project.inputs, project.settings, project.changing_outputs)

    def changes(self, recorded: Inputs | None, kind: str, script: Script) -> Changes:
        """What has changed since *recorded* were kept, for *script* on a *kind* of device.

        Nothing is known of a recording of an older engine, which keeps no inputs.
        """
        if recorded is None:
            return NO_CHANGES

        def module(name: str) -> str | None:
            return self._digest_of_module(name, script.reads_docstrings)

        stale = [
            *self._files(recorded.modules, module),
            *self._files(recorded.files, self._digest_of_file),
            *self._patterns(recorded),
            *self._settings(recorded, script),
        ]
        different: list[str] = []
        for name, text in [*self._versions(recorded), *self._variables(recorded, kind)]:
            is_asked = name in self._refreshed
            (stale if is_asked else different).append(text)
        if absent := [name for name in recorded.versions if _version(name) is None]:
            different.append(f"not installed here, not compared: {', '.join(absent)}")
        return Changes(tuple(stale), tuple(different))

    @functools.cached_property
    def _refreshed(self) -> set[str]:
        """The distributions and variables in ``gallery_refresh``."""
        return {
            name if name.startswith("$") else canonicalize_name(name) for name in self._said.refresh
        }

    # --- files ------------------------------------------------------------------------------------

    def _files(
        self, recorded: dict[str, str], digest: Callable[[str], str | None]
    ) -> Iterator[str]:
        for name, sha in recorded.items():
            if not self._rules.allows(name):
                continue  # conf.py no longer names its folder
            now = digest(name)
            if now is None:
                yield f"{name} is missing"
            elif now != sha:
                yield f"{name} has changed"

    def _read_module(self, name: str, keep_docstrings: bool) -> str | None:
        try:
            return inputs.digest_of_module(self._rules.path_of(name), keep_docstrings)
        except OSError:
            return None

    def _read_file(self, name: str) -> str | None:
        path = self._rules.path_of(name)
        try:
            return inputs.digest_of_file(path) if path.is_file() else None
        except OSError:
            return None

    def _patterns(self, recorded: Inputs) -> Iterator[str]:
        """Changes of the files that match a pattern, if the pattern was in force."""
        for pattern, before in recorded.matched.items():
            if pattern not in self._rules.patterns:
                continue
            now = self._matched(pattern)
            for name in sorted({*before, *now}):
                if name not in now:
                    yield f"{name} is missing"
                elif name not in before:
                    yield f"{name} was added"
                elif now[name] != before[name]:
                    yield f"{name} has changed"

    # --- settings, versions and variables ---------------------------------------------------------

    def _settings(self, recorded: Inputs, script: Script) -> Iterator[str]:
        launcher = needs.launcher_of(script, self._said.launcher)
        now = self._outputs | {"gallery_launcher": settings.plain(launcher)}
        for name, before in recorded.settings.items():
            if name in now and now[name] != before:
                yield f"{name} was {before} and is {now[name]}"
        if "capture_repr" not in self._outputs:
            return
        captured = needs.captured(script, self._outputs["capture_repr"])
        if len(captured) != len(recorded.capture_repr):
            return  # of other code
        for code, before, value in zip(script.code, recorded.capture_repr, captured, strict=True):
            # Without a value, a page can be made of every recording.
            own = seam.settings_in(code.block.content).get(needs.CAPTURE)
            if before != value and own != ():
                yield f"capture_repr was {before} and is {value}"
                return

    def _versions(self, recorded: Inputs) -> Iterator[tuple[str, str]]:
        """The distributions whose version differs, each with a text."""
        for name, before in recorded.versions.items():
            now = _version(name)
            if now is not None and now != before:
                yield canonicalize_name(name), f"{name} was {before} and is {now}"

    def _variables(self, recorded: Inputs, kind: str) -> Iterator[tuple[str, str]]:
        """The variables that differ, as ``$NAME``, each with a text."""
        here = self._shown_variables(kind)
        for name in sorted({*recorded.variables, *here}):
            before, now = recorded.variables.get(name), here.get(name)
            is_named = any(fnmatchcase(name, pattern) for pattern in self._said.variables)
            if before == now or not is_named:
                continue
            if name not in recorded.variables and f"${name}" in self._refreshed:
                continue  # the setting is newer than the recording
            yield f"${name}", f"${name} was {_value(before)} and is {_value(now)}"

    def _variables_of(self, kind: str) -> dict[str, str | None]:
        """The variables of an example on this machine, as a recording would show them."""
        found = variables.inputs(variables.of_example_here(self._said, kind), self._said)
        shown: dict[str, str | None] = {}
        for name, value in found.items():
            shown[name] = value
            for text_filter in self._filters:
                if value is not None:
                    shown[name] = value = text_filter(value)
        return shown


def _filters(names: Iterable[str]) -> Iterator[Callable[[str], str]]:
    """The functions of ``gallery_filters`` that can be imported here."""
    for name in names:
        try:
            yield settings.resolve(name, "gallery_filters")
        except settings.SettingsError:
            continue


def _value(value: str | None) -> str:
    return "not set" if value is None else repr(value)


@functools.cache
def _version(name: str) -> str | None:
    """The version of the distribution *name* here; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
