"""Plans are checked where they come in: what passes is in the log, each bad one is refused with one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.wire.decoder import HothouseDecoder
from edge.wire.plan import (
    SETPOINT_HOLD_MS,
    PlanMessage,
    decode_plan,
    encode_plan,
)
from edge.wire.reading import MAX_AGE_MS
from models.features.plans import HOLD_MS
from tests.edge.wire.wrong_plans import HOUR_MS, NOW_MS, OF_ONE_METRIC, TOPIC, WHOLE, body, payload, points

DAY_MS = 24 * HOUR_MS


def test_a_plan_reaches_the_log_as_what_passed_of_it() -> None:
    """Its record names its site and topic, and decodes to the same plan."""
    taken = HothouseDecoder().take(TOPIC, payload(), NOW_MS + 500)
    assert taken.refusals == []
    assert taken.record is not None
    assert (taken.record.site, taken.record.kind, taken.record.topic) == ("demo", "plan", TOPIC)
    path = [(NOW_MS + n * HOUR_MS, 4.0 + n) for n in range(1, 4)]
    plan = PlanMessage("demo", "_site", "knmi", "weather", NOW_MS, {"out_temp_c": path})
    assert decode_plan(TOPIC, taken.record.payload, NOW_MS + 500).plan == plan
    assert encode_plan(plan) == taken.record.payload


@pytest.mark.parametrize(("reason", "bad", "said"), WHOLE)
def test_a_bad_plan_is_refused_with_one_sentence(reason: str, bad: bytes, said: str) -> None:
    """No record of it reaches the log; the letter has its reason, its sentence and its beginning."""
    taken = HothouseDecoder().take(TOPIC, bad, NOW_MS + 500)
    assert taken.record is None
    (refusal,) = taken.refusals
    assert (refusal.reason, refusal.whole, refusal.payload) == (reason, True, bad[:1024])
    assert said in refusal.detail
    assert "\n" not in refusal.detail


def test_the_age_of_an_old_plan_is_by_the_time_that_it_was_refused_by() -> None:
    """Where the gateway's clock is ahead, that is not its receive time."""
    issued_ms, ahead_ms = NOW_MS - MAX_AGE_MS, NOW_MS + 400 * 24 * HOUR_MS
    old = payload(issued=issued_ms, values=points((1, 4)))
    assert decode_plan(TOPIC, old, ahead_ms, NOW_MS).refusals[0].reason != "ancient_ts"
    (refusal,) = decode_plan(TOPIC, old, ahead_ms, NOW_MS + 1).refusals
    assert refusal.reason == "ancient_ts"
    assert f"issued {issued_ms} was {MAX_AGE_MS + 1} ms ago when it came" in refusal.detail


@pytest.mark.parametrize(("reason", "bad", "said"), OF_ONE_METRIC)
def test_what_is_wrong_with_one_metric_costs_only_that(reason: str, bad: dict[str, Any], said: str) -> None:
    """The other metrics pass; where there is no other one the whole plan is refused for the same reason."""
    good = points((1, 70), metric="out_rh_pct")
    taken = decode_plan(TOPIC, payload(values=bad | good), NOW_MS + 500)
    assert taken.plan is not None
    assert list(taken.plan.values) == ["out_rh_pct"]
    (refusal,) = taken.refusals
    assert (refusal.reason, refusal.whole) == (reason, False)
    assert said in refusal.detail
    alone = decode_plan(TOPIC, payload(values=bad), NOW_MS + 500)
    assert alone.plan is None
    assert [(one.reason, one.whole) for one in alone.refusals] == [(reason, True)]
    assert said in alone.refusals[0].detail


@pytest.mark.parametrize("wrong", [b"NaN", b"-Infinity", b"1e400", b'"warm"', b"1" * 500])
def test_a_value_that_is_no_number_costs_only_its_metric(wrong: bytes) -> None:
    """NaN is no JSON, and yet many programs write it."""
    good, bad = points((1, 70), metric="out_rh_pct"), points((1, 4), (2, 5555))
    taken = decode_plan(TOPIC, payload(values=bad | good).replace(b"5555", wrong), NOW_MS + 500)
    assert taken.plan is not None
    assert taken.plan.values == {"out_rh_pct": [(NOW_MS + HOUR_MS, 70.0)]}
    assert [(one.reason, one.whole, one.detail.split()[0]) for one in taken.refusals] == [
        ("malformed", False, "out_temp_c")
    ]
    assert ("leave such a point out" in taken.refusals[0].detail) == (wrong in (b"NaN", b"-Infinity"))


def test_a_setpoint_that_still_holds_is_not_past() -> None:
    """A plan that is issued at noon may say what holds since the morning; a day after its last value it is over."""
    noon = points((-6, 19.5), (8, 17), metric="sp_heat_c") | points((-6, 800), metric="sp_co2_ppm")
    taken = decode_plan(TOPIC, payload(kind="setpoint", values=noon), NOW_MS + 500)
    assert taken.refusals == []
    assert taken.plan is not None
    assert taken.plan.values["sp_co2_ppm"] == [(NOW_MS - 6 * HOUR_MS, 800)]
    last = points((-6, 800), metric="sp_co2_ppm")
    over_ms = NOW_MS - 6 * HOUR_MS + SETPOINT_HOLD_MS
    assert decode_plan(TOPIC, payload(kind="setpoint", values=last), over_ms - 1).plan is not None
    (refusal,) = decode_plan(TOPIC, payload(kind="setpoint", values=last), over_ms).refusals
    assert (refusal.reason, refusal.detail) == (
        "past", "sp_co2_ppm ends at 2022-02-28T18:00Z and is held for a day, which had passed when it came",
    )  # fmt: skip


def test_a_setpoint_holds_on_the_wire_as_long_as_in_a_forecast() -> None:
    """`edge` may not import the features: the two constants are compared here."""
    assert HOLD_MS["setpoint"] == SETPOINT_HOLD_MS


def test_a_kind_need_not_be_named() -> None:
    """Where all that a plan holds is of one kind, that is its kind."""
    event = decode_plan(TOPIC, payload(kind=None, values=points((8, 100), metric="harvest_pct")), NOW_MS)
    weather = decode_plan(TOPIC, payload(kind=None), NOW_MS)
    assert event.plan is not None
    assert weather.plan is not None
    assert (event.plan.kind, weather.plan.kind) == ("event", "weather")


def test_a_harvest_and_a_change_of_crop_are_a_plan() -> None:
    """Of kind event, as it was said; a share over 100 %, a date without a value and a setpoint among them are not."""
    done = points((8, 40), (32, 60), metric="harvest_pct") | points((33, 1), metric="crop_change")
    taken = HothouseDecoder().take(TOPIC, payload(kind="event", values=done), NOW_MS)
    assert taken.refusals == []
    assert taken.record is not None
    plan = decode_plan(TOPIC, taken.record.payload, NOW_MS).plan
    assert plan is not None
    assert (plan.kind, {name: [list(point) for point in path] for name, path in plan.values.items()}) == ("event", done)
    for bad, reason in (
        (points((8, 140), metric="harvest_pct"), "out_of_range"),
        (points((8, None), metric="crop_change"), "no_values"),
        (points((8, 18), metric="sp_heat_c"), "wrong_kind"),
    ):
        (refusal,) = decode_plan(TOPIC, payload(kind="event", values=bad), NOW_MS).refusals
        assert refusal.reason == reason


def test_a_humidity_just_above_100_is_100_and_null_says_nothing() -> None:
    """As in samples: a forecast of 101 % is one of 100 %, and a point without value is left out."""
    found = decode_plan(TOPIC, payload(values=points((1, 101), (2, None), (3, 90), metric="out_rh_pct")), NOW_MS)
    assert found.refusals == []
    assert found.plan is not None
    assert found.plan.values == {"out_rh_pct": [(NOW_MS + HOUR_MS, 100.0), (NOW_MS + 3 * HOUR_MS, 90.0)]}


def test_a_plan_that_names_thousands_of_unknown_metrics_gets_a_short_answer() -> None:
    """One letter names the first of them and counts the others."""
    found = decode_plan(TOPIC, payload(values={f"unheard_of_{n}": [] for n in range(4000)}), NOW_MS)
    (refusal,) = found.refusals
    assert refusal.detail.endswith("(and 3997 more)")
    assert len(refusal.detail) < 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.binary(max_size=64) | st.builds(lambda found: json.dumps(found).encode(), JSON))
def test_no_payload_raises(raw: bytes) -> None:
    """Whatever comes is a plan or a refusal."""
    found = decode_plan(TOPIC, raw, NOW_MS)
    assert (found.plan is not None) or found.refusals


@given(st.dictionaries(st.sampled_from(["issued", "source", "kind", "values"]), JSON))
def test_no_document_raises(found: dict[str, Any]) -> None:
    """The same of what looks like a plan."""
    taken = decode_plan(TOPIC, json.dumps(body() | found).encode(), NOW_MS)
    assert (taken.plan is not None) or taken.refusals
