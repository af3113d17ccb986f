"""What the log on Kafka adds to the contract of all logs (tests/contracts/test_log.py)."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.log import LogError, NewRecord, partition_of
from edge.log.kafka import times as kafka_times
from edge.log.kafka.address import KafkaAddress
from edge.log.kafka.kafka_log import KafkaLog
from edge.log.kafka.record import FOREIGN_RECORD
from edge.log.kafka.topics import read_pieces
from edge.wire.reading import Refusal
from edge.wire.samples import decode_samples
from services.ingest.windows.seen_origins import SeenOrigins
from tests.broker.conftest import ROOT, until
from tests.broker.uplinks import CRASHING, NOW, RECORDS, filled, status
from tests.gateways import GATEWAY, gateway_environment
from tests.kafka_logs import SITES, batch, payloads, records_of
from tests.patience import budget_s, patience_s


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever happens, it does not outlive the test."""
    try:
        yield
    finally:
        process.kill()


def one_piece(*given: Any) -> Iterator[tuple[list[Any], int]]:
    """In the place of ``read_pieces``: the time is over after one of them."""
    for records, after in read_pieces(*given):
        yield records, after
        if after < given[3]:
            raise LogError("the rest did not come in time")


def tried(append: Callable[[], list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """What it returns; nothing where it fails."""
    with contextlib.suppress(LogError):
        return append()
    return []


def interrupted(log: KafkaLog, arrived: int) -> Callable[[Any, Any], dict[int, int]]:
    """In the place of ``log._send``: ``arrived`` records of a batch of eight are sent, and the answer is lost."""
    send = log._send

    def send_some(attempt: Any, targets: Any) -> dict[int, int]:
        send(replace(attempt, places={**attempt.places, **dict.fromkeys(range(arrived, 8), -1)}), targets)
        raise LogError("the answer was lost")

    return send_some


@pytest.mark.kafka
@pytest.mark.parametrize("arrived", [0, 1, 5, 8])
def test_a_failed_append_that_is_tried_again_duplicates_nothing(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch, arrived: int
) -> None:
    """However many records of a batch arrived before the answer was lost: after the retry each is there once."""
    log.append(batch()[:3])
    with monkeypatch.context() as patch:
        patch.setattr(log, "_send", interrupted(log, arrived))
        for _ in range(2):
            with pytest.raises(LogError, match="answer was lost"):
                log.append(batch())
    places = log.append(batch())
    assert payloads(log) == sorted([b"0", b"1", b"2", *(b"%d" % n for n in range(8))])
    for new, (partition, offset) in zip(batch(), places, strict=True):
        assert log.read(partition, offset, 1)[0].payload == new.payload


@pytest.mark.kafka
def test_a_failed_append_ends_however_much_others_have_appended_meanwhile(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a site was cut off for hours: no call has the time to look through all of it, each looks further."""
    with monkeypatch.context() as patch:
        patch.setattr(log, "_send", interrupted(log, arrived=1))
        with pytest.raises(LogError, match="answer was lost"):
            log.append(batch())
    other = KafkaLog(log.address, 2)
    for _ in range(3):
        other.append(
            [NewRecord("demo", "samples", 2000, b"other"), NewRecord("pepper", "samples", 2000, b"other")] * 500
        )
    other.close()
    monkeypatch.setattr("edge.log.kafka.kafka_log.read_pieces", one_piece)
    for _ in range(2):
        with pytest.raises(LogError, match="the rest did not come"):
            log.append(batch())
    until(lambda: tried(lambda: log.append(batch())))
    ours = [payload for payload in payloads(log) if payload != b"other"]
    assert ours == [b"%d" % n for n in range(8)]


@pytest.mark.kafka
def test_a_failed_append_ends_where_records_behind_it_are_gone(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a gateway was cut off for longer than the topic keeps records."""
    log.append(batch())
    with monkeypatch.context() as patch:
        patch.setattr(log, "_send", interrupted(log, arrived=0))
        with pytest.raises(LogError, match="answer was lost"):
            log.append(batch())
    other = KafkaLog(log.address, 2)
    other.append([NewRecord(site, "samples", 2000, b"other") for site in SITES])
    for partition in range(2):
        other.truncate(partition, other.end_offset(partition))
    other.close()
    places = log.append(batch())
    found = [log.read(partition, offset, 1)[0].payload for partition, offset in places]
    assert found == [b"%d" % n for n in range(8)]


@pytest.mark.kafka
def test_a_record_of_somebody_else_is_counted_and_stops_nothing(log: KafkaLog) -> None:
    """What another program writes into our topic comes back as refused, with its beginning."""
    log._clients.producer.send(log.address.topic, b"hello", partition=1).get(timeout=patience_s(60))
    log.append([NewRecord("demo", "tick", 5, b"")])
    (record,) = log.read(1, 0, 10)
    (refusal,) = msgspec.msgpack.decode(record.payload, type=list[Refusal])
    assert (record.kind, refusal.reason, refusal.payload) == ("refused", FOREIGN_RECORD, b"hello")


@pytest.mark.kafka
def test_lag_is_what_was_committed(log: KafkaLog, make: Callable[[int], KafkaLog]) -> None:
    """Another process of the group reads the offset that was committed."""
    assert log.committed(0) is None
    log.append(batch())
    log.commit(0, 2)
    other = KafkaLog(log.address, 2)
    assert other.committed(0) == 2
    other.close()


@pytest.mark.kafka
def test_another_process_sees_records_sites_and_times(log: KafkaLog) -> None:
    """A second log on the topic reads what the first appended, while that goes on, and continues its times."""
    other = KafkaLog(log.address, 2)
    partition = partition_of("demo", 2)
    for n in range(3):
        log.append([NewRecord("demo", "samples", 100 + n, b"%d" % n)])
        found = until(lambda n=n: other.read(partition, n, 10))
        assert [r.payload for r in found] == [b"%d" % n]
    assert other.sites() == ["demo"]
    other.append([NewRecord("demo", "samples", 50, b"late")])
    assert other.last_receive_ms(partition) == 102
    other.close()


@pytest.mark.kafka
def test_times_go_on_where_reading_them_takes_several_tries(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process begins on a slow line: what it appends is not earlier than what is there, and not at all before
    all of that has come.
    """
    log.append([NewRecord("demo", "samples", 100 + n, b"") for n in range(1200)])
    monkeypatch.setattr(kafka_times, "read_pieces", one_piece)
    other = KafkaLog(log.address, 2)
    with pytest.raises(LogError, match="the rest did not come"):
        other.append([NewRecord("demo", "samples", 50, b"late")])
    ((partition, offset),) = until(lambda: tried(lambda: other.append([NewRecord("demo", "samples", 50, b"late")])))
    assert other.read(partition, offset, 1)[0].receive_ms == 1299
    other.close()


@pytest.mark.thorough
def test_a_kafka_that_is_away_is_a_log_error_in_time() -> None:
    """Nobody listens: opening fails within the time-out, with the address in the sentence; the quickest of three."""
    address = KafkaAddress(servers=("127.0.0.1:9",), topic="t", timeout_s=1.0)
    spent_s = []
    for _ in range(3):
        started_s = time.monotonic()
        with pytest.raises(LogError, match="kafka://"):
            KafkaLog(address)
        spent_s.append(time.monotonic() - started_s)
    assert min(spent_s) < budget_s(5)


@pytest.mark.kafka
def test_times_of_sites_stand_beside_the_records(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that was silent for longer than a start reads back still keeps its newest receive time."""
    monkeypatch.setattr(kafka_times, "_SAVE_RECORDS", 20)
    partition = partition_of("demo", 2)
    neighbour = next(f"n{n}" for n in range(99) if partition_of(f"n{n}", 2) == partition)
    log.append([NewRecord("demo", "tick", 9000, b"")])
    for _ in range(10):
        log.append([NewRecord(neighbour, "tick", 50, b"") for _ in range(8)])
    after = KafkaLog(log.address, 2)
    after.append([NewRecord("demo", "tick", 10, b""), NewRecord(neighbour, "tick", 10, b"")])
    end = after.end_offset(partition)
    assert [r.receive_ms for r in after.read(partition, end - 2, 2)] == [9000, 50]
    after.close()


@pytest.mark.kafka
def test_a_start_reads_as_little_after_many_as_after_one(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few records each process appends, the times are written before many stand behind them."""
    monkeypatch.setattr(kafka_times, "_SAVE_RECORDS", 20)
    partition = partition_of("demo", 2)
    for _ in range(6):
        process = KafkaLog(log.address, 2)
        for _ in range(15):
            process.append([NewRecord("demo", "tick", 50, b"")])
        process.close()
    fact = msgspec.json.decode(log._facts.read(log._clients.scout)[f"newest:{partition}"])
    assert log.end_offset(partition) - fact["offset"] <= 2 * 20


@pytest.mark.kafka
def test_a_killed_uplink_into_kafka_counts_nothing_twice(log: KafkaLog, tmp_path: Path) -> None:
    """SIGKILL after Kafka has acknowledged a batch: it comes twice, each record is new once, with its own time."""
    filled(tmp_path / "log.sqlite")
    where = f"kafka://{log.address.servers[0]}/{log.address.topic}"
    settings = gateway_environment(data_dir=tmp_path, mqtt={"port": 1}, uplink={"to": where, "partitions": 2})
    with subprocess.Popen([sys.executable, "-c", CRASHING], cwd=ROOT, env=settings) as crashing, ended(crashing):
        assert crashing.wait(patience_s(60)) == -signal.SIGKILL
    partition = partition_of("demo", 2)
    (tmp_path / "gateway-status.json").unlink(missing_ok=True)
    with subprocess.Popen(GATEWAY, cwd=ROOT, env=settings) as going, ended(going):
        # Not by Kafka's offset: the killed one may have written some ticks more than the records.
        until(lambda: status(tmp_path).get("uplinked", 0) >= RECORDS * 6 // 5)
        going.terminate()
        assert going.wait(patience_s(60)) == 0
    origins = SeenOrigins()
    records = records_of(log, partition)
    once = [r for r in records if r.origin is not None and origins.is_new(r.origin)]
    assert len(records) - len(once) >= RECORDS * 6 // 5
    assert [s.seq for r in once if r.kind == "samples" for s in decode_samples(r.payload)] == list(range(RECORDS))
    assert [r.receive_ms for r in once if r.kind == "samples"] == [NOW + n for n in range(RECORDS)]
    assert log.sites() == []
