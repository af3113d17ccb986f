"""``pretrain simulate``: a fleet of simulated sites, recorded into a folder."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from services.cli.base import console, errors, need_cluster
from services.errors import ConfigError, HothouseError

if TYPE_CHECKING:
    from models.pretraining.fleet_folder import ChunkFile

__all__ = ["installed_version", "register", "simulate"]

STEP_S = 300
_told: Any = None  # the queue of a worker process


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Sites that are simulated together."""

    folder: Path
    seed: int
    first: int
    sites: int
    days: int


def register(group: typer.Typer) -> None:
    """Add the command to ``group``."""
    group.command(epilog="Example: hothouse pretrain simulate --sites 1000 --weeks 2 --seed 1 --out fleet")(simulate)


def simulate(
    out: Annotated[Path, typer.Option(help="An empty or new folder; about 0.5 MB for a week of a site.")],
    sites: Annotated[int, typer.Option(help="How many sites, of one to six zones each.", min=1)] = 1000,
    weeks: Annotated[float, typer.Option(help="Weeks of each site; whole days.", min=0.1, max=52)] = 2.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same fleet.", min=0)] = 1,
    workers: Annotated[int, typer.Option(help="Processes; 0: one for each CPU but one.", min=0)] = 0,
    chunk: Annotated[int, typer.Option(help="Sites that are simulated together, and kept in a file.", min=1)] = 200,
) -> None:
    """Simulate a fleet of greenhouses, all of them different, for a network to learn from.

    Place, season, house, crop, lamps, screens, control, sensors, plans and their edits are drawn anew for each site.
    Needs no running system. How it is cut into files and processes changes no value.
    """
    with need_cluster("pretrain simulate"):
        from edge.simulator.fleet.draws import DRAWS_VERSION
        from edge.simulator.fleet.fleet_recording import recording_layout
        from models.pretraining.fleet_folder import write_manifest

    _make_ready(out)
    days = max(round(7 * weeks), 1)
    chunks = [_Chunk(out, seed, n, min(chunk, sites - n), days) for n in range(0, sites, chunk)]
    at_a_time = min(workers or max((os.cpu_count() or 1) - 1, 1), len(chunks))
    began = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=errors, transient=True) as bar:
        task = bar.add_task(f"{sites:,} sites, {at_a_time} at a time" if at_a_time > 1 else f"{sites:,} sites")
        bar.update(task, total=sites * days)
        try:
            done = _together(chunks, at_a_time, lambda site_days: bar.advance(task, site_days))
        except OSError as error:
            words = f"the fleet cannot be written to {out}: {error.strerror or error}"
            raise HothouseError(words, "Name another folder, or make room, and start again.") from error
        except BrokenProcessPool as error:
            words = "a process of the simulation was lost: something killed it, most often a lack of memory"
            hint = "Use fewer --workers or a smaller --chunk, and an empty folder."
            raise HothouseError(words, hint) from error
    layout = {**recording_layout()}
    made = {
        "seed": seed, "sites": sites, "days": days, "step_s": STEP_S, "draws_version": DRAWS_VERSION,
        "hothouse": installed_version(),
    }  # fmt: skip
    write_manifest(out, layout, made, [chunk for chunk, _ in done])
    cpu_s, took_s = sum(seconds for _, seconds in done), time.monotonic() - began
    size = sum(path.stat().st_size for path in out.iterdir()) / 1e6
    zones = sum(chunk.zones for chunk, _ in done)
    site_weeks = sites * days / 7
    pace = site_weeks / cpu_s * 900
    line = (
        f"{site_weeks:,.1f} site-weeks of {sites:,} sites ({zones:,} zones) in {out}: {size:,.0f} MB, {took_s:.0f} s, "
        f"{cpu_s:.0f} s of processor ({pace:,.0f} site-weeks in 15 minutes of one core)"
    )
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _make_ready(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        full = any(out.iterdir())
    except OSError as error:
        raise HothouseError(f"{out} cannot be used: {error.strerror or error}", "Name another folder.") from error
    if full:
        raise ConfigError(f"{out} is not empty", "Name a new folder, or empty it first.")


def installed_version() -> str:
    """The package's, for what it makes."""
    try:
        return version("hothouse")
    except PackageNotFoundError:
        return "not installed"


def _together(
    chunks: list[_Chunk], at_a_time: int, told: Callable[[int], None]
) -> list[tuple[ChunkFile, float]]:  # fmt: skip
    """Every chunk, and its processor time; ``told`` of site-days as they are done."""
    if at_a_time == 1:
        return [_one(chunk, told) for chunk in chunks]
    context = multiprocessing.get_context("spawn")  # a forked process would have its parent's threads but not run them
    queue = context.Queue()
    with ProcessPoolExecutor(at_a_time, context, initializer=_listen, initargs=(queue,)) as pool:
        others = multiprocessing.active_children()
        running = [pool.submit(_in_worker, chunk) for chunk in chunks]
        try:
            while not all(one.done() for one in running):
                for site_days in _waiting(queue):
                    told(site_days)
                failed = next((one for one in running if one.done() and one.exception()), None)
                if failed:
                    failed.result()
            return [one.result() for one in running]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _end(process for process in multiprocessing.active_children() if process not in others)
            raise


def _end(workers: Iterable[BaseProcess]) -> None:
    """The pool sends SIGTERM and waits without an end, also for one that does not hear it."""
    for worker in workers:
        worker.kill()


def _waiting(queue: Any) -> Iterator[int]:
    try:
        yield queue.get(timeout=0.5)
        while True:
            yield queue.get_nowait()
    except Empty:
        return


def _listen(queue: Any) -> None:
    global _told
    _told = queue


def _in_worker(chunk: _Chunk) -> tuple[ChunkFile, float]:
    return _one(chunk, _told.put)


def _one(chunk: _Chunk, told: Callable[[int], None]) -> tuple[ChunkFile, float]:
    from edge.simulator.fleet.draws import draw_site
    from edge.simulator.fleet.simulation import simulate_fleet
    from models.pretraining.fleet_folder import write_chunk

    began = time.process_time()
    drawn = [draw_site(chunk.seed, index) for index in range(chunk.first, chunk.first + chunk.sites)]
    recording = simulate_fleet(drawn, chunk.days, STEP_S, told=lambda day: told(chunk.sites))
    written = write_chunk(chunk.folder, chunk.first, recording.arrays())
    return written, time.process_time() - began
