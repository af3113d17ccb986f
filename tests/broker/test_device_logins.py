"""Devices log in with passwords of their own, and publish under their own topic only, on both brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from edge.mqtt.broker import LocalBroker
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.mqtt.device_logins import DeviceLogins, LoginError, is_password_of, sample_filter
from edge.mqtt.publish import PublishError, publish_once
from services.cli.setup.troubles import BrokerRefusals
from tests.broker.conftest import local_broker, until

pytestmark = pytest.mark.broker

OWN, OTHER = "hothouse/v1/demo/north-1/bench/sample", "hothouse/v1/demo/north-1/other/sample"


@pytest.fixture(params=["mosquitto", "amqtt"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalBroker]:
    """Both brokers."""
    with local_broker(tmp_path / "broker", request.param) as made:
        yield made


def login(broker: LocalBroker, name: str, password: str) -> str:
    """What the broker answers."""
    answers: list[str] = []
    address = MqttAddress(host=broker.host, port=broker.port, username=name, password=password, v5=broker.address.v5)
    client = new_client(address, "test-device", v5=address.v5)
    client.on_connect = lambda *given: answers.append(str(given[3]))
    open_connection(client, address)
    until(lambda: answers)
    client.disconnect()
    client.loop_stop()
    return answers[0]


def heard(broker: LocalBroker, name: str, password: str, topics: list[str]) -> list[str]:
    """Which of the topics Hothouse hears a device on; the last of them must be one that arrives."""
    found: list[str] = []
    listener = new_client(broker.address, "test-listener", v5=broker.address.v5)
    subscribed: list[object] = []
    listener.on_connect = lambda client, *_: client.subscribe("#", qos=1)
    listener.on_subscribe = lambda *given: subscribed.append(given)
    listener.on_message = lambda _client, _data, message: found.append(message.topic)
    open_connection(listener, broker.address)
    until(lambda: subscribed)
    address = MqttAddress(host=broker.host, port=broker.port, username=name, password=password, v5=False)
    for topic in topics:  # a connection each: Mosquitto 2.0 ends it at a message that may not be
        with suppress(PublishError):
            publish_once(address, "test-device", topic, b"{}")
    until(lambda: topics[-1] in found)
    listener.disconnect()
    listener.loop_stop()
    return found


def test_a_login_counts_and_is_revoked_while_the_broker_runs(broker: LocalBroker) -> None:
    """Neither needs a restart; a wrong password is refused."""
    logins = DeviceLogins(broker.folder)
    password = logins.add("bench", 0, [sample_filter("bench", "demo/north-1")])
    until(lambda: login(broker, "bench", password) == "Success")
    assert login(broker, "bench", "wrong") == "Not authorized"
    assert login(broker, "hothouse", broker.password) == "Success"
    logins.revoke("bench")
    until(lambda: login(broker, "bench", password) == "Not authorized")


def test_logins_that_cannot_be_written_count_once_they_can(tmp_path: Path) -> None:
    """As after a full disk: here something else has the name of Mosquitto's file of users. The log says so, once."""
    with local_broker(tmp_path / "broker", "mosquitto") as broker:
        users = broker.folder / "mosquitto.users"
        users.unlink()
        users.mkdir()
        password = DeviceLogins(broker.folder).add("bench", 0, [OWN])
        until(lambda: "logins does not count yet" in broker.log_file.read_text(), "the log says so")
        assert login(broker, "bench", password) == "Not authorized"
        users.rmdir()
        until(lambda: login(broker, "bench", password) == "Success")
        assert login(broker, "hothouse", broker.password) == "Success"
        assert broker.log_file.read_text().count("logins does not count yet") == 1


def test_a_device_publishes_under_its_own_topic_alone(broker: LocalBroker) -> None:
    """What it publishes in another device's name, elsewhere, as an event or as a plan reaches nobody."""
    password = DeviceLogins(broker.folder).add("bench", 0, [sample_filter("bench", "demo/north-1")])
    until(lambda: login(broker, "bench", password) == "Success")
    tried = [
        OTHER,
        "hothouse/v1/demo/south/bench/sample",
        *(OWN.replace("sample", kind) for kind in ("event", "plan")),
        "elsewhere",
        OWN,
    ]
    assert heard(broker, "bench", password, tried) == [OWN]


def test_a_message_on_a_foreign_topic_is_told(broker: LocalBroker) -> None:
    """The device hears nothing of it, or only that its connection ends: whoever watches is told."""
    password = DeviceLogins(broker.folder).add("bench", 0, [OWN])
    until(lambda: login(broker, "bench", password) == "Success")
    refusals = BrokerRefusals(broker.log_file, time.monotonic)
    heard(broker, "bench", password, [f"/{OWN}", OWN])
    said: list[str] = []
    until(lambda: said.extend(refusals.lines()) or [line for line in said if line.startswith("device bench")])
    if broker.kind == "amqtt":
        assert f"device bench may not publish on '/{OWN}': the broker drops that message. What to do: " in said[0]


def test_topics_of_its_own_are_those_of_other_formats(broker: LocalBroker) -> None:
    """A device with another format has a tree of its own, and nothing of ours."""
    password = DeviceLogins(broker.folder).add("stove", 0, ["esphome/demo/#"], ["esphome/demo/#"])
    until(lambda: login(broker, "stove", password) == "Success")
    tried = [OWN, "esphome/other/x", "esphome/demo/z/stove/sensor/air_temp_c/state"]
    assert heard(broker, "stove", password, tried) == tried[-1:]


def test_a_topic_that_is_no_filter_takes_no_rule_of_others_away(broker: LocalBroker) -> None:
    """As a file of an earlier release may hold it: Mosquitto would read no rule at all, let every device publish
    everywhere, and not start again.
    """
    logins = DeviceLogins(broker.folder)
    password = logins.add("bench", 0, [OWN])
    logins.add("stove", 0, ["esphome/demo/#"])
    until(lambda: login(broker, "bench", password) == "Success")
    logins.path.write_text(logins.path.read_text().replace("esphome/demo/#", "esphome/de+mo"))
    later = logins.add("later", 0, [OTHER])
    until(lambda: login(broker, "later", later) == "Success", "the broker has read the file")
    assert heard(broker, "bench", password, [OTHER, OWN]) == [OWN]
    broker.restart()
    assert heard(broker, "bench", password, [OTHER, OWN]) == [OWN]
    if broker.kind == "mosquitto":
        assert "'esphome/de+mo' of the device stove is no topic filter" in broker.log_file.read_text()


def test_no_password_is_kept(broker: LocalBroker) -> None:
    """Files hold hashes, and are readable by the user alone."""
    logins = DeviceLogins(broker.folder)
    password = logins.add("bench", 0, [OWN])
    until(lambda: login(broker, "bench", password) == "Success")
    for path in broker.folder.rglob("*"):
        if path.is_file() and path.name not in ("port",):
            assert password.encode() not in path.read_bytes()
    assert logins.path.stat().st_mode & 0o777 == 0o600
    assert is_password_of(logins.listed()[0], password)
    assert not is_password_of(logins.listed()[0], f"{password}x")


def test_the_broker_listens_where_it_is_told(tmp_path: Path) -> None:
    """On all addresses it takes a connection of another than loopback's usual one; at first it is loopback alone."""
    with local_broker(tmp_path / "first", "amqtt") as closed:
        client = new_client(MqttAddress(host="127.0.0.2", port=closed.port), "test", v5=False)
        with pytest.raises(ConnectionRefusedError):
            open_connection(client, MqttAddress(host="127.0.0.2", port=closed.port))
        port = closed.port
    with LocalBroker(tmp_path / "second", "amqtt", port, "0.0.0.0") as opened:
        assert opened.host == "127.0.0.1"
        client = new_client(MqttAddress(host="127.0.0.2", port=port), "test", v5=False)
        open_connection(client, MqttAddress(host="127.0.0.2", port=port))
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("name", ["", "hothouse", "a/b", "a b", "+", "x:y", "line\nbreak"])
def test_a_name_that_would_break_the_files_is_refused(tmp_path: Path, name: str) -> None:
    """Names are those of topics; Hothouse's own is taken."""
    with pytest.raises(LoginError):
        DeviceLogins(tmp_path).add(name, 0, [OWN])


@pytest.mark.parametrize("topic", ["", "a+b/c", "a/b#", "a/#/b", "#/a", "a b", "a\tb", "a\nuser bench", "a\udcff"])
def test_a_topic_that_would_break_the_files_is_refused(tmp_path: Path, topic: str) -> None:
    """What is no topic filter, or would be another line; nothing is kept of it."""
    logins = DeviceLogins(tmp_path)
    for writes, reads in ([OWN, topic], []), ([OWN], [topic]):
        with pytest.raises(LoginError, match="no topic"):
            logins.add("bench", 0, writes, reads)
    assert logins.listed() == []
    logins.add("bench", 0, ["+/a/#", "a//b", "#"])
