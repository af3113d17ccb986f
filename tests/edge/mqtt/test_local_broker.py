"""The local broker where it cannot be started."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.mqtt import mosquitto
from edge.mqtt.broker import BrokerError, LocalBroker


def test_without_mosquitto_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And starts nothing."""
    monkeypatch.setattr(mosquitto, "is_installed", lambda: False)
    broker = LocalBroker(tmp_path / "broker", kind="mosquitto")
    with pytest.raises(BrokerError, match="Mosquitto is not installed: install the packages mosquitto"):
        broker.start()
    assert not (tmp_path / "broker").exists()
