"""The ledger of the chaos experiment: it balances where all is well, and finds what is wrong. Then the experiment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from edge.clock import ReplayedClock
from edge.gateway.record_builder import Message, RecordBuilder
from edge.log.memory import MemoryLog
from edge.simulator.publisher.disturb import Disturbance
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.simulator_source import SimulatorSource
from edge.wire.reading import encode_message
from edge.wire.topic import sample_topic
from services.config import Settings, StreamSettings
from services.ingest.shard import Executors, Outputs, Shard
from services.store.deadletters import DeadLetters
from services.store.history import DEVICE_ROWS
from services.store.series import NullSeries
from services.store.storage import FolderStorage
from services.store.tables.file_name import FileName
from services.store.tables.row_table import RowTable
from tests.chaos.ledger import Account, account
from tests.chaos.shard_process import NoLiveState, baseline_forecast
from tests.chaos.traffic import RATES, SteadySite
from tests.ci.record import balance
from tests.conftest import require_env, require_program

MINUTES = float(os.environ.get("HOTHOUSE_TEST_CHAOS_MINUTES", "0.2"))


class Small:
    """An experiment without processes: some minutes of one site through gateway and shard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(data_dir=folder / "data", stream=StreamSettings(step_s=10, lateness_s=5, idle_s=15))
        self.log = MemoryLog(1)
        site = SteadySite("s", 2, 1000, seed=1)
        disturbance = Disturbance(dict.fromkeys(RATES, 0.05), 1, 20_000)
        self.builder = RecordBuilder(clock := ReplayedClock(site.start_ms), 10_000)
        notes = Ledger(messages_file=folder / "s.messages")
        for ts_ms, samples in SimulatorSource(site).samples(site.start_ms + 180_000):
            clock.advance(ts_ms)
            messages = []
            for sample in samples:
                topic = sample_topic(sample.site, sample.zone, sample.device)
                sent = [("sample", encode_message([sample])), *disturbance.after(sample)]
                for kind, payload in sent:
                    notes.message(kind, topic, payload)
                    messages.append(Message(topic, payload))
            self.log.append(self.builder.take(messages))
        for _ in range(45):
            clock.advance(clock.now_ms() + 1000)
            self.log.append(self.builder.take())
        notes.finish(complete=True)

    def settle(self) -> Account:
        """Let a shard read the log, and settle the account."""
        shard = Shard(
            self.settings, [0], self.log, baseline_forecast, Outputs(NullSeries(), NoLiveState()),
            Executors(*(ThreadPoolExecutor(1, name) for name in Executors._fields)), time.monotonic,
        )  # fmt: skip
        while shard.step():
            pass
        shard.close()
        return self.account()

    def account(self) -> Account:
        """The account as everything stands."""
        return account(self.folder, self.settings, self.log, {0: self.log.end_offset(0)})


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """An experiment in which nothing went wrong."""
    return Small(tmp_path)


def test_an_undisturbed_account_balances(small: Small) -> None:
    """Every message is in rows, late or rejected, each kind as it was meant; nothing differs."""
    found = small.settle()
    assert found.wrong == []
    for kind, counts in found.kinds.items():
        column = {"sample": "in rows", "late": "late"}.get(kind, "rejected")
        assert counts["published"] == counts[column] > 0, (kind, counts)
    assert found.kinds["sample"]["copies"] == found.kinds["sample"]["duplicates"] > 0
    assert found.total["lost"] == found.total["twice"] == 0


def test_a_message_that_never_arrived_is_lost(small: Small) -> None:
    """What was published and is in neither rows nor letters is found."""
    small.settle()
    with (small.folder / "s.messages").open("ab") as file:
        topic = b"hothouse/v1/s/z1/climate/sample"
        file.write(b'sample\t%s\t{"boot":"0123456789abcdef","ts":1,"seq":1,"values":{"rh_pct":1.0}}\n' % topic)
    assert small.account().total["lost"] == 1


@pytest.mark.parametrize(("by", "column"), [(1, "twice"), (-1, "lost")])
def test_a_row_that_counts_a_sample_too_much_or_too_little_is_found(small: Small, by: int, column: str) -> None:
    """A history whose rows differ from the judge's is told, as a sample lost or counted twice."""
    small.settle()
    table = RowTable(FolderStorage(small.settings.storage_folder), DEVICE_ROWS)
    rows = table.read()
    assert rows is not None
    at = rows.schema.get_field_index("count")
    counts = rows.column(at).to_pylist()
    counts[0] += by
    rows = rows.set_column(at, rows.schema.field(at), pa.array(counts, rows.schema.field(at).type))
    (file,) = table._log.state().files.values()
    changed = table._write(FileName.of(file.path).path("00"), rows, lambda: None)
    table._log.commit([changed], [file], rows.schema)
    found = small.account()
    assert found.total[column] == 1
    assert len(found.wrong) == 1


def test_a_dead_letter_too_few_is_found(small: Small) -> None:
    """Letters that differ from the judge's are told."""
    small.settle()
    kept = DeadLetters(small.settings.storage_folder, 0).newest(100_000)
    newest_late = next(letter.offset for letter in kept if letter.reason == "late")
    shutil.rmtree(small.settings.storage_folder / "deadletters" / "p0")
    left = [letter for letter in kept if (letter.reason, letter.offset) != ("late", newest_late)]
    DeadLetters(small.settings.storage_folder, 0).put(left)
    assert any("dead letters ('late'" in wrong for wrong in small.account().wrong)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("log", ["sqlite", pytest.param("kafka", marks=pytest.mark.long)])
def test_whatever_is_killed_nothing_is_lost_and_nothing_counts_twice(tmp_path: Path, log: str) -> None:
    """SIGKILL for gateway, broker, shards and Kafka, full disks, other numbers of shards: the ledger balances.

    The short form of ``make chaos``; the log on Kafka is for ``make long``.
    """
    require_program("mosquitto")
    if log == "kafka":
        require_env("HOTHOUSE_SERVERS")
    run = _start(log, tmp_path)
    printed, _ = run.communicate()
    print(printed)
    with balance():
        assert run.returncode == 0 or ", counted twice " not in printed, "the account was settled, and is wrong"
    assert run.returncode == 0


def _start(log: str, folder: Path) -> subprocess.Popen[str]:
    command: list[Any] = [sys.executable, "-m", "tests.chaos.run", "--log", log, "--minutes", str(MINUTES)]
    return subprocess.Popen([*command, "--keep", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
