"""One order of the lessons: by level, file name, and what a script comes after."""

import pytest

from triton_site.pages.path import PathError, PathSortKey, ordered

FIRST, LATER = {"level": "first hour"}, {"level": "further"}


def test_levels_then_names_then_what_a_script_comes_after():
    scripts = {
        "06c-gluon": LATER | {"after": "09b-fp8"},
        "03b-waves": LATER,
        "09b-fp8": LATER,
        "02-softmax": FIRST,
        "09-fp8": LATER,
        "01-add": FIRST,
        "solutions": {},
    }
    assert ordered(scripts) == {
        "first hour": ["01-add", "02-softmax"],
        "transformer": [],
        "further": ["03b-waves", "09-fp8", "09b-fp8", "06c-gluon"],
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"level": "last hour"}, "'last hour', not one of: first hour"),
        (LATER | {"after": "01-add"}, "'01-add', which is not another script of its level"),
        (LATER | {"after": "02-odd"}, "'02-odd', which is not another"),
    ],
)
def test_a_place_that_is_not_known_is_an_error(settings, message):
    with pytest.raises(PathError, match=message):
        ordered({"01-add": FIRST, "02-odd": settings})


def test_the_gallery_has_the_order_of_the_path(tmp_path):
    for name, level in (("01-a", "further"), ("02-b", "first hour"), ("03-c", "")):
        (tmp_path / f"{name}.py").write_text(f'# sphinx_gallery_level = "{level}"\n')
    names = sorted(["03-c.py", "01-a.py", "02-b.py"], key=PathSortKey(str(tmp_path)))
    assert names == ["02-b.py", "01-a.py", "03-c.py"]
