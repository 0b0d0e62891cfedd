"""A tutorial's blocks, and the key that prose leaves alone and code never does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gallery_recorder.source.script import (
    ScriptError,
    find_scripts,
    load_script,
    project_galleries,
    select_scripts,
)

TUTORIAL = '''"""
.. _label:

First *kernel*
==============

Intro.
"""

# sphinx_gallery_thumbnail_number = 2
import math

# %%
# Prose, with ``code``.


def area(radius):
    """The area."""
    return math.pi * radius**2  # in m²


# %%
# More prose.

print(area(2.0), "µ")

# %%
# Only a comment follows.

# nothing
'''


@pytest.fixture
def load(tmp_path):
    def load(text, name="01-a.py"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return load_script(tmp_path / name, tmp_path)

    return load


def test_what_is_read(load):
    script = load(TUTORIAL)
    assert script.name == "01-a"
    assert script.title == "First kernel"
    assert script.settings == {"thumbnail_number": 2}
    lines = TUTORIAL.splitlines()
    assert [lines[code.line - 1] for code in script.code] == [
        "import math",
        "def area(radius):",
        'print(area(2.0), "µ")',
    ]
    assert [script.blocks[code.index] for code in script.code] == [c.block for c in script.code]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Intro.", "Another introduction,\n\nof two paragraphs."),
        ("First *kernel*\n==============", "Another title\n============="),
        ("# Prose, with", "# Other prose\n#\n# with"),
        ("# in m²", "# in square metres"),
        ("  # in m²", ""),
        ("# nothing\n", ""),
        ("\n\n\ndef", "\n\n# a comment\n\ndef"),
        ('"""The area."""', '"""The area of a circle."""'),
        ('    """The area."""\n', ""),
        ("math.pi * radius**2", "(math.pi\n        * radius ** 2)"),
        ('"µ"', "'µ'"),
        ('"µ"', 'u"µ"'),
        ('"µ"', '"\\xb5"'),
        ("2.0", "2.00"),
        ("# sphinx_gallery_thumbnail_number = 2\n", ""),
        ("# sphinx_gallery_thumbnail_number = 2\n", "# sphinx_gallery_timeout = 5\n"),
    ],
)
def test_prose_comments_and_layout_keep_the_key(load, old, new):
    assert old in TUTORIAL
    assert load(TUTORIAL.replace(old, new)).key == load(TUTORIAL).key


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import math", "import math as m"),
        ("radius**2", "radius**3"),
        ("radius**2", "radius * 2"),
        ("2.0", "2"),
        ("2.0", "3.0"),
        ('"µ"', 'b"u"'),
        ("def area", "async def area"),
        ("area(radius)", "area(radius, /)"),
        ("area(radius)", "area(radius: float)"),
        ("area(radius)", "area(radius=1)"),
        ("# nothing", "pass"),
        ("print(area(2.0)", "print(-area(2.0)"),
        ("# %%\n# More prose.\n", ""),  # blocks joined: output would appear elsewhere
        ('    """The area."""\n', '    """The area."""\n    pass\n'),
    ],
)
def test_code_changes_the_key(load, old, new):
    assert old in TUTORIAL
    assert load(TUTORIAL.replace(old, new)).key != load(TUTORIAL).key


def test_a_docstring_that_is_read_is_code(load):
    reading = TUTORIAL.replace("print(area(2.0)", "print(area.__doc__")
    changed = reading.replace("The area.", "Another area.")
    assert load(reading).key != load(changed).key


def test_the_key_is_the_same_on_every_python(load):
    """Pinned: another value means that every recording there is has become stale."""
    assert load(TUTORIAL).key[:16] == "7f3a9516c22dbdba"


_EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", "1", "2.5", "'s'", "None"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "*", "-", "@"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        inner.map(lambda text: f"f({text}, k={text})"),
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(one=_EXPRESSIONS, other=_EXPRESSIONS)
def test_keys_are_equal_exactly_where_the_code_is(tmp_path_factory, one, other):
    folder = tmp_path_factory.getbasetemp()

    def key(code):
        path = folder / "any.py"
        path.write_text(f'"""\nA\n=\n"""\n{code}\n')
        return load_script(path, folder).key

    same = ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    assert (key(one) == key(other)) == same
    assert key(f"x = {one}  # comment") == key(f"x = (\n    {one}\n)")


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(ScriptError, match=r"a\.py: cannot be read \(No such file"):
        load_script(tmp_path / "a.py", tmp_path)
    (tmp_path / "b.py").write_bytes(b'"""\nA\n=\n\xff"""\n')
    with pytest.raises(ScriptError, match=r"b\.py: is not UTF-8"):
        load_script(tmp_path / "b.py", tmp_path)


def test_finding_and_selecting(tmp_path):
    for name in ("02-b.py", "01-a.py", "_private.py", "conftest.py", "readme.txt"):
        (tmp_path / name).touch()
    for folder in ("solutions", "assets"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "01-c.py").touch()
    (tmp_path / "solutions" / "GALLERY_HEADER.rst").touch()
    names = [path.relative_to(tmp_path).as_posix() for path in find_scripts(tmp_path)]
    assert names == ["01-a.py", "02-b.py", "solutions/01-c.py"]

    def select(*names):
        found = select_scripts([tmp_path], names)
        return [file.path.relative_to(tmp_path).as_posix() for file in found]

    assert select() == names
    assert select("02", "01") == ["01-a.py", "02-b.py"]
    assert select("02-b.py", "02-b") == ["02-b.py"]
    assert select("solutions/01-c") == ["solutions/01-c.py"]
    assert select("01-c") == ["solutions/01-c.py"]
    for wrong in ("3", "0", "1", "b"):
        with pytest.raises(ScriptError, match=r"The tutorials in .*: 01-a, 02-b, solutions/01-c"):
            select(wrong)
    with pytest.raises(ScriptError, match="has no tutorials"):
        select_scripts([tmp_path, tmp_path / "assets" / "none"], [])


def test_several_galleries(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert project_galleries() == (Path("tutorials"),)
    for folder, name in (("tutorials", "01-a"), ("guide/chapter-3", "debugging")):
        Path(folder).mkdir(parents=True)
        Path(folder, f"{name}.py").touch()
        Path(folder, "GALLERY_HEADER.rst").touch()
    Path("guide/drafts").mkdir()
    Path("guide/drafts/c.py").touch()  # no header: no gallery
    galleries = project_galleries()
    assert galleries == (Path("tutorials"), Path("guide/chapter-3"))
    files = select_scripts(galleries, [])
    assert [(f.name, f.source) for f in files] == [
        ("01-a", "tutorials/01-a.py"),
        ("debugging", "guide/chapter-3/debugging.py"),
    ]
    assert [f.name for f in select_scripts(galleries, ["debugging", "01"])] == [
        "01-a",
        "debugging",
    ]
    assert len(select_scripts([*galleries, *galleries, Path("./tutorials")], [])) == 2
    (absolute,) = select_scripts([tmp_path / "guide" / "chapter-3"], [])
    assert absolute.source == "chapter-3/debugging.py"
    Path("guide/chapter-3/01-a.py").touch()
    with pytest.raises(ScriptError, match=r"01-a\.py has the same name.*Rename one"):
        select_scripts(galleries, ["debugging"])
