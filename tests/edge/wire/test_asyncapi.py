"""``docs/asyncapi.yaml`` says what is on the wire: real messages keep to it, and so does all that decoders take."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from edge.simulator.simulated_site import SimulatedSite
from edge.simulator.simulator_source import SimulatorSource
from edge.wire.alert_orders import AcknowledgeAlert, ChangeRules, MuteRule, decode_order, encode_order
from edge.wire.events import Alias, Calibration, Retirement, SettingsChange, decode_change, encode_change
from edge.wire.plan import decode_plan, encode_plan
from edge.wire.reading import decode, encode_message
from edge.wire.topic import parse_topic
from tests.edge.gateway.bent_messages import T0, messages
from tests.edge.wire.asyncapi import DOCUMENT, PUBLISHED, keeps_to, resolved

SCHEMAS = {name: Draft202012Validator(resolved(held)) for name, held in DOCUMENT["components"]["schemas"].items()}


def test_the_document_is_whole() -> None:
    """Every reference leads somewhere, every schema is one, and every operation has a channel with messages."""
    resolved(DOCUMENT)
    for validator in SCHEMAS.values():
        Draft202012Validator.check_schema(validator.schema)
    for operation in DOCUMENT["operations"].values():
        channel = resolved(operation["channel"])
        assert channel["messages"]
        assert set(channel["parameters"]) == {part[1:-1] for part in channel["address"].split("/") if part[0] == "{"}


@pytest.mark.parametrize("name", DOCUMENT["components"]["messages"])
def test_its_examples_keep_to_it_and_are_taken(name: str) -> None:
    """An example that a decoder refused would teach something wrong."""
    message = resolved(DOCUMENT["components"]["messages"][name])
    for example in message["examples"]:
        Draft202012Validator(message["payload"]).validate(example["payload"])
        channel = next(c for c, held in DOCUMENT["channels"].items() if name in held["messages"])
        zone = "_site" if name in ("settings", "rules") else "z1"
        topic, payload = f"hothouse/v1/demo/{zone}/d/{channel}", json.dumps(example["payload"]).encode()
        if channel == "sample":
            found = decode(topic, payload, T0 + 60_000)
            assert found.samples
            assert not found.refusals
        elif channel == "plan":
            plan = decode_plan(topic, payload, T0 + 60_000)
            assert plan.plan
            assert not plan.refusals
        elif channel == "event":
            where = parse_topic(topic)
            assert where is not None
            assert (decode_change(where, payload) or decode_order(payload)) is not None
        else:
            assert channel in PUBLISHED or name == "homeAssistantStatus"


@pytest.mark.thorough
def test_what_the_simulator_publishes_keeps_to_it() -> None:
    """Samples of all devices, one and several together, and the plans of a grower and a weather service."""
    source = SimulatorSource(SimulatedSite("demo", 7, T0, zones=2, step_ms=300_000))
    seen = set()
    for _, instant in itertools.islice(source.samples(T0 + 86_400_000), 100):
        for sample in instant:
            assert keeps_to("sample", encode_message([sample]))
            assert keeps_to("sample", encode_message([sample, sample]))
            seen.add(sample.device)
        for plan in source.plans():
            assert keeps_to("plan", encode_plan(plan))
            seen.add(plan.source)
    assert len(seen) > 3, seen


@pytest.mark.parametrize(
    "order",
    [AcknowledgeAlert("6f0c"), MuteRule("frost", 5), ChangeRules({"changes": {"frost": None}}, True, "f", True, 7)],
)
def test_orders_about_alerts_keep_to_it(order: Any) -> None:
    """As the API and files of rules publish them."""
    assert keeps_to("event", encode_order(order))


@pytest.mark.parametrize(
    "change",
    [SettingsChange(5, step_s=300), Calibration(5, "rh_pct", 1.0), Alias(5, "b"), Retirement(5), Retirement(None, 5)],
)
def test_our_own_events_keep_to_it(change: Any) -> None:
    """As ``hothouse change`` and the shards publish them."""
    assert keeps_to("event", encode_change(change))


def test_all_that_decoders_take_whole_keeps_to_it() -> None:
    """Of bent messages: whatever passes without a word is one that the document allows."""
    taken = dict.fromkeys(("sample", "plan", "event"), 0)
    for topic, payload, _ in messages(20_000, seed=7):
        where = parse_topic(topic)
        if where is None:
            continue
        if where.kind == "sample":
            found = decode(topic, payload, T0 + 60_000)
            passed = bool(found.samples) and not found.refusals
        elif where.kind == "plan":
            plan = decode_plan(topic, payload, T0 + 60_000)
            passed = plan.plan is not None and not plan.refusals
        else:
            try:
                passed = decode_change(where, payload) is not None
            except (ValueError, RecursionError):
                passed = False
        if passed:
            taken[where.kind] += 1
            assert keeps_to(where.kind, payload), (topic, payload)
    assert min(taken.values()) > 100, taken
