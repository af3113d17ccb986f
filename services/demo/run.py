"""One demo run: warm up, feed, watch, judge."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from edge.log import Log
from edge.recordings.importing import ImportReport, import_samples
from edge.recordings.recording import RecordingError
from edge.recordings.replay import RecordingSource
from edge.recordings.sample_source import SampleSource
from edge.simulator.publisher import Publisher
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from edge.simulator.simulator_source import SimulatorSource
from edge.timing import Periodic
from models.evaluation.scoring import Score
from services.app import System
from services.config import Settings, load_settings
from services.demo.memory_watch import MemoryWatch
from services.demo.options import DemoOptions
from services.demo.probe import Probe
from services.demo.summary import DemoModel, DemoSummary, checks, ledger, print_summary, write_summary
from services.demo.terminal_view import DemoProgress, headless_line, live_view, outlook_lines
from services.demo.watch import DemoWatch, Seen
from services.errors import ConfigError, StartError
from services.observe.timeline import event_line
from services.runtime.folder import LOCK_FILE, FolderLock
from services.runtime.leftovers import end_left_over

__all__ = ["run_demo"]

SIMULATION_START_MS = 1_709_251_200_000  # 1 March 2024: lengthening days, heating and venting
HISTORY_INTERVAL_MS = 300_000
LIVE_INTERVAL_MS = 60_000
"""Simulated devices send every minute; of the past there is what climate computers keep of it."""
DAY_MS = 86_400_000
MARKER = ".hothouse-demo"
START_PATIENCE_S = 120.0
"""Without anything coming nearer to the first forecast."""
DRAIN_TIMEOUT_S = 20.0
STALE_AFTER_WALL_S = 20.0
LONGEST_STALE_S = 7_200  # a row of an hour, and as long a lateness
LOOK_EVERY_S = 0.5
LINE_EVERY_S = 10.0
OUTLOOK_EVERY_S = 30.0
SHADOW_HOURS = 6.0
OWN_SECTIONS = ("mqtt", "log", "kafka", "uplink", "gateway", "influx", "storage", "alerts", "home_assistant", "traces")
"""Left at their defaults: a demo's greenhouse is nothing for the log, the buckets and the people of a real one."""
NO_SCORE = Score(model=None, climatology=None, persistence=None, naive_24h=None, coverage=None, n=0)


def run_demo(options: DemoOptions, console: Console | None = None) -> int:
    """Run the demo; returns its exit code: 0 when every claim of the summary holds, 1 when one does not."""
    console = console or Console()
    started_s = time.monotonic()
    data_dir = options.data_dir or Path("hothouse-data/demo")
    made_parent = not data_dir.parent.exists()
    _prepare(data_dir)
    source = _source(options)
    settings = _settings(options, data_dir, source)
    with _ending_on_signals():
        try:
            summary = _run(options, settings, source, console, started_s)
        finally:
            if not options.keep:
                shutil.rmtree(data_dir, ignore_errors=True)
                if made_parent:
                    with suppress(OSError):
                        data_dir.parent.rmdir()  # only if nothing else is in it
    if summary is None:
        console.print("[yellow]stopped before the first forecast[/]")
        return 130
    found = checks(summary)
    print_summary(console, summary, found)
    if options.summary is not None:
        write_summary(summary, options.summary)
    return 0 if all(holds for _, holds, _ in found) else 1


def _run(
    options: DemoOptions, settings: Settings, source: SampleSource, console: Console, started_s: float
) -> DemoSummary | None:
    warm_ms = source.start_ms + round(options.warm_days * DAY_MS)
    run = _Run(options, source, console, warm_ms, settings.stream.step_s * 1000)
    with run.starting() as say:
        system = System(settings, receive_clock="replayed", warm_up=run.warm_up, say=say)
        try:
            with MemoryWatch() as memory, system:
                return run.feed_and_watch(system, memory, started_s, say)
        except KeyboardInterrupt:
            return None
        except ConnectionError as error:
            raise StartError(f"the demo lost a part: {error}") from error


class _Run:
    """The state of one run between its stages."""

    def __init__(
        self, options: DemoOptions, source: SampleSource, console: Console, warm_ms: int, step_ms: int
    ) -> None:  # fmt: skip
        self._options = options
        self._step_ms = step_ms
        self._source = source
        self._console = console
        self._warm_ms = warm_ms
        self._imported = ImportReport(0, 0, 0, None)
        self._bar = ProgressBar(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
            console=console, transient=not options.headless, disable=options.headless,
        )  # fmt: skip

    @contextmanager
    def starting(self) -> Iterator[Any]:
        """Progress bars while the system starts; gives a function that names the stage."""
        stage = self._bar.add_task("starting", total=None)

        def say(text: str) -> None:
            if self._options.headless:
                self._console.print(f"[dim]{text} ...[/]", highlight=False)
            self._bar.update(stage, description=text)

        self._bar.start()
        try:
            yield say
        finally:
            self._bar.stop()

    def warm_up(self, log: Log) -> None:
        """Append the past to the log; runs beside the start of Ray."""
        first_ms = self._source.start_ms
        days = (self._warm_ms - first_ms) / DAY_MS
        task = self._bar.add_task(f"{days:g} days of history", total=self._warm_ms - first_ms)

        def progress(at_ms: int, _: int) -> None:
            self._bar.update(task, completed=at_ms - first_ms)

        if isinstance(self._source, SimulatorSource):
            self._source.report_every(max(min(HISTORY_INTERVAL_MS, self._step_ms), LIVE_INTERVAL_MS))
        self._imported = import_samples(self._source, log, self._warm_ms, progress)
        if isinstance(self._source, SimulatorSource):
            self._source.report_every(LIVE_INTERVAL_MS)
        self._bar.update(task, completed=self._warm_ms - first_ms)
        if self._options.headless:
            self._console.print(
                f"[dim]{days:g} days of history: {self._imported.samples:,} samples[/]", highlight=False
            )

    def feed_and_watch(self, system: System, memory: MemoryWatch, started_s: float, say: Any) -> DemoSummary | None:
        """Publish, probe, show; afterwards let everything arrive, and sum up."""
        watch = DemoWatch(system.url)
        say("waiting for the first forecast")
        if not watch.wait_until_ready(START_PATIENCE_S):
            raise StartError(
                f"no forecast, and for {START_PATIENCE_S:g} s nothing came nearer to one",
                f"--keep keeps {system.settings.logs_dir}.",
            )
        first_forecast_s = time.monotonic() - started_s
        self._bar.stop()
        self._console.print(f"first forecast after {first_forecast_s:.1f} s; open {system.url} in a browser")
        published = Ledger(status_file=system.settings.data_dir / "publisher.json")
        publisher = Publisher(
            self._source,
            system.broker.address(),
            published,
            Pace(self._options.speed),
            with_clock=True,
            until_ms=self._source.end_ms,
        )
        feeding = threading.Thread(target=publisher.run, name="publisher", daemon=True)
        probe = Probe(system.url, list(watch.seen.forecasts))
        probe.start()
        feeding.start()
        began_s = time.monotonic()
        try:
            with suppress(KeyboardInterrupt):
                self._watch_for(watch, published, probe, memory, system.url)
            ran_s = time.monotonic() - began_s
            publisher.stop()
            feeding.join()
            with suppress(KeyboardInterrupt):
                self._drain(watch, self._published(published))
        finally:
            publisher.stop()
            probe.stop()
        seen = watch.look()
        watch.close()
        return {
            **ledger(self._published(published), seen.shards),
            "published_warm_up": self._imported.samples + self._imported.refused,
            "published_live": published.status["published"],
            "forecasts": seen.total("forecasts"),
            "retrains": seen.retrainer["retrains"] if seen.retrainer is not None else 0,
            "swaps": sum(event.get("kind") == "serving" for event in seen.events),
            "models": _models(seen),
            "probe": probe.result(),
            "mae": _mae(seen),
            "first_forecast_s": round(first_forecast_s, 1),
            "peak_memory_mb": round(memory.peak_mb),
            "gateway_restarts": system.gateway.restarts if system.gateway else 0,
            "errors": seen.errors,
            "recording": str(self._options.recording or ""),
            "ran_s": round(ran_s, 1),
            "retrain_every_s": self._options.retrain_every,
            "promote": self._options.promote,
        }

    def _published(self, published: Ledger) -> int:
        return int(published.status["published"]) + self._imported.samples + self._imported.refused

    def _watch_for(self, watch: DemoWatch, published: Ledger, probe: Probe, memory: MemoryWatch, url: str) -> None:
        progress = DemoProgress()
        progress.total_s, progress.url = self._options.minutes * 60, url
        began_s = time.monotonic()
        shown_events = len(watch.look().events)
        lines, outlooks = Periodic(LINE_EVERY_S), Periodic(OUTLOOK_EVERY_S)
        recent = (began_s, 0)
        live = None if self._options.headless else Live(console=self._console, refresh_per_second=4, screen=False)
        with live or nullcontext():
            while progress.elapsed_s < progress.total_s and not published.status["done"]:
                time.sleep(LOOK_EVERY_S)
                now_s = time.monotonic()
                progress.elapsed_s = now_s - began_s
                progress.published = int(published.status["published"])
                if now_s - recent[0] >= 2:
                    progress.samples_per_s = (progress.published - recent[1]) / (now_s - recent[0])
                    recent = (now_s, progress.published)
                progress.memory_mb = memory.now_mb
                progress.probe = probe.result()
                seen = watch.look()
                if live is not None:
                    live.update(live_view(seen, progress))
                    continue
                for event in seen.events[shown_events:]:
                    self._console.print(f"     {event_line(event)}", highlight=False, soft_wrap=True)
                shown_events = len(seen.events)
                if lines.due(progress.elapsed_s):
                    self._console.print(headless_line(seen, progress), highlight=False, soft_wrap=True)
                if seen.outlooks and outlooks.due(progress.elapsed_s):
                    for line in outlook_lines(seen):
                        self._console.print(f"     {escape(line)}", highlight=False, soft_wrap=True)

    def _drain(self, watch: DemoWatch, published: int) -> None:
        """Wait until what was published has been counted and the log is read to its end."""
        deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
        while time.monotonic() < deadline_s:
            seen = watch.look()
            if seen.total("samples") >= published and seen.total("backlog") == 0:
                return
            time.sleep(LOOK_EVERY_S)


def _prepare(data_dir: Path) -> None:
    """An empty folder of our own: what an earlier demo left is removed, anything else is left alone.

    Raises :class:`ConfigError` for a folder of something else, :class:`StartError` while another demo runs on it.
    """
    if data_dir.is_dir() and any(data_dir.iterdir()) and not (data_dir / MARKER).exists():
        raise ConfigError(
            f"data_dir is {str(data_dir)!r}: the folder is not empty and not of an earlier demo",
            "Choose another folder with --data-dir.",
        )
    with FolderLock(data_dir):
        end_left_over(data_dir)  # of a demo that was killed
        for entry in data_dir.iterdir():
            if entry.name == LOCK_FILE:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (data_dir / MARKER).touch()


def _source(options: DemoOptions) -> SampleSource:
    if options.recording is not None:
        try:
            return RecordingSource(
                options.recording, options.mapping, None, options.timezone, options.latitude, options.longitude,
                foreseen=options.plans,
            )  # fmt: skip
        except RecordingError as error:
            raise ConfigError(f"recording is {str(options.recording)!r}: {error}") from error
    from edge.simulator.simulated_site import SimulatedSite

    return SimulatorSource(SimulatedSite("demo", options.seed, SIMULATION_START_MS, zones=options.zones))


def _settings(options: DemoOptions, data_dir: Path, source: SampleSource) -> Settings:
    site = {
        "name": source.site, "timezone": source.timezone, "latitude": source.latitude, "longitude": source.longitude,
        "primary": dict(source.primary),
    }  # fmt: skip
    defaults = Settings.model_construct()
    settings = load_settings(
        options.config,
        data_dir=data_dir,
        **{name: getattr(defaults, name).model_dump() for name in OWN_SECTIONS},
        ray={"address": ""},
        # Where it listens may be said; keys, certificates and a balancer are those of the real system.
        api={**defaults.api.model_dump(exclude={"host"}), "port": options.port},
        forecast={"stale_after_s": LONGEST_STALE_S},
        learn={
            "retrain_every_s": options.retrain_every,
            "retrain_cron": "",
            "mlflow_uri": "",
            "force_promote": options.promote == "always",
            # A quarter of a day is 24 s here: a challenger in shadow, or a champion under watch, is seen to its end.
            "shadow_hours": SHADOW_HOURS,
            "watch_hours": SHADOW_HOURS,
            "max_windows": 5_000,  # a quarter of the default: two trainings and their swaps must fit into three minutes
        },
        sites=[site],
    )
    # Stream time runs `speed` times as fast here: half an hour of it would be over in two seconds of the wall.
    least_s = settings.stream.step_s + settings.stream.lateness_s
    stale_after_s = max(1800, least_s, round(options.speed * STALE_AFTER_WALL_S))
    forecast = settings.forecast.model_copy(update={"stale_after_s": stale_after_s})
    return settings.model_copy(update={"forecast": forecast})


def _models(seen: Seen) -> list[DemoModel]:
    served = {event["version"] for event in seen.events if event.get("kind") == "serving"}
    return [
        {
            "version": model["version"],
            "weights_sha256": model["weights_sha256"],
            "trained_on": model["trained_on"],
            "held_back_mae": model["held_back_mae"],
            "served": model["version"] in served,
            "forced": model["forced"],
            "stage": model["stage"],
            "reason": model["reason"],
        }
        for model in sorted(seen.models, key=lambda model: model["created_ms"])
        if model["expert"] == "network"  # what replicas serve
    ]


def _mae(seen: Seen) -> dict[str, dict[str, Score]]:
    """Live errors, the shards' tables pooled by their number of matured forecasts."""
    pooled: dict[str, dict[str, Score]] = {}
    for table in (table for shard in seen.shards for table in shard["scores"]):
        for target, horizons in table.items():
            of_target = pooled.setdefault(target, {})
            for horizon, cell in horizons.items():
                of_target[str(horizon)] = _pool(of_target.get(str(horizon), NO_SCORE), cell)
    return pooled


def _pool(one: Score, other: Score) -> Score:
    n, more = one["n"], other["n"]

    def mean(first: float | None, second: float | None) -> float | None:
        known = [(value, cases) for value, cases in ((first, n), (second, more)) if value is not None]
        total = sum(cases for _, cases in known)
        return round(sum(value * cases for value, cases in known) / total, 5) if total else None

    return Score(
        model=mean(one["model"], other["model"]), climatology=mean(one["climatology"], other["climatology"]),
        persistence=mean(one["persistence"], other["persistence"]),
        naive_24h=mean(one["naive_24h"], other["naive_24h"]),
        coverage=mean(one["coverage"], other["coverage"]), n=n + more,
    )  # fmt: skip


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """SIGTERM ends a demo as Ctrl-C does; only in the main thread can handlers be set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
