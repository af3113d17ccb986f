"""The local broker where it cannot be started, and its files on a full disk."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from edge.mqtt import mosquitto
from edge.mqtt.broker import BrokerError, LocalBroker
from edge.secret_file import write_secret
from services.runtime.ports import free_port


def test_without_mosquitto_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And starts nothing."""
    monkeypatch.setattr(mosquitto, "is_installed", lambda: False)
    broker = LocalBroker(tmp_path / "broker", kind="mosquitto")
    with pytest.raises(BrokerError, match="Mosquitto is not installed: install the packages mosquitto"):
        broker.start()
    assert not (tmp_path / "broker").exists()


def test_a_port_that_is_taken_says_what_to_do(tmp_path: Path) -> None:
    """Mostly it is taken by the broker that Mosquitto's package has started."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        broker = LocalBroker(tmp_path / "broker", kind="amqtt", port=port, listen="0.0.0.0")
        with pytest.raises(BrokerError, match=rf"did not start: port {port} on 0\.0\.0\.0 is taken") as told:
            broker.start()
    assert "systemctl disable --now mosquitto" in told.value.hint


def test_what_does_not_answer_says_where_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port is free: what is wrong stands in its log."""
    broker = LocalBroker(tmp_path / "broker", kind="amqtt", port=free_port())
    monkeypatch.setattr(broker, "_launch", lambda: False)
    with pytest.raises(BrokerError, match=rf"did not start on port {broker.port}; see .*broker\.log"):
        broker.start()


def test_a_secret_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    """As on a full disk: here no file may be longer than a few bytes. Nothing is left beside it."""
    path = tmp_path / "users"
    write_secret(path, "bench:hash\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_secret(path, "bench:hash\nstove:hash\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "bench:hash\n"
    write_secret(path, "stove:hash\n")
    assert path.read_text() == "stove:hash\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
