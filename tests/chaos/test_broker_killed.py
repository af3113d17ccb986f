"""Mosquitto is killed while the gateway is away: what only it held is gone, and devices make up for it."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.log.sqlite import SqliteLog
from edge.mqtt.broker import LocalBroker
from edge.simulator.publisher import Publisher
from edge.simulator.publisher import loop as publishing
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from edge.simulator.simulator_source import SimulatorSource
from edge.wire.samples import decode_samples
from tests.chaos.system import wait_until
from tests.chaos.traffic import SteadySite
from tests.ci.record import balance
from tests.conftest import require_program
from tests.gateways import GATEWAY, broker_settings, gateway_environment
from tests.patience import patience_s

pytestmark = [pytest.mark.chaos, pytest.mark.broker, pytest.mark.timeout(600)]

SAMPLES = 2_000
PER_INSTANT = 10
INTERVAL_MS = 10


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """A Mosquitto that knows the gateway's session: it was there, and left."""
    require_program("mosquitto")
    with LocalBroker(tmp_path / "broker", kind="mosquitto") as local:
        with _Gateway(local, tmp_path / "log.sqlite"):
            pass
        yield local


@pytest.mark.parametrize("kept_s", [60.0, 0.0], ids=["devices send again", "devices do not"])
def test_what_only_the_broker_held_comes_again_from_the_devices(
    broker: LocalBroker, tmp_path: Path, kept_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sample is in the log where devices send their last minute again; else some that were acknowledged may not
    be, and nothing that arrived is another sample than those that were sent.
    """
    monkeypatch.setattr(publishing, "KEPT_S", kept_s)
    ids, log = tmp_path / "ids", tmp_path / "log.sqlite"
    site, ledger = SteadySite("s", (PER_INSTANT - 2) // 2, INTERVAL_MS, seed=3), Ledger(ids_file=ids)
    publisher = Publisher(SimulatorSource(site), broker.address, ledger, Pace(1.0))
    thread = threading.Thread(target=publisher.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: ledger.status["acked"] > SAMPLES, "some are acknowledged")
        before = ledger.status
        broker.kill()
        broker.start()
        # Devices that have nothing more to say would not come back, and what the broker lost would be lost.
        wait_until(lambda: ledger.status["connections"] > before["connections"], "the devices are back")
        site.ended.set()
        thread.join(patience_s(60))
    finally:
        publisher.stop()
    assert ledger.status["complete"], ledger.status
    sent = {tuple(line.split()[:4]) for line in ids.read_text().splitlines()}
    with _Gateway(broker, log):
        if kept_s:
            with balance():
                wait_until(lambda: sent <= _arrived(log), "every sample is in the log")
        else:
            wait_until(lambda: _is_quiet(log), "the broker has handed over what it has")
    arrived = _arrived(log)
    print(f"{before['acked']} acknowledged before the kill, {len(sent)} sent in all, {len(sent - arrived)} lost")
    with balance():
        assert arrived <= sent
        if kept_s:
            assert arrived == sent


class _Gateway:
    """A gateway process between broker and log, connected."""

    def __init__(self, broker: LocalBroker, log: Path) -> None:
        self._status = log.with_name("gateway-status.json")
        own = broker_settings(broker.address, password_file=broker.password_file)
        self._settings = gateway_environment(data_dir=log.parent, mqtt=own, log={"partitions": 1})

    def __enter__(self) -> None:
        self._status.unlink(missing_ok=True)
        self._process = subprocess.Popen(GATEWAY, env=self._settings)
        try:
            wait_until(
                lambda: self._status.exists() and b'"connected":true' in self._status.read_bytes(), "it is connected"
            )
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(patience_s(20))
        finally:
            self._process.kill()


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
