"""Whose turn it is: each zone once a half hour, a few at a time, at places of the log."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.spec import ForecastSpec
from services.ingest.alerts.turns import LEAST, Turns
from services.store.rows import SiteStep

MINUTE_MS = 60_000
HALF_MS = 30 * MINUTE_MS


def newest(end_ms: int, zones: dict[str, int]) -> dict[str, SiteStep]:
    """The newest step of each site, with so many zones."""
    none = np.empty((0, 0), np.float32)
    return {
        site: SiteStep(0, site, end_ms, tuple(f"z{n}" for n in range(count)), none, none)
        for site, count in zones.items()
    }


def due(turns: Turns, site: str, latest: dict[str, SiteStep]) -> dict[str, list[str]]:
    """The zones that a tick of ``site`` gives a turn."""
    return turns.due(latest) if turns.tick(site) else {}


def run(turns: Turns, zones: dict[str, int], half_hours: int, step_min: int = 5) -> list[dict[str, list[str]]]:
    """Ticks every tenth of a step over some half hours, with rows that close on time."""
    found = []
    for tick in range(half_hours * 300 // step_min):
        tick_ms = HALF_MS + tick * step_min * MINUTE_MS // 10
        found.append(due(turns, "a", newest(tick_ms // (step_min * MINUTE_MS) * step_min * MINUTE_MS, zones)))
    return found


@pytest.mark.parametrize("count", [1, 3, 50, 1000])
@pytest.mark.parametrize("step_min", [1, 5, 15, 30])
def test_every_zone_has_its_turn_once_a_half_hour(count: int, step_min: int) -> None:
    """However many there are and whatever the step; and no tick has much more to do than another needs."""
    given = run(Turns(ForecastSpec((), step_ms=step_min * MINUTE_MS, horizons_min=(60,))), {"a": count}, 4, step_min)
    looks = Counter(zone for chosen in given for zones in chosen.values() for zone in zones)
    assert set(looks.values()) == {4}
    most = max(sum(map(len, chosen.values())) for chosen in given)
    assert most <= max(LEAST, count * step_min // 240 + 1)


def test_sites_share_the_ticks_of_one_time() -> None:
    """A tick of each of them comes at about the same time: only one gives turns, and of all sites."""
    turns, latest = Turns(ForecastSpec(())), newest(HALF_MS, {"a": 3, "b": 3})
    assert due(turns, "a", latest) == {"a": ["z0", "z1", "z2"], "b": ["z0"]}
    assert due(turns, "b", latest) == {}
    assert due(turns, "a", latest) == {"b": ["z1", "z2"]}


def test_a_site_that_ticks_no_more_holds_nobody_up() -> None:
    """The others go on with the next tick of any of them."""
    turns = Turns(ForecastSpec(()))
    due(turns, "gone", newest(HALF_MS, {"gone": 1, "b": 1}))
    found = [due(turns, "b", newest(half * HALF_MS, {"gone": 1, "b": 1})) for half in (1, 2, 3)]
    assert [bool(chosen) for chosen in found] == [False, True, True]


def test_who_waited_longest_comes_first() -> None:
    """New zones before those that were looked at."""
    turns = Turns(ForecastSpec(()))
    due(turns, "a", newest(HALF_MS, {"a": 4}))
    assert due(turns, "a", newest(2 * HALF_MS, {"a": 8})) == {"a": ["z4", "z5", "z6", "z7"]}
    turns.forget("a", "z7")
    assert due(turns, "a", newest(2 * HALF_MS, {"a": 8})) == {"a": ["z7", "z0", "z1", "z2"]}


def test_the_state_of_the_release_before_is_taken() -> None:
    """It kept the time of a tick, and takes ours, should it come back."""
    turns = Turns(ForecastSpec(()))
    turns.load({"looked": [["a", "z0", 1]], "tick_ms": 2 * HALF_MS})
    assert due(turns, "a", newest(HALF_MS, {"a": 2})) == {"a": ["z1"]}
    assert turns.state()["tick_ms"] == -1


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 12), st.integers(0, 12)), max_size=40), st.integers(0, 40))
def test_from_any_state_the_same_ticks_give_the_same_turns(ticks: list[tuple[int, int, int]], at: int) -> None:
    """A shard that goes on from a snapshot gives the zones their turns as one that never stopped."""
    whole, first, time_ms = Turns(ForecastSpec(())), Turns(ForecastSpec(())), HALF_MS
    wanted, found = [], []
    for n, (minutes, a, b) in enumerate(ticks):
        time_ms += minutes * MINUTE_MS
        latest = newest(time_ms, {"a": a, "b": b})
        site = "a" if minutes % 3 else "b"
        wanted.append(due(whole, site, latest))
        if n == at:
            again = Turns(ForecastSpec(()))
            again.load(json.loads(json.dumps(first.state())))
            first = again
        found.append(due(first, site, latest))
    assert found == wanted
