"""Plans in the shard: as they stand in the log, whatever happens to it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.log import NewRecord, Record
from edge.log.memory import MemoryLog
from edge.wire.decoder import HothouseDecoder
from edge.wire.plan import plan_topic
from models.features.plans import Plans
from services.forecast_spec import forecast_spec
from services.ingest.partition import Partition
from services.ingest.plans.intake import MAX_ISSUES, MAX_SOURCES, PartitionPlans
from services.ingest.snapshots.snapshot import Snapshots
from services.ingest.windows.closed import CamePlan
from services.messages import ZonePlan
from services.store.plan_history import PlanHistory
from tests.edge.wire.test_plan import OF_ONE_METRIC, TOPIC, WHOLE, payload
from tests.services.ingest.planned import HOUR, heating, plan_record, weather
from tests.services.ingest.rig import MOMENTS, Clock, Crashed, Rig, day, dying, filled
from tests.services.ingest.samples import STEP, T0

ROOT = Path(__file__).parents[3]


def planned_day(steps: int = 40) -> list[NewRecord]:
    """A day of samples in which plans come, one of them twice and one that nobody can read."""
    records: list[NewRecord] = []
    for n, record in enumerate(day(steps)):
        records.append(record)
        if n % 12 == 3:
            records.append(weather(record.receive_ms, first=n / 4))
        if n % 24 == 7:
            records += [heating(record.receive_ms, level=16 + n / 8)] * 2
        if n == 20:
            records.append(
                NewRecord("demo", "plan", record.receive_ms, b'{"heating":[[0,18.5]]}', "hothouse/v1/demo/z1/d/plan")
            )
    return records


def known(plans: list[ZonePlan] | None) -> list[tuple[str, str, int]]:
    assert plans is not None
    return [(plan["zone"], plan["source"], plan["issued_ms"]) for plan in plans]


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


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """What a run without any crash leaves behind."""
    rig = Rig(tmp_path_factory.mktemp("undisturbed"), filled(planned_day()))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    return rig


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.thorough
def test_a_kill_at_any_durable_moment_changes_no_plan(tmp_path: Path, undisturbed: Rig, moment: str, nth: int) -> None:
    """After a crash at a named moment, the next shard leaves the same files of plans and rows, and the same letters."""
    rig = Rig(tmp_path, MemoryLog(1), snapshot_s=0.5)
    rig.clock = Clock(tick_s=6.0)  # a snapshot each round, whatever waits
    left = planned_day()
    shard, crashes = rig.shard(dying(moment, nth)), 0
    while left or shard.step():
        batch, left = left[:7], left[7:]
        rig.log.append(batch)
        try:
            shard.step()
        except Crashed:
            crashes += 1
            shard = rig.shard()
    rig.drain(shard)
    shard.close()
    assert crashes == 1
    kinds = ("zones", "devices", "plans")
    assert rig.content(kinds) == undisturbed.content(kinds)
    assert len(rig.content(("plans",))) == 1
    assert rig.dead_letters() == undisturbed.dead_letters()
    again, once = rig.shard(), undisturbed.shard()
    assert again.questions.plan("demo", "z1") == once.questions.plan("demo", "z1")
    assert {k: again.stats()[k] for k in ("plans", "plans_repeated")} == {
        k: once.stats()[k] for k in ("plans", "plans_repeated")
    }


def test_a_snapshot_of_before_plans_is_whole(tmp_path: Path) -> None:
    """A release that knew no plans left none out; the shard goes on from its snapshot without a word."""
    rig = Rig(tmp_path, filled(list(day())))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    snapshots = Snapshots(rig.settings.storage_folder, 0, "snapshots")
    found = snapshots.load()
    assert found is not None
    snapshots.save(found.offset, {name: part for name, part in found.parts.items() if name != "plans"})
    rig.log.append([weather(T0 + 50 * STEP)])
    again = rig.shard()
    assert again.stats()["repaired"] == ""
    rig.drain(again)
    assert len(again.questions.plan("demo", "z1") or []) == 1


def test_plans_that_a_snapshot_lost_come_back_from_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part is damaged, the log begins behind it: what was known before is known again."""
    rig = Rig(tmp_path, filled(planned_day()))
    shard = rig.shard()
    rig.drain(shard)
    before = shard.questions.plan("demo", "z1")
    shard.close()
    rig.log.truncate(0, rig.log.end_offset(0))

    def damaged(self: PartitionPlans, state: object) -> None:
        raise ValueError("it is damaged")

    with monkeypatch.context() as patched:
        patched.setattr(PartitionPlans, "load", damaged)
        again = rig.shard()
    assert "plans: it is damaged" in again.stats()["repaired"]
    rig.drain(again)
    assert before
    assert again.questions.plan("demo", "z1") == before


def test_a_plan_that_gave_way_does_not_come_back_from_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was by a clock that was ahead, so the history knows it from later on than what came after it."""
    first, later = list(day(4)), list(day(40))[len(list(day(4))) :]
    ahead_ms = first[-1].receive_ms + 2 * HOUR
    right = weather(later[0].receive_ms)._replace(receive_ms=ahead_ms)
    records = [*first, weather(ahead_ms, first=20.0), right, *(one._replace(receive_ms=ahead_ms) for one in later)]
    rig = Rig(tmp_path, filled(records))
    shard = rig.shard()
    rig.drain(shard)
    before = shard.questions.plan("demo", "z1")
    assert known(before) == [("_site", "knmi", later[0].receive_ms)]
    shard.close()
    rig.log.truncate(0, rig.log.end_offset(0))

    def damaged(self: PartitionPlans, state: object) -> None:
        raise ValueError("it is damaged")

    with monkeypatch.context() as patched:
        patched.setattr(PartitionPlans, "load", damaged)
        again = rig.shard()
    rig.drain(again)
    assert again.questions.plan("demo", "z1") == before


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


made = st.lists(
    st.one_of(
        st.builds(lambda late, source: ("weather", late, source), st.integers(0, 3), st.sampled_from("ab")),
        st.builds(lambda late, zone: ("heating", late, zone), st.integers(0, 3), st.sampled_from(["z1", "z2"])),
        st.just(("samples", 0, "")),
    ),
    max_size=60,
)


@settings(max_examples=20, deadline=None)
@given(made, st.lists(st.integers(1, 9), min_size=1), st.integers(0, 3))
def test_plans_are_the_same_in_whatever_cut_the_log_is_read(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[tuple[str, int, str]], cuts: list[int], twice: int
) -> None:
    """State, counts, letters and what any row saw do not depend on how records were gathered."""
    samples, records, at = list(day(60)), [], T0
    for kind, late, name in kinds:
        if kind == "samples":
            records.append(samples.pop(0))
            at = max(at, records[-1].receive_ms)
        elif kind == "weather":
            records.append(weather(at, issued_ms=at - late * HOUR, source=name))
        else:
            records.append(heating(at, zone=name, issued_ms=at - late * HOUR))
        records += records[-1:] * (kind != "samples" and len(records) % 4 < twice)
    rig = Rig(tmp_path_factory.mktemp("cuts"), filled(records))

    def run(lengths: list[int]) -> tuple[object, ...]:
        shard = rig.shard()
        (partition,) = shard._partitions.values()
        seen, taken = list[object](), list[object]()
        fed = rig.log.read(0, partition.offset, 10_000)
        note(partition, seen)
        while fed:
            length = lengths[len(taken) % len(lengths)]
            taken.append(length)
            partition.take(fed[:length], 100)
            fed = fed[length:]
        state = {**partition.learner.plans.state()}
        kept = [(one.offset, one.plan.known_ms) for one in partition.learner.plans.kept]
        return seen, repr(state), kept, dict(partition.counts), sorted(partition.dead_letters)

    assert run(cuts) == run([10_000])


def note(partition: Partition, seen: list[object]) -> None:
    """Let ``seen`` hold what each row that closes is told of plans."""
    after_row = partition.learner.plans.after_row

    def told(site: str, end_ms: int) -> None:
        plans = partition.learner.plans.of(site)
        ahead = end_ms + np.arange(0, 6) * HOUR
        metrics = ("out_temp_c", "sp_heat_c")
        foreseen = None if plans is None else plans.foreseen(end_ms, ("z1", "z2"), metrics, ahead).tolist()
        seen.append((end_ms, repr(foreseen)))
        after_row(site, end_ms)

    partition.learner.plans.after_row = told  # type: ignore[method-assign]


@pytest.mark.parametrize("ahead_ms", [2 * HOUR, 80 * 365 * 24 * HOUR])
def test_a_plan_is_used_at_once_though_a_clock_was_ahead(tmp_path: Path, ahead_ms: int) -> None:
    """What came since then has the receive time that the clock showed: by it a plan would be for later, or ancient."""
    first, later = list(day(4)), list(day(8))[len(list(day(4))) :]
    plan = weather(first[-1].receive_ms)._replace(receive_ms=first[-1].receive_ms + ahead_ms)
    rig = Rig(tmp_path, filled([*first, plan, *(one._replace(receive_ms=plan.receive_ms) for one in later)]))
    shard = rig.shard()
    rig.drain(shard)
    (used,) = shard.questions.plan("demo", "z1") or []
    assert used["known_ms"] <= later[0].receive_ms
    assert (shard.stats()["plans"], shard.stats()["plans_refused"]) == (1, {})
    shard.close()


@pytest.mark.parametrize("ahead_ms", [2 * HOUR, 365 * 24 * HOUR])
def test_a_plan_issued_by_a_clock_that_was_ahead_gives_way_once_it_is_right(tmp_path: Path, ahead_ms: int) -> None:
    """The next plan of its source counts, now and when the time has come that the clock showed; others stay."""
    first, later = list(day(4)), list(day(40))[len(list(day(4))) :]
    now_ms = first[-1].receive_ms
    wrong = weather(now_ms + ahead_ms, first=20.0)
    right = weather(later[0].receive_ms)._replace(receive_ms=wrong.receive_ms)
    rig = Rig(
        tmp_path,
        filled([*first, heating(now_ms), wrong, right, *(r._replace(receive_ms=wrong.receive_ms) for r in later)]),
    )
    shard = rig.shard()
    rig.drain(shard)
    assert known(shard.questions.plan("demo", "z1")) == [
        ("z1", "grower", now_ms), ("_site", "knmi", later[0].receive_ms)
    ]  # fmt: skip
    (learner,) = (partition.learner for partition in shard._partitions.values())
    plans = learner.plans.of("demo")
    assert plans is not None
    shown_ms = np.array([now_ms + 2 * HOUR + 1])
    assert plans.foreseen(now_ms + 2 * HOUR + 1, ["z1"], ["out_temp_c"], shown_ms).max() < 10
    assert shard.stats()["plan_issued_ms"]["demo"]["weather"] == later[0].receive_ms
    shard.close()


def test_an_older_plan_that_comes_late_leaves_the_newer_one_while_the_site_lags(tmp_path: Path) -> None:
    """Samples wait in a gateway's buffer for hours: plans of now are no sign of a clock that is ahead."""
    records = list(day(12))
    newer, older = (records[3].receive_ms + hours * HOUR for hours in (6, 5))
    late = [one._replace(receive_ms=newer) for one in records[4:]]
    rig = Rig(tmp_path, filled([*records[:4], weather(newer), weather(older)._replace(receive_ms=newer), *late]))
    shard = rig.shard()
    rig.drain(shard)
    assert known(shard.questions.plan("demo", "z1")) == [("_site", "knmi", newer)]
    shard.close()


def test_a_plan_that_is_put_after_a_clock_was_ahead_is_issued_now(tmp_path: Path) -> None:
    """Later than what that clock issued no gateway would let it through."""
    at = T0 + 5 * STEP + 1000
    ahead = at + 2 * HOUR
    records = [*day(6), heating(ahead), *(one._replace(receive_ms=ahead) for one in list(day(12))[9:])]
    rig = Rig(tmp_path, filled(records))
    shard = rig.shard()
    rig.drain(shard)
    ask = shard.questions.next_issue
    assert ask("demo", "z1", "grower", ahead) == ahead + 1
    assert [ask("demo", "z1", "grower", at) for _ in range(2)] == [at, at + 1]
    shard.close()


def test_a_plan_that_came_after_a_row_is_not_what_that_row_saw(tmp_path: Path) -> None:
    """Even if it was issued before the row ended: a forecast, its replay and a training see the same."""
    records = list(day(4))
    late = weather(records[-1].receive_ms, issued_ms=T0)
    rig = Rig(tmp_path, filled([*records, late]))
    shard = rig.shard()
    rig.drain(shard)
    (plan,) = shard.questions.plan("demo", "z1") or []
    assert plan["known_ms"] > T0 + 2 * STEP
    shard.close()
    (kept,) = PlanHistory(rig.settings.storage_folder).read("demo", 0, 2**62)
    assert (kept.plan.issued_ms, kept.plan.known_ms, kept.plan.zone) == (T0, plan["known_ms"], "")
    assert forecast_spec(rig.settings).step_ms == STEP
