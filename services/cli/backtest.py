"""``backtest``: what the forecaster would have said along a recording, and how good that was."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import DownloadColumn
from rich.table import Table as Shown

from services.cli.base import console, counting_bar, errors, need_cluster, need_out, print_notes
from services.errors import ConfigError
from services.runtime.interrupts import ended_by_signals

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from services.backtest.prequential import BacktestOptions
    from services.backtest.ray_training import OnRay

__all__ = ["register"]

WIDTH = 112
"""The table's numbers are not cut where a terminal is narrower, or there is none."""

MORE = 32
"""Two columns more with plans."""

COLUMNS = {
    "mae": "MAE", "without": "without plans", "ratio": "with / without",
    "climatology": "climatology", "frozen": "frozen", "persistence": "persistence",
    "naive_24h": "24-h naive", "skill": "skill", "pinball": "pinball", "coverage": "coverage",
}  # fmt: skip
"""Columns of the scores -> headings."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    example = "Example: hothouse backtest recordings/lettuce --out predictions.parquet --timezone Europe/Amsterdam"
    app.command(rich_help_panel="Learn", epilog=example)(backtest)


def backtest(
    recordings: Annotated[list[Path], typer.Argument(help="Folders of CSV or Parquet, one file a zone.")],
    out: Annotated[Path, typer.Option(help="Where to write the predictions: .parquet or .csv.")],
    every: Annotated[str, typer.Option(help="Issue a forecast this often: 30min, 1h ...")] = "30min",
    warmup: Annotated[str, typer.Option(help="Issue no forecast in this first part of a zone's recording.")] = "14d",
    until: Annotated[str | None, typer.Option(help="Issue no forecast after this part of a zone's recording.")] = None,
    latitude: Annotated[float | None, typer.Option(help="Degrees north, where known.", min=-90, max=90)] = None,
    longitude: Annotated[float | None, typer.Option(help="Degrees east, where known.", min=-180, max=180)] = None,
    timezone: Annotated[str | None, typer.Option(help="The recording's clock, as in Europe/Amsterdam.")] = None,
    network: Annotated[bool, typer.Option(help="Train the network along the recording and ask it too.")] = False,
    fine_tune: Annotated[
        bool, typer.Option("--fine-tune", help="Fine-tune the package's pre-trained network along the recording.")
    ] = False,
    ray: Annotated[bool, typer.Option("--ray", help="Train on Ray, as the live system does.")] = False,
    ahead: Annotated[Path | None, typer.Option(help="Plans as they were issued, .parquet or .csv: runs twice.")] = None,
    ahead_source: Annotated[list[str] | None, typer.Option(help="Use the plans of this source; repeatable.")] = None,
) -> None:
    """Replay recordings through the live forecaster, prequentially, and measure it beside every baseline."""
    if ahead_source and not ahead:
        raise ConfigError("--ahead-source names plans of a file", "Add --ahead FILE.")
    if ahead and len(recordings) > 1:
        raise ConfigError("the plans of a file are those of one recording", "Give one folder.")
    if ray and not (network or fine_tune):
        raise ConfigError("--ray trains the network", "Add --network or --fine-tune.")
    need_out(out, "predictions", ".parquet", ".csv")
    names = [folder.resolve().name for folder in recordings]
    if len(set(names)) < len(names):
        raise ConfigError("two recordings have the same name, and so would their predictions", "Rename a folder.")
    with need_cluster("backtest"):
        from services.backtest.frames import options_of

        if ray:
            from services.backtest.ray_training import training_on_ray

    options = options_of(every, warmup, until, latitude, longitude, timezone, network, dashes="--")
    options = replace(options, fine_tune=fine_tune)
    with ended_by_signals() if ray else nullcontext(), training_on_ray() if ray else nullcontext() as on_ray:
        for folder in recordings:
            several = out.with_name(f"{out.stem}-{folder.resolve().name}{out.suffix}")
            _run(folder, out if len(recordings) == 1 else several, options, on_ray, ahead, ahead_source or [])


def _run(
    folder: Path, path: Path, options: BacktestOptions, on_ray: OnRay | None, ahead: Path | None,
    sources: Sequence[str],
) -> None:  # fmt: skip
    """Replay one recording, write what was forecast, and show how good that was; with plans also without them."""
    from services.backtest.ahead import read_plans
    from services.backtest.prequential import replay
    from services.backtest.report import beside, predictions, scores, write
    from services.backtest.table import read_table

    name = folder.resolve().name
    with counting_bar(f"reading {name}", DownloadColumn()) as told:
        table = read_table(folder, told)
    with errors.status(f"reading {ahead} ...") if ahead else nullcontext():
        plans, notes = read_plans(ahead, sources, table) if ahead else ([], [])
    print_notes([*table.notes, *notes])
    with counting_bar(name) as told:
        train, tune = on_ray or (None, None)
        without = replay(table, options, told, train, tuner=tune) if plans else None
        forecasts = replay(table, options, told, train, plans=plans, tuner=tune)
    made, found = predictions(table, forecasts), scores(table, forecasts)
    if without:
        found = beside(found, scores(table, without))
    write(path, made)
    title = f"{name}: {len(table.names)} zones, {len(made)} forecasts in {path}"
    # Its own console: another one's width can only be made less.
    Console(width=max(console.width, WIDTH + (MORE if without else 0))).print(_shown(title, found))
    if not len(found):
        console.print(
            "nothing could be scored: no target was measured at a time that was forecast; "
            f"`--every {table.step_ms // 60_000}min` forecasts from every row", highlight=False, soft_wrap=True,
        )  # fmt: skip
    else:
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(forecasts.told.items()))
        console.print(f"sensor faults and drifts on the way: {faults or 'none'}", highlight=False, soft_wrap=True)
        mean = 1 - found["skill"].mean()
        console.print(f"mean MAE / better of persistence and 24-h naive: {mean:.3f}", highlight=False)
        if without:
            ratio = found["ratio"]
            console.print(f"with plans / without: mean {ratio.mean():.3f}, worst {ratio.max():.3f}", highlight=False)


def _shown(title: str, found: pd.DataFrame) -> Shown:
    shown = Shown(title=title)
    shown.add_column("target", no_wrap=True)
    given = [name for name in COLUMNS if name in found and found[name].notna().any()]
    for name in ("horizon", *(COLUMNS[name] for name in given)):
        shown.add_column(name, justify="right")
    for cell in found.dropna(axis="columns", how="all").to_dict("records"):  # no network: no column `frozen`
        minutes = f"{cell['horizon_min']} min" if cell["horizon_min"] < 60 else f"{cell['horizon_min'] // 60} h"
        numbers = (f"{cell[name]:.{2 if name == 'coverage' else 3}f}" for name in COLUMNS if name in cell)
        shown.add_row(cell["metric"], minutes, *(number.replace("nan", "") for number in numbers))
    return shown
