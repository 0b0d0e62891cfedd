"""A script: its blocks, its settings, and the key that only a change of code changes."""

import re

import pytest

from gallery_recorder.project import needs
from gallery_recorder.project.needs import Gpu
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


def test_title_settings_and_code_are_read(load):
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
        ("# Prose, with", "# Other prose\n#\n# with"),
        ("# in m²", "# in square metres"),
        ("\n\n\ndef", "\n\n# a comment\n\ndef"),
        ('"""The area."""', '"""The area of a circle."""'),
        ('"µ"', 'u"µ"'),
        ("2.0", "2.00"),
        ("# sphinx_gallery_thumbnail_number = 2\n", "# sphinx_gallery_timeout = 5\n"),
    ],
)
def test_prose_comments_and_layout_keep_the_key(load, old, new):
    assert old in TUTORIAL
    assert load(TUTORIAL.replace(old, new)).key == load(TUTORIAL).key


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("radius**2", "radius**3"),
        ('"µ"', 'b"u"'),
        ("def area", "async def area"),
        ("# nothing", "pass"),
        ("print(area(2.0)", "print(-area(2.0)"),
        ("# %%\n# More prose.\n", ""),  # blocks joined: output would appear elsewhere
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
    """Another value makes every recording stale."""
    assert load(TUTORIAL).key[:16] == "7f3a9516c22dbdba"


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (lambda path: None, r"a\.py: cannot be read \(No such file"),
        (lambda path: path.write_bytes(b'"""\nA\n=\n\xff"""\n'), "is not UTF-8"),
        (lambda path: path.write_text("x = 1\n"), "has no title. Begin the file with a docstring"),
        (
            lambda path: path.write_text("+".join("1" * 100_000)),
            "Python cannot parse it|has no title",
        ),
    ],
    ids=["missing", "latin-1", "no-docstring", "deep"],
)
def test_a_script_that_cannot_be_read_is_one_message(tmp_path, put, message):
    put(tmp_path / "a.py")
    with pytest.raises(ScriptError, match=message):
        load_script(tmp_path / "a.py")


def test_invalid_python_is_named_by_line_and_has_a_key(load):
    script = load('"""\nA\n=\n"""\ndef f(:\n')
    assert re.search(r"01-a\.py:\d+: is not valid Python: .*\n.*def f", script.broken)
    assert script.key != load('"""\nA\n=\n"""\ndef f(: \n').key


def test_a_sum_of_many_terms_has_a_key(load):
    terms = " + ".join(["'abc'"] * 600)
    keys = {load(f'"""A."""\nx = {terms} + {last}\n').key for last in ("'a'", "'b'")}
    assert len(keys) == 2


def test_a_script_may_have_a_time_limit_of_its_own_in_seconds(load):
    text = '"""A."""\nx = 1\n# sphinx_gallery_timeout = {}\n'
    assert needs.timeout_of(load('"""A."""\nx = 1\n'), 600.0) == 600
    assert needs.timeout_of(load(text.format(120)), 600.0) == 120
    for wrong in ("'long'", "0", "True", "1e999"):
        with pytest.raises(ScriptError, match="is not a number of seconds"):
            needs.timeout_of(load(text.format(wrong)), 600.0)


H200 = Gpu("NVIDIA H200", "GPU-1", {}, 150_000_000_000, "9.0")
SMALL = Gpu("NVIDIA T4", "GPU-2", {}, 16_000_000_000, "7.5")
AMD = Gpu("AMD", "GPU-3", {}, 192_000_000_000, None)


@pytest.mark.parametrize(
    ("said", "gpu", "unmet"),
    [
        ("", None, None),
        ("compute_capability >= 9.0, memory >= 40 GB", H200, None),
        ("compute_capability>=10.0", H200, "compute_capability>=10.0; NVIDIA H200 has 9.0"),
        ("memory>=40GB", SMALL, "memory>=40GB; NVIDIA T4 has 16 GB"),
        ("compute_capability>=7.0", AMD, "compute_capability>=7.0; AMD has none"),
        ("memory>=1GB", None, "a GPU with memory>=1GB"),
        ("gpus>=2", H200, None),
        ("gpus>=3, memory>=1GB", H200, "3 GPUs with memory>=1GB; 2 can be used here"),
        ("gpus>=2", None, "2 GPUs"),
    ],
)
def test_a_script_is_recorded_only_on_a_gpu_that_it_can_use(load, said, gpu, unmet):
    script = load(f'"""A."""\nx = 1\n# sphinx_gallery_needs = {said!r}\n')
    assert needs.unmet_need(script, gpu, 2) == unmet


def test_a_need_that_is_unknown_is_an_error(load):
    with pytest.raises(ScriptError, match=r"'luck'.* is not a valid need"):
        needs.needs_of(load('"""A."""\nx = 1\n# sphinx_gallery_needs = "luck"\n'))


def test_code_of_a_script_that_another_depends_on_changes_its_key(load, tmp_path):
    (tmp_path / "lessons").mkdir()
    lesson = tmp_path / "lessons" / "02-b.py"
    lesson.write_text('"""\nB\n=\n"""\nx = 1\n')
    text = '"""\nA\n=\n"""\n# sphinx_gallery_depends = "lessons/02-b.py"\nimport b\n'
    before = load(text).key
    assert before != load(text.replace("lessons/02-b.py", "")).key
    lesson.write_text('"""\nB\n=\n\nProse.\n"""\nx = 1\n')
    assert load(text).key == before
    lesson.write_text('"""\nB\n=\n"""\nx = 2\n')
    assert load(text).key != before
    lesson.write_text('"""\nB\n=\n"""\n# sphinx_gallery_depends = "../01-a.py"\nx = 2\n')
    assert load(text).key  # two that depend on each other have keys
    lesson.unlink()
    with pytest.raises(ScriptError, match=r"01-a.py: sphinx_gallery_depends: .*02-b.py: cannot be"):
        load(text).key  # noqa: B018
