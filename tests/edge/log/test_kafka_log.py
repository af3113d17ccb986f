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
from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.net.sasl import get_sasl_mechanism

from edge.log import LogError, LogFormatError, LogReplacedError, NewRecord, Origin, partition_of
from edge.log.kafka import clients as kafka_clients
from edge.log.kafka import times as kafka_times
from edge.log.kafka.address import KafkaAddress, kafka_address
from edge.log.kafka.kafka_log import KafkaLog
from edge.log.kafka.record import FOREIGN_RECORD
from edge.log.kafka.topics import read_pieces
from edge.tls_files import TlsFiles
from edge.wire.reading import Refusal
from edge.wire.samples import decode_samples
from services.ingest.windows.seen_origins import SeenOrigins
from tests.broker.conftest import ROOT, until
from tests.broker.test_uplink import CRASHING, NOW, RECORDS, filled, status
from tests.conftest import require_env
from tests.gateways import GATEWAY, gateway_environment
from tests.kafka_logs import delete_topics, kafka_logs, made_anew, opened, topic_setting
from tests.patience import budget_s, patience_s

SITES = ("north", "pepper", "demo", "site-1")
"""Of both partitions of two."""


@pytest.fixture
def make() -> Iterator[Callable[[int], KafkaLog]]:
    """Makes empty logs; the test closes them."""
    with kafka_logs(require_env("HOTHOUSE_TEST_KAFKA"), timeout_s=budget_s(30)) as make:
        yield make


@pytest.fixture
def log(make: Callable[[int], KafkaLog]) -> Iterator[KafkaLog]:
    """An empty log of two partitions."""
    made = make(2)
    yield made
    made.close()


def batch(count: int = 8) -> list[NewRecord]:
    """Records of several sites, so of both partitions."""
    return [NewRecord(SITES[n % len(SITES)], "samples", 1000 + n, b"%d" % n, "t") for n in range(count)]


def payloads(log: KafkaLog) -> list[bytes]:
    """Everything in the log."""
    return sorted(r.payload for p in range(log.partitions) for r in _all(log, p))


def _all(log: KafkaLog, partition: int) -> list[Any]:
    records: list[Any] = []
    while found := log.read(partition, len(records), 1000):
        records += found
    return records


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever happens, it does not outlive the test."""
    try:
        yield
    finally:
        process.kill()


def test_an_address_names_servers_and_topic() -> None:
    """The address of a log is one URL; what is not one is refused, a password in it above all."""
    assert kafka_address("kafka://a:1,b:2/greenhouses", username="u").servers == ("a:1", "b:2")
    for wrong in ("kafka://a:1", "kafka:///t", "http://a:1/t", "kafka://a:1/t/u", "kafka://u:p@a:1/t", "log.sqlite"):
        with pytest.raises(ValueError, match="is not kafka://"):
            kafka_address(wrong)


@pytest.mark.parametrize(
    ("given", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"tls": TlsFiles(Path("ca.pem"))}, "SSL"),
        ({"username": "u", "password_file": Path("p")}, "SASL_PLAINTEXT"),
        ({"username": "u", "password_file": Path("p"), "tls": TlsFiles(Path("ca.pem"))}, "SASL_SSL"),
    ],
)
def test_login_and_encryption_reach_every_client(given: dict[str, Any], protocol: str) -> None:
    """User name and CA choose the protocol; each client is given the password's file."""
    address = KafkaAddress(servers=("a:1",), topic="t", **given)
    options = address.options()
    assert options["security_protocol"] == protocol
    assert options.get("sasl_plain_password") == given.get("password_file")
    assert options.get("ssl_cafile") == (str(given["tls"].ca) if "tls" in given else None)
    assert "ssl_certfile" not in options


def test_the_password_is_read_at_each_connection(tmp_path: Path) -> None:
    """A file that was corrected counts at the next one, of a client that is there already, too."""
    file = tmp_path / "password"
    options = KafkaAddress(servers=("a:1",), topic="t", username="u", password_file=file, mechanism="PLAIN").options()
    for password in ("of before", "corrected"):
        file.write_text(f"{password}\n")
        assert get_sasl_mechanism("PLAIN")(**options).auth_bytes() == f"u\0u\0{password}".encode()
    file.write_bytes(b"\xff")
    with pytest.raises(OSError, match="password is no text"):
        get_sasl_mechanism("PLAIN")(**options)


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
def test_the_only_copy_is_on_its_disk_before_it_is_acknowledged(make: Callable[[int], KafkaLog]) -> None:
    """No other server has it: where the machine of this one loses its power, what was acknowledged is still there."""
    log = make(1)
    for topic in (log.address.topic, f"{log.address.topic}.meta"):
        assert topic_setting(log.address.servers, topic, "flush.messages") == "1"


@pytest.mark.kafka
def test_partitions_that_somebody_adds_to_the_topic_stay_empty(log: KafkaLog, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka takes none away again: the log goes on in its own, also after a restart, and that is told."""
    log.append(batch())
    admin = KafkaAdminClient(**log.address.options())
    admin.create_partitions({log.address.topic: 5})
    admin.close()
    until(lambda: log._clients.scout.partitions_for_topic(log.address.topic) == set(range(5)))
    log.append(batch())
    again = KafkaLog(log.address, 2)
    assert "has 5 partitions, and the log was made with 2: the others stay empty" in caplog.text
    places = again.append(batch())
    assert {partition for partition, _ in places} == {0, 1}
    assert len(payloads(again)) == 24
    again.close()


@pytest.mark.kafka
def test_facts_of_before_are_compacted_within_minutes(make: Callable[[int], KafkaLog]) -> None:
    """A start reads all facts: at thousands of records a second those of a week would take longer than it has."""
    log = make(1)
    assert topic_setting(log.address.servers, f"{log.address.topic}.meta", "segment.ms") == "600000"


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


@pytest.mark.kafka
def test_the_topic_keeps_records_by_append_time(log: KafkaLog) -> None:
    """An import of old samples is not deleted by retention: the topic's clock is Kafka's own."""
    admin = KafkaAdminClient(**log.address.options())
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, log.address.topic)])
    admin.close()
    shown = str(found)
    assert "LogAppendTime" in shown
    assert str(24 * 3_600_000) in shown


@pytest.mark.kafka
def test_a_batch_that_unpacks_to_more_than_a_record_may_be_is_refused(log: KafkaLog) -> None:
    """Kafka does that: 16 kB that are 16 MB when a shard reads them do not come into the log."""
    from kafka import KafkaProducer
    from kafka import errors as kafka_errors

    packed = KafkaProducer(
        **log.address.options(), compression_type="gzip", max_request_size=2 * 1024**3, acks="all", retries=0
    )
    with pytest.raises(kafka_errors.MessageSizeTooLargeError):
        packed.send(log.address.topic, bytes(16 * 1024**2), partition=0).get(timeout=patience_s(60))
    packed.send(log.address.topic, bytes(1024**2), partition=0).get(timeout=patience_s(60))
    packed.close()
    assert len(log.read(0, 0, 10)) == 1


@pytest.mark.kafka
def test_another_number_of_partitions_or_a_foreign_topic_is_refused(log: KafkaLog) -> None:
    """Offsets would mean something else: the log is not opened."""
    with pytest.raises(LogFormatError, match=r"created with 2 partitions and cannot .* log.partitions, .* to 2"):
        KafkaLog(log.address, 3)
    foreign = KafkaAddress(servers=log.address.servers, topic=f"{log.address.topic}.meta")  # has no facts beside it
    with pytest.raises(LogFormatError, match="is not a Hothouse log"):
        KafkaLog(foreign, 1)
    admin = KafkaAdminClient(**log.address.options())
    assert f"{foreign.topic}.meta" not in admin.list_topics()
    admin.close()


@pytest.mark.kafka
def test_a_topic_whose_facts_are_gone_keeps_its_partitions(log: KafkaLog) -> None:
    """Nothing else says how many its sites were spread over: opened with fewer, they would go to others."""
    meta = {"num_partitions": 1, "replication_factor": 1, "configs": {"cleanup.policy": "compact"}}
    delete_topics(log.address.servers[0], [f"{log.address.topic}.meta"])
    admin = KafkaAdminClient(bootstrap_servers=list(log.address.servers))
    until(lambda: made(admin, f"{log.address.topic}.meta", meta))
    admin.close()
    with pytest.raises(LogFormatError, match="has 2 partitions and cannot be opened with 1"):
        KafkaLog(log.address, 1)
    KafkaLog(log.address, 2).close()


def made(admin: KafkaAdminClient, topic: str, options: dict[str, Any]) -> bool:
    """Whether it could be made: its name may still be taken for a moment."""
    with contextlib.suppress(kafka_errors.TopicAlreadyExistsError):
        admin.create_topics({topic: options}, wait_for_metadata=True)
        return True
    return False


@pytest.mark.kafka
def test_who_only_appends_sees_that_the_topic_was_made_anew(
    make: Callable[[int], KafkaLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within some seconds: a gateway then acknowledges nothing, as with a file that was replaced."""
    monkeypatch.setattr(kafka_clients, "LOOK_S", 0.5)
    log = make(2)
    log.append(batch())
    other = made_anew(log)

    def told() -> str:
        try:
            log.append(batch())
        except LogReplacedError as error:
            return str(error)
        except LogError:  # the topic was away
            pass
        return ""

    assert f"{log.address} was deleted and made anew: it is another log" in until(told, "it is told")
    other.close()
    log.close()


@pytest.mark.kafka
def test_a_topic_whose_records_go_and_whose_settings_change_is_the_same_log(log: KafkaLog) -> None:
    """Neither retention nor a new setting makes another topic of it: it is read on."""
    log.append(batch())
    assert len(log.read(0, 0, 1)) == 1
    admin = KafkaAdminClient(**log.address.options())
    changes = {"retention.ms": "1000", "segment.ms": "60000", "cleanup.policy": "compact,delete"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, log.address.topic, changes)])
    admin.close()
    end = log.end_offset(0)
    log.truncate(0, end)
    log.append(batch())
    for client in (log._clients.reader, log._clients.scout):
        client._net.run(client._cluster.refresh_metadata)
    assert log._clients.topic_id
    assert log.read(0, end, 1)[0].offset == end


@pytest.mark.kafka
def test_servers_without_ids_of_topics_tell_no_difference(
    make: Callable[[int], KafkaLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Kafka 2.8: a shard then sees only a topic that ends before what it has read, and nobody stops for that."""
    options = KafkaAddress.options
    monkeypatch.setattr(KafkaAddress, "options", lambda address: {**options(address), "api_version": (2, 7)})
    log = make(2)
    log.append(batch())
    assert log.read(0, 0, 1)[0].offset == 0
    other = made_anew(log)
    other.append(batch())
    log._clients.reader._net.run(log._clients.reader._cluster.refresh_metadata)
    assert log.read(0, 1, 1)[0].offset == 1
    assert log._clients.topic_id == ""
    other.close()
    log.close()


@pytest.mark.kafka
def test_the_name_goes_with_the_facts_to_another_kafka_and_ends_with_the_topic(log: KafkaLog) -> None:
    """A topic that others made beside the facts was brought there; one that we make beside them is another log."""

    def deleted() -> KafkaAdminClient:
        delete_topics(log.address.servers[0], [log.address.topic])
        admin = KafkaAdminClient(**log.address.options())
        until(lambda: log.address.topic not in admin.list_topics(), "it is deleted")
        return admin

    def made() -> bool:
        with contextlib.suppress(kafka_errors.TopicAlreadyExistsError):  # for a moment after it was deleted
            topic = {log.address.topic: {"num_partitions": 2, "replication_factor": 1}}
            admin.create_topics(topic, wait_for_metadata=True)  # a log that does not hear of it makes one of its own
            return True
        return False

    admin = deleted()
    until(made, "it is made")
    brought = KafkaLog(log.address, 2)
    assert brought.id == log.id
    assert brought._clients.topic_id != log._clients.topic_id
    admin.close()
    deleted().close()
    other = until(lambda: opened(log), "it can be made")
    assert other.id == other._clients.topic_id != log.id
    for one in (brought, other):
        one.close()


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
def test_a_topic_of_format_1_is_read_and_goes_on_in_format_2(log: KafkaLog) -> None:
    """Records of the first version are read; the topic's format rises, so that version refuses it from then on."""
    for n in range(2):
        headers = [("hothouse-1", f"samples {500 + n} batch {n} hothouse/v1/demo".encode())]
        sent = log._clients.producer.send(log.address.topic, b"old", key=b"demo", headers=headers, partition=0)
        sent.get(timeout=patience_s(60))
    log._facts.write(log._clients.producer, {
        "format": b'{"format":1,"hash":"crc32","partitions":2}', "newest:0": b"501", "site:demo": b"1",
    })  # fmt: skip
    newer = KafkaLog(log.address, 2)
    newer.append([NewRecord("demo", "samples", 400, b"new", "t", Origin("ab", 3))])
    first, second, third = newer.read(0, 0, 10)
    assert (first.receive_ms, first.topic, first.origin) == (500, "hothouse/v1/demo", None)
    assert (second.payload, third.payload) == (b"old", b"new")
    assert (third.receive_ms, third.origin) == (501, Origin("ab", 3))
    assert newer.last_receive_ms(0) == 501
    assert msgspec.json.decode(newer._facts.read(newer._clients.scout)["format"])["format"] == 2
    newer.close()


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
    records = _all(log, partition)
    once = [r for r in records if r.origin is not None and origins.is_new(r.origin)]
    assert len(records) - len(once) >= RECORDS * 6 // 5
    assert [s.seq for r in once if r.kind == "samples" for s in decode_samples(r.payload)] == list(range(RECORDS))
    assert [r.receive_ms for r in once if r.kind == "samples"] == [NOW + n for n in range(RECORDS)]
    assert log.sites() == []
