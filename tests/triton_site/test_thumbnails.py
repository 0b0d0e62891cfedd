"""The pictures on cards are curves without words, of the first axes of a figure."""

from __future__ import annotations

import re

import pytest

from triton_site.pages.thumbnails import curves


@pytest.fixture
def svg(tmp_path):
    from matplotlib.figure import Figure  # whose import takes long

    figure = Figure(figsize=(7, 5))
    upper, lower = figure.subplots(2)
    upper.plot([1, 2, 3], [4, 5, 3], label="ours")
    upper.set(title="Words", xlabel="sizes", ylabel="GB/s")
    upper.legend()
    lower.plot([1, 2], [1, 2])
    path = tmp_path / "figure.svg"
    figure.savefig(path)
    return path.read_text()


def test_words_are_gone_and_lines_are_there(svg):
    made = curves(svg)
    assert not re.search(r'id="(text|legend)_', made)
    assert 'id="line2d_' in made
    assert "axes_2" not in made


def test_what_is_seen_is_the_ground_of_the_axes(svg):
    left, top, width, height = map(float, re.search(r'viewBox="([^"]+)"', curves(svg))[1].split())
    assert left > 0
    assert top > 0
    assert width > 2 * height, "half of the figure, and wider than high"


def test_a_figure_without_axes_has_none():
    assert curves('<svg xmlns="http://www.w3.org/2000/svg"/>') == ""
