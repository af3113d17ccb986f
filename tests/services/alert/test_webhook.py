"""Changes of alerts posted to a real server that fails, hangs, answers 500 and is killed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.alert.alert_deliveries import AlertDeliveries
from services.alert.delivery import Deliverer, DeliveryError
from services.alert.webhook import GIVE_UP_S, Webhook
from services.config import load_settings
from services.errors import ConfigError
from services.store.storage import FolderStorage
from tests.patience import patience_s, until
from tests.services.alert.receiver import Receiver
from tests.services.alert.told import Clock, change, journal


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that takes everything until it is told otherwise."""
    made = Receiver()
    yield made
    made.kill()


def webhook(receiver: Receiver, secret: str = "", severity: str = "info", limit_s: float | None = None) -> Webhook:
    """A webhook whose wall clock stands."""
    return Webhook(
        receiver.url,
        lambda: secret,
        severity,
        Clock(),
        lambda: 1_700_000_000.4,
        patience_s(10) if limit_s is None else limit_s,
    )


def test_a_change_is_a_cloud_event(receiver: Receiver) -> None:
    """In structured JSON, with the alert as its data; its id is the idempotency key."""
    assert webhook(receiver).deliver([change("a1", 2)]) == 1
    [(headers, body)] = receiver.got
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert headers["idempotency-key"] == headers["webhook-id"] == "a1-2"
    assert "webhook-signature" not in headers
    event = json.loads(body)
    assert {name: event[name] for name in ("specversion", "id", "type", "source", "subject", "time")} == {
        "specversion": "1.0", "id": "a1-2", "type": "hothouse.alert.firing", "source": "/hothouse/demo",
        "subject": "z1/frost", "time": "1970-01-01T00:00:00Z",
    }  # fmt: skip
    assert event["data"] == change("a1", 2)


def test_a_corrected_secret_needs_no_restart(receiver: Receiver) -> None:
    """It signs the next change; while its file cannot be read nothing is told, and the error says why."""
    secrets: list[str | ConfigError] = ["of before", ConfigError("webhook_secret_file cannot be read"), "corrected"]

    def secret() -> str:
        found = secrets.pop(0)
        if isinstance(found, ConfigError):
            raise found
        return found

    hook = Webhook(receiver.url, secret, "info", Clock(), lambda: 1_700_000_000.4, patience_s(10))
    hook.deliver([change("a1", 1)])
    with pytest.raises(DeliveryError, match="webhook_secret_file cannot be read"):
        hook.deliver([change("a1", 2)])
    hook.deliver([change("a1", 2)])
    for (headers, body), by in zip(receiver.got, (b"of before", b"corrected"), strict=True):
        signed = f"{headers['webhook-id']}.1700000000.".encode() + body
        wanted = base64.b64encode(hmac.new(by, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{wanted}"


def test_nothing_goes_out_unsigned_while_the_secret_is_written(tmp_path: Path, receiver: Receiver) -> None:
    """Its file is empty for a moment then: what is to be told waits, and an empty one stops the start."""
    file = tmp_path / "secret"
    alerts = {"mqtt": False, "webhook_url": receiver.url, "webhook_secret_file": file}
    settings = load_settings(data_dir=tmp_path, alerts=alerts)
    file.write_text("\n")
    with pytest.raises(ConfigError, match=r"webhook_secret_file: .*secret is empty"):
        AlertDeliveries(settings, lambda messages: None)
    file.write_text("of before")
    with AlertDeliveries(settings, lambda messages: None) as deliveries:
        file.write_text("")
        journal(settings.storage_folder, change("a1", 1))
        until(lambda: deliveries.error.endswith("secret is empty"), "it is told")
        file.write_text("corrected")
        until(lambda: receiver.got, "it is signed")
    ((headers, _),) = receiver.got
    assert "webhook-signature" in headers


def test_who_switches_it_on_again_is_not_told_of_the_time_between(tmp_path: Path, receiver: Receiver) -> None:
    """A start without it forgets its place in the journals."""
    off = load_settings(data_dir=tmp_path, alerts={"mqtt": False})
    on = load_settings(data_dir=tmp_path, alerts={"mqtt": False, "webhook_url": receiver.url})
    with AlertDeliveries(on, lambda messages: None):
        journal(on.storage_folder, change("a1", 1))
        until(lambda: receiver.got, "it is told")
    with AlertDeliveries(off, lambda messages: None):
        journal(on.storage_folder, change("a1", 2))
    with AlertDeliveries(on, lambda messages: None):
        journal(on.storage_folder, change("a1", 3))
        until(lambda: len(receiver.got) > 1, "it is told")
    assert [headers["webhook-id"] for headers, _ in receiver.got] == ["a1-1", "a1-3"]


@pytest.mark.parametrize("secret", ["a secret", "whsec_" + base64.b64encode(b"a secret").decode()])
def test_who_knows_the_secret_knows_that_it_is_ours(receiver: Receiver, secret: str) -> None:
    """The signature is over id, time and body, as Standard Webhooks has it."""
    webhook(receiver, secret).deliver([change()])
    [(headers, body)] = receiver.got
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.new(b"a secret", signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-timestamp"] == "1700000000"
    assert headers["webhook-signature"] == f"v1,{wanted}"


@pytest.mark.parametrize("secret", ["whsec_", "whsec_no Base64"])
def test_a_secret_that_nobody_can_check_is_told(receiver: Receiver, secret: str) -> None:
    """Nothing goes out unsigned, nor signed by what the receiver does not take for the secret."""
    with pytest.raises(DeliveryError, match=r"what follows whsec_ in alerts\.webhook_secret_file is no Base64"):
        webhook(receiver, secret).deliver([change()])
    assert not receiver.got


def test_only_what_was_told_and_is_severe_enough_is_posted(receiver: Receiver) -> None:
    """Nobody is told of what is merely near, nor that it is over."""
    hook = webhook(receiver, severity="warning")
    pending = change("a1", 1, "pending", fired_ms=None)
    over = change("a1", 2, "resolved", fired_ms=None)
    assert hook.deliver([pending, over, change("a2", severity="info"), change("a3", severity="warning")]) == 4
    assert receiver.keys == ["a3-1"]


def test_a_call_ends_after_some_seconds(receiver: Receiver) -> None:
    """A slow receiver with a long queue does not hold up a stop until all is told."""
    seconds = iter([0.0, 1.0, 4.9, 5.0])
    hook = Webhook(receiver.url, str, "info", lambda: next(seconds), Clock(), patience_s(10))
    assert hook.deliver([change("a1", number) for number in range(1, 5)]) == 2
    assert receiver.keys == ["a1-1", "a1-2"]


@pytest.mark.parametrize("answer", [500, 502, 503, 429, 408, 301, "cut"])
def test_a_server_that_fails_is_asked_again_with_the_same_key(tmp_path: Path, receiver: Receiver, answer: int) -> None:
    """Nothing behind the change goes first, and nothing is told twice that was taken."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, webhook(receiver), clock)
    journal(tmp_path, change("a1", 1), change("a1", 2))
    receiver.answers = [204, answer, answer, 204]
    for _ in range(4):
        deliverer.look()
        clock.now_s += 1000
    assert receiver.keys == ["a1-1", "a1-2", "a1-2", "a1-2"]
    assert (deliverer.waiting, deliverer.error) == (0, "")


@pytest.mark.parametrize("answer", ["hang", "drip"])
def test_a_server_that_hangs_holds_nobody_up_for_ever(receiver: Receiver, answer: str) -> None:
    """Also one that sends a byte now and then."""
    receiver.answers = [answer]
    with pytest.raises(DeliveryError, match=r"did not answer within 0.3 s"):
        webhook(receiver, limit_s=0.3).deliver([change()])
    assert receiver.keys == ["a1-1"]


def test_a_server_that_is_killed_and_comes_back_gets_everything(tmp_path: Path, receiver: Receiver) -> None:
    """In order, and so does one that was down when we were started again."""
    clock = Clock()
    first = Deliverer(tmp_path, webhook(receiver), clock)
    journal(tmp_path, change("a1", 1))
    first.look()
    receiver.kill()
    journal(tmp_path, change("a1", 2))
    first.look()
    assert "cannot be reached" in first.error
    again = Deliverer(tmp_path, webhook(receiver), clock)
    journal(tmp_path, change("a1", 3))
    again.look()
    assert again.waiting == 2
    back = Receiver(receiver.port)
    clock.now_s += 1000
    again.look()
    assert back.keys == ["a1-2", "a1-3"]
    back.kill()


def test_a_receiver_that_took_a_change_and_died_knows_it_by_its_key(tmp_path: Path, receiver: Receiver) -> None:
    """Whoever got it and could not say so gets it again under the same id, with the same body."""
    clock = Clock()
    deliverer = Deliverer(tmp_path, webhook(receiver), clock)
    journal(tmp_path, change("a1", 1))
    receiver.answers = ["cut", 204]
    deliverer.look()
    clock.now_s += 1000
    deliverer.look()
    assert receiver.keys == ["a1-1", "a1-1"]
    assert receiver.got[0][1] == receiver.got[1][1]


def test_a_change_that_is_refused_holds_up_no_other(receiver: Receiver) -> None:
    """It is counted."""
    hook = webhook(receiver)
    receiver.answers = [400, 204]
    assert hook.deliver([change("a1", 1), change("a1", 2)]) == 2
    assert hook.refused == 1


def test_a_change_that_fails_for_a_day_is_given_up(receiver: Receiver) -> None:
    """It is counted, and those behind it are told."""
    clock = Clock()
    hook = Webhook(receiver.url, str, "info", clock, lambda: 0.0, patience_s(10))
    receiver.answers = [500, 500, 204]
    with pytest.raises(DeliveryError):
        hook.deliver([change("a1", 1), change("a1", 2)])
    clock.now_s += GIVE_UP_S
    assert hook.deliver([change("a1", 1), change("a1", 2)]) == 2
    assert (receiver.keys, hook.refused) == (["a1-1", "a1-1", "a1-2"], 1)


def test_a_day_is_a_day_over_restarts(tmp_path: Path, receiver: Receiver) -> None:
    """A receiver that fails at one change would hold the others up for ever where Hothouse is started each night."""
    receiver.answers = [500, 500, 500, 204, 500, 204]
    alerts = [change("a1", 1), change("a1", 2)]

    def started(wall_s: float) -> Webhook:
        return Webhook(
            receiver.url, str, "info", Clock(), lambda: wall_s, patience_s(10), storage=FolderStorage(tmp_path)
        )

    for wall_s in (0.0, GIVE_UP_S * 0.6):
        with pytest.raises(DeliveryError):
            started(wall_s).deliver(alerts)
    hook = started(GIVE_UP_S)
    assert hook.deliver(alerts) == 2
    assert (receiver.keys, hook.refused) == (["a1-1"] * 3 + ["a1-2"], 1)
    with pytest.raises(DeliveryError):  # another one has a day of its own
        started(GIVE_UP_S * 2).deliver([change("a1", 3)])
    assert started(GIVE_UP_S * 2.5).deliver([change("a1", 3)]) == 1
