"""A tutorial's blocks, and the key that prose leaves alone and code never does."""

from __future__ import annotations

import ast
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gallery_recorder.project.script import ScriptError, load_script

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
        return load_script(tmp_path / name, name)

    return load


def test_what_is_read(load):
    script = load(TUTORIAL)
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
        return load_script(path).key

    same = ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    assert (key(one) == key(other)) == same
    assert key(f"x = {one}  # comment") == key(f"x = (\n    {one}\n)")


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(ScriptError, match=r"a\.py: cannot be read \(No such file"):
        load_script(tmp_path / "a.py")
    (tmp_path / "b.py").write_bytes(b'"""\nA\n=\n\xff"""\n')
    with pytest.raises(ScriptError, match=r"b\.py: is not UTF-8"):
        load_script(tmp_path / "b.py")


def test_a_script_without_docstring_has_no_title(load):
    with pytest.raises(ScriptError, match=r"a\.py: has no title\. Begin the file with a docstring"):
        load("x = 1\n", "a.py")


def test_a_title_needs_no_underline(load):
    assert load('"""A title alone."""\nx = 1\n').title == "A title alone."


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(:\n", r"01-a\.py:\d+: is not valid Python: .*\n.*def f"),
        ("f(1,\n# %%\n# Text.\n2)\n", r"01-a\.py:\d+: a '# %%' text cell splits a statement"),
    ],
)
def test_what_is_not_valid_python_is_told_and_has_a_key(load, code, message):
    script = load(f'"""\nA\n=\n"""\n{code}')
    assert script.broken
    assert re.search(message, script.broken)
    assert script.code
    assert script.key != load(f'"""\nA\n=\n"""\n{code} ').key


def test_text_alone_is_no_code(load):
    assert load('"""\nA\n=\n\nText.\n"""\n').code == ()


def test_a_sum_of_many_terms_has_a_key(tmp_path):
    path = tmp_path / "a.py"
    keys = set()
    for last in ("'a'", "'b'"):
        path.write_text('"""\nA\n=\n"""\nx = ' + " + ".join(["'abc'"] * 600 + [last]) + "\n")
        keys.add(load_script(path).key)
    assert len(keys) == 2


def test_what_python_cannot_read_is_one_message(tmp_path):
    path = tmp_path / "a.py"
    path.write_text('"""\nA\n=\n"""\nx = ' + "+".join(["1"] * 100_000) + "\n")
    with pytest.raises(ScriptError, match="nested too deep"):
        load_script(path)


def test_a_pipe_or_a_device_is_no_script(tmp_path):
    path = tmp_path / "a.py"
    os.mkfifo(path)
    (tmp_path / "b.py").symlink_to("/dev/zero")
    for name in ("a.py", "b.py"):
        with pytest.raises(ScriptError, match="is no plain file"):
            load_script(tmp_path / name)
