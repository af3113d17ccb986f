"""A shard gives the same rows whatever happens to it, and refuses what would change them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from edge.log import LogError, NewRecord, RecordKind
from edge.log.memory import MemoryLog
from services.config import SiteSettings, load_settings
from services.errors import ConfigError
from services.forecast_spec import forecast_spec
from services.ingest.learned.partition_learner import PartitionLearner
from services.ingest.snapshots.snapshot import FencedError
from services.messages import ZoneForecast
from services.store.history import History
from services.store.rows import SiteStep
from tests.patience import until as wait_until
from tests.services.ingest.rig import (
    MOMENTS,
    Clock,
    Rig,
    day,
    filled,
)
from tests.services.ingest.samples import STEP, T0, new_records, sample


def test_the_log_becomes_history_and_every_sample_is_accounted_for(tmp_path: Path) -> None:
    """Rows stand in the history after a flush; the counts are disjoint and complete."""
    rig = Rig(tmp_path, filled(list(day())))
    shard = rig.shard()
    rig.drain(shard)
    assert shard.flush() == {0: rig.log.end_offset(0)}
    stats = shard.stats()
    assert (stats["accepted"], stats["duplicates"], stats["late"], stats["rejected"]) == (120, 4, 4, {"malformed": 4})
    assert stats["samples"] == 132
    assert (stats["zone_rows"], stats["backlog"], stats["zones"]) == (78, 0, ["demo/z1", "demo/z2"])
    table = History(rig.settings.storage_folder, shard.spec.channels).read()
    assert len(table) == 78
    assert table["out_temp_c"].to_numpy()[:3].tolist() == [4.0, 5.0, 6.0]
    assert {(d.reason) for d in rig.dead_letters()} == {"late", "malformed"}
    assert stats["dead_letters"] == {"late": 4, "malformed": 4}
    assert stats["forecast_origin_ms"] == stats["watermark_ms"]
    assert (stats["steps_queued"], stats["forecasts_queued"]) == (0, 0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """What a run without any crash leaves behind."""
    return Rig(tmp_path_factory.mktemp("undisturbed"), filled(list(day()))).read_all()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.thorough
def test_a_kill_at_any_durable_moment_changes_no_bit(tmp_path: Path, undisturbed: Rig, moment: str, nth: int) -> None:
    """After a crash at a named moment, the next shard leaves the same files, counts and dead letters."""
    rig = Rig(tmp_path, MemoryLog(1), snapshot_s=0.5)
    rig.clock = Clock(tick_s=6.0)  # a snapshot each round, whatever waits
    rig.read_killed(list(day()), moment, nth)
    assert rig.content() == undisturbed.content()
    assert rig.dead_letters() == undisturbed.dead_letters()
    counted = ("samples", "accepted", "duplicates", "late", "rejected", "zone_rows", "device_rows", "steps")
    both = [other.shard().stats() for other in (rig, undisturbed)]
    assert [both[0][name] for name in counted] == [both[1][name] for name in counted]


def test_a_shard_says_until_when_it_counts_again(tmp_path: Path) -> None:
    """It replays until it has read what the log had when it began; what comes then is new."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    assert shard.stats()["replays"]
    rig.drain(shard)
    assert not shard.stats()["replays"]
    rig.log.append(list(day(30))[14:])
    stats = shard.stats()
    assert stats["backlog"] > 0
    assert not stats["replays"]


def test_an_older_shard_of_the_same_partition_is_fenced(tmp_path: Path) -> None:
    """Two shards on one partition: the older one stops at its next snapshot."""
    rig = Rig(tmp_path, filled(list(day(10))))
    older = rig.shard()
    rig.drain(older)
    rig.shard()
    with pytest.raises(FencedError):
        older.flush()


def test_a_storage_that_vanishes_for_a_while_is_no_other_writer(tmp_path: Path) -> None:
    """As a disk that is not mounted: nothing is written below its place, and once it is back all rows are there."""
    records = list(day(20))
    rig, undisturbed = Rig(tmp_path / "a", filled(records[:20])), Rig(tmp_path / "b", filled(records))
    shard, other = rig.shard(), undisturbed.shard()
    rig.drain(shard)
    shard.flush()
    storage, away = rig.settings.storage_folder, tmp_path / "away"
    storage.rename(away)
    rig.log.append(records[20:])
    rig.drain(shard)
    with pytest.raises(OSError, match=r"p0\.epoch is gone, so that nothing is written"):
        shard.flush()
    assert not [path for path in storage.rglob("*") if path.is_file()]
    shutil.rmtree(storage, ignore_errors=True)
    away.rename(storage)
    rig.drain(shard)
    shard.close()
    undisturbed.drain(other)
    other.close()
    assert rig.content() == undisturbed.content()


def test_a_fenced_shard_leaves_the_history_as_it_is(tmp_path: Path) -> None:
    """Rows and forecasts that the older shard still holds reach no file once another has taken over."""
    rig = Rig(tmp_path, filled(list(day(10))))
    older = rig.shard()
    rig.drain(older)
    newer = rig.shard()
    rig.log.append(list(day(30))[14:])
    rig.drain(newer)
    newer.flush()
    before = rig.content(("zones", "devices", "forecasts"))
    with pytest.raises(FencedError):
        older.flush()
    with pytest.raises(FencedError):
        rig.drain(older)
    assert rig.content(("zones", "devices", "forecasts")) == before


def test_a_shard_that_is_taken_over_from_in_the_middle_of_a_write_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other shard comes while the older one's file is being made durable: it is not renamed."""
    rig = Rig(tmp_path, filled(list(day(10))))
    older = rig.shard()
    rig.drain(older)
    sync = os.fsync

    def taken_over(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        rig.shard()

    monkeypatch.setattr(os, "fsync", taken_over)
    with pytest.raises(FencedError):
        older.flush()
    assert rig.content() == {}
    assert not list((rig.settings.storage_folder / "history").rglob("*.tmp"))


def test_changed_row_settings_are_refused(tmp_path: Path) -> None:
    """Rows of one folder are made in one way; the message names the setting and both values."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    with pytest.raises(ConfigError, match=r"stream\.lateness_s changed from 30 to 45"):
        Rig(tmp_path, rig.log, lateness_s=45).shard()


def test_another_primary_sensor_is_refused_for_a_site_that_has_rows(tmp_path: Path) -> None:
    """Whose value is the zone's decides rows, too; a site that has none yet may be set up as wanted."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    demo, new = rig.settings.sites[0], SiteSettings(name="new", primary={"rh_pct": "b"})
    rig.settings = rig.settings.model_copy(update={"sites": (demo, new)})
    rig.shard()
    other = demo.model_copy(update={"primary": {"air_temp_c": "climate"}})
    rig.settings = rig.settings.model_copy(update={"sites": (other, new)})
    with pytest.raises(ConfigError, match=r"sites\.demo\.primary changed from \{\} to"):
        rig.shard()


@pytest.mark.parametrize("changed", [{"timezone": "Asia/Tokyo"}, {"clock": "standard"}])
def test_another_clock_makes_the_climatology_learn_anew(tmp_path: Path, changed: dict[str, str]) -> None:
    """Its hours of day mean something else: the log is replayed, and the rows stay the same."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    before = rig.content()
    site = rig.settings.sites[0]
    rig.settings = rig.settings.model_copy(update={"sites": (site.model_copy(update=changed),)})
    again = rig.shard()
    assert again.stats()["offsets"] == {"0": 0}
    rig.drain(again)
    again.close()
    assert rig.content() == before
    assert rig.shard().stats()["backlog"] == 0  # and only once


def test_other_horizons_replay_the_log(tmp_path: Path) -> None:
    """What is forecast may change: learners begin anew from the log, and the rows stay the same."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    before = rig.content()
    rig.settings = load_settings(None, data_dir=tmp_path, forecast={"horizons_min": (5, 60)})
    again = rig.shard()
    rig.drain(again)
    again.close()
    assert rig.content() == before
    assert again.stats()["zone_rows"] == 18
    assert rig.live_state.published[-1]["forecasts"]["rh_pct"][-1]["horizon_min"] == 60


def test_plans_and_events_are_counted(tmp_path: Path) -> None:
    """Records that no row is made of show in the figures."""
    kinds: list[RecordKind] = ["plan", "event", "event"]
    rig = Rig(tmp_path, filled([NewRecord("demo", kind, T0, b"") for kind in kinds]))
    shard = rig.shard()
    rig.drain(shard)
    assert (shard.stats()["plan_records"], shard.stats()["event_records"]) == (1, 2)


def test_sites_of_all_partitions_are_served(tmp_path: Path) -> None:
    """Partitions of one shard share requests and stay apart in the history."""
    batches = [[sample(T0 + n * STEP, n, site=site)] for n in range(5) for site in ("demo", "alpha", "beta")]
    rig = Rig(tmp_path, filled(new_records(batches), partitions=4))
    shard = rig.shard()
    rig.drain(shard)
    shard.flush()
    assert shard.stats()["sites"] == ["alpha", "beta", "demo"]
    assert set(History(rig.settings.storage_folder, forecast_spec(rig.settings).channels).sites()) == {
        "alpha",
        "beta",
        "demo",
    }
    assert {f["site"] for f in rig.live_state.published} == {"alpha", "beta", "demo"}
    assert shard.questions.past("beta", "z1", 48) is not None
    assert shard.questions.past("beta", "z9", 48) is None


@pytest.mark.thorough
def test_a_shard_process_never_imports_torch() -> None:
    """A shard stays small: nothing on its way imports torch or MLflow."""
    code = "import services.ingest.shard_actor, sys; print([m for m in ('torch', 'mlflow') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


class Recorder:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.steps: list[SiteStep] = []
        self.said: list[ZoneForecast] = []

    def rows(self, steps: Sequence[SiteStep]) -> None:
        self.steps += steps

    def forecasts(self, forecasts: Sequence[ZoneForecast]) -> None:
        self.said += forecasts


def test_one_more_sink_gets_each_row_and_forecast(tmp_path: Path) -> None:
    """What is registered beside series and live state gets all closed rows, and the forecasts that are shown."""
    rig = Rig(tmp_path, filled(list(day(10))))
    recorder = Recorder()
    rig.sinks.append(recorder)
    shard = rig.shard()
    rig.drain(shard)
    shard.flush()
    ends = History(rig.settings.storage_folder, shard.spec.channels).read()["end_ms"].to_pylist()
    assert [step.end_ms for step in recorder.steps] == sorted(set(ends))
    assert recorder.said == rig.live_state.published
    assert recorder.said


def test_a_log_that_is_away_keeps_no_figure_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shard says that it cannot read, and how far behind it was, until it can again."""
    rig = Rig(tmp_path, filled(list(day(10))))
    rig.clock = Clock(tick_s=1.0)
    shard = rig.shard()
    rig.drain(shard)
    rig.log.append(list(day(11))[-1:])
    behind = shard.stats()["backlog"]

    def away(*_: object) -> None:
        raise LogError("the log is away")

    with monkeypatch.context() as patch:
        patch.setattr(rig.log, "read", away)
        patch.setattr(rig.log, "end_offset", away)
        for _ in range(2):
            rig.live_state.figures.clear()
            with pytest.raises(LogError) as error:
                shard.step()
            shard.failed("log", error.value)
        assert [(shown["failing"]["log"], shown["backlog"]) for shown in rig.live_state.figures] == [(True, behind)]
    rig.drain(shard)
    assert (shard.stats()["failing"]["log"], shard.stats()["backlog"]) == (False, 0)
    assert behind > 0


def test_a_question_waits_for_one_row_and_not_for_the_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that reads what the log holds learns many rows in one round; who asks meanwhile is answered between two
    of them.
    """
    rig = Rig(tmp_path, filled(list(day(40))))
    shard = rig.shard()
    changing, learn, learned = shard._changing, PartitionLearner.learn, list[int]()
    answers, behind = list[object](), list[bool]()
    asking = threading.Thread(target=lambda: answers.append(shard.questions.past("demo", "z1", 1)))

    def slow(learner: PartitionLearner, step: SiteStep) -> None:
        learn(learner, step)
        learned.append(step.end_ms)
        if len(learned) == 3:
            asking.start()
            wait_until(lambda: changing._waiting, "the question waits")
        if len(learned) == 4:
            behind.append(changing._is_taken and not changing._waiting)

    monkeypatch.setattr(PartitionLearner, "learn", slow)
    while len(learned) < 5:
        before = len(learned)
        shard.step()
    asking.join()
    assert before < 3 < len(learned), "one round learned rows before and after the question"
    assert behind == [True], "it had been answered when the next row was learned"
    assert answers[0] is not None
