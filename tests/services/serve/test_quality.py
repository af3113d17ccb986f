"""``/quality``: how good forecasts have been, and what was said beside what came."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.ingest.questions import Questions
from services.serve.api.auth import Keys
from services.store.forecasts import IssuedForecast, IssuedForecasts
from services.store.history import History
from services.store.rows import SiteStep
from tests.services.ingest.rig import Rig, day, filled
from tests.services.serve.fakes import ORIGIN_MS, SPEC
from tests.services.serve.system import System, assert_problem

STEP_MS = 300_000


@pytest.fixture
def system(tmp_path: Path) -> System:
    """Two zones; of the first a history of ten rows."""
    made = System(Keys("op-key"))
    history = made.backend.history = History(tmp_path, SPEC.channels)
    row = np.float32([[19.5, 50, 400, np.nan]])
    ends = [ORIGIN_MS - n * STEP_MS for n in range(10)]
    history.add([SiteStep(0, "demo", end, ("north-1",), row, row * 0, []) for end in ends])
    history.flush()
    return made


def test_scores_and_days_of_a_zone(system: System) -> None:
    """Of one zone errors by target and horizon; without one, how long each is known."""
    answer = system.client.get("/quality?zone=north-1").json()
    assert answer["zones"][0]["scores"]["air_temp_c"]["60"]["coverage"] == 0.82
    assert answer["past"] is None
    every = system.client.get("/quality").json()["zones"]
    assert [(one["zone"], one["days"], one["scores"]) for one in every] == [("north-1", 20, {}), ("north-2", 20, {})]


def test_what_was_said_stands_beside_what_came(system: System) -> None:
    """For each time the forecast that was made so long before, and the row; where none came it is null."""
    asked = f"target=air_temp_c&horizon_min=60&since_ms={ORIGIN_MS - 12 * STEP_MS}&until_ms={ORIGIN_MS}"
    past = system.client.get(f"/quality?zone=north-1&{asked}").json()["past"]
    assert past["time_ms"] == [ORIGIN_MS - n * STEP_MS for n in range(11, -1, -1)]
    assert past["came"] == [None, None, *[19.5] * 10]
    assert (past["p10"][0], past["p50"][0], past["p90"][0]) == (19, 20, 21)


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("zone=attic", 404, "there is no zone attic"),
        ("target=air_temp_c&horizon_min=60", 422, "name one"),
        ("zone=north-1&target=air_temp_c", 422, "both a target and horizon_min"),
        ("zone=north-1&target=rain&horizon_min=60", 422, "is not forecast; known are air_temp_c"),
        ("zone=north-1&target=rh_pct&horizon_min=61", 422, "no learned horizon; known are 5, 60, 1440"),
        ("zone=north-1&target=rh_pct&horizon_min=60&since_ms=9&until_ms=8", 422, "31 days at most"),
    ],
)
def test_what_cannot_be_said_is_refused(system: System, query: str, status: int, says: str) -> None:
    """One clear sentence each."""
    assert_problem(system.client.get(f"/quality?{query}"), status, says)


def test_a_shard_knows_how_long_and_how_well(tmp_path: Path) -> None:
    """Its zones' days are those of their rows; scores of one zone are that zone's own; a foreign one has none."""
    rig = Rig(tmp_path, filled(list(day(30))))
    shard = rig.shard()
    rig.drain(shard)
    questions: Questions = shard.questions
    zone, *_ = questions.quality(None)
    assert zone["days"] == pytest.approx(29 / 288, abs=1e-3)
    assert zone["scores"] == {}
    (own,) = questions.quality((zone["site"], zone["zone"]))
    assert all(one.keys() == {5, 10, 15, 30, 60, 120, 180, 360, 720, 1440} for one in own["scores"].values())
    assert len(own["scores"]) == 4
    assert questions.quality(("demo", "attic")) == []


def test_forecasts_at_a_horizon_are_read_by_time(tmp_path: Path) -> None:
    """Of each origin the newest that was issued, of one zone, target and horizon; from merged days and new parts."""
    kept = IssuedForecasts(tmp_path, 0)
    shape = (2, len(SPEC.horizons_min), len(SPEC.targets))

    def issue(origin_ms: int, version: str, level: float) -> None:
        quantiles = np.full((*shape, 3), level, np.float32) + np.float32([-1, 0, 1])
        quantiles[1] += 100  # another zone
        quantiles[:, 0] += 50  # another horizon
        one = IssuedForecast("demo", origin_ms, version, ("north-1", "north-2"), quantiles, quantiles[..., 1],
                             quantiles[..., 1], 0)  # fmt: skip
        kept.put([one], SPEC.horizons_min, SPEC.targets)

    begin = ORIGIN_MS - 20 * 3_600_000
    for n in range(30):
        issue(begin + n * 3_600_000, "v1", 10 + n)
    kept.merge_days(ORIGIN_MS, [0])
    issue(begin + 29 * 3_600_000, "v2", 99)
    said = kept.ahead("demo", "north-1", "rh_pct", 60, begin, begin + 30 * 3_600_000)
    assert said["time_ms"].tolist() == [begin + n * 3_600_000 for n in range(1, 31)]
    assert said["p50"].tolist() == [*(10.0 + n for n in range(29)), 99.0]
    assert (said["p90"] - said["p10"]).tolist() == [2.0] * 30
    assert len(kept.ahead("demo", "attic", "rh_pct", 60, begin, ORIGIN_MS)["time_ms"]) == 0
    assert len(IssuedForecasts(tmp_path / "none", 0).ahead("demo", "z", "rh_pct", 60, 0, 1)["time_ms"]) == 0
