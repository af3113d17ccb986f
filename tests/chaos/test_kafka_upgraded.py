"""The servers of a Kafka are stopped and started one after the other, and one is killed, while samples come."""

from __future__ import annotations

import itertools
import json
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from edge.log import LogError, NewRecord, Record
from edge.log.kafka.address import KafkaAddress
from edge.log.kafka.kafka_log import KafkaLog
from edge.log.kafka.topics import read_range
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.timing import Periodic
from edge.wire.reading import Sample, encode_message
from edge.wire.samples import decode_samples
from edge.wire.topic import sample_topic
from services.cli.setup.check import CheckState
from services.cli.setup.doctor_servers import check_kafka
from services.config import Settings
from tests.broker.conftest import GatewayProcess, local_broker
from tests.ci.record import balance
from tests.kafka_cluster import NODES, KafkaCluster
from tests.kafka_logs import topic_setting
from tests.patience import budget_s, patience_s, until

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3600)]

PARTITIONS = 4
SITES = [f"site-{number}" for number in range(8)]
RATE_HZ, BURST = 20.0, 15
MORE = 600
"""So many samples have to come through before what is done is over."""
BOOT = "9f3c62d1a07be845"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three servers whose new topics have three copies, as far as nobody says otherwise."""
    with KafkaCluster(tmp_path_factory.mktemp("kafka"), {"default.replication.factor": 3}) as made:
        yield made


def test_servers_stop_and_start_one_by_one_and_nothing_is_lost_or_twice(cluster: KafkaCluster, tmp_path: Path) -> None:
    """The gateway and the reader go on by themselves; every sample is in the log once, in its device's order."""
    address = KafkaAddress(servers=cluster.servers, topic="upgraded", group="upgraded")
    steps: list[tuple[str, int]] = []

    def begin(what: str) -> None:
        steps.append((what, time.time_ns() // 1_000_000))

    with (
        local_broker(tmp_path / "broker", "mosquitto") as broker,
        _gateway(address, broker.address, tmp_path) as gateway,
        _Reader(address) as reader,
        _Devices(broker.address) as devices,
    ):

        def moves() -> None:
            mark = devices.published + MORE
            until(lambda: reader.count >= mark, f"{MORE} more samples come through: {reader.last_error}", 240)

        begin("nothing")
        moves()
        topics = ("upgraded", "upgraded.meta", "__consumer_offsets")
        for node in NODES:
            assert node in cluster.leaders("upgraded")
            begin(f"stop {node}")
            cluster.stop(node)
            moves()
            _doctor_says(cluster, "upgraded", CheckState.WARN, f"{PARTITIONS} of {PARTITIONS} partitions lack a copy")
            begin(f"start {node}")
            cluster.start(node)
            cluster.await_answer(node)
            cluster.await_in_sync(*topics)
            _doctor_says(cluster, "upgraded", CheckState.OK, "the topic is there")
            moves()
        killed = cluster.leaders("upgraded")[0]
        begin(f"kill {killed}")
        cluster.kill(killed)
        moves()
        begin(f"start {killed}")
        cluster.start(killed)
        cluster.await_answer(killed)
        cluster.await_in_sync(*topics)
        moves()
        devices.finish()
        until(lambda: reader.count >= devices.published, f"the rest comes through: {reader.last_error}", 120)
        begin("")
        assert gateway.process is not None
        assert gateway.process.poll() is None
        until(lambda: not gateway.status()["last_error"], "the gateway has no error any more")
        assert gateway.status()["connects"] == 1
    expected = {site: list(range(count)) for site, count in devices.seqs.items()}
    written = _written(address)
    with balance():
        assert reader.seqs == expected
        assert [len(times) for times in written] == reader.offsets
    for (what, began_ms), (_, ended_ms) in itertools.pairwise(steps):
        still_s = _longest_pause_s(itertools.chain(*written), began_ms, ended_ms)
        print(f"{what}: nothing was written for {still_s:.1f} s")
        assert still_s < patience_s(120), what
    print(
        f"{devices.published} samples, 0 lost, 0 twice; {reader.failed_reads} reads and {reader.failed_commits} of"
        f" {reader.commits} commits were tried again"
    )


def test_what_waits_for_a_replica_is_not_sent_again(cluster: KafkaCluster) -> None:
    """Servers that stand still keep a leader from acknowledging what it has: tried again, the append waits for them."""
    address = KafkaAddress(servers=cluster.servers, topic="still", timeout_s=budget_s(5))
    KafkaLog(address, 1).close()
    (leader,) = cluster.leaders("still")
    # The others accept a connection and do not answer: a new producer may lose its time with them.
    log = KafkaLog(replace(address, servers=(cluster.server(leader),)), 1)
    log.append([NewRecord("north", "samples", 1000, b"before")])
    others = [node for node in NODES if node != leader]
    records = [NewRecord("north", "samples", 1000, b"%d" % number) for number in range(3)]
    failures: list[str] = []

    def append() -> None:
        while True:
            try:
                log.append(records)
                return
            except LogError as error:
                failures.append(str(error))

    worker = threading.Thread(target=append, daemon=True)
    try:
        for node in others:
            cluster.signal(node, signal.SIGSTOP)
        worker.start()
        until(lambda: "not on enough servers" in " ".join(failures), f"the next append waits: {failures}", 240)
    finally:
        for node in others:
            cluster.signal(node, signal.SIGCONT)
    worker.join(patience_s(120))
    assert not worker.is_alive(), failures[-1]
    read = log.read(0, 0, 100)
    log.close()
    cluster.await_in_sync("still")
    with balance():
        assert [record.payload for record in read] == [b"before", b"0", b"1", b"2"]


def test_where_three_copies_are_two_acknowledge(cluster: KafkaCluster) -> None:
    """Also where the number of copies is the servers' default."""
    KafkaLog(KafkaAddress(servers=cluster.servers, topic="default", timeout_s=budget_s(30)), 1).close()
    for name in ("default", "default.meta"):
        assert topic_setting(cluster.servers, name, "min.insync.replicas") == "2"
    assert [len(each["replica_nodes"]) for each in cluster.partitions("default")] == [3]


def test_a_topic_with_one_copy_is_told(cluster: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Where it is made, and by `hothouse doctor` until it has three."""
    from kafka import KafkaAdminClient, TopicPartition

    KafkaLog(KafkaAddress(servers=cluster.servers, topic="single", replication=1, timeout_s=budget_s(30)), 1).close()
    told = [line for line in caplog.messages if line.startswith("single")]
    assert ["1 copy on 3 servers" in line for line in told] == [True, True]
    _doctor_says(cluster, "single", CheckState.WARN, "1 copy on 3 servers")
    admin = KafkaAdminClient(bootstrap_servers=list(cluster.servers))
    admin.alter_partition_reassignments({TopicPartition("single", 0): list(NODES)})
    admin.close()
    _doctor_says(cluster, "single", CheckState.OK, "the topic is there")


class _Devices:
    """A device a site; one thread publishes for all."""

    def __init__(self, address: MqttAddress) -> None:
        self.seqs = dict.fromkeys(SITES, 0)
        self._client = new_client(address, "devices", v5=address.v5)
        self._client.max_queued_messages_set(0)
        self._client.max_inflight_messages_set(1000)
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._sent: list[Any] = []

    @property
    def published(self) -> int:
        """How many samples were handed over so far."""
        return sum(self.seqs.values())

    def __enter__(self) -> Self:
        open_connection(self._client, self._address)
        until(self._client.is_connected)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(patience_s(60))
        self._client.disconnect()
        self._client.loop_stop()

    def finish(self) -> None:
        """Publish nothing new; returns when the broker has acknowledged everything."""
        self._stop.set()
        self._thread.join(patience_s(60))
        for info in self._sent:
            info.wait_for_publish(patience_s(60))
            assert info.is_published()

    def _run(self) -> None:
        turns = itertools.cycle(SITES)
        while not self._stop.wait(1 / RATE_HZ):
            self._sent = [info for info in self._sent if not info.is_published()]
            for site in itertools.islice(turns, BURST):
                now_ms = time.time_ns() // 1_000_000
                sample = Sample(site, "z1", "climate", BOOT, self.seqs[site], now_ms, {"rh_pct": 71.0})
                self._sent.append(
                    self._client.publish(sample_topic(site, "z1", "climate"), encode_message([sample]), qos=1)
                )
                self.seqs[site] += 1


class _Reader:
    """Reads the log as a shard does, and commits once a second."""

    def __init__(self, address: KafkaAddress) -> None:
        self.seqs: dict[str, list[int]] = defaultdict(list)
        self.offsets = [0] * PARTITIONS
        self.count = self.failed_reads = self.failed_commits = self.commits = 0
        self.last_error = ""
        self._address = address
        self._log: KafkaLog | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._log = KafkaLog(self._address, PARTITIONS)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(patience_s(60))
        if self._log is not None:
            self._log.close()

    def _run(self) -> None:
        assert self._log is not None
        commit = Periodic(1.0)
        while not self._stop.wait(0.05):
            for partition in range(PARTITIONS):
                try:
                    records = self._log.read(partition, self.offsets[partition], 1000)
                except LogError as error:
                    self.failed_reads += 1
                    self.last_error = str(error)
                    continue
                self._take(partition, records)
            if commit.due(time.monotonic()):
                self._commit(self._log)

    def _take(self, partition: int, records: Sequence[Record]) -> None:
        for record in records:
            assert record.offset == self.offsets[partition]
            self.offsets[partition] += 1
            if record.kind == "samples":
                samples = decode_samples(record.payload)
                self.seqs[record.site] += [sample.seq for sample in samples]
                self.count += len(samples)

    def _commit(self, log: KafkaLog) -> None:
        for partition, offset in enumerate(self.offsets):
            self.commits += 1
            try:
                log.commit(partition, offset)
            except LogError as error:
                self.failed_commits += 1
                self.last_error = str(error)


@contextmanager
def _gateway(address: KafkaAddress, broker: MqttAddress, folder: Path) -> Iterator[GatewayProcess]:
    """A gateway that writes to the topic and was subscribed, so that the broker keeps what comes from now on."""
    gateway = GatewayProcess(broker, folder)
    gateway.environment = {
        "HOTHOUSE_LOG": json.dumps({"kind": "kafka", "partitions": PARTITIONS}),
        "HOTHOUSE_KAFKA": json.dumps({"servers": address.servers, "topic": address.topic, "group": address.group}),
    }
    with gateway:
        gateway.start()
        yield gateway


def _written(address: KafkaAddress) -> list[list[int]]:
    """When Kafka wrote each record, in milliseconds, by partition; read by a client that has not read before."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(**address.options())
    written = []
    for partition in range(PARTITIONS):
        place = TopicPartition(address.topic, partition)
        end = consumer.end_offsets([place])[place]
        written.append([record.timestamp for record in read_range(consumer, place, 0, end, patience_s(60))])
    consumer.close()
    return written


def _longest_pause_s(times_ms: Iterable[int], began_ms: int, ended_ms: int) -> float:
    within = sorted(ms for ms in times_ms if began_ms < ms < ended_ms)
    return max(after - before for before, after in itertools.pairwise([began_ms, *within, ended_ms])) / 1000


def _doctor_says(cluster: KafkaCluster, topic: str, state: CheckState, words: str) -> None:
    """Wait until it does."""
    settings = Settings.model_validate(
        {"log": {"kind": "kafka"}, "kafka": {"servers": cluster.servers, "topic": topic}}
    )

    def says() -> bool:
        found = check_kafka(settings)
        return found is not None and found.state is state and words in found.found

    until(says, f"`hothouse doctor` says of Kafka: {state}, {words}", 120)
