"""The whole system is killed while alerts come and go: a webhook hears each change, under one key, as the journal has
it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from edge.simulator.publisher import Publisher
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from edge.simulator.simulator_source import SimulatorSource
from services.ingest.alerts.alert_journal import JournalEntry, JournalReader, journals
from tests.chaos.system import WholeSystem
from tests.chaos.traffic import SteadySite
from tests.ci.record import balance
from tests.conftest import require_program
from tests.patience import patience_s, until
from tests.services.alert.receiver import Receiver

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

ZONES = 6
PERIOD_S = 50
"""In this time each zone is silent for 25 seconds, one zone after the other."""
ROUNDS = 3


class Flickering(SteadySite):
    """A site whose zones fall silent in turn, until all of them speak."""

    all_speak = False

    def instants(self, to_ms: int) -> Iterator[tuple[int, Mapping[str, Mapping[str, float]]]]:
        """See ``PhysicalSite``."""
        for at_ms, readings in super().instants(to_ms):
            second = (at_ms - self.start_ms) // 1000
            silent = set() if self.all_speak else {
                zone for number, zone in enumerate(self.zones)
                if (second + number * PERIOD_S // ZONES) % PERIOD_S < PERIOD_S // 2
            }  # fmt: skip
            yield at_ms, {zone: said for zone, said in readings.items() if zone not in silent}


class Told(WholeSystem):
    """``hothouse up`` with a webhook; :meth:`kill` ends all of its processes at once."""

    def __init__(self, folder: Path, webhook_url: str) -> None:
        super().__init__(folder, "sqlite", shards=2)
        self._rules = folder / "rules.toml"
        self._rules.write_text("[rules.stale_zone]\nfor_min = 0\nkeep_min = 0\n")
        self._webhook_url = webhook_url

    def _configuration(self) -> str:
        alerts = f'[alerts]\nrules_file = "{self._rules}"\nwebhook_url = "{self._webhook_url}"\n'
        return super()._configuration() + alerts

    def kill(self) -> None:
        """``kill -9`` of everything; what starts the first process again does so."""
        pid = until(lambda: self._processes[0].pid, "the system runs")
        every = [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
        for process in every:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until(lambda: self._processes[0].pid not in (None, pid), "the system is started again")

    def entries(self) -> list[JournalEntry]:
        """Every change that the journals have."""
        found = []
        for name in journals(self.settings.storage_folder):
            entries, lost = JournalReader(self.settings.storage_folder, name).read(0, 10_000)
            assert lost == 0
            found += entries
        return found

    def told_keys(self) -> dict[str, JournalEntry]:
        """The changes that a webhook hears of, by its key."""
        fired = (entry for entry in self.entries() if entry.alert["fired_ms"] is not None)
        return {f"{entry.alert['id']}-{entry.alert['change']}": entry for entry in fired}


def _hears(receiver: Receiver, more: int) -> None:
    known = len(receiver.got)
    until(lambda: len(receiver.got) > known + more, "alerts are told", 180)


@pytest.mark.long
def test_no_alert_is_lost_or_told_otherwise_when_everything_is_killed(tmp_path: Path) -> None:
    """Every change of the journal arrives, and what arrives twice says the same under the same key."""
    require_program("mosquitto")
    receiver = Receiver()
    site = Flickering("s", ZONES, 1000, seed=3)
    system = Told(tmp_path, receiver.url)
    with system:
        ledger = Ledger(messages_file=tmp_path / "s.messages")
        pace = Pace(1.0, (time.time_ns() // 1_000_000, time.monotonic()))
        publisher = threading.Thread(
            target=Publisher(SimulatorSource(site), system.broker.address, ledger, pace).run, daemon=True
        )
        publisher.start()
        for number in range(ROUNDS):
            _hears(receiver, ZONES)
            if number == 1:  # nobody takes what is told; then somebody does again, at the same address
                receiver.kill()
                system.kill()
                heard, receiver = receiver.got, Receiver(receiver.port)
                receiver.got[:0] = heard
            else:
                system.kill()
        site.all_speak = True
        until(
            lambda: not {e.alert["id"] for e in system.entries()}
            - {e.alert["id"] for e in system.entries() if e.alert["state"] == "resolved"},
            "every alert is over", 180,
        )  # fmt: skip
        until(lambda: set(system.told_keys()) <= set(receiver.keys), "everything is told", 120)
        site.ended.set()
        publisher.join(patience_s(60))
        told = system.told_keys()
    receiver.kill()
    said = [json.loads(body)["data"] for _, body in receiver.got]
    with balance():
        assert set(receiver.keys) == set(told), "what was told is what the journal has"
        for key, alert in zip(receiver.keys, said, strict=True):
            assert alert == told[key].alert, f"{key} said something else before a crash"
    first: dict[str, list[int]] = {}
    for key, alert in zip(receiver.keys, said, strict=True):
        changes = first.setdefault(alert["id"], [])
        if alert["change"] not in changes:
            changes.append(alert["change"])
        assert key == f"{alert['id']}-{alert['change']}"
    assert all(changes == sorted(changes) for changes in first.values()), "an alert's changes come in their order"
    assert len(first) >= ROUNDS * ZONES // 2
