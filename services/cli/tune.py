"""``tune``: better settings for the training, if there are any."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from services.cli.base import console, errors, need_cluster, options_of
from services.errors import ConfigError
from services.runtime.interrupts import ended_by_signals

if TYPE_CHECKING:
    from services.learn.training.tuning import Trial

__all__ = ["register"]

WIDTH = 112
MOST_ZONES = 60
"""Zones that are trained and judged on, at most, spread evenly over all: bounds memory and time."""
STORE_MB = 256


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(rich_help_panel="Learn", epilog="Example: hothouse tune --trials 20")(tune)


def tune(
    ctx: typer.Context,
    trials: Annotated[int, typer.Option(help="Sets of settings to try, those in force among them.", min=2)] = 16,
    cpus: Annotated[int, typer.Option(help="Trials at a time, a CPU each; 0: all but one.", min=0)] = 0,
) -> None:
    """Search for better settings of the training on the history, and print what to set.

    Trains on all but the newest share of the history (learn.held_back); settings are chosen on the first half of that
    tail and compared with those in force on the second. Nothing is changed; the system may run meanwhile.
    """
    settings = options_of(ctx).settings()
    kind = settings.learn.kind
    if kind != "network":  # every trial trains one of these
        raise ConfigError(
            f'learn.kind is "{kind}": `hothouse tune` searches settings of the kind "network" alone',
            'Set learn.kind = "network" to search; a fine-tuning has learn.fine_tuning_rate.',
        )
    with need_cluster("tune"):
        from services.learn.training.tuning import read_windows, search, toml_of
        from services.runtime.ray_runtime import RayRuntime
    at_a_time = cpus or max((os.cpu_count() or 1) - 1, 1)
    with console.status("reading the history"):
        windows = read_windows(settings, MOST_ZONES)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ended_by_signals(), tempfile.TemporaryDirectory(prefix="hothouse-tune-") as name:
        folder = Path(name)
        # Not on the cluster of the settings: its nodes do not see the folder, and a system may run there.
        own = {
            "address": "",
            "num_cpus": max(at_a_time, 2),
            "object_store_mb": STORE_MB + 2 * windows.nbytes // 1_000_000,
        }
        runtime = settings.model_copy(update={"data_dir": folder, "ray": settings.ray.model_copy(update=own)})
        with RayRuntime(runtime), Progress(*columns, console=errors, transient=True) as bar:
            task = bar.add_task(f"{trials} trials, {at_a_time} at a time", total=trials)

            def told(epochs: int, ended: int) -> None:
                bar.update(
                    task, completed=ended, description=f"{trials} trials, {at_a_time} at a time, {epochs} epochs"
                )

            found = search(windows, settings.learn, trials, at_a_time, folder, told)
    Console(width=max(console.width, WIDTH)).print(_shown(found))
    best, before = found[0], next(trial for trial in found if trial.in_force)
    if best.in_force or best.proof >= before.proof:
        console.print(
            "No settings were better on rows that were not used to choose them: leave them as they are.", soft_wrap=True
        )
        return
    better = f"Better by {1 - best.proof / before.proof:.1%} on rows that were not used to choose it. To use it, set:"
    console.print(better, highlight=False, soft_wrap=True)
    console.print(toml_of(best.settings), highlight=False, markup=False)


def _shown(found: list[Trial]) -> Table:
    table = Table(
        title="error / climatology's: less is better", caption="chosen by: first half of the tail; proof: second"
    )
    for column in ("", "chosen by", "proof", "epochs", *found[0].settings):
        table.add_column(column, justify="right")
    for trial in found:
        values = (str(value) if isinstance(value, int) else f"{value:.4g}" for value in trial.settings.values())
        mark = "in force" if trial.in_force else ""
        table.add_row(mark, f"{trial.chosen_by:.4f}", f"{trial.proof:.4f}", str(trial.epochs), *values)
    return table
