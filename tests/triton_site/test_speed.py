"""Two recordings: which speed counts as lost."""

import pytest

from gallery_recorder.testing.recordings import save_made_up
from triton_site.numbers import speed


@pytest.fixture
def make(tmp_path):
    """Make a recording in the folder *version* of recordings."""
    return lambda version, *given, **changes: save_made_up(tmp_path / version, *given, **changes)


HEAD = "M,N,provider,unit,median,p20,p80\n"


def rows(provider, values, unit="GB/s", spread=0.01):
    """Lines of a benchmark file: a median a size, and its spread to both sides."""
    return "".join(
        f"4096,{128 * n},{provider},{unit},{v},{v * (1 - spread)},{v * (1 + spread)}\n"
        for n, v in enumerate(values, 1)
    )


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        (rows("triton", [100, 200]), rows("triton", [100, 200]), False),
        (rows("triton", [100, 200]), rows("triton", [80, 160]), True),
        # 6 % slower, but the spreads of 1 % make it 4 % at the least
        (rows("triton", [100, 200]), rows("triton", [94, 188]), False),
        (rows("triton", [100, 200]), rows("triton", [92, 184]), True),
        # noisy: 20 % slower within a spread of 15 % to both sides
        (rows("triton", [100], spread=0.15), rows("triton", [80], spread=0.15), False),
        (rows("triton", [100] * 9), rows("triton", [100] * 8 + [80]), False),  # the mean decides
        # less of a time is better
        (rows("triton", [1.0], "ms"), rows("triton", [1.2], "ms"), True),
        # sizes and providers that only one of them has are left out
        (rows("triton", [100]), rows("triton", [100, 1]) + rows("new", [1]), False),
    ],
)
def test_speed_is_lost_only_beyond_the_spread(make, old, new, lost):
    before, after = make("a", {"b.csv": HEAD + old}), make("b", {"b.csv": HEAD + new})
    text, found = speed.compare_speed(before, after)
    assert found == lost == ("LOST" in text)


def test_on_another_gpu_nothing_is_lost(make):
    before = make("old", {"b.csv": HEAD + rows("triton", [100])})
    after = make("new", {"b.csv": HEAD + rows("triton", [40])}, device="NVIDIA A100")
    text, lost = speed.compare_speed(before, after)
    assert not lost
    assert "The GPUs differ" in text
    assert "triton  0.400 × the speed over 1 sizes" in text


@pytest.mark.parametrize(("value", "returned"), [(100, 0), (50, 1)])
def test_the_command_fails_if_speed_is_lost(make, value, returned, capsys):
    before = make("old", {"b.csv": HEAD + rows("triton", [100])})
    after = make("new", {"b.csv": HEAD + rows("triton", [value])})
    assert speed.main([str(before), str(after)]) == returned
    assert ("LOST" in capsys.readouterr().out) == bool(returned)
    assert speed.main([str(before), str(after.parent / "none")]) == 1
