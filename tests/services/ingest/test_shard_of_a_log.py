"""Which log a shard goes on in: one that lost records is told of, and another one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.log import LogError, LogReplacedError
from edge.log.sqlite import SqliteLog
from services.config import load_settings
from services.errors import SnapshotError
from services.store.history import History
from tests.conftest import require_env
from tests.kafka_logs import kafka_logs, made_anew
from tests.patience import until as wait_until
from tests.services.ingest.rig import (
    Rig,
    day,
    filled,
)
from tests.services.ingest.samples import STEP, T0, new_records, sample


def test_a_new_shard_reads_a_truncated_log_from_where_it_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What retention has taken is said once, not met again with every read."""
    rig = Rig(tmp_path, filled(list(day(20))))
    rig.log.truncate(0, 12)
    shard = rig.shard()
    assert "read from offset 12" in caplog.text
    rig.drain(shard)
    assert shard.flush() == {0: rig.log.end_offset(0)}
    assert shard.stats()["zone_rows"] > 0


def test_a_replay_of_a_truncated_log_keeps_the_rows_that_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a change of what is forecast, half a first step does not replace the whole one in the history."""
    halves = [(n, half) for n in range(20) for half in (1, 0)]
    records = new_records([[sample(T0 + n * STEP - half, 2 * n - half, air_temp_c=20.0 + half)] for n, half in halves])
    rig = Rig(tmp_path, filled(records[:30]))

    def rows() -> list[tuple[int, float]]:
        table = History(rig.settings.storage_folder, shard.spec.channels).read()
        return list(zip(table["end_ms"].to_pylist(), table["air_temp_c"].to_pylist(), strict=True))

    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    before = rows()
    rig.log.truncate(0, 11)
    rig.settings = load_settings(None, data_dir=tmp_path, forecast={"horizons_min": (5, 60)})
    again = rig.shard()
    assert "read from offset 11" in caplog.text
    rig.drain(again)
    rig.log.append(records[30:])
    rig.drain(again)
    again.close()
    after = rows()
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert rig.shard().stats()["backlog"] == 0


def test_a_log_that_lost_what_follows_the_snapshot_is_an_error(tmp_path: Path) -> None:
    """A gap in the rows is the operator's decision, and the message says how to take it."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    shard.step()
    shard.close()
    rig.log.truncate(0, 5)
    with pytest.raises(SnapshotError, match="truncated behind the snapshot's offset 1; it begins at 5"):
        rig.shard()


def test_a_log_that_ends_before_the_snapshot_is_an_error(tmp_path: Path) -> None:
    """It was deleted, or is another one: nobody would read what comes to it."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    read = rig.log.end_offset(0)
    rig.log = filled(list(day(5)))
    with pytest.raises(SnapshotError, match=f"ends at {rig.log.end_offset(0)}, before the snapshot's offset {read}"):
        rig.shard()


def test_a_log_of_another_name_is_an_error(tmp_path: Path) -> None:
    """It holds enough records, and they are others: a shard would go on in the middle of them."""
    rig = Rig(tmp_path, filled(list(day(10))))
    rig.log = SqliteLog(tmp_path / "before.sqlite", 1)  # type: ignore[assignment]
    rig.log.append(list(day(10)))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    before, rig.log = rig.log, SqliteLog(tmp_path / "other.sqlite", 1)  # type: ignore[assignment]
    rig.log.append(list(day(20)))
    with pytest.raises(SnapshotError, match=f"has the name {rig.log.id}, that of the snapshot {before.id}"):
        rig.shard()
    rig.log.close()
    rig.log = before
    rig.drain(rig.shard())
    before.close()


@pytest.mark.kafka
def test_a_topic_that_was_made_anew_is_another_log(tmp_path: Path) -> None:
    """It has more records than were read of the one before: no shard reads on in it, nor after a restart."""
    with kafka_logs(require_env("HOTHOUSE_TEST_KAFKA")) as make:
        before = make(1)
        before.append(list(day(10)))
        rig = Rig(tmp_path, before)  # type: ignore[arg-type]
        shard = rig.shard()
        rig.drain(shard)
        read = before.end_offset(0)
        rig.log = other = made_anew(before)
        other.append(list(day(20)))

        def told() -> bool:
            try:
                shard.step()
            except LogReplacedError:
                return True
            except LogError:  # the topic was away
                pass
            return False

        wait_until(told, "the shard says so")
        shard.close()
        with pytest.raises(SnapshotError, match=f"has the name {other.id}, that of the snapshot {before.id}"):
            rig.shard()
        assert other.end_offset(0) > read
        for log in (before, other):
            log.close()
