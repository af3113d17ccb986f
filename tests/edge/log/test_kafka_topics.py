"""The topics of a log on Kafka: how they are made, and which are the same log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType

from edge.log import LogError, LogFormatError, LogReplacedError, NewRecord, Origin
from edge.log.kafka import clients as kafka_clients
from edge.log.kafka.address import KafkaAddress
from edge.log.kafka.kafka_log import KafkaLog
from tests.broker.conftest import until
from tests.kafka_logs import batch, delete_topics, made_anew, opened, payloads, topic_setting
from tests.patience import patience_s


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
