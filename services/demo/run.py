"""One demo run: warm up, feed, watch, judge."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from edge.log import Log
from edge.recordings.importing import ImportReport, import_samples
from edge.recordings.sample_source import SampleSource
from edge.simulator.publisher import Publisher
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from edge.simulator.simulator_source import SimulatorSource
from edge.timing import Periodic
from models.durations import DAY_MS, MINUTE_MS
from services.app import System
from services.config import Settings
from services.demo.memory_watch import MemoryWatch
from services.demo.options import DemoOptions
from services.demo.pooled_scores import pooled_scores
from services.demo.preparation import demo_settings, empty_folder, sample_source
from services.demo.probe import Probe
from services.demo.summary import DemoModel, DemoSummary, checks, ledger, print_summary, write_summary
from services.demo.terminal_view import DemoProgress, headless_line, live_view, outlook_lines
from services.demo.watch import DemoWatch, Seen
from services.errors import StartError
from services.observe.timeline import event_line
from services.runtime.interrupts import ended_by_signals, ignored_interrupts, queued_signals

__all__ = ["run_demo"]

HISTORY_INTERVAL_MS = 300_000
LIVE_INTERVAL_MS = MINUTE_MS
"""Simulated devices send every minute; of the past there is what climate computers keep of it."""
START_PATIENCE_S = 120.0
"""Without anything coming nearer to the first forecast."""
DRAIN_TIMEOUT_S = 20.0
LOOK_EVERY_S = 0.5
LINE_EVERY_S = 10.0
OUTLOOK_EVERY_S = 30.0


def run_demo(options: DemoOptions) -> int:
    """Run the demo; returns its exit code: 0 when every claim of the summary holds, 1 when one does not.

    Ctrl-C or SIGTERM before the first forecast ends it as :func:`ended_by_signals` does, later with a summary.
    """
    console = Console()
    started_s = time.monotonic()
    data_dir = options.data_dir or Path("hothouse-data/demo")
    made_parent = not data_dir.parent.exists()
    empty_folder(data_dir)
    source = sample_source(options)
    settings = demo_settings(options, data_dir, source)
    with ended_by_signals():
        try:
            summary = _run(options, settings, source, console, started_s)
        except KeyboardInterrupt:
            console.print("[yellow]stopped before the first forecast[/]")
            raise
        finally:
            if not options.keep:
                with ignored_interrupts():
                    shutil.rmtree(data_dir, ignore_errors=True)
                    if made_parent:
                        with suppress(OSError):
                            data_dir.parent.rmdir()  # only if nothing else is in it
    found = checks(summary)
    print_summary(console, summary, found)
    if options.summary is not None:
        write_summary(summary, options.summary)
    return 0 if all(holds for _, holds, _ in found) else 1


def _run(
    options: DemoOptions, settings: Settings, source: SampleSource, console: Console, started_s: float
) -> DemoSummary:
    warm_ms = source.start_ms + round(options.warm_days * DAY_MS)
    run = _Run(options, source, console, warm_ms, settings.stream.step_s * 1000)
    with run.starting() as say:
        system = System(settings, receive_clock="replayed", warm_up=run.warm_up, say=say)
        try:
            with MemoryWatch() as memory, system:
                return run.feed_and_watch(system, memory, started_s, say)
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

    def feed_and_watch(self, system: System, memory: MemoryWatch, started_s: float, say: Any) -> DemoSummary:
        """Publish, probe, show; afterwards let everything arrive, and sum up."""
        watch = DemoWatch(system.url)
        say("waiting for the first forecast")
        self._wait_for_forecast(watch, system)
        stopped = queued_signals()
        first_forecast_s = time.monotonic() - started_s
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
            self._watch_for(watch, published, probe, memory, system.url, stopped)
            ran_s = time.monotonic() - began_s
            publisher.stop()
            feeding.join()
            self._drain(watch, self._published(published), stopped)
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
            "mae": pooled_scores(seen),
            "first_forecast_s": round(first_forecast_s, 1),
            "peak_memory_mb": round(memory.peak_mb),
            "gateway_restarts": system.gateway.restarts if system.gateway else 0,
            "errors": seen.errors,
            "recording": str(self._options.recording or ""),
            "ran_s": round(ran_s, 1),
            "retrain_every_s": self._options.retrain_every,
            "promote": self._options.promote,
        }

    def _wait_for_forecast(self, watch: DemoWatch, system: System) -> None:
        if not watch.wait_until_ready(START_PATIENCE_S):
            raise StartError(
                f"no forecast, and for {START_PATIENCE_S:g} s nothing came nearer to one",
                f"--keep keeps {system.settings.logs_dir}.",
            )
        self._bar.stop()

    def _published(self, published: Ledger) -> int:
        return int(published.status["published"]) + self._imported.samples + self._imported.refused

    def _watch_for(
        self, watch: DemoWatch, published: Ledger, probe: Probe, memory: MemoryWatch, url: str,
        stopped: SimpleQueue[int],
    ) -> None:  # fmt: skip
        progress = DemoProgress()
        progress.total_s, progress.url = self._options.minutes * 60, url
        began_s = time.monotonic()
        shown_events = len(watch.look().events)
        lines, outlooks = Periodic(LINE_EVERY_S), Periodic(OUTLOOK_EVERY_S)
        recent = (began_s, 0)
        live = None if self._options.headless else Live(console=self._console, refresh_per_second=4, screen=False)
        with live or nullcontext():
            while progress.elapsed_s < progress.total_s and not published.status["done"]:
                if _is_told(stopped):
                    self._console.print("[dim]stopping ...[/]")
                    return
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

    def _drain(self, watch: DemoWatch, published: int, stopped: SimpleQueue[int]) -> None:
        """Wait until what was published has been counted and the log is read to its end, or for another signal."""
        deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
        while time.monotonic() < deadline_s:
            seen = watch.look()
            if seen.total("samples") >= published and seen.total("backlog") == 0:
                return
            if _is_told(stopped):
                return


def _is_told(stopped: SimpleQueue[int]) -> bool:
    """Wait for the next look; whether a signal came meanwhile."""
    with suppress(Empty):
        return bool(stopped.get(timeout=LOOK_EVERY_S))
    return False


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
