"""Which changes a zone has seen itself."""

from __future__ import annotations

import numpy as np
import pytest

from models.effects.seen_changes import SEEN_CHANGES, SeenChanges, same_clock, seen_columns
from models.spec import Place

HALF_MS, HOUR_MS, DAY_MS = 1_800_000, 3_600_000, 86_400_000
HEAT = SEEN_CHANGES.index("sp_heat_c")


def rows(**metrics: float) -> np.ndarray:
    """Half an hour of one zone."""
    return np.repeat(np.array([[[metrics.get(name, np.nan) for name in SEEN_CHANGES]]], np.float32), 6, axis=1)


def learned(*days: tuple[float, float]) -> SeenChanges:
    """A zone of which the heating setpoint was that in half-hours of today and yesterday."""
    seen = SeenChanges()
    seen.add_zones(1)
    for today, yesterday in days:
        seen.learn(np.array([0]), rows(sp_heat_c=today), rows(sp_heat_c=yesterday))
    return seen


def test_a_setpoint_that_follows_the_hour_is_no_change() -> None:
    """The same at the same time of both days, however it moves over the day."""
    times = learned(*[(level, level) for level in (15.0, 18.0, 21.0)] * 10).of_zone(0)
    assert times("sp_heat_c", 2.0) == times("sp_heat_c", -2.0) == 0


def test_a_change_counts_once_however_long_it_lasts() -> None:
    """By its sign, and for what is at most twice as large."""
    times = learned((18, 18), (20, 18), (20, 18), (20, 18), (18, 18), (20, 18)).of_zone(0)
    assert times("sp_heat_c", 2.0) == 2
    assert times("sp_heat_c", 4.0) == 2
    assert times("sp_heat_c", 9.0) == 0
    assert times("sp_heat_c", -2.0) == 0
    assert times("sp_vent_c", 2.0) == 0
    assert times("vent_lee_pct", 10.0) == 0


@pytest.mark.parametrize(("clock", "left_out"), [("civil", 2 * 49), ("standard", 0)])
def test_a_schedule_that_follows_the_clock_is_no_change_when_that_is_changed(clock: str, left_out: int) -> None:
    """15 °C by night, 18 °C by day, weeks in which the clock is put forward and back: a day of each is not compared."""
    place, seen, compared = Place("Europe/Amsterdam", clock), SeenChanges(), 0
    seen.add_zones(1)

    def heat(end_ms: int) -> np.ndarray:
        return rows(sp_heat_c=18.0 if 6 <= place.local_ms(end_ms - 1) % DAY_MS / HOUR_MS < 20 else 15.0)

    for monday in (1_647_820_800_000, 1_666_569_600_000):  # 21 March and 24 October 2022
        for end_ms in range(monday, monday + 10 * DAY_MS, HALF_MS):
            if same_clock(place, end_ms - HALF_MS, end_ms):
                seen.learn(np.array([0]), heat(end_ms), heat(end_ms - DAY_MS))
                compared += 1
    assert not seen.state_dict()["times"].any()
    assert compared == 2 * 10 * 48 - left_out


def test_what_is_not_known_changes_nothing() -> None:
    """A gap neither begins nor ends a change."""
    times = learned((18, 18), (20, 18), (np.nan, 18), (20, np.nan), (20, 18)).of_zone(0)
    assert times("sp_heat_c", 2.0) == 1


def test_state_goes_on_bit_for_bit() -> None:
    """What was saved and loaded counts on as what was never stopped; an empty state is that of a new zone."""
    days = [(18.0, 18.0), (20.0, 18.0), (17.0, 18.0), (15.0, 18.0)]
    whole, part, other = learned(*days * 2), learned(*days), SeenChanges()
    other.load_state_dict(part.state_dict())
    for today, yesterday in days:
        other.learn(np.array([0]), rows(sp_heat_c=today), rows(sp_heat_c=yesterday))
    for name, array in whole.state_dict().items():
        assert array.tobytes() == other.state_dict()[name].tobytes()
    fresh = SeenChanges()
    fresh.load_state_dict({})
    assert len(fresh) == 0


def test_columns_are_found_by_name() -> None:
    """What a site does not measure is unknown."""
    found = seen_columns(np.array([[[1, 2]]], np.float32), ("wind_m_s", "sp_heat_c"))
    assert found[0, 0, HEAT] == 2
    assert np.isnan(found[0, 0]).sum() == len(SEEN_CHANGES) - 2
