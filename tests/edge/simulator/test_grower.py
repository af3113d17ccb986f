"""Setpoints: clock, light and the grower's edits."""

import numpy as np
import pytest

from edge.simulator.grower import Grower
from edge.simulator.zone_config import ZoneConfig, default_zones

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
WINTER_MS = 1_643_673_600_000  # 1 February 2022, 0 h UTC, 1 h in Amsterdam


def test_day_is_warmer_than_night_and_follows_the_local_clock():
    """In the morning the day temperature, at night the night temperature, by the site's clock."""
    zone = ZoneConfig(name="z")
    grower = Grower([zone], WINTER_MS, "Europe/Amsterdam", seed=1)
    # The light stays as it was, so that temperature need not follow it.
    night = grower.setpoints(WINTER_MS, 80.0, 5.0)
    morning = grower.setpoints(WINTER_MS + 6 * HOUR_MS, 80.0, 5.0)  # 7 h local: before the day's first edit
    assert night.lamp_pct[0] == 0.0
    assert morning.lamp_pct[0] == 100.0
    assert morning.heat_c[0] - night.heat_c[0] == pytest.approx(3.5, abs=0.2)


def test_daylight_saving_moves_the_recipe():
    """The clock is civil: in summer the local hour is two ahead of UTC."""
    summer = WINTER_MS + 150 * DAY_MS
    grower = Grower([ZoneConfig(name="z")], summer, "Europe/Amsterdam", seed=1)
    assert (grower.local_ms(summer) - summer, grower.local_ms(summer) % HOUR_MS) == (2 * HOUR_MS, 0)


def test_lamps_have_a_hysteresis():
    """Bright light switches lamps off; they come back only when it is clearly darker."""
    grower = Grower([ZoneConfig(name="z")], WINTER_MS, "UTC", seed=1)
    at, step = WINTER_MS + 6 * HOUR_MS, 60_000
    lit = [float(grower.setpoints(at + i * step, w, 5.0).lamp_pct[0]) for i, w in enumerate((0, 300, 200, 100))]
    assert lit == [100.0, 0.0, 0.0, 100.0]


def test_the_grower_edits_now_and_then_and_within_reason():
    """Over a month each zone's day temperature takes several values, and stays within 6 °C of its recipe."""
    zones = default_zones(3, seed=2)
    grower = Grower(zones, WINTER_MS, "UTC", seed=2)
    seen = []
    for hour in range(30 * 24):
        grower.setpoints(WINTER_MS + hour * HOUR_MS, 0.0, 5.0)
        seen.append(grower.recipe("heat_day_c").copy())
    values = np.array(seen)
    assert all(3 <= len(np.unique(column)) <= 60 for column in values.T.round(6))
    assert np.abs(values - values[0]).max() < 6.0


def test_how_often_it_is_asked_changes_no_edit():
    """Edits are a function of seed and day, not of the calls in between."""

    def recipe_after(step_ms: int):
        grower = Grower(default_zones(2, seed=4), WINTER_MS, "UTC", seed=4)
        for ts_ms in range(WINTER_MS, WINTER_MS + 10 * DAY_MS + 1, step_ms):
            grower.setpoints(ts_ms, 0.0, 5.0)
        return grower.recipe("rh_max_pct").tolist()

    assert recipe_after(HOUR_MS) == recipe_after(DAY_MS)
