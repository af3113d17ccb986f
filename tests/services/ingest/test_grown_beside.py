"""Learners that are grown again beside those in use, where sites of a partition are at different times."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from edge.log import NewRecord
from edge.wire.samples import SampleColumns, encode_samples
from services.ingest.shard import Shard
from services.ingest.snapshots.recovery import Recovery
from services.ingest.snapshots.regrow import REGROW_DAYS, Regrowth
from services.store.plan_history import PlanHistory
from tests.services.ingest.late_history import DAY, finish, stream
from tests.services.ingest.rig import Rig, filled
from tests.services.ingest.samples import STEP


def test_a_site_that_is_behind_the_others_loses_no_row(tmp_path: Path) -> None:
    """Two sites of a partition: what one closes while both grow again is learned, however far ahead the other is."""
    ahead, behind = (list(stream(0, 40)) for _ in range(2))
    other = [record._replace(site="slow", payload=slow(record)) for record in behind]
    rig = Rig(tmp_path, filled([*ahead, *other[:30]]))
    shard = rig.shard()
    finish(rig, shard)
    recovery, growing = begun_beside(shard)
    while not growing.grow():
        pass
    rig.log.append(other[30:])
    rig.drain(shard)
    shard.flush()
    recovery.exchange(0)
    partition = shard._partitions[0]
    indices = np.array([partition.learner.parts.rings.index("slow", "z1")], np.int64)
    rows = partition.learner.parts.rings.window(indices, np.array([partition.learner.latest["slow"].end_ms]), 30)[0]
    assert np.isfinite(rows[:, partition.spec.channels.index("air_temp_c")]).all()


@pytest.mark.parametrize("apart_days", [90, -90, -1000])
def test_sites_far_apart_are_both_grown_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart_days: int) -> None:
    """One whose clock is months ahead, or one that stopped months ago: each site's own last days are learned, and no
    time is spent on the days between.
    """
    apart_ms = apart_days * DAY * STEP
    demo = list(stream(0, 40))
    other = [record._replace(site="slow", payload=slow(record, apart_ms), receive_ms=record.receive_ms + apart_ms)
             for record in demo]  # fmt: skip
    rig = Rig(tmp_path, filled([*demo, *other] if apart_days > 0 else [*other, *demo]))
    shard = rig.shard()
    finish(rig, shard)
    recovery, growing = begun_beside(shard)
    looked: list[int] = []
    taken = PlanHistory.sites
    monkeypatch.setattr(PlanHistory, "sites", lambda *given: looked.append(0) or taken(*given))
    while not growing.grow():
        pass
    recovery.exchange(0)
    assert len(looked) <= 2 * REGROW_DAYS + 5
    partition = shard._partitions[0]
    for site in ("demo", "slow"):
        index = np.array([partition.learner.parts.rings.index(site, "z1")], np.int64)
        rows = partition.learner.parts.rings.window(index, np.array([partition.learner.latest[site].end_ms]), 30)[0]
        assert np.isfinite(rows[:, partition.spec.channels.index("air_temp_c")]).all(), site


def begun_beside(shard: Shard) -> tuple[Recovery, Regrowth]:
    """What grows anew beside the learners of the shard's only partition."""
    recovery = shard._recovery
    recovery.begin_beside(0, "rows were imported")
    growing = recovery.beside(0)
    assert growing is not None
    return recovery, growing


def slow(record: NewRecord, later_ms: int = 0) -> bytes:
    """The samples of a record, of the other site."""
    columns = SampleColumns.of(record.payload)
    return encode_samples(
        [msgspec.structs.replace(one, site="slow", ts_ms=one.ts_ms + later_ms) for one in columns.samples()]
    )
