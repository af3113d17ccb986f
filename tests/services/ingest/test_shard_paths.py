"""What a shard says of a whole day ahead, and that a crash changes nothing of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edge.log.memory import MemoryLog
from models.spec import ForecastSpec, Place
from services.ingest.partition import Partition
from services.ingest.paths.outlook import night_at
from services.ingest.snapshots.parts import LEARNED, PARTS
from tests.services.ingest.planned import weather
from tests.services.ingest.rig import ZONES, Rig, day, filled
from tests.services.ingest.samples import T0


def same(one: Any, other: Any) -> bool:
    """Whether two nested answers are equal bit for bit."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return np.array_equal(one, other, equal_nan=True)


def test_each_forecast_is_published_with_its_path(tmp_path: Path) -> None:
    """The path has every target that is forecast, and at a learned horizon it says what the forecast says."""
    rig = Rig(tmp_path, filled(list(day(60))))
    shard = rig.shard()
    rig.drain(shard)
    newest = rig.live_state.published[-1]
    path = newest["path"]
    assert len(path["horizon_min"]) == 58
    assert path["targets"].keys() == newest["forecasts"].keys()
    for target, points in newest["forecasts"].items():
        for point in points:
            at = path["horizon_min"].index(point["horizon_min"])
            assert [path["targets"][target][name][at] for name in ("p10", "p50", "p90")] == [
                point["p10"], point["p50"], point["p90"]
            ]  # fmt: skip
    shard.close()


def test_a_zones_outlook_is_asked_of_its_shard(tmp_path: Path) -> None:
    """Scenarios start where the zone is, lie around the published path, and the zones of a site are drawn together."""
    rig = Rig(tmp_path, filled(list(day(60))))
    shard = rig.shard()
    assert shard.questions.outlook("demo", "z1") is None
    rig.drain(shard)
    found = [shard.questions.outlook("demo", zone) for zone in ZONES]
    assert shard.questions.outlook("demo", "nowhere") is None
    newest = {one["zone"]: one for one in rig.live_state.published[-2:]}
    for zone, outlook in zip(ZONES, found, strict=True):
        assert outlook is not None
        assert outlook["origin_ms"] == newest[zone]["origin_ms"]
        median = np.median(outlook["scenarios"][:, :, 0], axis=0)
        said = newest[zone]["path"]["targets"]["air_temp_c"]
        width = np.array(said["p90"]) - np.array(said["p10"])
        assert (np.abs(median - said["p50"]) <= 0.1 * width + 1e-3).all()
        assert "night" in outlook["extremes"]
    first, second = (outlook["scenarios"][:, 20, 0] for outlook in found)  # type: ignore[index]
    assert np.corrcoef(first, second)[0, 1] > 0
    shard.close()


@pytest.mark.thorough
def test_paths_and_scenarios_are_the_same_after_a_crash(tmp_path: Path) -> None:
    """Killed twice in a day and a half with plans, and started again: every path that was published, and what is said
    of the night from past nights and errors, is the same byte for byte. What was issued is not issued anew.
    """
    told, said = [], []
    for crashes in (False, True):
        rig = Rig(tmp_path / str(crashes), MemoryLog(1), snapshot_s=3000)
        rig.forecaster.version, rig.forecaster.network = "v3", 1.5
        shard = rig.shard()
        for n, record in enumerate(day(430)):
            rig.log.append([record, *([weather(record.receive_ms, 4.0 + n % 5)] if n % 72 == 0 else [])])
            for _ in range(3):  # read and ask, ask again with rows, issue
                shard.step()
            if n in (200, 440):
                shard.flush()
            if crashes and n in (290, 500):  # all after the flush is lost; what was issued meanwhile is there
                shard = rig.shard()
                rig.drain(shard)
        told.append({
            (one["zone"], one["origin_ms"], msgspec.json.encode(one["path"])) for one in rig.live_state.published
        })  # fmt: skip
        said.append([shard.questions.outlook("demo", zone) for zone in ZONES])
    assert len(told[0]) == 2 * 429
    assert told[0] == told[1]
    outlook = said[0][0]
    assert outlook is not None
    assert len(outlook["extremes"]["night"]["past"]) == 1
    assert same(*said)


def test_a_snapshot_of_before_has_no_paths_and_loads(tmp_path: Path) -> None:
    """The part is new: without it nothing is damaged, and paths begin to learn."""
    assert "paths" in LEARNED
    assert PARTS["paths"].missing is not None
    rig = Rig(tmp_path, filled(list(day(20))))
    shard = rig.shard()
    rig.drain(shard)
    state = shard._partitions[0].state()
    state["paths"] = PARTS["paths"].missing()
    ring_steps = rig.settings.stream.ring_hours * 12
    made = Partition(0, shard.spec, shard._partitions[0].windows, ring_steps, lambda site: Place())
    assert made.load(20, state) == {}
    assert len(made.learner.parts.paths) == len(made.learner.forecaster) == len(ZONES)


def test_night_is_where_the_sun_is_down_or_by_the_clock() -> None:
    """In March at 52 degrees north the sun is up at noon and down at midnight; without a place 19 to 7 is night."""
    spec, hours = ForecastSpec(()), np.arange(0, 288, 12)
    north = Place("UTC", latitude=52.0, longitude=0.0)
    by_sun = night_at(north, T0, spec)(hours)
    by_clock = night_at(Place("Europe/Amsterdam"), T0, spec)(hours)
    assert np.flatnonzero(~by_sun).tolist() == list(range(7, 18))
    assert np.flatnonzero(~by_clock).tolist() == list(range(6, 18))
