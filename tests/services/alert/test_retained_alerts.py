"""Alerts as retained messages: what stands on which topic, and for how long."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from services.alert.alert_deliveries import AlertDeliveries
from services.alert.delivery import Deliverer
from services.alert.retained_alerts import AlertMessage, RetainedAlerts
from services.alert.waiting_mails import WaitingMails
from services.config import load_settings
from services.errors import HothouseError, StartError
from tests.patience import until
from tests.services.alert.told import Clock, change, journal


class Broker:
    """Keeps retained messages."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.away = False

    def publish(self, messages: Sequence[AlertMessage]) -> None:
        if self.away:
            raise HothouseError("the broker did not take it")
        for topic, payload in messages:
            self.held.pop(topic, None)
            if payload:
                self.held[topic] = payload

    def states(self) -> dict[str, str]:
        return {topic.rpartition("/")[2]: json.loads(payload)["state"] for topic, payload in self.held.items()}


@pytest.fixture
def broker() -> Broker:
    """One that is there."""
    return Broker()


@pytest.fixture
def clock() -> Clock:
    """Of both: the wall, and what pauses go by."""
    return Clock()


@pytest.fixture
def deliverer(tmp_path: Path, broker: Broker, clock: Clock) -> Deliverer:
    """Topics are cleared an hour after."""
    channel = RetainedAlerts(tmp_path, broker.publish, 3600, clock)
    made = Deliverer(tmp_path, channel, clock)
    return made


def test_what_stands_on_topics_is_taken_back_where_mqtt_is_switched_off(
    tmp_path: Path, broker: Broker, clock: Clock
) -> None:
    """Nobody would say that it is over, and it would fire for ever; a broker that is away is told once it is back."""
    settings = load_settings(data_dir=tmp_path, alerts={"mqtt": False})
    root = settings.storage_folder
    assert not AlertDeliveries(settings, broker.publish).figures()["alerts_told"]
    earlier = Deliverer(root, RetainedAlerts(root, broker.publish, 3600, clock), clock)
    journal(root, change("a1", 1), change("a2", 1))
    earlier.look()
    journal(root, change("a1", 2, "resolved"))
    broker.away = True
    with AlertDeliveries(settings, broker.publish) as deliveries:
        until(lambda: "the broker did not take it" in deliveries.error, "the failure is told")
        assert broker.states() == {"a1": "firing", "a2": "firing"}
        broker.away = False
        until(lambda: not broker.held, "the topics are empty")
    assert not AlertDeliveries(settings, broker.publish).figures()["alerts_told"]


def test_an_alert_stands_on_its_topic_until_an_hour_after_it_was_resolved(
    tmp_path: Path, broker: Broker, clock: Clock, deliverer: Deliverer
) -> None:
    """Pending ones, too; the newest change is what stands there."""
    journal(tmp_path, change("a1", 1, "pending"), change("a1", 2), change("a2", 1))
    deliverer.look()
    assert broker.states() == {"a1": "firing", "a2": "firing"}
    assert json.loads(broker.held["hothouse/v1/demo/z1/alert/a1"]) == change("a1", 2)
    journal(tmp_path, change("a1", 3, "resolved"))
    deliverer.look()
    assert broker.states() == {"a2": "firing", "a1": "resolved"}
    clock.now_s += 3599
    deliverer.look()
    assert "a1" in broker.states()
    clock.now_s += 2
    deliverer.look()
    assert broker.states() == {"a2": "firing"}


@pytest.mark.parametrize("content", ["", "{", "[3]", '{"a": 3}', '{"a": null}'])
def test_what_is_damaged_is_named(tmp_path: Path, broker: Broker, clock: Clock, content: str) -> None:
    """Topics, places in the journals and mails that wait: the file, and what to do."""
    folder = tmp_path / "alert-delivery"
    folder.mkdir()
    channel = RetainedAlerts(tmp_path, broker.publish, 3600, clock)
    made: dict[str, Callable[[], object]] = {
        "topics.json": lambda: RetainedAlerts(tmp_path, broker.publish, 3600, clock),
        "mails.json": lambda: WaitingMails(tmp_path, ["a@example.org"], clock, clock),
        "mqtt.json": lambda: Deliverer(tmp_path, channel, clock),
    }
    for name, make in made.items():
        if (name, content) == ("mqtt.json", '{"a": 3}'):
            continue  # a place of a journal
        (folder / name).write_text(content)
        with pytest.raises(StartError, match=f"alert-delivery/{name} is damaged") as raised:
            make()
        assert "remove it" in raised.value.hint
        (folder / name).unlink()
        make()


def test_a_broker_that_lost_its_messages_gets_them_again(
    tmp_path: Path, broker: Broker, clock: Clock, deliverer: Deliverer
) -> None:
    """After a failure, and when we start; what came meanwhile waits."""
    journal(tmp_path, change("a1", 1))
    deliverer.look()
    broker.away = True
    journal(tmp_path, change("a2", 1))
    deliverer.look()
    assert "did not take it" in deliverer.error
    broker.held.clear()
    broker.away = False
    clock.now_s += 10
    deliverer.look()
    assert broker.states() == {"a1": "firing", "a2": "firing"}
    broker.held.clear()
    again = RetainedAlerts(tmp_path, broker.publish, 3600, clock)
    again.begin()
    assert broker.states() == {"a1": "firing", "a2": "firing"}


def test_a_broker_far_away_gets_thousands_again(
    tmp_path: Path, broker: Broker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a slow line a call takes no more than 1,000 in its time: with more, alerts by MQTT stopped for good."""
    channel = RetainedAlerts(tmp_path, lambda messages: broker.publish(messages), 3600, clock)
    deliverer, publish = Deliverer(tmp_path, channel, clock), broker.publish
    journal(tmp_path, *(change(f"a{n}", 1) for n in range(2500)))

    def slow(messages: Sequence[AlertMessage]) -> None:
        if len(messages) > 1000:
            raise HothouseError("the broker did not take it")
        publish(messages)

    monkeypatch.setattr(broker, "publish", slow)
    deliverer.look()
    assert len(broker.held) == 2500
    broker.held.clear()
    again = RetainedAlerts(tmp_path, broker.publish, 3600, clock)
    again.begin()
    assert len(broker.held) == 2500
