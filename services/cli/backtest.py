"""``backtest``: what the forecaster would have said along a recording, and how good that was."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Shown

from services.cli.base import console, errors, need_cluster
from services.errors import ConfigError

if TYPE_CHECKING:
    from services.backtest.network import Trainer
    from services.backtest.replay import Options
    from services.backtest.report import Cell

__all__ = ["register"]

WIDTH = 112
"""The table's numbers are not cut where a terminal is narrower, or there is none."""

_UNITS_MS = {"min": 60_000, "h": 3_600_000, "d": 86_400_000}


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    example = "Example: hothouse backtest recordings/lettuce --out predictions.parquet --timezone Europe/Amsterdam"
    app.command(rich_help_panel="Learn", epilog=example)(backtest)


def backtest(
    recordings: Annotated[list[Path], typer.Argument(help="Folders of CSV or Parquet, one file a zone.")],
    out: Annotated[Path, typer.Option(help="Where to write the predictions: .parquet or .csv.")],
    every: Annotated[str, typer.Option(help="A forecast this often: 30min, 1h ...")] = "30min",
    warmup: Annotated[str, typer.Option(help="None before this much of a zone's recording.")] = "14d",
    until: Annotated[str | None, typer.Option(help="None after this much of a zone's recording.")] = None,
    latitude: Annotated[float | None, typer.Option(help="Degrees north, where known.", min=-90, max=90)] = None,
    longitude: Annotated[float | None, typer.Option(help="Degrees east, where known.", min=-180, max=180)] = None,
    timezone: Annotated[str | None, typer.Option(help="The recording's clock, as in Europe/Amsterdam.")] = None,
    network: Annotated[bool, typer.Option(help="Train the network along the recording and ask it too.")] = False,
    ray: Annotated[bool, typer.Option("--ray", help="Train it on Ray, as the live system does.")] = False,
) -> None:
    """Replay recordings through the live forecaster, prequentially, and measure it beside every baseline."""
    import zoneinfo

    every_ms, warmup_ms = _duration_ms("every", every), _duration_ms("warmup", warmup)
    until_ms = None if until is None else _duration_ms("until", until)
    if until_ms is not None and until_ms < warmup_ms:
        raise ConfigError(f"--until {until} ends before --warmup {warmup}", "Set --until to more, or --warmup to less.")
    if timezone is not None and timezone not in zoneinfo.available_timezones():
        raise ConfigError(f"{timezone!r} is not a time zone", "Give an IANA name such as Europe/Amsterdam.")
    if (latitude is None) != (longitude is None):
        raise ConfigError("latitude and longitude belong together", "Give both or neither.")
    if ray and not network:
        raise ConfigError("--ray trains the network", "Add --network.")
    if out.is_dir() or (len(recordings) > 1 and not out.suffix):
        raise ConfigError(f"{out} is no file for predictions", "Name a .parquet or .csv file.")
    names = [folder.resolve().name for folder in recordings]
    if len(set(names)) < len(names):
        raise ConfigError("two of the recordings have one name, and so would their predictions", "Rename a folder.")
    with need_cluster("backtest"):
        from services.backtest.replay import Options

        if ray:
            from services.backtest.cluster import training_on_ray

    options = Options(
        every_ms=every_ms, warmup_ms=warmup_ms, latitude=latitude, longitude=longitude, timezone=timezone,
        network=network, until_ms=until_ms,
    )  # fmt: skip
    with training_on_ray() if ray else nullcontext() as train:
        for folder in recordings:
            several = out.with_name(f"{out.stem}-{folder.resolve().name}{out.suffix}")
            _run(folder, out if len(recordings) == 1 else several, options, train)


def _run(folder: Path, path: Path, options: Options, train: Trainer | None) -> None:
    """Replay one recording, write what was forecast, and show how good that was."""
    from services.backtest.replay import replay
    from services.backtest.report import cells, write
    from services.backtest.table import read_table

    name = folder.resolve().name
    with errors.status(f"reading {name} ..."):
        table = read_table(folder)
    for note in table.notes:
        errors.print(f"[dim]{escape(note)}[/]", highlight=False, soft_wrap=True)
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("", total=None)
        forecasts = replay(table, options, lambda done, total: bar.update(task, completed=done, total=total), train)
    rows, found = write(path, table, forecasts), cells(table, forecasts)
    title = f"{name}: {len(table.names)} zones, {rows} forecasts in {path}"
    # Its own console: another one's width can only be made less.
    Console(width=max(console.width, WIDTH)).print(_shown(title, found))
    if found:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(forecasts.told.items()))
        console.print(f"sensor faults and drifts on the way: {told or 'none'}", highlight=False, soft_wrap=True)
        mean = sum(1 - cell.skill for cell in found) / len(found)
        console.print(f"mean MAE / better of persistence and 24-h naive: {mean:.3f}", highlight=False)


def _shown(title: str, found: list[Cell]) -> Shown:
    columns = {
        "MAE": [cell.mae for cell in found], "climatology": [cell.climatology for cell in found],
        "frozen": [cell.frozen for cell in found], "persistence": [cell.persistence for cell in found],
        "24-h naive": [cell.naive_24h for cell in found], "skill": [cell.skill for cell in found],
        "pinball": [cell.pinball for cell in found], "coverage": [cell.coverage for cell in found],
    }  # fmt: skip
    columns = {name: said for name, said in columns.items() if not all(map(math.isnan, said))}  # no network: no frozen
    shown = Shown(title=title)
    shown.add_column("target", no_wrap=True)
    for name in ("horizon", *columns):
        shown.add_column(name, justify="right")
    for i, cell in enumerate(found):
        minutes = f"{cell.horizon_min} min" if cell.horizon_min < 60 else f"{cell.horizon_min // 60} h"
        numbers = (f"{said[i]:.{2 if name == 'coverage' else 3}f}" for name, said in columns.items())
        shown.add_row(cell.metric, minutes, *(number.replace("nan", "") for number in numbers))
    return shown


def _duration_ms(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(min|h|d)", text.strip())
    if match is None or int(match[1]) == 0:
        raise ConfigError(f"--{name} {text!r} is no duration", "Write it as 30min, 1h or 14d.")
    return int(match[1]) * _UNITS_MS[match[2]]
