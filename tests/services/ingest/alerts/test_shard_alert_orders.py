"""Orders about alerts of a shard: they hold from their place in the log on, also after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.wire.alert_orders import AcknowledgeAlert, ChangeRules, MuteRule
from models.alerts.rules_document import RulesDocument
from tests.services.ingest.alerts.greenhouse import NIGHT_RULES, order, records
from tests.services.ingest.alerts.nights import HOUR, RULES, small, told
from tests.services.ingest.rig import filled
from tests.services.ingest.samples import STEP, T0


def test_an_acknowledged_alert_stays_so(tmp_path: Path) -> None:
    """Whoever has seen it is not told again while it lasts, also after a mute and a restart; the same order twice
    changes nothing.
    """
    rig = small(tmp_path, MemoryLog(1))
    shard = rig.shard()
    rig.log.append([RULES, *records(2 * HOUR, silent=range(HOUR, 9 * HOUR))])
    rig.drain(shard)
    [stale] = [alert for alert in rig.live_state.alerts.values() if alert["kind"] == "stale_zone"]
    assert stale["state"] == "firing"
    again = order(AcknowledgeAlert(stale["id"]), "z2", T0 + 2 * HOUR * STEP)
    rig.log.append([again, again, *records(HOUR, 2 * HOUR, silent=range(HOUR, 9 * HOUR))])
    rig.drain(shard)
    assert rig.live_state.alerts[stale["id"]]["state"] == "acknowledged"
    assert [alert["state"] for alert in told(rig)] == ["firing", "acknowledged"]
    until_ms = T0 + (3 * HOUR + 6) * STEP
    mute = order(MuteRule("stale_zone", until_ms), "z2", T0 + 3 * HOUR * STEP)
    rig.log.append([mute, *records(3, 3 * HOUR, silent=range(HOUR, 9 * HOUR))])
    rig.drain(shard)
    shard.close()
    again_there = rig.shard()
    rig.log.append(list(records(9, 3 * HOUR + 3, silent=range(HOUR, 9 * HOUR))))
    rig.drain(again_there)
    assert [alert["state"] for alert in told(rig)] == ["firing", "acknowledged", "muted", "acknowledged"]
    assert told(rig)[-1]["changed_ms"] == until_ms
    again_there.close()


@pytest.mark.parametrize("ahead_ms", [2 * HOUR * STEP, 80 * 365 * 24 * HOUR * STEP])
def test_a_mute_ends_in_time_though_a_clock_was_ahead(tmp_path: Path, ahead_ms: int) -> None:
    """What came since then has the receive time that the clock showed, by which the mute is over as it comes."""
    silent = range(HOUR, 9 * HOUR)
    until_ms = T0 + 3 * HOUR * STEP
    rig = small(tmp_path, MemoryLog(1))
    mute = order(MuteRule("stale_zone", until_ms), "z2")
    shard = rig.shard()
    rig.log.append([RULES, *records(2 * HOUR, silent=silent)])
    stuck_ms = T0 + 2 * HOUR * STEP + ahead_ms
    rig.log.append([one._replace(receive_ms=stuck_ms) for one in [mute, *records(2 * HOUR, 2 * HOUR, silent=silent)]])
    rig.drain(shard)
    assert [alert["state"] for alert in told(rig)] == ["firing", "muted", "firing"]
    muted_ms, ended_ms = (alert["changed_ms"] for alert in told(rig)[1:])
    assert T0 + (2 * HOUR - 1) * STEP <= muted_ms <= T0 + 2 * HOUR * STEP
    assert until_ms <= ended_ms < until_ms + STEP
    shard.close()


def test_rules_change_at_their_place_and_stay(tmp_path: Path) -> None:
    """An alert of a rule that is taken away is resolved; the rules are those of the newest change, after a restart,
    too.
    """
    rig = small(tmp_path, MemoryLog(1))
    shard = rig.shard()
    rig.log.append([*records(2 * HOUR, silent=range(HOUR, 9 * HOUR))])
    rig.drain(shard)
    off = ChangeRules({"changes": {"stale_zone": {"off": True}}}, merge=True)
    rig.log.append([order(off, receive_ms=T0 + 2 * HOUR * STEP), *records(2, 2 * HOUR, silent=range(HOUR, 9 * HOUR))])
    rig.drain(shard)
    [over] = [alert for alert in told(rig) if alert["state"] == "resolved"]
    assert (over["kind"], over["text"]) == ("stale_zone", "no fresh readings: its rule was changed")
    shard.close()
    shard = rig.shard()
    rules = shard.questions.alert_rules("demo")
    assert rules is not None
    assert (rules["version"], rules["changed_by"]) == (2, "api")
    assert rules["document"]["changes"] == {"stale_zone": {"off": True}}
    assert shard.questions.alert_rules("nowhere") is None
    shard.close()


def test_the_newest_change_of_rules_wins(tmp_path: Path) -> None:
    """The same state of a file counts once, however often it is published; a later order changes it further."""
    rig = small(tmp_path, MemoryLog(1))
    shard = rig.shard()
    file = order(ChangeRules({"crop": "lettuce"}, file="a1"))
    rig.log.append([*records(2), file, order(ChangeRules({"changes": {"frost": {"limit": 5.0}}}, merge=True)), file])
    rig.drain(shard)
    rules = shard.questions.alert_rules("demo")
    assert rules is not None
    assert rules["document"] == {"crop": "lettuce", "stage": "growing", "changes": {"frost": {"limit": 5.0}}}
    assert (rules["version"], rules["changed_by"]) == (3, "api")
    shard.close()


def test_a_zone_is_warned_by_rules_of_its_own(tmp_path: Path) -> None:
    """From their place in the log on, after a restart, too; where they are taken back, those of the site hold."""
    rig = small(tmp_path, MemoryLog(1))
    shard = rig.shard()
    off = ChangeRules({"changes": {"stale_zone": {"off": True}}})
    rig.log.append([*records(2), order(off, "z2"), *records(2 * HOUR, 2, silent=range(2, 9 * HOUR))])
    rig.drain(shard)
    assert [alert["kind"] for alert in told(rig)] == []
    shard.close()
    shard = rig.shard()
    rules = shard.questions.alert_rules("demo")
    assert rules is not None
    assert rules["document"]["zones"] == {"z2": {"changes": {"stale_zone": {"off": True}}}}
    assert (rules["version"], rules["changed_by"], rules["zones"]) == (2, "api", ["z1", "z2"])
    again = order(ChangeRules({}), "z2", T0 + (2 * HOUR + 2) * STEP)
    rig.log.append([again, *records(HOUR, 2 * HOUR + 2, silent=range(2, 9 * HOUR))])
    rig.drain(shard)
    assert [(alert["kind"], alert["zone"], alert["state"]) for alert in told(rig)] == [("stale_zone", "z2", "firing")]
    shard.close()


def test_a_snapshot_of_before_zones_had_rules_is_read(tmp_path: Path) -> None:
    """Its alerts and rules go on."""
    rig = small(tmp_path, filled([RULES, *records(2 * HOUR, silent=range(HOUR, 9 * HOUR))]))
    shard = rig.shard()
    rig.drain(shard)
    alerts = shard._partitions[0].alerts
    older, shown = alerts.state(10**9), alerts.shown()
    del older["groups"]["zones"]
    assert {name for said in older["documents"].values() for name in said["document"]} == {"crop", "stage", "changes"}
    alerts.load(older)
    assert alerts.shown() == shown != []
    assert alerts.rules("demo")["document"] == RulesDocument.of(NIGHT_RULES).as_dict()
    assert alerts._groups.of("demo", "z2") is alerts._groups.of("demo")
    shard.close()


def test_an_order_that_cannot_be_taken_is_a_dead_letter(tmp_path: Path) -> None:
    """It says why, and changes nothing."""
    rig = small(tmp_path, MemoryLog(1))
    shard = rig.shard()
    wrong = order(ChangeRules({"changes": {"frost": {"chance": 20}}}))
    torn = NewRecord("demo", "event", T0, b'{"type":"alert_mute"}', "hothouse/v1/demo/z1/operator/event")
    rig.log.append([*records(2), wrong, torn])
    rig.drain(shard)
    shard.close()
    details = [letter.detail for letter in rig.dead_letters()]
    assert any("chance is 20; it must be between 0.01 and 0.99" in detail for detail in details)
    assert any("`rule`" in detail for detail in details)
