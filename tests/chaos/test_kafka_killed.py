"""Kafka is killed with SIGKILL while a log appends to it."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.log import LogError, NewRecord
from edge.log.kafka.address import KafkaAddress
from edge.log.kafka.kafka_log import KafkaLog
from tests.chaos.servers import Servers
from tests.ci.record import balance
from tests.patience import budget_s, patience_s
from tests.patience import until as wait_for

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(600)]

SITES = ("north", "south", "east", "demo")
KILLS = int(os.environ.get("HOTHOUSE_TEST_KILLS", "1"))


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Servers]:
    """A Kafka that may be killed."""
    made = Servers(tmp_path / "servers", "kafka")
    yield made
    made.clean()


def test_a_killed_kafka_loses_and_duplicates_no_record(kafka: Servers) -> None:
    """Every append that was tried until it returned is in the log once, in order, whatever was killed meanwhile."""
    log = KafkaLog(KafkaAddress(servers=(kafka.kafka,), topic="chaos", timeout_s=budget_s(5)), 2)
    stop = threading.Event()
    appended: list[NewRecord] = []
    failures: Counter[str] = Counter()

    def work() -> None:
        rng = random.Random(7)
        while not stop.is_set():
            records = [
                NewRecord(rng.choice(SITES), "samples", 1000, b"%d" % (len(appended) + n))
                for n in range(rng.randrange(1, 20))
            ]
            while True:
                try:
                    log.append(records)
                    break
                except LogError as error:
                    failures[type(error).__name__] += 1
            appended.extend(records)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        for _ in range(KILLS):
            _grow(appended, 500)
            kafka.kill("kafka")
            wait_for(lambda: failures, "an append is caught by a kill")
            kafka.start("kafka")
        _grow(appended, 100)
    finally:
        stop.set()
        worker.join(patience_s(60))
    assert not worker.is_alive(), "an append does not return"
    read: list[list[bytes]] = []
    for partition in range(2):
        offset, mine = 0, []
        while records := log.read(partition, offset, 1000):
            offset = records[-1].offset + 1
            mine += [record.payload for record in records]
        assert offset == log.end_offset(partition) == len(mine)
        read.append(mine)
    log.close()
    with balance():
        assert sorted(p for mine in read for p in mine) == sorted(new.payload for new in appended)
        assert all(mine == sorted(mine, key=int) for mine in read)
    print(
        f"killed {KILLS} times: {len(appended)} records, 0 lost, 0 twice; {sum(failures.values())} appends tried again"
    )


def _grow(appended: list[NewRecord], count: int) -> None:
    """Wait until so many more are appended."""
    before = len(appended)
    wait_for(lambda: len(appended) > before + count, f"{count} more records are appended")
