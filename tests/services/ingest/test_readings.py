"""A zone's newest readings beside what all of its rows say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.features.report_gaps import report_gaps_s
from models.masked import held_along
from models.spec import ForecastSpec
from services.ingest import readings
from services.ingest.learned.rings import Rings
from services.ingest.readings import inputs_of, readings_at
from services.store.rows import SiteStep
from tests.services.ingest.samples import T0

STEP_MS = 900_000
SPEC = ForecastSpec(
    ("air_temp_c", "rh_pct", "co2_ppm", "irrigation_l_m2", "vent_lee_pct"), ("air_temp_c", "vpd_kpa", "co2_ppm"),
    (60,), STEP_MS, lookback_steps=4,
)  # fmt: skip
HOUR = 4


@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=5, max_size=5))
def test_they_are_those_of_the_rows(seed: int, every: list[int]) -> None:
    """Values as held along rows for an hour, but of counters and of what rows hold themselves; gaps as of a whole day,
    wherever a row of the past hour lacks an input. However many zones are looked at in one go.
    """
    rng = np.random.default_rng(seed)
    day, channels, zones = SPEC.steps_per_day, len(SPEC.channels), len(every)
    rows = np.full((zones, day, channels), np.nan, np.float32)
    for z, step in enumerate(every):
        for c in range(channels):
            rows[z, rng.integers(step) :: step, c] = rng.integers(0, 100)
    rings = Rings(STEP_MS, day, channels, np.float16)
    indices = np.array([rings.index("demo", f"z{z}") for z in range(zones)])
    for n in range(day):
        rings.write(indices, T0 + n * STEP_MS, rows[:, n])
    newest = np.where(np.isfinite(rows), np.arange(day)[:, None], -1).max(axis=1)
    ages_s = ((day - 1 - newest) * STEP_MS / 1000).astype(np.float32)
    last = T0 + (day - 1) * STEP_MS
    step = SiteStep(0, "demo", last, tuple(f"z{z}" for z in range(zones)), rows[:, -1], ages_s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readings, "AT_ONCE", 2)
        found = readings_at(SPEC, step, rings, indices)
    np.testing.assert_array_equal(found.values[:, :3], held_along(rows, HOUR)[:, -1, :3])
    np.testing.assert_array_equal(found.values[:, 3:], rows[:, -1, 3:])
    is_older = np.isfinite(found.values) & ~np.isfinite(rows[:, -1])
    np.testing.assert_array_equal(found.ages_s, np.where(is_older, ages_s, 0))
    assert inputs_of(SPEC) == SPEC.channels[:3]
    came = np.isfinite(rows[:, :, :3])
    is_seldom = ~came[:, -HOUR - 1 :].all(axis=(1, 2))
    expected = report_gaps_s(came.swapaxes(1, 2), STEP_MS // 1000) * is_seldom[:, None]
    np.testing.assert_array_equal(found.gaps_s, expected)
    of_zones = report_gaps_s(np.asarray(came.any(axis=2)), STEP_MS // 1000)
    np.testing.assert_array_equal(found.zone_gaps_s, of_zones * is_seldom)


def test_a_value_before_one_that_was_taken_out_is_not_trusted() -> None:
    """The sensor has reported since, and what it said was faulty."""
    rings = Rings(STEP_MS, 8, len(SPEC.channels), np.float16)
    index = np.array([rings.index("demo", "z1")])
    row = np.full((1, len(SPEC.channels)), np.nan, np.float32)
    rings.write(index, T0, np.where(np.arange(row.size) < 2, np.float32(20), row))
    rings.write(index, T0 + STEP_MS, row)
    ages_s = np.full_like(row, np.nan)
    ages_s[0, :2] = 910, 10  # humidity came in the newest row
    found = readings_at(SPEC, SiteStep(0, "demo", T0 + STEP_MS, ("z1",), row, ages_s), rings, index)
    assert found.values[0, :2].tolist() == pytest.approx([20, np.nan], nan_ok=True)
    assert found.ages_s[0, :2].tolist() == [910, 0]
