"""An issued forecast is kept once and for all, in few files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from services.errors import HistoryError
from services.store.forecasts import IssuedForecast, IssuedForecasts

DAY = 86_400_000
STEP = 300_000
T0 = 1_646_092_800_000  # 2022-03-01 00:00 UTC
QUANTILES = np.arange(2 * 2 * 1 * 3, dtype=np.float32).reshape(2, 2, 1, 3)
SHAPE = ((5, 10), ("air_temp_c",))


def forecast(origin_ms: int, version: str = "v1", site: str = "demo", more: float = 0) -> IssuedForecast:
    quantiles = QUANTILES + np.float32(more)
    network = np.where(quantiles[..., 1] > 2, quantiles[..., 1] + 1, np.float32(np.nan))
    return IssuedForecast(site, origin_ms, version, ("z1", "z2"), quantiles, network, quantiles[..., 0] - 1, 3)


def read(kept: IssuedForecasts, site: str = "demo", after_ms: int = 0) -> list[tuple[int, str, float]]:
    return [(f.origin_ms, f.version, float(f.quantiles[0, 0, 0, 0])) for f in kept.read(site, after_ms, *SHAPE)]


def files(root: Path) -> list[str]:
    return sorted(
        str(p.relative_to(root / "history" / "forecasts")) for p in (root / "history").rglob("*") if p.is_file()
    )


def test_issued_forecasts_come_back_in_order_of_origin(tmp_path: Path) -> None:
    """Forecasts after an origin are read with their version; writing one again changes nothing."""
    kept = IssuedForecasts(tmp_path, 0)
    for origin in (T0 + DAY, T0, T0):
        kept.put([forecast(origin)], *SHAPE)
    kept.put([forecast(T0, "v2", more=1)], *SHAPE)
    found = kept.read("demo", T0 - 1, *SHAPE)
    names = sorted((f.origin_ms, f.version, f.zones) for f in found)
    assert names == [(T0, "v1", ("z1", "z2")), (T0, "v2", ("z1", "z2")), (T0 + DAY, "v1", ("z1", "z2"))]
    assert [f.origin_ms for f in found] == [T0, T0, T0 + DAY]
    for name in ("quantiles", "network", "climatology", "age_steps"):
        np.testing.assert_array_equal(getattr(found[-1], name), getattr(forecast(T0 + DAY), name))
    assert read(kept, after_ms=T0) == [(T0 + DAY, "v1", 0)]
    assert kept.read("nowhere", 0, *SHAPE) == kept.read("demo", 0, (5, 10, 15), SHAPE[1]) == []


def test_forecasts_of_other_horizons_are_left_out(tmp_path: Path) -> None:
    """After a change of the settings as many numbers are of other times, or of other targets."""
    kept = IssuedForecasts(tmp_path, 0)
    kept.put([forecast(T0)], *SHAPE)
    kept.put([forecast(T0 + STEP)], (5, 30), SHAPE[1])
    kept.put([forecast(T0 + 2 * STEP)], SHAPE[0], ("rh_pct",))
    assert [one.origin_ms for one in kept.read("demo", 0, *SHAPE)] == [T0]
    assert [one.origin_ms for one in kept.read("demo", 0, (5, 30), SHAPE[1])] == [T0 + STEP]
    assert [one.origin_ms for one in kept.read("demo", 0, SHAPE[0], ("rh_pct",))] == [T0 + 2 * STEP]


def test_a_span_of_origins_is_read(tmp_path: Path) -> None:
    """Also what shares a file with a newer origin, before and after the days became files."""
    kept = IssuedForecasts(tmp_path, 0)
    kept.put([forecast(T0 - STEP), forecast(T0)], *SHAPE)
    kept.put([forecast(T0 + 5 * DAY)], *SHAPE)
    for _ in range(2):
        assert [f.origin_ms for f in kept.read("demo", 0, *SHAPE, until_ms=T0 - STEP)] == [T0 - STEP]
        assert [f.origin_ms for f in kept.read("demo", T0 - STEP, *SHAPE, until_ms=T0 + DAY)] == [T0]
        kept.merge_days(T0 + 9 * DAY, [0])


def test_a_site_that_is_days_behind_is_found_in_its_own_days(tmp_path: Path) -> None:
    """It was cut off, and its forecasts are issued with those of its neighbour that was not."""
    kept = IssuedForecasts(tmp_path, 0)
    kept.put([forecast(T0), forecast(T0 + 3 * DAY, site="other"), forecast(T0 + STEP)], *SHAPE)
    for _ in range(2):
        assert [f.origin_ms for f in kept.read("demo", 0, *SHAPE, until_ms=T0)] == [T0]
        assert kept.ahead("demo", "z1", "air_temp_c", 5, T0, T0 + STEP)["time_ms"].tolist() == [T0 + STEP]
        assert [f.origin_ms for f in kept.read("other", T0, *SHAPE)] == [T0 + 3 * DAY]
        kept.merge_days(T0 + 5 * DAY, [0])


def test_what_is_issued_at_once_is_one_file(tmp_path: Path) -> None:
    """Several sites and origins, also around midnight, share a part and are found again."""
    kept = IssuedForecasts(tmp_path, 0)
    kept.put([forecast(T0 - STEP), forecast(T0), forecast(T0, site="other", more=1)], *SHAPE)
    assert len(files(tmp_path)) == 1
    assert read(kept) == [(T0 - STEP, "v1", 0), (T0, "v1", 0)]
    assert read(kept, "other", T0 - STEP) == [(T0, "v1", 1)]


def test_a_day_that_is_over_becomes_one_file(tmp_path: Path) -> None:
    """Merging changes nothing for readers, leaves today and other writers alone, and can be repeated and added to."""
    kept, other = IssuedForecasts(tmp_path, 0), IssuedForecasts(tmp_path, 3)
    for n in range(5):
        kept.put([forecast(T0 + n * STEP)], *SHAPE)
    kept.put([forecast(T0 + DAY)], *SHAPE)
    other.put([forecast(T0, site="other")], *SHAPE)
    before = read(kept)
    assert kept.merge_days(T0 + DAY, [0, 1]) == 5
    assert read(kept) == before
    assert len(files(tmp_path)) == 3
    assert kept.merge_days(T0 + DAY, [0, 1]) == 0
    kept.put([forecast(T0 + 9 * STEP)], *SHAPE)  # a site that lagged behind
    assert kept.merge_days(T0 + DAY, [0, 3]) == 2
    assert read(kept) == sorted([*before, (T0 + 9 * STEP, "v1", 0)])
    assert read(kept, "other") == [(T0, "v1", 0)]
    assert files(tmp_path)[:2] == ["2022-03-01-p0.parquet", "2022-03-01-p3.parquet"]
    assert len(files(tmp_path)) == 3
    assert not (tmp_path / "history" / "forecasts" / "2022-03-01").exists()


def test_a_merge_that_was_killed_doubles_nothing(tmp_path: Path) -> None:
    """With the day written and its parts still there, each forecast is read once, and the next merge ends it."""
    kept, folder = IssuedForecasts(tmp_path, 0), tmp_path / "history" / "forecasts" / "2022-03-01"
    for n in range(3):
        kept.put([forecast(T0 + n * STEP)], *SHAPE)
    before = read(kept)
    shutil.copytree(folder, tmp_path / "parts")
    kept.merge_days(T0 + DAY, [0])
    whole = (folder.parent / "2022-03-01-p0.parquet").stat().st_size
    shutil.copytree(tmp_path / "parts", folder)
    (folder / ".p0-half.parquet.1.tmp").write_bytes(b"PAR1 half")
    assert read(kept) == before
    assert kept.merge_days(T0 + DAY, [0]) == 3
    assert read(kept) == before
    assert (folder.parent / "2022-03-01-p0.parquet").stat().st_size <= whole + 2_000
    assert not folder.exists()


def test_of_equal_forecasts_the_newest_counts(tmp_path: Path) -> None:
    """A forecast that was issued again under its version replaces the one before, before and after merging."""
    kept = IssuedForecasts(tmp_path, 0)
    kept.put([forecast(T0), forecast(T0 + STEP)], *SHAPE)
    kept.merge_days(T0 + DAY, [0])
    kept.put([forecast(T0, more=7)], *SHAPE)
    expected = [(T0, "v1", 7), (T0 + STEP, "v1", 0)]
    assert read(kept) == expected
    kept.merge_days(T0 + DAY, [0])
    assert read(kept) == expected


def test_the_newest_counts_across_midnight(tmp_path: Path) -> None:
    """It may lie in a part of the next day, with newer origins."""
    kept = IssuedForecasts(tmp_path, 0)
    late = T0 + DAY - STEP
    kept.put([forecast(late)], *SHAPE)
    kept.put([forecast(late, more=7), forecast(T0 + DAY)], *SHAPE)
    expected = [(late, "v1", 7), (T0 + DAY, "v1", 0)]
    assert read(kept) == expected
    kept.merge_days(T0 + 3 * DAY, [0])
    assert read(kept) == expected


def test_a_damaged_part_is_an_error_that_names_it(tmp_path: Path) -> None:
    """It is neither skipped nor merged away."""
    kept = IssuedForecasts(tmp_path, 0)
    kept.put([forecast(T0)], *SHAPE)
    (part,) = (tmp_path / "history" / "forecasts" / "2022-03-01").iterdir()
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(HistoryError, match=part.name):
        kept.read("demo", 0, *SHAPE)
    with pytest.raises(HistoryError, match=part.name):
        kept.merge_days(T0 + DAY, [0])
    assert part.exists()
