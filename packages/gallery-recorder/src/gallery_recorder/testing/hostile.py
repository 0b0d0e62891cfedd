"""Values that a recording from anybody may have, and recordings that have one of them."""

import copy
import json
from collections.abc import Iterator
from typing import Any

#: Markup that would run, fetch or include something, and text that ends a line or a role.
MARKUP = (
    "`x <javascript:alert(1)>`__",
    ":download:`/etc/passwd`",
    "\n\n.. plot::\n\n   open('ran', 'w')\n",
    "\n\n.. raw:: html\n\n   <script>evil()</script>\n",
    "\u2028\u2028.. raw:: html\u2028\u2028   <script>evil()</script>\u2028",
    "\x85\x85.. include:: /etc/passwd\x85",
    "a`b |c| d_ *e* \\",
    '"><script>evil()</script>',
    "javascript:alert(1)",
)
#: Names and values at the edges of what types allow.
EDGES: tuple[Any, ...] = (
    "",
    "../../x",
    "/etc/passwd",
    "a\\b",
    "NUL.csv",
    "a\u202egnp.exe",
    "a\u200bb",
    "x" * 400,
    "9999-99-99T99:99:99Z",
    "2999-01-01T00:00:00Z",
    None,
    True,
    -1,
    0,
    10**30,
    1e300,
    [],
    [[]],
    {},
    {"": ""},
)


def mutants(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The JSON *content* with one value replaced, removed or doubled, and what was changed."""
    base = json.loads(content)
    for path in _paths(base):
        where = "/".join(map(str, path))
        for value in (*MARKUP, *EDGES):
            changed = copy.deepcopy(base)
            _at(changed, path[:-1])[path[-1]] = value
            yield f"{where} = {value!r:.60}", json.dumps(changed).encode()
        changed = copy.deepcopy(base)
        del _at(changed, path[:-1])[path[-1]]
        yield f"without {where}", json.dumps(changed).encode()
        if isinstance(path[-1], str):
            for name in (*MARKUP, *EDGES):
                if isinstance(name, str):
                    changed = copy.deepcopy(base)
                    parent = _at(changed, path[:-1])
                    parent[name] = parent.pop(path[-1])
                    yield f"{where} is called {name!r:.60}", json.dumps(changed).encode()
        else:
            changed = copy.deepcopy(base)
            parent = _at(changed, path[:-1])
            parent.append(copy.deepcopy(parent[path[-1]]))
            yield f"{where} twice", json.dumps(changed).encode()


def _paths(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of each value inside *value*."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield (*above, key)
        yield from _paths(inner, (*above, key))


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value
