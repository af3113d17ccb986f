"""The broker that the system publishes to: for clients, the gateway and other commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge.mqtt.broker import LocalBroker
from edge.mqtt.publish import PublishError
from edge.tls_files import TlsFiles
from services.app.broker_in_use import BrokerInUse
from services.config import load_settings
from services.errors import ConfigError, HothouseError
from services.message_broker import broker_address


def test_what_is_written_down_leads_other_commands_there(tmp_path: Path) -> None:
    """A command on this machine that has no broker in its settings finds that of the system which runs."""
    (tmp_path / "secret").write_text("hush\n")
    (tmp_path / "session").write_text("whisper\n")
    named = {"host": "10.0.0.5", "port": 8883, "username": "system", "password_file": tmp_path / "secret"}
    tls = {f"tls_{name}_file": tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    tls |= {"session_secret_file": tmp_path / "session"}
    broker = BrokerInUse.named(load_settings(data_dir=tmp_path, mqtt={**named, **tls, "version": "3.1.1"}))
    (tmp_path / "run.json").write_text(json.dumps({"mqtt": broker.written()}))
    there = broker_address(load_settings(data_dir=tmp_path))
    here = broker.address()
    assert (here.host, here.port, here.username, here.password) == ("10.0.0.5", 8883, "system", "hush")
    assert (there.host, there.port, there.username, there.password) == ("10.0.0.5", 8883, "system", "hush")
    assert here.session_secret == there.session_secret == "whisper"
    assert here.tls == there.tls == TlsFiles(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")
    assert not here.v5


def test_our_own_parts_have_ids_that_no_device_guesses(tmp_path: Path) -> None:
    """At a broker of our own: another one a name and a broker, the same after a restart, made from a private file."""
    first, other = LocalBroker(tmp_path / "broker"), LocalBroker(tmp_path / "other")
    for made in (first, other, again := LocalBroker(tmp_path / "broker")):
        made.prepare()
    ids = [BrokerInUse.own(one).address().client_id("hothouse-gateway") for one in (first, other, again)]
    assert ids[0] == ids[2] != ids[1]
    assert ids[0] != BrokerInUse.own(first).address().client_id("hothouse-home-assistant")
    assert ids[0].startswith("hothouse-gateway-")
    assert first.session_secret not in ids[0]
    assert first.session_secret_file.stat().st_mode & 0o777 == 0o600


def test_a_broker_of_before_keeps_the_ids_under_which_messages_wait(tmp_path: Path) -> None:
    """Its folder has a password and no secret of sessions; one that is written there counts from the next start on."""
    old = LocalBroker(tmp_path)
    (tmp_path / "password").write_text("before")
    for _ in range(2):
        old.prepare()
        assert old.address.client_id("hothouse-gateway") == "hothouse-gateway"
    old.session_secret_file.write_text("whisper\n")
    old.prepare()
    assert old.address.client_id("hothouse-gateway") != "hothouse-gateway"
    assert old.password == "before"


def test_a_password_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Not that there is no broker; whose password it is stands in the settings, or is that of the system that runs."""
    mqtt = {"host": "10.0.0.5", "port": 8883, "username": "system", "password_file": str(tmp_path / "none")}
    (tmp_path / "run.json").write_text(json.dumps({"mqtt": mqtt}))
    for settings in (load_settings(mqtt=mqtt), load_settings(data_dir=tmp_path)):
        with pytest.raises(ConfigError, match=r"the password of the broker at 10\.0\.0\.5:8883 cannot be read: .*none"):
            broker_address(settings)


def test_a_new_password_needs_no_restart(tmp_path: Path) -> None:
    """It is read when it is used."""
    secret = tmp_path / "secret"
    secret.write_text("first")
    broker = BrokerInUse.named(load_settings(mqtt={"host": "127.0.0.1", "username": "u", "password_file": secret}))
    secret.write_text("second")
    assert broker.address().password == "second"
    secret.write_bytes(b"\xff")  # no text
    with pytest.raises(PublishError, match=r"the password of the broker at 127\.0\.0\.1:1883 cannot be read"):
        broker.publish("t", b"")
    secret.unlink()
    with pytest.raises(ConfigError, match=r"the password of the broker at 127\.0\.0\.1:1883 cannot be read"):
        broker.address()


def test_without_a_broker_each_caller_gets_a_sentence() -> None:
    """Of the kind that it expects."""
    none = BrokerInUse.named(load_settings(mqtt={"gateway": "elsewhere"}))
    with pytest.raises(PublishError, match="no broker is configured"):
        none.publish("t", b"")
    with pytest.raises(HothouseError, match="rules cannot be changed: no broker is configured"):
        none.publish_rules("t", b"")
    with pytest.raises(HothouseError, match="no broker is configured"):
        none.publish_alerts([("t", b"")])
