"""Alerts of a shard: what fires, that orders take effect at their place, and that a crash loses and repeats nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.wire.alert_orders import ChangeRules, MuteRule
from edge.wire.events import Retirement, encode_change
from edge.wire.plan import PlanMessage, encode_plan, plan_topic
from models.alerts.alert_book import AlertBook, RuleFinding
from models.alerts.chance_calibration import ChanceCalibration
from models.alerts.crop_rules import rules_for
from services.config import ForecastSettings
from services.ingest.alerts.alert_journal import AlertJournal
from services.ingest.alerts.partition_alerts import PartitionAlerts
from services.ingest.alerts.shown_alert import shown_alert
from services.messages import ShownAlert
from tests.services.ingest.alerts.greenhouse import order, records
from tests.services.ingest.alerts.nights import HOUR, RULES, in_pieces, small, told
from tests.services.ingest.rig import MOMENTS, Clock, Crashed, Rig, dying, filled
from tests.services.ingest.samples import STEP, T0, new_records, sample


@pytest.fixture(scope="module")
def night() -> list[NewRecord]:
    """A day, an evening and orders; z2 is silent for two hours, and has rules of its own from the evening on."""
    day = list(records(25 * HOUR, silent=range(15 * HOUR, 17 * HOUR)))
    at = T0 + 22 * HOUR * STEP
    first, rest = day[: 22 * HOUR * 11], day[22 * HOUR * 11 :]
    own = order(ChangeRules({"changes": {"frost": {"limit": 15.5}}}), "z2", T0 + 18 * HOUR * STEP)
    first.insert(18 * HOUR * 11, own)
    return [RULES, *first, order(MuteRule("frost", at + 2 * HOUR * STEP), "z1", at), *rest]


@pytest.fixture(scope="module")
def undisturbed(night: list[NewRecord], tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """What a run without any crash leaves behind."""
    return small(tmp_path_factory.mktemp("undisturbed"), filled(night)).read_all()


def test_a_zone_that_reports_each_hour_is_silent_once_it_missed_that(tmp_path: Path) -> None:
    """Nothing is told between two reports from the fourth on, nor after one that is missed; then it is silent."""
    last = 8 * HOUR
    pauses = [n for n in range(14 * HOUR) if n % HOUR or n > last or n == 6 * HOUR]
    rig = small(tmp_path, filled([RULES, *records(14 * HOUR, silent=pauses)]))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    stale = [alert for alert in told(rig) if alert["kind"] == "stale_zone"]
    assert {alert["zone"] for alert in stale} == {"z2"}
    assert all(alert["from_ms"] < T0 + 3 * HOUR * STEP for alert in stale[:-1])
    assert (stale[-1]["state"], stale[-1]["from_ms"]) == ("firing", T0 + last * STEP)
    assert 0 < stale[-1]["changed_ms"] - stale[-1]["from_ms"] - 2.5 * HOUR * STEP <= STEP


def test_an_alert_of_a_silent_zone_says_when_it_was_read_last(tmp_path: Path) -> None:
    """Once that is over an hour ago; its chance is one of then."""
    rules = order(ChangeRules({"crop": "other", "changes": {"frost": {"limit": 15.5, "keep_min": 30}}}))
    rig = small(tmp_path, filled([rules, *records(27 * HOUR, silent=range(20 * HOUR, 27 * HOUR))]))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    cold = {alert["zone"]: alert["text"] for alert in rig.live_state.alerts.values() if alert["kind"] == "frost"}
    assert cold["z2"].endswith("; last readings 20:55")
    assert "last readings" not in cold["z1"]
    fired = [alert["text"] for alert in told(rig) if alert["kind"] == "frost"]
    assert fired
    assert not any("last readings" in text for text in fired), "they fired before it fell silent"


def test_a_cold_night_and_a_silent_zone_are_told(undisturbed: Rig) -> None:
    """Each alert says what, when and why, its changes are numbered, and what is shown is as durable."""
    found = told(undisturbed)
    kinds = {alert["kind"] for alert in found}
    assert {"frost", "stale_zone"} <= kinds
    stale = [alert for alert in found if alert["kind"] == "stale_zone"]
    assert [(a["zone"], a["state"], a["change"]) for a in stale] == [("z2", "firing", 1), ("z2", "resolved", 2)]
    assert stale[0]["text"].startswith("no fresh readings: no sample since ")
    assert stale[0]["changed_ms"] - stale[0]["from_ms"] >= 15 * 60_000
    cold = [
        alert for alert in found if alert["kind"] == "frost" and alert["zone"] == "z1" and alert["state"] != "pending"
    ]
    assert cold[0]["text"].startswith("cold ")
    assert cold[0]["why"][0]["name"] == "air"
    assert {alert["state"] for alert in found} >= {"pending", "firing", "muted", "resolved"}
    by_id: dict[str, list[int]] = {}
    for alert in found:
        by_id.setdefault(alert["id"], []).append(alert["change"])
    assert all(changes == list(range(1, len(changes) + 1)) for changes in by_id.values())
    shown = undisturbed.live_state.alerts
    assert {alert["id"]: alert["change"] for alert in shown.values()} == {id: max(of) for id, of in by_id.items()}


def test_a_sensor_that_reports_every_quarter_of_an_hour_is_watched_and_learned_from(tmp_path: Path) -> None:
    """Two rows of three have no value, also those at which learners look."""
    seldom = [one for one in records(26 * HOUR) if one.kind != "samples" or one.receive_ms // STEP % 3 == 1]
    rig = small(tmp_path, filled([RULES, *seldom]))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    [cold] = [alert for alert in rig.live_state.alerts.values() if (alert["kind"], alert["zone"]) == ("frost", "z1")]
    assert cold["state"] == "firing"
    assert cold["text"].startswith("cold (below 13.5 °C) since ")


def test_a_thermometer_that_fails_ends_its_alerts_and_hides_no_co2(tmp_path: Path) -> None:
    """Nothing is known of a cold night after a day without it; what is read in the zone is watched further."""
    fails, last = 13 * HOUR, 63 * HOUR

    def without(n: int) -> Iterator[NewRecord]:
        yield from new_records([[sample(T0 + n * STEP, n, "z1", co2_ppm=2000.0 + n % 40 if n > 40 * HOUR else 500.0)]])
        yield from (NewRecord("demo", "tick", T0 + n * STEP + tick * STEP // 10, b"") for tick in range(10))

    rest = [one for n in range(fails, last) for one in without(n)]
    rig = small(tmp_path, filled([RULES, *records(fails, zones=("z1",)), *rest]))
    forecast = rig.settings.forecast.model_copy(update={"targets": ("air_temp_c", "rh_pct", "co2_ppm")})
    rig.settings = rig.settings.model_copy(update={"forecast": forecast})
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    newest = {alert["kind"]: alert for alert in told(rig) if alert["kind"] in ("frost", "co2_high")}
    assert (newest["frost"]["state"], newest["frost"]["text"]) == ("resolved", "nothing was read for a day")
    assert newest["co2_high"]["state"] == "firing"


def test_a_mute_holds_for_its_rule_and_zone_alone(undisturbed: Rig) -> None:
    """It ends by the stream's time."""
    muted = [alert for alert in told(undisturbed) if alert["state"] == "muted"]
    assert {(alert["rule"], alert["zone"]) for alert in muted} == {("frost", "z1")}
    after = [a for a in told(undisturbed) if a["id"] == muted[0]["id"] and a["change"] > muted[0]["change"]]
    fired = [alert["changed_ms"] for alert in after if alert["state"] == "firing"]
    assert fired
    assert min(fired) >= T0 + 24 * HOUR * STEP


@pytest.mark.parametrize("step_s", [1200, 3600])
def test_rows_that_fill_no_half_hour_are_forecast_without_rules_of_the_climate(tmp_path: Path, step_s: int) -> None:
    """Rules of a state are watched: the second zone is silent, and the first does not follow its plan."""
    heat = PlanMessage(
        "demo", "z1", "grower", "setpoint", T0, {"sp_heat_c": [(T0, 18.0), (T0 + 30 * HOUR * STEP, 18.0)]}
    )
    plan = NewRecord("demo", "plan", T0, encode_plan(heat), plan_topic("demo", "z1", "grower"))
    rows = records(30 * HOUR, silent=range(20 * HOUR, 30 * HOUR), sp_heat_c=15.0)
    rig = Rig(tmp_path, filled([RULES, plan, *rows]))
    long_rows = rig.settings.stream.model_copy(update={"step_s": step_s})
    little = ForecastSettings(horizons_min=(60, 1440), targets=("air_temp_c", "rh_pct"), stale_after_s=7200)
    rig.settings = rig.settings.model_copy(update={"stream": long_rows, "forecast": little})
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    assert {forecast["zone"] for forecast in rig.live_state.published} == {"z1", "z2"}
    assert {(alert["zone"], alert["kind"]) for alert in told(rig)} == {
        ("z2", "stale_zone"),
        ("z1", "plan_not_followed"),
    }


@pytest.mark.parametrize("size", [97, 1000])
@pytest.mark.thorough
def test_how_the_log_is_cut_changes_no_alert(
    tmp_path: Path, night: list[NewRecord], undisturbed: Rig, size: int
) -> None:
    """Turns and orders have their place in the log, not in a round."""
    rig = small(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for piece in in_pieces(night, size):
        rig.log.append(piece)
        rig.drain(shard)
    shard.close()
    assert told(rig) == told(undisturbed)


@pytest.mark.parametrize("size", [1, 37, 10_000])
def test_a_zone_that_leaves_and_is_back_is_told_alike_however_the_log_is_read(tmp_path: Path, size: int) -> None:
    """Its alerts end where it leaves. What is wrong when it is back is another alert, also where both are read at once,
    as after a crash.
    """
    greenhouse = list(records(20, silent=range(6, 16)))
    at = next(n for n, one in enumerate(greenhouse) if one.receive_ms >= T0 + 15 * STEP) + 1  # a row has just closed
    leaves = encode_change(Retirement(version=2))
    gone = NewRecord("demo", "event", T0 + 15 * STEP, leaves, "hothouse/v1/demo/z2/op/event")
    (back,) = new_records([[sample(T0 + 15 * STEP - 60_000, 10**6, "z2")]])
    at_once = order(ChangeRules({"changes": {"stale_zone": {"for_min": 0}}}))
    log = [at_once, *greenhouse[:at], gone, back, *greenhouse[at:]]
    rig = small(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for piece in in_pieces(log, size):
        rig.log.append(piece)
        rig.drain(shard)
    shard.close()
    stale = [(one["zone"], one["state"], one["why"][0]["label"]) for one in told(rig) if one["kind"] == "stale_zone"]
    assert stale == [("z2", "firing", "no sample since 01:25"), ("z2", "resolved", "the zone has left")]


def test_with_its_last_zone_the_alerts_of_a_site_end(tmp_path: Path) -> None:
    """No row comes any more that could say that the weather's drift is over."""
    rig = small(tmp_path, filled([*records(2 * HOUR)]))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    book = AlertBook(rules_for())
    [drift] = book.see(
        T0 + HOUR * STEP, "demo", "_site", "drift", RuleFinding(1.0, True, T0, T0, "the sun is brighter")
    )
    AlertJournal(rig.settings.storage_folder, 0).put([(HOUR * 11, shown_alert(drift))])
    shard = rig.shard()
    shard.step()
    for n, zone in enumerate(("z1", "z2")):
        assert rig.live_state.alerts[drift.id]["state"] == "firing"
        leaves = encode_change(Retirement(version=2 + n))
        at_ms = T0 + 2 * HOUR * STEP + n
        rig.log.append([NewRecord("demo", "event", at_ms, leaves, f"hothouse/v1/demo/{zone}/op/event")])
        rig.drain(shard)
    shard.close()
    over = rig.live_state.alerts[drift.id]
    assert (over["state"], over["text"]) == ("resolved", "readings have drifted: the zone has left")


@pytest.mark.parametrize(("moment", "nth"), [(moment, 1 + 4 * (n % 3)) for n, moment in enumerate(MOMENTS)])
@pytest.mark.thorough
def test_a_kill_at_any_durable_moment_loses_and_repeats_no_alert(
    tmp_path: Path, night: list[NewRecord], undisturbed: Rig, moment: str, nth: int
) -> None:
    """The next shard goes on as if nothing had been: the journal is the same, change by change."""
    rig = small(tmp_path, MemoryLog(1), snapshot_s=0.5)
    rig.clock = Clock(tick_s=2.0)
    shard, crashes = rig.shard(dying(moment, nth)), 0
    for piece in in_pieces(night, 400):
        rig.log.append(piece)
        for _ in range(2):
            try:
                shard.step()
            except Crashed:
                crashes += 1
                shard = rig.shard()
    rig.drain(shard)
    shard.close()
    assert crashes == 1
    assert told(rig) == told(undisturbed)
    assert dict(rig.live_state.alerts) == dict(undisturbed.live_state.alerts)


def test_alerts_are_shown_again_after_a_restart(tmp_path: Path) -> None:
    """A live state that has lost all knows them from the shard's first round on."""
    rig = small(tmp_path, filled([RULES, *records(2 * HOUR, silent=range(HOUR, 9 * HOUR))]))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    before = dict(rig.live_state.alerts)
    rig.live_state.alerts.clear()
    shard = rig.shard()
    shard.step()
    assert dict(rig.live_state.alerts) == before
    shard.close()


def test_alerts_whose_snapshot_is_damaged_go_on_from_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was told of them is told of their ends; those of a rule that is lost with the snapshot are over at once."""
    own = {"changes": {"nights": {"kind": "stale_zone", "limit": 20}}}
    rig = small(tmp_path, MemoryLog(1))
    shard = rig.shard()
    gone = range(HOUR, 3 * HOUR)
    mute = order(MuteRule("stale_zone", T0 + 9 * HOUR * STEP), "z2", T0 + 2 * HOUR * STEP)
    rig.log.append([order(ChangeRules(own)), *records(2 * HOUR, silent=gone), mute])
    rig.drain(shard)
    shard.close()  # with a snapshot
    before = {alert["rule"]: alert for alert in told(rig)}
    assert {rule: alert["state"] for rule, alert in before.items()} == {"stale_zone": "muted", "nights": "firing"}

    def damaged(self: PartitionAlerts, state: object) -> None:
        raise ValueError("it is damaged")

    with monkeypatch.context() as patched:
        patched.setattr(PartitionAlerts, "load", damaged)
        again = rig.shard()
        assert "its rules are the defaults" in str(again.stats()["repaired"])
    for n in range(2):
        rig.log.append(list(records(6, 2 * HOUR + 6 * n, silent=gone)))
        rig.drain(again)
        again.close()
        again = rig.shard()  # what was taken back is in the next snapshot
    after = told(rig)[len(before) + 1 :]
    assert [(a["id"], a["state"], a["change"]) for a in after] == [(before["nights"]["id"], "resolved", 2)]
    assert after[0]["text"].endswith("its rule is lost")
    rig.log.append(list(records(2 * HOUR, 3 * HOUR)))
    rig.drain(again)
    [over] = [a for a in told(rig)[len(before) + 2 :] if a["zone"] == "z2"]
    assert (over["id"], over["state"], over["change"]) == (before["stale_zone"]["id"], "resolved", 3)
    again.close()


def test_numbers_of_alerts_rise_one_by_one_in_time(undisturbed: Rig) -> None:
    """Changes of one alert never go back in time."""
    by_id: dict[str, list[ShownAlert]] = {}
    for alert in told(undisturbed):
        by_id.setdefault(alert["id"], []).append(alert)
    assert all(a["changed_ms"] <= b["changed_ms"] for of in by_id.values() for a, b in pairwise(of))


def test_nobody_is_warned_of_what_is_imported(tmp_path: Path) -> None:
    """An import has no ticks but one at its end: a silence of days ago is no news, one that lasts is."""
    imported = [
        record
        for record in records(4 * HOUR, silent=range(HOUR, 2 * HOUR))
        if record.kind != "tick"
    ]  # fmt: skip
    rig = small(tmp_path, filled([*imported, NewRecord("demo", "tick", T0 + 4 * HOUR * STEP, b"")]))
    shard = rig.shard()
    rig.drain(shard)
    assert told(rig) == []
    rig.log.append(list(records(HOUR, 4 * HOUR, silent=range(4 * HOUR, 9 * HOUR))))
    rig.drain(shard)
    assert [alert["kind"] for alert in told(rig)] == ["stale_zone"]
    shard.close()


@pytest.mark.parametrize("more", [-0.06, 0.06])
@pytest.mark.thorough
def test_what_was_told_holds_although_chances_come_out_otherwise(
    tmp_path: Path, night: list[NewRecord], undisturbed: Rig, monkeypatch: pytest.MonkeyPatch, more: float
) -> None:
    """A chance may move when the log is read again; nobody is told of another alert in place of one that was told, and
    its later changes go on from there.
    """
    rig = small(tmp_path, filled(night))
    rig.drain(rig.shard())  # killed: no snapshot was made
    before = told(rig)
    assert before == told(undisturbed)
    step = ChanceCalibration.step

    def moved(*arguments: Any) -> Any:
        chance, usual = step(*arguments)
        return np.clip(chance + np.float32(more), 0, 1), usual

    monkeypatch.setattr(ChanceCalibration, "step", moved)
    again = rig.shard()
    rig.drain(again)
    assert told(rig) == before
    shown = {alert["id"]: (alert["change"], alert["state"]) for alert in again._partitions[0].alerts.shown()}
    assert shown == {alert["id"]: (alert["change"], alert["state"]) for alert in before}
    rig.log.append(list(records(3 * HOUR, 25 * HOUR)))
    rig.drain(again)
    by_id: dict[str, list[int]] = {}
    for alert in told(rig):
        by_id.setdefault(alert["id"], []).append(alert["change"])
    assert all(changes == list(range(1, len(changes) + 1)) for changes in by_id.values())
    again.close()
