"""Plans in the shard: as they stand in the log, whatever happens to it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import numpy as np

from edge.log import NewRecord, Record
from edge.wire.decoder import HothouseDecoder
from edge.wire.plan import plan_topic
from models.features.plans import Plans
from services.forecast_spec import forecast_spec
from services.ingest.plans.intake import MAX_ISSUES, MAX_SOURCES, PartitionPlans
from services.ingest.windows.closed import CamePlan
from services.store.plan_history import PlanHistory
from tests.edge.wire.wrong_plans import OF_ONE_METRIC, TOPIC, WHOLE, payload
from tests.services.ingest.planned import HOUR, heating, known, plan_record, planned_day, weather
from tests.services.ingest.rig import Rig, day, filled
from tests.services.ingest.samples import STEP, T0

ROOT = Path(__file__).parents[3]


def test_no_two_plans_that_are_put_have_the_same_issue(tmp_path: Path) -> None:
    """Each is later than what was read of its source, and than the one before, whoever asked for that."""
    at = T0 + 5 * STEP + 1000
    rig = Rig(tmp_path, filled([*day(6), weather(at + 5), heating(at + 2), *list(day(12))[9:]]))
    shard = rig.shard()
    rig.drain(shard)
    ask = shard.questions.next_issue
    assert [ask("demo", "z1", "grower", at) for _ in range(2)] == [at + 3, at + 4]
    assert ask("demo", "z1", "grower", at + 9) == at + 9
    assert (ask("demo", "_site", "grower", at), ask("demo", "_site", "knmi", at)) == (at, at + 6)
    assert ask("elsewhere", "z1", "grower", at) is None


def test_the_newest_plan_of_each_source_is_told(tmp_path: Path) -> None:
    """The zone's own first, with what it says of each metric; another zone has those of the site alone."""
    at = T0 + 5 * STEP + 1000
    records = [*day(6), weather(at), weather(at + 1, 7.0), heating(at + 2), *list(day(12))[9:]]
    rig = Rig(tmp_path, filled(records))
    shard = rig.shard()
    rig.drain(shard)
    assert known(shard.questions.plan("demo", "z1")) == [("z1", "grower", at + 2), ("_site", "knmi", at + 1)]
    assert known(shard.questions.plan("demo", "z2")) == [("_site", "knmi", at + 1)]
    assert known(shard.questions.plan("demo", "_site")) == [("_site", "knmi", at + 1)]
    assert shard.questions.plan("demo", "elsewhere") is None
    (forecast,) = shard.questions.plan("demo", "z2") or []
    assert forecast["values"] == {"out_temp_c": [[at + 1 + n * HOUR, 7.0 + n] for n in range(1, 7)]}
    stats = shard.stats()
    assert (stats["plan_records"], stats["plans"], stats["plans_repeated"]) == (3, 3, 0)
    assert stats["plan_issued_ms"] == {"demo": {"setpoint": at + 2, "weather": at + 1}}


def test_a_harvest_is_told_and_kept(tmp_path: Path) -> None:
    """Beside the setpoints of the same zone, in the history and over a restart; no learner takes it for a setpoint."""
    at = T0 + 3 * STEP + 1000
    done: dict[str, list[tuple[int, float]]] = {"crop_change": [(at + 9 * HOUR, 1)], "harvest_pct": [(at + HOUR, 40)]}
    event = plan_record(at, done, zone="z1", source="office", kind="event")
    rig = Rig(tmp_path, filled([*list(day(4)), event, heating(at), *list(day(12))[4:]]))
    shard = rig.shard()
    rig.drain(shard)
    told = {plan["kind"]: plan for plan in shard.questions.plan("demo", "z1") or []}
    assert told.keys() == {"event", "setpoint"}
    assert told["event"]["values"] == {name: [list(point) for point in path] for name, path in done.items()}
    shard.close()
    assert {plan["kind"]: plan for plan in rig.shard().questions.plan("demo", "z1") or []} == told
    kept = {one.plan.kind: one.plan for one in PlanHistory(rig.settings.storage_folder).read("demo", 0, 2**62)}
    assert (kept["event"].source, kept["event"].zone, list(kept["event"].series)) == ("office", "z1", sorted(done))
    plans = Plans()
    plans.add(kept["event"])
    assert np.isnan(plans.ahead(at + 2 * STEP, ["z1"], forecast_spec(rig.settings))).all()


def test_a_repeated_plan_counts_once_and_one_that_cannot_be_read_is_a_dead_letter(tmp_path: Path) -> None:
    """Also where a gateway of an earlier release let it through."""
    rig = Rig(tmp_path, filled(planned_day()))
    shard = rig.shard()
    rig.drain(shard)
    shard.flush()
    stats = shard.stats()
    assert stats["plan_records"] == stats["plans"] + stats["plans_repeated"] + 1
    assert stats["plans_repeated"] >= 2
    (letter,) = [one for one in rig.dead_letters() if one.topic.endswith("/plan")]
    assert (letter.reason, "issued" in letter.detail) == ("malformed", True)


def test_each_kind_of_bad_plan_is_a_dead_letter_with_a_sentence_and_stops_nothing(tmp_path: Path) -> None:
    """Refused by the gateway, or by a shard whose gateway let it through: the rows are those of a day without it. All
    reasons are tried that the documentation names, but the two of which :func:`test_sources_and_plans_are_bounded` is.
    """
    bad = [*WHOLE, *((reason, payload(values=values), said) for reason, values, said in OF_ONE_METRIC)]
    section = (ROOT / "docs/plans.md").read_text().partition("## What becomes of a bad plan")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")]
    documented = {reason for row in rows for reason in re.findall("`([a-z_]+)`", row[2])}
    assert {reason for reason, *_ in bad} == documented - {"too_many_sources", "too_many_plans"}
    steps = list(day(30))
    good = Rig(tmp_path / "good", filled(steps))
    good.drain(good_shard := good.shard())
    good_shard.flush()
    for name in ("refused", "plan"):
        records = []
        for _, body, _ in bad:
            refusals = HothouseDecoder().take(TOPIC, body, T0).refusals if name == "refused" else []
            records.append(NewRecord("demo", name, T0, msgspec.msgpack.encode(refusals) if refusals else body, TOPIC))
        rig = Rig(tmp_path / name, filled([*steps[:1], *records, *steps[1:]]))
        rig.drain(shard := rig.shard())
        shard.flush()
        letters = [one for one in reversed(rig.dead_letters()) if one.topic == TOPIC]
        assert [one.reason for one in letters] == [reason for reason, *_ in bad]
        for (_, _, said), letter in zip(bad, letters, strict=True):
            assert said in letter.detail
            assert "\n" not in letter.detail
        assert rig.content() == good.content()
        assert [one["origin_ms"] for one in rig.live_state.published] == [
            one["origin_ms"] for one in good.live_state.published
        ]
        assert shard.questions.plan("demo", "z1") == []


def test_the_samples_ledger_balances_beside_refused_plans(tmp_path: Path) -> None:
    """A plan that was refused, by the gateway or here, is no sample, and what is wrong with one metric no value of one:
    plans have counts of their own, which add up to what came.
    """
    at, topic = T0 + 5 * STEP, plan_topic("demo", "_site", "service")
    path = [[at + HOUR, 4.0]]
    bodies = [
        {"issued": at, "source": "a", "values": {"out_temp_c": path}},
        {"issued": at, "source": "b", "values": {"out_temp_c": path, "wind_m_s": [[at + HOUR, -3]]}},
        {"issued": at, "source": "c", "values": {"heating": path}},
        {"issued": at + HOUR, "source": "d", "values": {"out_temp_c": path}},
        {"issued": at, "source": "e"},
    ]
    came: list[NewRecord] = []
    for body in bodies:
        taken = HothouseDecoder().take(topic, json.dumps(body).encode(), at)
        came += [taken.record] if taken.record is not None else []
        came += [NewRecord("demo", "refused", at, msgspec.msgpack.encode(taken.refusals))] if taken.refusals else []
    unread = NewRecord("demo", "plan", at, b'{"heating":[[0,18.5]]}', topic)
    rig = Rig(tmp_path, filled([*list(day(6))[:5], *came, unread, came[0], *list(day(12))[5:]]))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    for stats in (shard.stats(), rig.shard().stats()):  # also from the snapshot
        assert stats["plans_refused"] == {"unknown_metric": 1, "future_ts": 1, "malformed": 2}
        assert stats["plan_metrics_refused"] == {"out_of_range": 1}
        assert (stats["plans"], stats["plans_repeated"]) == (2, 1)
        assert 2 + 1 + sum(stats["plans_refused"].values()) == 7
        assert (stats["rejected"], stats["values_refused"]) == ({"malformed": 1}, {})
        assert stats["samples"] == stats["accepted"] + stats["duplicates"] + stats["late"] + 1


def test_an_old_weather_forecast_is_named_in_degraded(tmp_path: Path) -> None:
    """From twelve hours after its issue on, for all zones of the site; a newer one ends it."""
    rig = Rig(tmp_path, filled([]))
    shard = rig.shard()
    records = list(day(13 * 12 + 3))
    rig.log.append([records[0], weather(T0 + 1, hours=48), *records[1:]])
    rig.drain(shard)
    degraded = {one["zone"]: one["degraded"] for one in rig.live_state.published}
    assert degraded == {zone: ["weather forecast of knmi: issued 13 h before the origin"] for zone in ("z1", "z2")}
    rig.log.append([weather(records[-1].receive_ms + 1), *list(day(13 * 12 + 6))[len(records) :]])
    rig.drain(shard)
    assert rig.live_state.published[-1]["degraded"] == []


def test_a_service_that_has_been_given_up_is_not_named_for_ever() -> None:
    """From 15 days after its last issue on, of which nothing is ahead any more, no forecast is weaker without it."""
    plans = PartitionPlans()
    plans.feed([CamePlan(Record(0, 0, *weather(T0)), None, T0)])
    plans.take_rest()
    named = [bool(plans.stale("demo", T0 + hours * HOUR)) for hours in (12, 13, 15 * 24, 15 * 24 + 1)]
    assert named == [False, True, True, False]


def test_sources_and_plans_are_bounded() -> None:
    """One source too many, and one plan too many of a source, is a dead letter; they are taken again later."""
    plans = PartitionPlans()

    def come(record: NewRecord, offset: int) -> list[str]:
        letters = plans.feed([CamePlan(Record(0, offset, *record), None, record.receive_ms)])
        return [letter.reason for letter in letters + plans.take_rest()]

    assert [come(weather(T0 + n, source=f"s{n}"), n) for n in range(MAX_SOURCES)] == [[]] * MAX_SOURCES
    assert come(weather(T0 + 99, source="more"), 99) == ["too_many_sources"]
    for n in range(1, MAX_ISSUES):
        assert come(plan_record(T0 + n, {"rain": [(T0 + HOUR, 1.0)]}, source="s0"), 1000 + n) == []
    assert come(weather(T0 + MAX_ISSUES, source="s0"), 5000) == ["too_many_plans"]
    later = T0 + 16 * 24 * HOUR
    assert come(weather(later, source="s0"), 6000) == []
    assert come(weather(later, source="more"), 6001) == []
    assert len(plans) == 2
