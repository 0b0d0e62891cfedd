"""Tutorials on places: simulated, without a clock."""

import heapq
import random
from itertools import pairwise

import pytest

from gallery_recorder.run.scheduler import Scheduler


def simulate(seconds, places):
    """The time at which all is done, the order of beginning, and who was where when."""
    scheduler = Scheduler(seconds, range(places))
    now, ends, order, spans = 0.0, [], [], []
    while True:
        for name, place in scheduler.start():
            order.append(name)
            end = now + (seconds[name] or 0.0)
            heapq.heappush(ends, (end, name))
            spans.append((place, now, end))
        if not scheduler.running:
            return now, order, spans
        now, name = heapq.heappop(ends)
        scheduler.finish(name)


def test_the_longest_begin_and_the_unknown_before_them():
    _, order, _ = simulate({"a": 1.0, "b": None, "c": 3.0, "d": 3.0, "e": None}, 2)
    assert order == ["b", "e", "c", "d", "a"]


@pytest.mark.parametrize("places", [1, 3, 8, 64])
def test_a_place_holds_one_at_a_time(places):
    chance = random.Random(places)
    seconds = {number: chance.expovariate(1 / 30) for number in range(400)}
    _, order, spans = simulate(seconds, places)
    assert sorted(order) == sorted(seconds)
    for place in range(places):
        own = sorted(span[1:] for span in spans if span[0] == place)
        assert all(before[1] <= after[0] for before, after in pairwise(own))


@pytest.mark.parametrize("places", [1, 8, 64])
def test_the_end_is_near_the_bound(places):
    """Graham (1969): longest first takes at most 4/3 of the best; in a gallery far less."""
    chance = random.Random(places)
    seconds = {number: chance.uniform(5, 55) for number in range(400)}
    end, _, _ = simulate(seconds, places)
    bound = max(sum(seconds.values()) / places, max(seconds.values()))
    assert bound <= end * (1 + 1e-9)
    assert end < 1.1 * bound


def test_nothing_to_do():
    assert simulate({}, 3) == (0.0, [], [])
    scheduler = Scheduler({"a": 1.0}, [])
    assert list(scheduler.start()) == []
    assert not scheduler.running
