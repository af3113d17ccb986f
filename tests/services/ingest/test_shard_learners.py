"""What a shard learns: as in a plain replay, and the same again after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edge.log.memory import MemoryLog
from models.features.inputs import day_bins
from models.online.online_forecaster import OnlineForecaster
from models.pretraining.shipped_arrays import pretrained
from models.spec import Place
from services.ingest.shard import Shard
from services.messages import ONLINE_VERSION
from services.store.history import History
from tests.services.ingest.rig import (
    ZONES,
    Held,
    Rig,
    day,
    filled,
    issued_by,
)
from tests.services.ingest.samples import STEP, T0


def test_a_restart_continues_the_learners_exactly(tmp_path: Path) -> None:
    """The forecast after a stop and a start equals that of a shard that never stopped."""
    records = list(day(60))
    steady, stopped = Rig(tmp_path / "a", filled(records)), Rig(tmp_path / "b", filled(records[:50]))
    steady.forecaster.version = stopped.forecaster.version = "v3"  # a network is sent rows
    first = stopped.shard()
    stopped.drain(first)
    first.close()
    stopped.log.append(records[50:])
    second = stopped.shard()
    stopped.drain(second)
    steady.drain(steady.shard())
    np.testing.assert_array_equal(
        stopped.forecaster.requests[-1]["baseline"][-2:], steady.forecaster.requests[-1]["baseline"][-2:]
    )
    np.testing.assert_array_equal(
        stopped.forecaster.requests[-1]["values"][-2:], steady.forecaster.requests[-1]["values"][-2:]
    )


def replayed(rig: Rig, shard: Shard, network: float | None) -> dict[int, Any]:
    """What the rows of the history give in a plain loop, origin -> quantiles [Z, H, M, Q]."""
    spec = shard.spec
    forecaster = OnlineForecaster(spec, pretrained=pretrained())
    zones = np.array([forecaster.add_zones() for _ in ZONES])
    table = History(rig.settings.storage_folder, spec.channels).read()
    rows = np.stack([table[name].to_numpy() for name in spec.channels], axis=-1).reshape(
        len(ZONES), -1, len(spec.channels)
    )
    found = {}
    for n in range(rows.shape[1]):
        at = T0 + n * STEP
        bins = day_bins(Place("Europe/Amsterdam"), np.full(len(ZONES), at), spec)
        dark = np.full((len(ZONES), 1 + len(spec.horizons_min)), np.nan, np.float32)
        learned = forecaster.learn(zones, at // STEP, rows[:, n], bins, dark)
        found[at] = forecaster.predict(learned, None if network is None else learned.baseline + np.float32(network))
    return found


@pytest.mark.parametrize("version", [ONLINE_VERSION, "v3"])
@pytest.mark.thorough
def test_live_forecasts_are_those_of_a_plain_replay(tmp_path: Path, version: str) -> None:
    """The shard's forecasts equal those of a loop over its rows, as a backtest runs it, with a network and without."""
    rig = Rig(tmp_path, MemoryLog(1))
    rig.forecaster.version, rig.forecaster.network = version, 1.5
    shard = rig.shard()
    for record in day(330):
        rig.log.append([record])
        for _ in range(3):  # read and ask, ask again with rows, issue
            shard.step()
    shard.flush()
    issued = issued_by(rig.settings)
    expected = replayed(rig, shard, None if version == ONLINE_VERSION else 1.5)
    assert len(issued) == 329
    assert {f.age_steps for f in issued} == {0}
    for forecast in issued:
        np.testing.assert_array_equal(forecast.quantiles, expected[forecast.origin_ms])
        network = np.nan if version == ONLINE_VERSION else forecast.climatology + np.float32(1.5)
        np.testing.assert_array_equal(forecast.network, np.broadcast_to(network, forecast.network.shape))
    other = replayed(rig, shard, 1.5 if version == ONLINE_VERSION else None)
    assert not np.allclose(issued[-1].quantiles, other[issued[-1].origin_ms], equal_nan=True)


@pytest.mark.thorough
def test_a_crash_leaves_the_learners_as_they_would_have_been(tmp_path: Path) -> None:
    """Forecasts that were issued after the snapshot, some of them late, are learned from again in the replay."""
    states = []
    for crashes in (False, True):
        rig = Rig(tmp_path / str(crashes), MemoryLog(1), snapshot_s=3000)
        rig.forecaster.version, rig.forecaster.network = "v3", 1.5
        rig.executor = held = Held()
        shard = rig.shard()
        for n, record in enumerate(day(150)):
            rig.log.append([record])
            shard.step()
            if n % 3 == 2:
                held.release()
                shard.step()
            if n == 40:
                shard.flush()
        rig.drain(shard)
        if crashes:  # all after the flush is lost; what was issued meanwhile is there
            rig.executor = Held()
            shard = rig.shard()
            rig.drain(shard)
        states.append(shard._partitions[0].state())
    issued = issued_by(rig.settings)
    assert len(issued) > 100
    assert {f.age_steps for f in issued} >= {0, 1, 2, 3}
    for part in ("forecaster", "scores", "paths"):
        one, other = (msgspec.msgpack.encode(state[part], enc_hook=np.ndarray.tobytes) for state in states)
        assert one == other, part


@pytest.mark.thorough
def test_live_scores_count_every_matured_forecast(tmp_path: Path) -> None:
    """A forecast whose reply came a step late misses the five-minute truth alone."""
    rig = Rig(tmp_path, MemoryLog(1))
    rig.executor = held = Held()
    shard = rig.shard()
    for n, record in enumerate(day(5 * 288 // 4)):
        rig.log.append([record])
        shard.step()
        if n % 2:
            held.release()
            shard.step()
    table = shard.stats()["scores"][0]["air_temp_c"]
    assert 0 < table[5]["n"] < table[10]["n"]
    assert {minutes: cell["n"] for minutes, cell in table.items()} == shard.stats()["matured"]["air_temp_c"]
