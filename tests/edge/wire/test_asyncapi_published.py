"""What Hothouse publishes keeps to ``docs/asyncapi.yaml``: alerts, presence, and all that Home Assistant reads."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from edge.gateway.other_topics import PRESENCE
from edge.mqtt.subscription import OFFLINE, ONLINE
from edge.wire.alert_orders import ChangeRules, MuteRule
from edge.wire.topic import alert_topic
from services.alert.retained_alerts import RetainedAlerts
from services.home_assistant import home_assistant_link
from services.home_assistant.documents import About
from services.home_assistant.publication import Publication
from services.ingest.alerts.alert_journal import JournalReader
from services.messages import ShownAlert
from tests.edge.wire.asyncapi import DOCUMENT, KINDS, PUBLISHED, keeps_to
from tests.services.home_assistant.greenhouse import EVENTS, ORIGIN_MS, alert, forecast
from tests.services.ingest.alerts.greenhouse import NIGHT_RULES, order, records
from tests.services.ingest.alerts.nights import HOUR, small
from tests.services.ingest.rig import Rig, filled
from tests.services.ingest.samples import STEP, T0

pytestmark = pytest.mark.thorough

ADDRESSES = {
    channel: re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(held["address"])))
    for channel, held in DOCUMENT["channels"].items()
}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """A shard that has lived a day and an evening, with a zone that was silent, and a rule that was muted."""
    day = list(records(24 * HOUR, silent=range(14 * HOUR, 16 * HOUR)))
    cut, at = 22 * HOUR * 11, T0 + 22 * HOUR * STEP
    log = [
        order(ChangeRules(NIGHT_RULES)),
        *day[:cut],
        order(MuteRule("frost", at + HOUR * STEP), "z1", at),
        *day[cut:],
    ]
    rig = small(tmp_path_factory.mktemp("lived"), filled(log))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    return rig


def changes(rig: Rig) -> list[ShownAlert]:
    """All changes of alerts, as they are told."""
    return [entry.alert for entry in JournalReader(rig.settings.storage_folder, "p0").read(0, 10_000)[0]]


def channel_of(topic: str) -> str:
    """The channel that a topic is of; ``_site`` is no name of a zone."""
    found = [channel for channel, address in ADDRESSES.items() if address.fullmatch(topic)]
    found = [channel for channel in found if channel != "zoneState" or not topic.endswith("/_site")]
    assert len(found) == 1, f"{topic} is of {found}"
    return found[0]


def checked(messages: Iterable[tuple[str, bytes]]) -> Counter[str]:
    """How many messages there are of each channel; each keeps to its schema, or takes back what was there."""
    seen: Counter[str] = Counter()
    for topic, payload in messages:
        channel = channel_of(topic)
        assert channel in PUBLISHED
        seen[channel if payload else f"{channel} taken back"] += 1
        if payload:
            (schema,) = KINDS[channel]
            wrong = [
                f"{error.json_path}: {error.message}"
                for error in Draft202012Validator(schema).iter_errors(json.loads(payload))
            ]
            assert wrong == [], topic
    return seen


def test_alerts_as_they_are_told_keep_to_it(lived: Rig, tmp_path: Path) -> None:
    """Every change of a day's alerts, in every state that came, and the empty message after the last."""
    told = changes(lived)
    assert {one["state"] for one in told} >= {"pending", "firing", "muted", "resolved"}
    sent: list[tuple[str, bytes]] = []
    now_s = [0.0]
    channel = RetainedAlerts(tmp_path, sent.extend, 60, lambda: now_s[0])
    for one in told:
        channel.deliver([one])
    now_s[0] = 1e6
    channel.deliver([])
    seen = checked(sent)
    assert seen["alert"] == len(told) > 5
    assert seen["alert taken back"] == len({one["id"] for one in told if one["state"] == "resolved"}) > 0


def test_all_that_home_assistant_reads_keeps_to_it(lived: Rig) -> None:
    """Devices, states and alerts of zones that a shard has forecast, and of a zone that leaves."""
    about = About(home_assistant_link.presence_topic("us"), "0.1", 900, 1800)
    now_s = [0.0]
    made = Publication("homeassistant", about, lambda _: EVENTS, lambda _: "Europe/Amsterdam", lambda: now_s[0])
    forecasts = list({one["zone"]: one for one in lived.live_state.published}.values())
    assert {one["zone"] for one in forecasts} == {"z1", "z2"}
    messages = made.take({"version": 1, "forecasts": forecasts})
    for number, one in enumerate(changes(lived)):
        messages += made.take({"version": 2 + number, "alerts": [one]})
    messages += made.take(
        {
            "forecasts": [forecast()],
            "alerts": [alert("firing", 2)],
            "models": [
                {
                    "version": "v3",
                    "stage": "champion",
                    "reason": "it errs 4 % less",
                    "kind": "network",
                    "trained_on": {},
                }
            ],
        }
    )
    left = [{"site": "demo", "zone": "north-1", "left_ms": ORIGIN_MS}]
    messages += made.take({"stats": {"shard-0": {"last_error": "the disk is full", "left": left}}})
    now_s[0] = 1000.0
    messages += [*made.take({}), *made.again()]
    seen = checked(messages)
    assert min(seen[channel] for channel in ("homeAssistantDevice", "zoneState", "siteState", "zoneAlerts")) >= 2
    assert {"homeAssistantDevice taken back", "zoneState taken back", "zoneAlerts taken back"} <= set(seen)


def test_presence_keeps_to_it() -> None:
    """Of gateways, and of the link to Home Assistant, whose devices are available by it."""
    topics = (f"{PRESENCE}gateway-1", home_assistant_link.presence_topic("hothouse-home-assistant-1f2e"))
    assert checked((topic, payload) for topic in topics for payload in (ONLINE, OFFLINE)) == {"presence": 4}


def test_what_home_assistant_says_is_what_is_heard() -> None:
    """Its word for a start is one that the document has, as text."""
    (schema,) = KINDS["homeAssistantStatus"]
    Draft202012Validator(schema).validate(home_assistant_link.ONLINE.decode())
    message = DOCUMENT["components"]["messages"]["homeAssistantStatus"]
    assert message["contentType"] == "text/plain"


def test_the_fields_of_an_alert_are_those_of_the_api() -> None:
    """A field that an alert gets is one that the document gets."""
    (schema,) = KINDS["alert"]
    _, found = msgspec.json.schema_components([ShownAlert])
    assert set(schema["properties"]) == set(found["ShownAlert"]["properties"])
    assert set(schema["required"]) == set(found["ShownAlert"]["required"])


def test_a_message_with_another_field_does_not_keep_to_it(lived: Rig) -> None:
    """The schemas are closed: what is published, and not described, is seen here."""
    one: Any = changes(lived)[0]
    assert keeps_to("alert", msgspec.json.encode(one))
    assert not keeps_to("alert", msgspec.json.encode({**one, "colour": "red"}))
    assert not keeps_to("alert", msgspec.json.encode({**one, "state": "loud"}))
    assert channel_of(alert_topic("demo", "z1", "6f0c")) == "alert"
