"""A shard gives the same rows whatever happens to it, and its forecasts never hold the stream up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edge.log import MemoryLog, NewRecord, RecordKind
from edge.reading import SITE_ZONE, Refusal
from models.features import day_bins, targets_of
from models.forecaster import OnlineForecaster
from models.spec import Place
from services.config import Settings, SiteSettings, StreamSettings, load_settings
from services.errors import ConfigError
from services.forecast_spec import forecast_spec
from services.ingest.shard import Shard
from services.ingest.snapshot import FencedError, SnapshotError
from services.messages import ASK_AGAIN, ONLINE_VERSION, ForecastReply, ForecastRequest, ZoneForecast
from services.store.deadletters import DeadLetters
from services.store.forecasts import IssuedForecasts
from services.store.forests import Forests
from services.store.history import History
from services.store.series import NullSeries
from tests.services.forests import small_forest
from tests.services.ingest.samples import STEP, T0, new_records, sample

ZONES = ("z1", "z2")
MOMENTS = ("taken", "forecast kept", "before flush", "flushed", "letters kept", "snapshot kept")


class Crashed(BaseException):
    """Stands for kill -9 at a named moment."""


class Inline(Executor):
    """Runs at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Held(Executor):
    """Runs when told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future, call in waiting:
            future.set_result(call())


class FakeForecaster:
    """Answers with the baseline, or ``network`` more; keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[ForecastRequest] = []
        self.version, self.network = ONLINE_VERSION, 0.0
        self.away = False
        self.asked_again = 0

    def __call__(self, request: ForecastRequest) -> ForecastReply:
        if self.away:
            raise ConnectionError("the forecaster is away")
        if self.version != ONLINE_VERSION and not request["values"].shape[1]:
            self.asked_again += 1
            return ForecastReply(version=ASK_AGAIN, quantiles=request["baseline"])
        self.requests.append(request)
        return ForecastReply(version=self.version, quantiles=request["baseline"] + np.float32(self.network))


class FakeBoard:
    def __init__(self) -> None:
        self.published: list[ZoneForecast] = []
        self.past: list[tuple[str, str]] = []
        self.figures: list[dict[str, Any]] = []

    def publish(self, forecasts: Sequence[ZoneForecast]) -> None:
        self.published += forecasts

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        assert len(end_ms) == len(values["air_temp_c"])
        self.past.append((site, zone))

    def put_stats(self, stats: dict[str, Any]) -> None:
        self.figures.append(stats)


class Clock:
    """Seconds that move on by ``tick_s`` with each look."""

    def __init__(self, tick_s: float = 0.0) -> None:
        self.now_s, self.tick_s = 0.0, tick_s

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


class Rig:
    """A log and a data folder that outlive the shards opened on them."""

    def __init__(self, folder: Path, log: MemoryLog, **stream: Any) -> None:
        site = SiteSettings(name="demo", timezone="Europe/Amsterdam")
        self.settings = Settings(data_dir=folder, sites=(site,), stream=StreamSettings(**stream))
        self.log, self.forecaster, self.board = log, FakeForecaster(), FakeBoard()
        self.executor: Executor = Inline()
        self.clock = Clock()

    def shard(self, failpoint: Callable[[str], None] = lambda name: None) -> Shard:
        return Shard(
            self.settings, range(self.log.partitions), self.log, NullSeries(), self.forecaster, self.board,
            self.executor, self.clock, failpoint,
        )  # fmt: skip

    def drain(self, shard: Shard) -> None:
        while shard.step():
            pass
        shard.step()
        shard.step()

    def content(self, kinds: Sequence[str] = ("zones", "devices")) -> dict[str, bytes]:
        """Every file of rows, byte for byte."""
        root = self.settings.storage / "history"
        files = [p for kind in kinds for p in sorted((root / kind).rglob("*.parquet"))]
        return {str(p.relative_to(root)): p.read_bytes() for p in files}

    def letters(self) -> list[Any]:
        found = []
        for number in range(self.log.partitions):
            with DeadLetters(self.settings.storage, number) as letters:
                found += letters.newest(1000)
        return found


def day(steps: int = 40) -> Iterator[NewRecord]:
    """Two zones and weather, with a duplicate, a late sample and a refusal now and then."""
    for n in range(steps):
        at = T0 + n * STEP
        batch = [
            *(sample(at, n, zone, air_temp_c=20 + n % 7 / 3, rh_pct=70.0, co2_ppm=500.0 + n) for zone in ZONES),
            sample(at, n, SITE_ZONE, "ws", out_temp_c=4.0 + n % 5),
        ]
        yield from new_records([batch])
        if n % 10 == 5:
            yield from new_records([batch[:1]])
            old = sample(at - 3 * STEP, 1000 + n, "z1")
            yield NewRecord("demo", "samples", at, msgspec.msgpack.encode([old]))
            refused = Refusal("malformed", "t", "not JSON", b"{", True, 1)
            yield NewRecord("demo", "refused", at, msgspec.msgpack.encode([refused]))


def filled(records: Sequence[NewRecord], partitions: int = 1) -> MemoryLog:
    log = MemoryLog(partitions)
    log.append(records)
    return log


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
    table = History(rig.settings.storage, shard.spec.channels).read()
    assert len(table) == 78
    assert table["out_temp_c"].to_numpy()[:3].tolist() == [4.0, 5.0, 6.0]
    assert {(d.reason) for d in rig.letters()} == {"late", "malformed"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """What a run without any crash leaves behind."""
    rig = Rig(tmp_path_factory.mktemp("undisturbed"), filled(list(day())))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    return rig


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("nth", [1, 3])
def test_a_kill_at_any_durable_moment_changes_no_bit(tmp_path: Path, undisturbed: Rig, moment: str, nth: int) -> None:
    """After a crash at a named moment, the next shard leaves the same files, counts and dead letters."""
    rig = Rig(tmp_path, MemoryLog(1), snapshot_s=0.5)
    rig.clock = Clock(tick_s=0.6)  # a snapshot each round, though the state is large
    left, seen = list(day()), 0

    def crash(name: str) -> None:
        nonlocal seen
        seen += name == moment
        if name == moment and seen == nth:
            raise Crashed

    shard, crashes = rig.shard(crash), 0
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
    assert rig.content() == undisturbed.content()
    assert rig.letters() == undisturbed.letters()
    counted = ("samples", "accepted", "duplicates", "late", "rejected", "zone_rows", "device_rows", "steps")
    both = [other.shard().stats() for other in (rig, undisturbed)]
    assert [both[0][name] for name in counted] == [both[1][name] for name in counted]


def test_a_restart_continues_the_learners_exactly(tmp_path: Path) -> None:
    """The forecast after a stop and a start equals that of a shard that never stopped."""
    records = list(day(60))
    steady, stopped = Rig(tmp_path / "a", filled(records)), Rig(tmp_path / "b", filled(records[:50]))
    steady.forecaster.version = stopped.forecaster.version = "v3"  # a network is sent rows
    first = stopped.shard()
    stopped.drain(first)
    first.close()
    stopped.log.append(records[50:])
    second = stopped.shard()
    stopped.drain(second)
    steady.drain(steady.shard())
    np.testing.assert_array_equal(
        stopped.forecaster.requests[-1]["baseline"][-2:], steady.forecaster.requests[-1]["baseline"][-2:]
    )
    np.testing.assert_array_equal(
        stopped.forecaster.requests[-1]["values"][-2:], steady.forecaster.requests[-1]["values"][-2:]
    )


def replayed(rig: Rig, shard: Shard, network: float | None) -> dict[int, Any]:
    """What the rows of the history give in a plain loop, origin -> quantiles [Z, H, M, Q]."""
    spec = shard.spec
    forecaster = OnlineForecaster(spec)
    zones = np.array([forecaster.add_zone() for _ in ZONES])
    table = History(rig.settings.storage, spec.channels).read()
    rows = np.stack([table[name].to_numpy() for name in spec.channels], axis=-1).reshape(
        len(ZONES), -1, len(spec.channels)
    )
    found = {}
    for n in range(rows.shape[1]):
        at = T0 + n * STEP
        bins = day_bins(Place("Europe/Amsterdam"), np.full(len(ZONES), at), spec)
        dark = np.full((len(ZONES), 1 + len(spec.horizons_min)), np.nan, np.float32)
        learned = forecaster.learn(zones, at // STEP, rows[:, n], bins, dark)
        found[at] = forecaster.predict(learned, None if network is None else learned.baseline + np.float32(network))
    return found


@pytest.mark.parametrize("version", [ONLINE_VERSION, "v3"])
def test_live_forecasts_are_those_of_a_plain_replay(tmp_path: Path, version: str) -> None:
    """The shard's forecasts equal those of a loop over its rows, as a backtest runs it, with a network and without."""
    rig = Rig(tmp_path, MemoryLog(1))
    rig.forecaster.version, rig.forecaster.network = version, 1.5
    shard = rig.shard()
    for record in day(330):
        rig.log.append([record])
        for _ in range(3):  # read and ask, ask again with rows, issue
            shard.step()
    shard.flush()
    issued = IssuedForecasts(rig.settings.storage, 0).read("demo", 0, 10, 4)
    expected = replayed(rig, shard, None if version == ONLINE_VERSION else 1.5)
    assert len(issued) == 329
    assert {f.age_steps for f in issued} == {0}
    for forecast in issued:
        np.testing.assert_array_equal(forecast.quantiles, expected[forecast.origin_ms])
        network = np.nan if version == ONLINE_VERSION else forecast.climatology + np.float32(1.5)
        np.testing.assert_array_equal(forecast.network, np.broadcast_to(network, forecast.network.shape))
    other = replayed(rig, shard, 1.5 if version == ONLINE_VERSION else None)
    assert not np.allclose(issued[-1].quantiles, other[issued[-1].origin_ms], equal_nan=True)


def test_a_crash_leaves_the_learners_as_they_would_have_been(tmp_path: Path) -> None:
    """Forecasts that were issued after the snapshot, some of them late, are learned from again in the replay."""
    states = []
    for crashes in (False, True):
        rig = Rig(tmp_path / str(crashes), MemoryLog(1), snapshot_s=3000)
        rig.forecaster.version, rig.forecaster.network = "v3", 1.5
        rig.executor = held = Held()
        shard = rig.shard()
        for n, record in enumerate(day(150)):
            rig.log.append([record])
            shard.step()
            if n % 3 == 2:
                held.release()
                shard.step()
            if n == 40:
                shard.flush()
        rig.drain(shard)
        if crashes:  # all after the flush is lost; what was issued meanwhile is there
            rig.executor = Held()
            shard = rig.shard()
            rig.drain(shard)
        states.append(shard._partitions[0].state())
    issued = IssuedForecasts(rig.settings.storage, 0).read("demo", 0, 10, 4)
    assert len(issued) > 100
    assert {f.age_steps for f in issued} >= {0, 1, 2, 3}
    for part in ("forecaster", "scores"):
        one, other = (msgspec.msgpack.encode(state[part], enc_hook=np.ndarray.tobytes) for state in states)
        assert one == other, part


def test_new_trees_are_taken_up_and_torn_ones_are_told(tmp_path: Path) -> None:
    """A shard uses the newest trees on the storage within a second, keeps them in its snapshot, and refuses others."""
    rig = Rig(tmp_path, filled(list(day(10))))
    rig.clock = Clock(tick_s=0.3)
    shard = rig.shard()
    rig.drain(shard)
    forests, spec = Forests(rig.settings.storage), shard.spec
    regressors = shard._partitions[0].forecaster.regressors
    name = forests.keep(small_forest(spec), spec, regressors, {"to_ms": T0})
    for _ in range(3):
        shard.step()
    assert len(shard._partitions[0].forecaster.forest) > 0
    torn = forests.keep(small_forest(spec), spec, regressors, {"to_ms": T0 + 86_400_000})
    (rig.settings.storage / "models" / "forests" / torn / "weights.safetensors").write_bytes(b"torn")
    for _ in range(3):
        shard.step()
    assert f"the trees {torn} are torn" in shard.stats()["last_error"]
    rig.log.append(list(day(20))[13:])
    rig.drain(shard)
    shard.close()
    shutil.rmtree(rig.settings.storage / "models")
    assert name != torn
    assert len(rig.shard()._partitions[0].forecaster.forest) > 0


def test_each_closed_step_is_forecast_published_and_kept(tmp_path: Path) -> None:
    """Live, every step has a forecast of each zone, kept under its version before it is shown."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for record in day(12):
        rig.log.append([record])
        shard.step()
        shard.step()
    published = rig.board.published
    assert [f["origin_ms"] for f in published if f["zone"] == "z1"] == [T0 + n * STEP for n in range(11)]
    newest = published[-1]
    assert newest["model_version"] == ONLINE_VERSION
    assert (newest["now"]["co2_ppm"], newest["now"]["out_temp_c"], newest["now"]["rain"]) == (510.0, 4.0, None)
    assert newest["freshness_s"]["air_temp_c"] == 0.0
    assert newest["degraded"] == []
    points = newest["forecasts"]["air_temp_c"]
    assert [p["horizon_min"] for p in points] == list(shard.spec.horizons_min)
    assert all(p["p10"] <= p["p50"] <= p["p90"] for p in points)
    assert points[0]["time"] == "2022-03-01T00:55:00Z"
    kept = IssuedForecasts(rig.settings.storage, 0).read("demo", 0, 10, 4)
    assert [f.origin_ms for f in kept] == [T0 + n * STEP for n in range(11)]


def test_a_missing_input_degrades_the_forecast_and_says_why(tmp_path: Path) -> None:
    """A sensor that went silent, or never spoke, is named."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(10):
        values = {"air_temp_c": 20.0, "rh_pct": 70.0} if n < 3 else {"air_temp_c": 20.0}
        rig.log.append(new_records([[sample(T0 + n * STEP, n, **values)]]))
        shard.step()
        shard.step()
    newest = rig.board.published[-1]
    assert newest["degraded"] == ["rh_pct: last reading 30 min before the origin", "co2_ppm: no reading yet"]
    assert "co2_ppm" not in newest["forecasts"]


def test_a_slow_forecaster_never_holds_the_stream_up(tmp_path: Path) -> None:
    """Rows go on while a request is in flight; what closed meanwhile goes out in one batch, the newest with it."""
    rig = Rig(tmp_path, MemoryLog(1))
    rig.executor = held = Held()
    shard = rig.shard()
    for record in day(20):
        rig.log.append([record])
        shard.step()
    assert shard.stats()["steps"] == 19
    assert len(held.waiting) == 1
    held.release()
    shard.step()
    held.release()
    shard.step()
    assert len(rig.forecaster.requests) == 2
    batch = sorted(set(rig.forecaster.requests[1]["origin_ms"].tolist()))
    assert batch == [T0 + n * STEP for n in range(7, 19)]
    assert rig.board.past == [("demo", "z1"), ("demo", "z2")]  # steps 1 to 6 were left out of what was published


def test_a_forecaster_that_is_away_is_counted_and_tried_again(tmp_path: Path) -> None:
    """Nothing is published for it, rows go on, and the waiting steps are forecast once it is back."""
    rig = Rig(tmp_path, filled(list(day(10))))
    rig.forecaster.away = True
    shard = rig.shard()
    rig.drain(shard)
    assert (shard.stats()["zone_rows"], rig.board.published) == (18, [])
    assert shard.stats()["forecast_failures"] == 1
    assert "away" in shard.stats()["last_error"]
    rig.forecaster.away = False
    rig.clock.now_s += 1
    rig.drain(shard)
    assert shard.stats()["last_error"] == ""
    assert rig.board.published[-1]["origin_ms"] == T0 + 8 * STEP


def test_refresh_computes_the_last_step_again(tmp_path: Path) -> None:
    """After a swap the newest origin is shown under the new version, without waiting for a step."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    before = rig.board.published[-1]
    rig.forecaster.version = "v2"
    shard.refresh()
    rig.drain(shard)
    after = rig.board.published[-1]
    assert (before["origin_ms"], before["model_version"]) == (after["origin_ms"], ONLINE_VERSION)
    assert after["model_version"] == "v2"


def test_a_restarted_shard_shows_the_last_step_at_once(tmp_path: Path) -> None:
    """Nobody waits a step for a forecast after a restart."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    rig.board.published.clear()
    rig.drain(rig.shard())
    assert {f["origin_ms"] for f in rig.board.published} == {T0 + 8 * STEP}


def test_a_backlog_is_forecast_for_its_newest_step_only(tmp_path: Path) -> None:
    """While catching up, rows come first: few requests, each for the newest origin."""
    rig = Rig(tmp_path, filled(list(day(900))))
    shard = rig.shard()
    shard.step()
    for request in rig.forecaster.requests:
        assert len(request["sites"]) == len(ZONES)
    rig.drain(shard)
    assert rig.board.published[-1]["origin_ms"] == T0 + 898 * STEP


def test_an_older_shard_of_the_same_partition_is_fenced(tmp_path: Path) -> None:
    """Two shards on one partition: the older one stops at its next snapshot."""
    rig = Rig(tmp_path, filled(list(day(10))))
    older = rig.shard()
    rig.drain(older)
    rig.shard()
    with pytest.raises(FencedError):
        older.flush()


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
    assert not list((rig.settings.storage / "history" / "zones").rglob("*.tmp"))


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
    assert rig.board.published[-1]["forecasts"]["rh_pct"][-1]["horizon_min"] == 60


def test_a_new_shard_reads_a_truncated_log_from_where_it_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What retention has taken is said once, not met again with every read."""
    rig = Rig(tmp_path, filled(list(day(20))))
    rig.log.truncate(0, 12)
    shard = rig.shard()
    assert "read from offset 12" in caplog.text
    rig.drain(shard)
    assert shard.flush() == {0: rig.log.end_offset(0)}
    assert shard.stats()["zone_rows"] > 0


def test_a_replay_of_a_truncated_log_keeps_the_rows_that_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a change of what is forecast, half a first step does not replace the whole one in the history."""
    halves = [(n, half) for n in range(20) for half in (1, 0)]
    records = new_records([[sample(T0 + n * STEP - half, 2 * n - half, air_temp_c=20.0 + half)] for n, half in halves])
    rig = Rig(tmp_path, filled(records[:30]))

    def rows() -> list[tuple[int, float]]:
        table = History(rig.settings.storage, shard.spec.channels).read()
        return list(zip(table["end_ms"].to_pylist(), table["air_temp_c"].to_pylist(), strict=True))

    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    before = rows()
    rig.log.truncate(0, 11)
    rig.settings = load_settings(None, data_dir=tmp_path, forecast={"horizons_min": (5, 60)})
    again = rig.shard()
    assert "read from offset 11" in caplog.text
    rig.drain(again)
    rig.log.append(records[30:])
    rig.drain(again)
    again.close()
    after = rows()
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert rig.shard().stats()["backlog"] == 0


def test_a_log_that_lost_what_follows_the_snapshot_is_an_error(tmp_path: Path) -> None:
    """A gap in the rows is the operator's decision, and the message says how to take it."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    shard.step()
    shard.close()
    rig.log.truncate(0, 5)
    with pytest.raises(SnapshotError, match="truncated behind the snapshot's offset 1; it begins at 5"):
        rig.shard()


def test_plans_and_events_are_counted(tmp_path: Path) -> None:
    """Records that no row is made of show in the figures."""
    kinds: list[RecordKind] = ["plan", "event", "event"]
    rig = Rig(tmp_path, filled([NewRecord("demo", kind, T0, b"") for kind in kinds]))
    shard = rig.shard()
    rig.drain(shard)
    assert (shard.stats()["plan_records"], shard.stats()["event_records"]) == (1, 2)


def test_what_waits_at_a_snapshot_is_forecast_and_scored_after_a_crash(tmp_path: Path) -> None:
    """Steps in flight or in the queue are issued by the next shard, and count as if there had been no crash."""
    hour, scores, origins = 12 * STEP, [], []
    records = new_records([[sample(T0 + n * hour, n, rh_pct=60.0 + n % 9)] for n in range(60)])
    for name, crashes in (("steady", False), ("crashed", True)):
        rig = Rig(tmp_path / name, MemoryLog(1))
        rig.settings = load_settings(
            None,
            data_dir=tmp_path / name,
            stream={"step_s": 3600, "ring_hours": 36},
            forecast={"horizons_min": (60, 120, 360)},
        )
        rig.executor = held = Held()
        shard = rig.shard()
        for n, record in enumerate(records):
            rig.log.append([record])
            shard.step()
            if n == 34:
                shard.flush()
                if crashes:
                    rig.executor = held = Held()
                    shard = rig.shard()
            for _ in range(0 if 30 < n < 34 else 3):
                held.release()
                shard.step()
        scores.append(shard.stats()["scores"])
        origins.append({f["origin_ms"] for f in rig.board.published})
    assert origins[0] == origins[1] == {T0 + n * hour for n in range(59)}
    assert scores[0] == scores[1]
    assert scores[0][0]["rh_pct"][360]["n"] == 59 - 24


def test_a_day_that_is_over_keeps_its_forecasts_in_one_file(tmp_path: Path) -> None:
    """The first forecast of the next day makes the shard merge yesterday's."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(280, 294):
        rig.log.append(new_records([[sample(T0 + n * STEP, n)]]))
        shard.step()
        shard.step()
    folder = rig.settings.storage / "history" / "forecasts"
    assert sorted(p.name for p in folder.iterdir()) == ["2022-03-01-p0.parquet", "2022-03-02"]
    found = IssuedForecasts(rig.settings.storage, 0).read("demo", 0, 10, 4)
    assert [f.origin_ms for f in found] == [T0 + n * STEP for n in range(280, 293)]


def test_sites_of_all_partitions_are_served(tmp_path: Path) -> None:
    """Partitions of one shard share requests and stay apart in the history."""
    batches = [[sample(T0 + n * STEP, n, site=site)] for n in range(5) for site in ("demo", "alpha", "beta")]
    rig = Rig(tmp_path, filled(new_records(batches), partitions=4))
    shard = rig.shard()
    rig.drain(shard)
    shard.flush()
    assert shard.stats()["sites"] == ["alpha", "beta", "demo"]
    assert set(History(rig.settings.storage, forecast_spec(rig.settings).channels).sites()) == {"alpha", "beta", "demo"}
    assert {f["site"] for f in rig.board.published} == {"alpha", "beta", "demo"}
    assert shard.past("beta", "z1", 48) is not None
    assert shard.past("beta", "z9", 48) is None


def test_rows_are_sent_only_to_a_network(tmp_path: Path) -> None:
    """Nearly all of a request are rows, and only a network needs them: one that begins to serve asks for them once."""
    records = list(day(30))
    rig = Rig(tmp_path, filled(records[:10]))
    shard = rig.shard()
    rig.drain(shard)
    assert {request["values"].shape[1] for request in rig.forecaster.requests} == {0}
    rig.forecaster.version = "v3"
    rig.log.append(records[10:20])
    rig.drain(shard)
    assert rig.forecaster.asked_again == 1
    assert rig.forecaster.requests[-1]["values"].shape[1] == shard.spec.lookback_steps
    assert rig.board.published[-1]["model_version"] == "v3"
    rig.forecaster.version = ONLINE_VERSION
    for record in records[20:]:
        rig.log.append([record])
        rig.drain(shard)
    assert rig.forecaster.requests[-1]["values"].shape[1] == 0
    assert shard.stats()["forecast_failures"] == 0


def test_a_window_is_what_the_forecast_was_made_from(tmp_path: Path) -> None:
    """``POST /predict`` sees the rows, the quantiles and the baseline of the zone's newest forecast."""
    rig = Rig(tmp_path, filled(list(day(30))))
    rig.forecaster.version = "v3"
    shard = rig.shard()
    rig.drain(shard)
    window, request = shard.window("demo", "z2"), rig.forecaster.requests[-1]
    assert window is not None
    assert window["origin_ms"] == T0 + 28 * STEP
    np.testing.assert_array_equal(window["values"], request["values"][-1])
    shown = [point["p50"] for point in rig.board.published[-1]["forecasts"]["air_temp_c"]]
    np.testing.assert_allclose(window["quantiles"][:, 0, 1], shown, atol=1e-4)
    now = targets_of(request["values"][-1:, -1], shard.spec)
    baseline = shard.baseline("demo", "z2", window["origin_ms"], now)
    assert baseline is not None
    np.testing.assert_array_equal(baseline, request["baseline"][-1:])
    assert shard.window("demo", "nowhere") is shard.baseline("demo", "nowhere", T0, now) is None


def test_live_scores_count_every_matured_forecast(tmp_path: Path) -> None:
    """A forecast whose reply came a step late misses the five-minute truth alone."""
    rig = Rig(tmp_path, MemoryLog(1))
    rig.executor = held = Held()
    shard = rig.shard()
    for n, record in enumerate(day(5 * 288 // 4)):
        rig.log.append([record])
        shard.step()
        if n % 2:
            held.release()
            shard.step()
    table = shard.stats()["scores"][0]["air_temp_c"]
    assert 0 < table[5]["n"] < table[10]["n"]


def test_a_shard_process_never_imports_torch() -> None:
    """A shard stays small: nothing on its way imports torch or MLflow."""
    code = "import services.ingest.actor, sys; print([m for m in ('torch', 'mlflow') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
