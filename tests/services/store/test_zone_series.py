"""A zone's rows at any resolution: each row counts once, in the interval that its end lies in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.psychrometrics import vpd_kpa
from services.errors import HistoryError
from services.store.history import History
from services.store.rows import SiteStep
from services.store.zone_series import fingerprint, resampled

CHANNELS = ("air_temp_c", "rh_pct")
STEP_MS, HOUR_MS, DAY_MS = 300_000, 3_600_000, 86_400_000
T0 = 1_646_092_800_000  # 2022-03-01 00:00 UTC
ZONES = ("z1", "z2")


def written(root: Path, ends: list[int], values: np.ndarray) -> History:
    """A history of two zones, ``values [T, Z, C]``."""
    history = History(root, CHANNELS)
    history.add(
        SiteStep(0, "demo", end, ZONES, now, np.zeros_like(now), []) for end, now in zip(ends, values, strict=True)
    )
    history.flush()
    return history


@given(
    places=st.lists(st.integers(1, 900), min_size=1, max_size=60, unique=True).map(sorted), every=st.integers(1, 300),
    start=st.integers(0, 900), length=st.integers(0, 900), missing=st.integers(0, 3),
)  # fmt: skip
def test_each_row_of_the_span_counts_once(
    tmp_path_factory: pytest.TempPathFactory, places: list[int], every: int, start: int, length: int, missing: int
) -> None:
    """Means, least and largest are those of a plain loop over the rows."""
    rng = np.random.default_rng(len(places))
    values = rng.normal(20, 5, (len(places), 2, 2)).astype(np.float32)
    values[:: missing + 2, 1, 0] = np.nan
    ends = [T0 + place * STEP_MS for place in places]
    history = written(tmp_path_factory.mktemp("history"), ends, values)
    first, last, interval = T0 + start * STEP_MS, T0 + (start + length) * STEP_MS, every * STEP_MS
    found = resampled(history, "demo", "z2", ["air_temp_c"], first, last, interval)
    wanted: dict[int, list[np.float32]] = {}
    for end, now in zip(ends, values, strict=True):
        if first < end <= last:
            wanted.setdefault(-(-end // interval) * interval, []).append(now[1, 0])
    assert found["end_ms"].tolist() == sorted(wanted)
    for n, end in enumerate(sorted(wanted)):
        known = np.array([value for value in wanted[end] if value == value], np.float64)
        said = [found[part]["air_temp_c"][n] for part in ("mean", "low", "high")]
        if len(known):
            assert said == pytest.approx([known.mean(), known.min(), known.max()], rel=1e-6)
        else:
            assert np.isnan(said).all()


def test_the_mean_of_a_counter_is_what_it_gained(tmp_path: Path) -> None:
    """An hour in which twelve rows gained .2 l/m² each gained 2.4, not .2, whatever the interval that is asked for."""
    history = History(tmp_path, ("irrigation_l_m2",))
    for n, said in enumerate([*[0.2] * 12, np.nan, 0.5, *[np.nan] * 23], 1):
        row = np.array([[said]], np.float32)
        history.add([SiteStep(0, "demo", T0 + n * STEP_MS, ("z1",), row, np.zeros_like(row), [])])
    history.flush()
    found = resampled(history, "demo", "z1", ["irrigation_l_m2"], T0, T0 + 3 * HOUR_MS, HOUR_MS)
    assert found["mean"]["irrigation_l_m2"] == pytest.approx([2.4, 0.5, np.nan], nan_ok=True)
    assert found["high"]["irrigation_l_m2"] == pytest.approx([0.2, 0.5, np.nan], nan_ok=True)
    day = resampled(history, "demo", "z1", ["irrigation_l_m2"], T0, T0 + 3 * HOUR_MS, DAY_MS)
    assert day["mean"]["irrigation_l_m2"] == pytest.approx([2.9])
    none = resampled(history, "demo", "z1", ["irrigation_l_m2"], T0 - DAY_MS, T0, HOUR_MS)
    assert none["mean"]["irrigation_l_m2"].tolist() == []


def test_the_mean_of_a_direction_is_a_direction(tmp_path: Path) -> None:
    """Wind from 350° and 10° is wind from the north; opposite winds have no mean, and least and largest are numbers."""
    degrees = [350, 10, np.nan, 80, 100, 90, 0, 180, 360]
    ends = [T0 + n * STEP_MS for n in range(1, 10)]
    history = History(tmp_path, ("wind_dir_deg",))
    for end, said in zip(ends, degrees, strict=True):
        history.add([SiteStep(0, "demo", end, ("z1",), np.float32([[said]]), np.float32([[0]]), [])])
    history.flush()
    found = resampled(history, "demo", "z1", ["wind_dir_deg"], T0, ends[-1], 3 * STEP_MS)
    north, east, north_again = found["mean"]["wind_dir_deg"].tolist()
    assert [min(north, 360 - north), east] == pytest.approx([0, 90], abs=1e-3)
    assert min(north_again, 360 - north_again) == pytest.approx(0, abs=1e-3)
    assert [found["low"]["wind_dir_deg"][0], found["high"]["wind_dir_deg"][0]] == [10, 350]
    opposite = resampled(history, "demo", "z1", ["wind_dir_deg"], ends[5], ends[7], 2 * STEP_MS)
    assert np.isnan(opposite["mean"]["wind_dir_deg"]).all()


def test_a_derived_metric_is_computed_row_by_row(tmp_path: Path) -> None:
    """The mean deficit is the mean of the rows' deficits, not the deficit of their means."""
    values = np.float32([[[10, 50], [10, 50]], [[30, 90], [30, 90]]])
    history = written(tmp_path, [T0 + STEP_MS, T0 + 2 * STEP_MS], values)
    found = resampled(history, "demo", "z1", ["vpd_kpa"], T0, T0 + HOUR_MS, HOUR_MS)
    assert found["mean"]["vpd_kpa"] == pytest.approx(vpd_kpa(values[:, 0, 0], values[:, 0, 1]).mean())


def test_a_metric_that_no_file_has_is_unknown(tmp_path: Path) -> None:
    """Files of before a metric was there lack its column: its values are NaN, and the others are told."""
    history = written(tmp_path, [T0 + STEP_MS], np.full((1, 2, 2), 20, np.float32))
    found = resampled(history, "demo", "z1", ["air_temp_c", "co2_ppm"], T0, T0 + HOUR_MS, HOUR_MS)
    assert found["mean"]["air_temp_c"].tolist() == [20]
    assert np.isnan(found["mean"]["co2_ppm"]).all()


def test_a_site_or_span_without_rows_is_empty(tmp_path: Path) -> None:
    """No row, no interval."""
    history = written(tmp_path, [T0 + STEP_MS], np.full((1, 2, 2), 20, np.float32))
    for site, start in (("demo", T0 + 9 * DAY_MS), ("away", T0)):
        found = resampled(history, site, "z1", ["air_temp_c"], start, start + DAY_MS, HOUR_MS)
        assert len(found["end_ms"]) == len(found["mean"]["air_temp_c"]) == 0


def test_the_fingerprint_changes_with_the_rows_of_the_span(tmp_path: Path) -> None:
    """It stays while nothing is written, and while other days are."""
    history = written(tmp_path, [T0 + STEP_MS], np.full((1, 2, 2), 20, np.float32))
    seen = fingerprint(history, "demo", T0, T0 + HOUR_MS)
    written(tmp_path, [T0 + 3 * DAY_MS], np.full((1, 2, 2), 20, np.float32))
    assert fingerprint(history, "demo", T0, T0 + HOUR_MS) == seen
    written(tmp_path, [T0 + 2 * STEP_MS], np.full((1, 2, 2), 20, np.float32))
    assert fingerprint(history, "demo", T0, T0 + HOUR_MS) != seen


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """Nobody is told that there was nothing."""
    history = written(tmp_path, [T0 + STEP_MS], np.full((1, 2, 2), 20, np.float32))
    Path(history.files()[0]).write_bytes(b"no parquet")
    with pytest.raises(HistoryError, match=r"2022-03-01-300s-\w+\.parquet cannot be read"):
        resampled(history, "demo", "z1", ["air_temp_c"], T0, T0 + HOUR_MS, HOUR_MS)
