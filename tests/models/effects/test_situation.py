"""What is known of a zone: its last day by half-hours, and what is usual at a time ahead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from models.effects.plan_change import GRID_MIN
from models.effects.situation import SEEN, half_hours
from models.features.plans import BIN_MS, PLANNED, Plan, Plans
from models.spec import ForecastSpec, Place
from services.ingest.paths.zone_question import zone_question
from tests.models.effects.situations import situation

SPEC = ForecastSpec(())
HOUR = 3_600_000


@pytest.mark.parametrize("steps", [1440, 288, 120, 72, 60, 48, 36, 24])
def test_half_hours_are_means_whatever_the_step(steps: int) -> None:
    """A line over the day; what is missing is left out, and what no row has is unknown."""
    rows = np.full((1, steps, 2), np.nan, np.float32)
    rows[0, :, 1] = (np.arange(steps) + 1) * 1440 / steps
    day, now = half_hours(rows, ["rain", "rh_pct"])
    rh = day[0, :, SEEN.index("rh_pct")]
    assert np.isnan(day[0, :, SEEN.index("air_temp_c")]).all()
    assert np.abs(rh - (np.arange(48) * 30 + 15)).max() <= 0.5 * 1440 / steps + 15
    assert now[0, SEEN.index("rh_pct")] == 1440


def test_what_is_missing_now_is_that_of_the_last_half_hour() -> None:
    """One lost row does not make a zone unknown."""
    rows = np.full((1, 288, 1), 20, np.float32)
    rows[0, -1] = np.nan
    assert half_hours(rows, ["air_temp_c"])[1][0, 0] == 20


def test_what_is_foreseen_goes_before_yesterday() -> None:
    """As ``Plans`` say it at each time; where they say nothing it is as a day before."""
    spec, origin = ForecastSpec(()), 1_646_092_800_000 + 10 * 60_000
    plans = Plans()
    plans.add(Plan("grower", "setpoint", origin, {"sp_heat_c": ([origin, origin + 6 * HOUR], [15, 19])}))
    made = situation(1)
    ahead = plans.ahead(origin, ["north"], spec)
    made = replace(made, foreseen=ahead, into_bin_ms=np.array([(origin - 1) % BIN_MS]))
    usual = made.usual("sp_heat_c", GRID_MIN)[0]
    assert usual[10] == 15
    assert usual[-1] == 19
    found = made.ahead("sp_heat_c", GRID_MIN)[0]
    middles = ((origin + GRID_MIN * 60_000 - 1) // BIN_MS) * BIN_MS + BIN_MS // 2
    np.testing.assert_array_equal(found, plans.foreseen(origin, ["north"], PLANNED, middles)[0, :, 4])
    np.testing.assert_array_equal(made.usual("vent_lee_pct", GRID_MIN)[0], 5)


@pytest.mark.parametrize("clock", ["civil", "standard"])
@pytest.mark.parametrize("day", ["2022-03-27", "2022-10-30"])  # one of 23 hours, one of 25
@pytest.mark.parametrize("hour", range(-20, 30, 5))
def test_what_was_set_a_day_before_is_so_by_the_clock(clock: str, day: str, hour: int) -> None:
    """A setpoint that the clock moves every day is expected at its time, whenever the clock was changed in between;
    the weather of a day before is that of the same sun. An hour that nobody has seen is as the one beside it.
    """
    place, origin = Place("Europe/Amsterdam", clock), int(pd.Timestamp(day, tz="UTC").timestamp() * 1000) + hour * HOUR

    def heat(times_ms: Iterable[int]) -> np.ndarray:
        return np.array([float(place.local_ms(int(at) - 1) // HOUR % 24) for at in times_ms], np.float32)

    ends = origin - np.arange(287, -1, -1) * 300_000
    rows = np.stack([heat(ends), np.arange(288)], axis=-1).astype(np.float32)
    question = zone_question(
        replace(SPEC, channels=("sp_heat_c", "out_radiation_w_m2")), place, origin, "", rows,
        np.zeros((48, 4, 3), np.float32), np.arange(6, 289, 6), None, lambda metric, moved: 0,
    )  # fmt: skip
    usual = question.situation.usual("sp_heat_c", GRID_MIN)[0]
    off = (usual - heat(origin + GRID_MIN * 60_000)) % 24
    assert (off == 0).sum() >= len(GRID_MIN) - 12
    assert set(off) <= {0, 1, 23}
    radiation = question.situation.usual("out_radiation_w_m2", GRID_MIN)[0]
    np.testing.assert_array_equal(radiation, question.situation.yesterday("out_radiation_w_m2", GRID_MIN)[0])
