"""Mosquitto is killed while the gateway is away: what only it held is gone, and devices make up for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from edge.broker import LocalBroker
from edge.log import SqliteLog
from edge.samples import decode_samples
from edge.simulator import publisher as publishing
from edge.simulator.ledger import Ledger
from edge.simulator.pace import Pace
from edge.simulator.publisher import Publisher
from edge.simulator.source import SimulatorSource
from tests.chaos.system import wait_until
from tests.chaos.traffic import SteadySite
from tests.conftest import require_program

pytestmark = [pytest.mark.chaos, pytest.mark.broker, pytest.mark.timeout(600)]

SAMPLES = 4_000
PER_INSTANT = 10
INTERVAL_MS = 10


@pytest.fixture
def broker(tmp_path: Path) -> LocalBroker:
    """A Mosquitto that knows the gateway's session: it was there, and left."""
    require_program("mosquitto")
    local = LocalBroker(tmp_path / "broker", kind="mosquitto")
    local.start()
    with _Gateway(local, tmp_path / "log.sqlite"):
        pass
    return local


@pytest.mark.parametrize("kept_s", [60.0, 0.0], ids=["devices send again", "devices do not"])
def test_what_only_the_broker_held_comes_again_from_the_devices(
    broker: LocalBroker, tmp_path: Path, kept_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sample is in the log where devices send their last minute again; else some that were acknowledged may not
    be, and nothing that arrived is another sample than those that were sent.
    """
    monkeypatch.setattr(publishing, "KEPT_S", kept_s)
    ids = tmp_path / "ids"
    site, ledger = SteadySite("s", (PER_INSTANT - 2) // 2, INTERVAL_MS, seed=3), Ledger(ids_file=ids)
    until_ms = site.start_ms + SAMPLES // (PER_INSTANT - 1) * INTERVAL_MS
    publisher = Publisher(SimulatorSource(site), broker.address, ledger, Pace(1.0), until_ms=until_ms)
    thread = threading.Thread(target=publisher.run, daemon=True)
    thread.start()
    wait_until(lambda: ledger.status["acked"] > SAMPLES // 2, "half of it is acknowledged")
    acked = ledger.status["acked"]
    broker.kill()
    broker.start()
    thread.join(60)
    assert ledger.status["complete"], ledger.status
    sent = {tuple(line.split()[:4]) for line in ids.read_text().splitlines()}
    with _Gateway(broker, tmp_path / "log.sqlite"):
        arrived = _arrived(tmp_path / "log.sqlite")
        while len(arrived) < len(sent) and not _is_quiet(tmp_path / "log.sqlite"):
            arrived = _arrived(tmp_path / "log.sqlite")
        arrived = _arrived(tmp_path / "log.sqlite")
    broker.stop()
    print(f"{acked} acknowledged before the kill, {len(sent)} sent in all, {len(sent - arrived)} lost")
    assert arrived <= sent
    if kept_s:
        assert arrived == sent


class _Gateway:
    """A gateway process between broker and log, connected."""

    def __init__(self, broker: LocalBroker, log: Path) -> None:
        self._status = log.with_name("status.json")
        self._command = [
            sys.executable, "-m", "edge.gateway", "--log", log, "--partitions", "1", "--host", broker.host,
            "--port", broker.port, "--username", broker.username, "--password-file", broker.password_file,
            "--status-file", self._status,
        ]  # fmt: skip

    def __enter__(self) -> None:
        self._status.unlink(missing_ok=True)
        self._process = subprocess.Popen([str(word) for word in self._command])
        wait_until(lambda: self._status.exists() and '"connected":true' in self._status.read_text(), "it is connected")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)


def _arrived(path: Path) -> set[tuple[str, ...]]:
    log, offset, found = SqliteLog(path, 1), 0, set()
    while records := log.read(0, offset, 1000):
        offset = records[-1].offset + 1
        samples = [
            sample for record in records if record.kind == "samples" for sample in decode_samples(record.payload)
        ]
        found |= {(sample.zone, sample.device, sample.boot, str(sample.seq)) for sample in samples}
    log.close()
    return found


def _is_quiet(path: Path) -> bool:
    """Whether nothing new came for a second."""
    before = len(_arrived(path))
    time.sleep(1.0)
    return len(_arrived(path)) == before
