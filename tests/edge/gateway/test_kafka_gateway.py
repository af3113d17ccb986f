"""Sites that write to Kafka themselves: the gateway takes their samples as it takes MQTT's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors

from edge.clock import WallClock
from edge.gateway import Gateway, GatewayOptions
from edge.log import Record
from edge.log.kafka import clients
from edge.log.kafka.kafka_log import KafkaLog
from edge.mqtt.connection import MqttAddress
from edge.wire.reading import Refusal, Sample, encode_message
from edge.wire.samples import decode_samples
from edge.wire.topic import sample_topic
from tests.conftest import require_env
from tests.kafka_logs import delete_topics, kafka_logs, made_anew
from tests.patience import budget_s, patience_s
from tests.patience import until as wait_until
from tests.running import running_gateway

pytestmark = pytest.mark.kafka

BOOT = "9f3c62d1a07be845"


@pytest.fixture
def log() -> Iterator[KafkaLog]:
    """An empty log, with a topic beside it that sites write to."""
    server = require_env("HOTHOUSE_TEST_KAFKA")
    with kafka_logs(server, timeout_s=budget_s(30)) as make:
        made = make(2)
        make_direct(made)
        yield made
        made.close()
        delete_topics(server, [direct(made)])


def direct(log: KafkaLog) -> str:
    """The topic that sites write to."""
    return f"{log.address.topic}-direct"


def make_direct(log: KafkaLog) -> None:
    """Make that topic."""
    admin = KafkaAdminClient(bootstrap_servers=list(log.address.servers))
    try:
        admin.create_topics({direct(log): {"num_partitions": 3, "replication_factor": 1}}, wait_for_metadata=True)
    finally:
        admin.close()


@contextmanager
def running(log: KafkaLog) -> Iterator[Gateway]:
    """A gateway without a broker that reads the direct topic, until its writer has done all that it will."""
    address = replace(log.address, topic=direct(log), group=direct(log))
    gateway = Gateway(GatewayOptions(broker=MqttAddress(port=1), direct=address), log, WallClock())
    with running_gateway(gateway):
        yield gateway


def publish(log: KafkaLog, records: list[tuple[str | None, bytes]]) -> None:
    """Write as a site would, with a plain producer and its own partitioner."""
    with producing(log) as producer:
        for key, value in records:
            producer.send(direct(log), value, key=key.encode() if key else None)


@contextmanager
def producing(log: KafkaLog) -> Iterator[KafkaProducer]:
    """A producer, until all that was sent is written."""
    producer = KafkaProducer(bootstrap_servers=list(log.address.servers))
    try:
        yield producer
        producer.flush(patience_s(60))
    finally:
        producer.close()


def records(log: KafkaLog) -> list[Record]:
    """All records of the log."""
    return [r for p in range(log.partitions) for r in log.read(p, 0, 1000)]


def samples(log: KafkaLog) -> list[tuple[str, int]]:
    """(site, seq) of the samples in the log."""
    return sorted((s.site, s.seq) for r in records(log) if r.kind == "samples" for s in decode_samples(r.payload))


def refusals(log: KafkaLog) -> list[tuple[str, bytes]]:
    """(reason, payload) of what was refused."""
    refused = [r.payload for r in records(log) if r.kind == "refused"]
    return sorted((x.reason, x.payload) for p in refused for x in msgspec.msgpack.decode(p, type=list[Refusal]))


def sample(seq: int, site: str = "demo") -> Sample:
    return Sample(site, "z1", "climate", BOOT, seq, time.time_ns() // 1_000_000, {"rh_pct": 71.0})


def test_direct_records_are_checked_stamped_and_taken_once(log: KafkaLog) -> None:
    """Single samples, batches and nonsense are sorted as from MQTT; a restarted gateway goes on behind them."""
    where, began_ms = sample_topic("demo", "z1", "climate"), time.time_ns() // 1_000_000
    publish(log, [
        (where, encode_message([sample(1)])), (where, encode_message([sample(2), sample(3)])), (where, b"{"),
        (None, b"lost"), (sample_topic("other", "z1", "climate"), encode_message([sample(9, "other")])),
    ])  # fmt: skip
    with running(log) as gateway:
        wait_until(lambda: len(samples(log)) + len(refusals(log)) >= 6)
        assert gateway.status()["messages"] == 5
    publish(log, [(where, encode_message([sample(4)]))])
    with running(log) as gateway:
        wait_until(lambda: ("demo", 4) in samples(log))
        assert gateway.status()["messages"] == 1
    assert samples(log) == [("demo", n) for n in (1, 2, 3, 4)] + [("other", 9)]
    assert refusals(log) == [("malformed", b"{"), ("unknown_topic", b"lost")]
    assert all(began_ms <= r.receive_ms <= time.time_ns() // 1_000_000 for r in records(log))


def test_records_that_kafka_removed_unread_are_counted_once(log: KafkaLog, caplog: pytest.LogCaptureFixture) -> None:
    """As by the topic's retention while the gateway was away. The start after that says nothing more of them."""
    where, place = sample_topic("demo", "z1", "climate"), TopicPartition(direct(log), 0)

    def write(*seqs: int) -> None:
        with producing(log) as producer:
            for seq in seqs:
                producer.send(direct(log), encode_message([sample(seq)]), key=where.encode(), partition=0)

    write(1)
    with running(log):
        wait_until(lambda: ("demo", 1) in samples(log))
    write(2, 3, 4)
    admin = KafkaAdminClient(bootstrap_servers=list(log.address.servers))
    admin.delete_records({place: 3})
    admin.close()
    with running(log) as gateway:
        wait_until(lambda: ("demo", 4) in samples(log))
        assert gateway.status()["removed"] == 2
    assert "Kafka removed 2 records of partition 0 before they were read" in caplog.text
    with running(log) as gateway:
        write(5)
        wait_until(lambda: ("demo", 5) in samples(log))
        assert gateway.status()["removed"] == 0
    assert samples(log) == [("demo", seq) for seq in (1, 4, 5)]


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(log: KafkaLog) -> None:
    """Also where it has more records than were read of the one before, and by a gateway that is restarted."""
    where = sample_topic("demo", "z1", "climate")

    def write(seqs: range) -> None:
        with producing(log) as producer:
            for seq in seqs:
                producer.send(direct(log), encode_message([sample(seq)]), key=where.encode(), partition=0)

    def make_anew() -> bool:
        with contextlib.suppress(kafka_errors.TopicAlreadyExistsError):  # for a moment after it was deleted
            make_direct(log)
            return True
        return False

    write(range(10))
    with running(log):
        wait_until(lambda: len(samples(log)) == 10)
        delete_topics(log.address.servers[0], [direct(log)])
        wait_until(make_anew)
        write(range(100, 115))
        wait_until(lambda: ("demo", 114) in samples(log))
        assert samples(log) == [("demo", seq) for seq in [*range(10), *range(100, 115)]]
        delete_topics(log.address.servers[0], [direct(log)])
        wait_until(make_anew)
        write(range(200, 202))
        wait_until(lambda: ("demo", 201) in samples(log))
    write(range(202, 230))
    with running(log):
        wait_until(lambda: ("demo", 229) in samples(log))
    assert samples(log) == [("demo", seq) for seq in [*range(10), *range(100, 115), *range(200, 230)]]


def test_a_gateway_whose_log_was_made_anew_acknowledges_nothing(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and what came meanwhile is taken by one that is started on the log of now."""
    monkeypatch.setattr(clients, "LOOK_S", 0.5)
    where = sample_topic("demo", "z1", "climate")
    watched = KafkaLog(log.address, 2)
    with running(watched) as gateway:
        publish(log, [(where, encode_message([sample(1)]))])
        wait_until(lambda: samples(log) == [("demo", 1)])
        other = made_anew(log)
        wait_until(lambda: "was deleted and made anew: it is another log" in gateway.status()["last_error"])
        publish(log, [(where, encode_message([sample(seq)])) for seq in (2, 3)])
        assert samples(other) == []
    watched.close()
    with running(other):
        wait_until(lambda: len(samples(other)) == 2)
    assert samples(other) == [("demo", 2), ("demo", 3)]
    other.close()


def test_a_packed_message_is_one_dead_letter(log: KafkaLog) -> None:
    """Of 32 kB that unpack to 32 MB the log keeps a kilobyte and the reason; what comes after it is taken."""
    packed = KafkaProducer(
        bootstrap_servers=list(log.address.servers), compression_type="gzip", max_request_size=2 * 1024**3
    )
    topic = sample_topic("demo", "z1", "climate").encode()
    packed.send(direct(log), bytes(32 * 1024**2), key=topic, partition=0).get(timeout=patience_s(60))
    packed.send(direct(log), encode_message([sample(1)]), key=topic, partition=0).get(timeout=patience_s(60))
    packed.close()
    with running(log):
        wait_until(lambda: samples(log) == [("demo", 1)])
    assert refusals(log) == [("oversized", bytes(1024))]
