"""Trees are grown from the Parquet history as a backtest grows them, repeatably and within bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.online.online_forecaster import OnlineForecaster
from models.spec import Place
from services.errors import HistoryError, TrainingError
from services.forecast_spec import forecast_spec
from services.learn.trees import growing as forest
from services.learn.trees.forest_job import ForestJob
from services.learn.trees.growing import grow_forest
from services.store.forests import Forests
from services.store.history import History
from tests.services.learn.synthetic import START_MS, small_settings, write_history


def job_over(folder: Path, days: float, zones: tuple[str, ...] = ("z1", "z2", "z3")) -> ForestJob:
    """A job over a new history."""
    settings = small_settings(folder)
    to_ms = write_history(settings, days, zones)
    files = tuple(History(settings.storage, (), settings.stream.step_s).files())
    return ForestJob(
        storage=str(settings.storage), spec=forecast_spec(settings), files=files, after_ms=START_MS, to_ms=to_ms,
        places={"demo": Place("Europe/Amsterdam", latitude=52.0, longitude=4.5)},
    )  # fmt: skip


def test_trees_are_grown_and_kept(tmp_path: Path) -> None:
    """What is kept says on what it was grown, fits the forecaster, and equal rows give equal trees."""
    job = job_over(tmp_path, 8)
    name = grow_forest(job)
    forests = Forests(Path(job.storage))
    grown_on = forests.manifest(name)["grown_on"]
    assert (grown_on["to_ms"], grown_on["rows"]) == (job.to_ms, 3 * 8 * 96)
    assert grown_on["zones"] == ["demo/z1", "demo/z2", "demo/z3"]
    loaded = forests.load(name, job.spec, OnlineForecaster(job.spec).regressors)
    assert len(loaded) > 0
    assert grow_forest(job) == name  # the name has the digest of the trees


def test_zones_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more zones than the bound some are taken, spread evenly."""
    monkeypatch.setattr(forest, "MAX_ZONES", 2)
    job = job_over(tmp_path, 8, ("a", "b", "c", "d"))
    assert Forests(Path(job.storage)).manifest(grow_forest(job))["grown_on"]["zones"] == ["demo/a", "demo/c"]


def test_too_little_is_said(tmp_path: Path) -> None:
    """A history of three days grows nothing, and an empty range is an error of its own."""
    job = job_over(tmp_path, 3)
    with pytest.raises(TrainingError, match="too short to grow trees"):
        grow_forest(job)
    assert Forests(Path(job.storage)).newest() == ""
    after = ForestJob(**{name: getattr(job, name) for name in job.__dataclass_fields__} | {"after_ms": job.to_ms})
    with pytest.raises(HistoryError, match="no rows"):
        grow_forest(after)


def test_the_sky_is_that_of_each_zones_site() -> None:
    """Zones of two sites have their own time of day and sun."""
    job_spec = forecast_spec(small_settings(Path("unused")))
    north, east = Place("UTC", latitude=52.0, longitude=0.0), Place("Asia/Tokyo", latitude=35.0, longitude=139.0)
    bins, sun = forest._sky([north, east, north], START_MS, job_spec)
    assert bins.tolist() == [0, 36, 0]
    assert sun.shape == (3, 4)
    assert (sun[0] < 0).all()
    assert (sun[1] > 0).all()
    np.testing.assert_array_equal(sun[0], sun[2])
