"""The link to Home Assistant over several live states, and over a broker that goes and comes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.mqtt.device_logins import DeviceLogins
from services.cli.setup.devices import HOME_ASSISTANT_WRITES
from services.config import load_settings
from services.errors import StartError, StorageAwayError
from services.home_assistant import home_assistant_link as home_assistant_link_module
from services.home_assistant.home_assistant_link import PublishedTopics
from services.home_assistant.names import config_topic, device_id, state_topic
from services.home_assistant.start import home_assistant_link
from services.store.storage import FolderStorage
from tests.broker.conftest import local_broker
from tests.patience import until
from tests.services.home_assistant.greenhouse import ORIGIN_MS, Greenhouse, forecast


class LiveStateAway:
    """The handle of a live state that does not answer."""

    def __init__(self) -> None:
        self.wait = self

    def remote(self, seen: int, wait_s: float) -> Any:
        raise ConnectionError


class KnownTo(LiveStateAway):
    """The handle of one that answers with what it was asked."""

    def remote(self, seen: int, wait_s: float) -> Any:
        return {"asked": seen, "wait_s": wait_s}


def test_live_states_are_asked_in_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each for what came after the version of its own, within a second for all; one that is away stops none."""
    monkeypatch.setattr(ray, "get", lambda answer, timeout: answer)
    settings = load_settings(data_dir=tmp_path, home_assistant={"prefix": "homeassistant"})
    address = MqttAddress(host="127.0.0.1", port=1883)
    link = home_assistant_link(settings, address, [KnownTo(), LiveStateAway(), KnownTo(), KnownTo()], [])
    assert link is not None
    seen = {0: 10, 1: 20, 2: 30}
    assert link._changes(seen) == {"asked": 10, "wait_s": 0.25}
    with pytest.raises(ConnectionError):
        link._changes(seen)
    assert [link._changes(seen)["asked"] for _ in range(3)] == [30, 0, 10]


def test_shards_that_hang_are_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each zone waited seconds for an answer, one after the other: with a hundred of them a stop took minutes."""
    now_s, asked = 100.0, []

    def hangs(calls: list[Any], timeout: float) -> Any:
        asked.append(timeout)
        raise ray.exceptions.GetTimeoutError

    class Shard:
        outlook = LiveStateAway()

    monkeypatch.setattr(ray, "get", hangs)
    monkeypatch.setattr(Shard.outlook, "remote", lambda site, zone: None, raising=False)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    settings = load_settings(data_dir=tmp_path, home_assistant={"prefix": "homeassistant"})
    link = home_assistant_link(settings, MqttAddress(), [], [Shard()])
    assert link is not None
    for zone in range(100):
        assert link._publication._events_of(forecast(f"z{zone}")) == []
    assert len(asked) == 1
    now_s += 60
    link._publication._events_of(forecast())
    assert len(asked) == 2


def test_a_storage_that_cannot_be_read_is_not_taken_for_one_without_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier process published would be forgotten, and stay on the broker; the start says what is wrong."""

    def away(storage: FolderStorage, key: str) -> Any:
        raise StorageAwayError("the storage does not answer")

    monkeypatch.setattr(FolderStorage, "read", away)
    for prefix in ("homeassistant", ""):
        settings = load_settings(data_dir=tmp_path, home_assistant={"prefix": prefix})
        with pytest.raises(StartError, match="Home Assistant was sent cannot be read: the storage does not answer"):
            home_assistant_link(settings, MqttAddress(), [], [])


def test_damaged_topics_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """None are known then, and what is published from then on is noted."""
    (tmp_path / "topics.json").write_text("[")
    topics = PublishedTopics(FolderStorage(tmp_path), "topics.json")
    assert topics.read() == set()
    assert "topics.json is damaged" in caplog.text
    topics.keep({"one"})
    assert PublishedTopics(FolderStorage(tmp_path), "topics.json").read() == {"one"}


def retained(address: MqttAddress) -> set[str]:
    """The topics on which the broker holds something."""
    found: list[str] = []
    client = new_client(address, "test-reader", v5=address.v5)
    client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
    client.on_subscribe = lambda client, *_: client.publish("test/all", b"", qos=1)
    client.on_message = lambda _client, _data, message: found.append(message.topic)
    open_connection(client, address)
    until(lambda: "test/all" in found, "what is held comes before what is published later")
    client.disconnect()
    client.loop_stop()
    return {*found} - {"test/all"}


@pytest.mark.broker
def test_a_zone_that_leaves_while_the_broker_is_away_is_removed(tmp_path: Path) -> None:
    """Once the broker is back; then the file of topics forgets it, too."""
    device, topics = config_topic("homeassistant", device_id("demo", "north-1")), tmp_path / "topics.json"
    with local_broker(tmp_path / "broker", "mosquitto") as broker:
        greenhouse = Greenhouse(tmp_path, broker.address)
        greenhouse.say(forecasts=[forecast(), forecast("north-2")])
        with greenhouse.link:
            until(lambda: device in retained(broker.address))
            broker.stop()
            until(lambda: greenhouse.link.error, "the link knows that the broker is away")
            left = [{"site": "demo", "zone": "north-1", "left_ms": ORIGIN_MS}]
            greenhouse.say_and_wait(stats={"shard-0": {"left": left}})
            assert device in topics.read_text()
            broker.start()
            until(lambda: device not in retained(broker.address))
            until(lambda: device not in topics.read_text())
            assert config_topic("homeassistant", device_id("demo", "north-2")) in retained(broker.address)


@pytest.mark.broker
def test_a_broker_that_refuses_what_is_published_is_named(tmp_path: Path) -> None:
    """A login without the rights made no device appear, and nobody was told; once it has them all is well."""
    config = config_topic("homeassistant", device_id("demo", "north-1"))
    with local_broker(tmp_path / "broker", "mosquitto") as broker:
        logins = DeviceLogins(broker.folder)

        def link_of(name: str, *writes: str) -> Greenhouse:
            password = logins.add(
                name, 0, ["hothouse/presence/+", "hothouse/state/#", *writes], ["homeassistant/status"]
            )
            return Greenhouse(tmp_path, replace(broker.address, username=name, password=password))

        greenhouse = link_of("without")
        greenhouse.say(forecasts=[forecast()])
        with greenhouse.link:
            until(lambda: "refuses what is published" in greenhouse.link.error, "the link says so")
            assert "homeassistant/device/" in greenhouse.link.error
            # Mosquitto 2.0.11 may take its answer along when it ends the connection.
            assert greenhouse.link.error.endswith((": Not authorized", ": the connection ends at it"))
        allowed = link_of("with", *HOME_ASSISTANT_WRITES)
        allowed.say(forecasts=[forecast()])
        with allowed.link:
            until(lambda: config in retained(broker.address))
            allowed.say_and_wait(forecasts=[forecast()])
            assert allowed.link.error == ""


@pytest.mark.broker
def test_what_a_broker_refuses_is_left_out_until_it_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mosquitto 2.0.11 ends the connection at each such message: the link came back three times a second, and the rest
    never got there. Rights that are given meanwhile count without a restart.
    """
    config = config_topic("homeassistant", device_id("demo", "north-1"))
    with local_broker(tmp_path / "broker", "mosquitto") as broker:
        logins = DeviceLogins(broker.folder)
        own = ["hothouse/presence/+", "hothouse/state/#"]
        password = logins.add("system", 0, own, ["homeassistant/status"])
        greenhouse = Greenhouse(tmp_path, replace(broker.address, username="system", password=password))
        with greenhouse.link:
            until(lambda: greenhouse.link.error == "" and greenhouse.link._subscription.connected)
            greenhouse.say(forecasts=[forecast()])
            until(lambda: state_topic("demo", "north-1") in retained(broker.address))
            until(lambda: state_topic("demo") in retained(broker.address))
            until(lambda: greenhouse.link._subscription.connected)
            before = greenhouse.link._subscription.connects
            for at in range(1, 20):
                greenhouse.say_and_wait(forecasts=[forecast(origin_ms=ORIGIN_MS + at * 300_000)])
            assert greenhouse.link._subscription.connects - before <= 1
            assert "refuses what is published" in greenhouse.link.error
            monkeypatch.setattr(home_assistant_link_module, "REFUSED_S", 0.5)
            kept = json.loads(logins.path.read_text())
            kept["devices"][0]["writes"] += HOME_ASSISTANT_WRITES
            logins.path.write_text(json.dumps(kept))
            until(lambda: config in retained(broker.address))
            until(lambda: greenhouse.link.error == "")
