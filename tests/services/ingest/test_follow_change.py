"""Settings that make rows follow an event of the log, and only it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.log import NewRecord
from edge.wire.events import SettingsChange, encode_change
from edge.wire.topic import SITE_ZONE
from services.config import Settings
from services.errors import ConfigError
from services.store.history import History
from tests.services.ingest.rig import Rig, day, filled
from tests.services.ingest.samples import STEP, T0


def change_record(change: SettingsChange, receive_ms: int) -> NewRecord:
    return NewRecord("demo", "event", receive_ms, encode_change(change), f"hothouse/v1/demo/{SITE_ZONE}/op/event")


def run(rig: Rig) -> dict[str, Any]:
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    return shard.stats()


def test_the_configuration_may_follow_the_log(tmp_path: Path) -> None:
    """After a change of lateness by an event, the configuration may say the same, or what it said at first."""
    records = list(day(10))
    log = filled([*records[:5], change_record(SettingsChange(2, lateness_s=45), T0 + 5 * STEP), *records[5:]])
    run(Rig(tmp_path, log))
    run(Rig(tmp_path, log, lateness_s=45))
    assert run(Rig(tmp_path, log))["lateness_s"] == {"demo": 45}
    with pytest.raises(ConfigError, match=r"stream\.lateness_s changed from 30 to 50"):
        Rig(tmp_path, log, lateness_s=50).shard()


def test_rows_of_another_step_are_kept_and_not_learned_until_the_configuration_follows(tmp_path: Path) -> None:
    """From the event on no forecast is made; once the configuration names the new step, the log is replayed: rows are
    the same as before, and what has the new step is learned.
    """
    records = list(day(40))
    log = filled([*records[:20], change_record(SettingsChange(2, step_s=600), T0 + 20 * STEP), *records[20:]])
    rig = Rig(tmp_path, log)
    before = run(rig)
    rows = rig.content()
    assert before["zone_rows"] == len(History(rig.settings.storage_folder, ()).read()) + len(
        History(rig.settings.storage_folder, (), 600).read()
    )
    ends = History(rig.settings.storage_folder, (), 600).read()["end_ms"].to_pylist()
    changed_ms = min(ends) - 2 * STEP
    assert before["origin_ms"] == changed_ms
    assert before["step_s"] == {"demo": 600}
    assert {end % (2 * STEP) for end in ends} == {0}
    followed = Rig(tmp_path, log)
    followed.settings = Settings(
        data_dir=tmp_path, sites=rig.settings.sites, stream={"step_s": 600}, forecast={"horizons_min": (10, 60)}
    )
    after = run(followed)
    assert after["origin_ms"] == max(ends)
    assert followed.content() == rows
    assert {name: after[name] for name in ("zone_rows", "accepted", "late", "duplicates")} == {
        name: before[name] for name in ("zone_rows", "accepted", "late", "duplicates")
    }


def test_a_shorter_step_may_be_followed_with_the_default_idle_time(tmp_path: Path) -> None:
    """The idle time that nobody set follows the step, in the event and in the configuration alike."""
    records = list(day(20))
    log = filled([*records[:10], change_record(SettingsChange(2, step_s=60), T0 + 10 * STEP), *records[10:]])
    rig = Rig(tmp_path, log)
    before = run(rig)
    followed = Rig(tmp_path, log)
    followed.settings = Settings(
        data_dir=tmp_path, sites=rig.settings.sites, stream={"step_s": 60}, forecast={"horizons_min": (10, 60)}
    )
    after = run(followed)
    assert after["zone_rows"] == before["zone_rows"] > 20
