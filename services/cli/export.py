"""``export``: the rows of the history as one file, for a spreadsheet, a notebook or a backtest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.base import console, counting_bar, errors, need_cluster, need_out, options_of
from services.errors import HothouseError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["register"]

ROWS_AT_A_TIME = 20_000

Time = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"], help="UTC.")]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    example = "Example: hothouse export rows.parquet --site demo --since 2022-03-01"
    app.command(rich_help_panel="Ask a running system", epilog=example)(export)


def export(
    ctx: typer.Context,
    out: Annotated[Path, typer.Argument(help="Where to write the rows: .parquet or .csv.")],
    site: Annotated[list[str] | None, typer.Option(help="Only this site; may be repeated.")] = None,
    zone: Annotated[list[str] | None, typer.Option(help="Only zones of this name; may be repeated.")] = None,
    since: Time = None,
    until: Time = None,
) -> None:
    """Write the rows of the history to a file: site, zone, time (the row's end, UTC) and a column for each metric.

    Reads the data folder; the system may run meanwhile. The file is written whole or not at all.
    """
    need_out(out, "rows", ".parquet", ".csv")
    settings = options_of(ctx).settings()
    with need_cluster("export"):
        from services.forecast_spec import forecast_spec
        from services.store.files import write_atomically
        from services.store.frames import rows_frame
        from services.store.history import History
        from services.store.storage import storage_of
    with errors.status("reading the history ..."):
        frame = rows_frame(
            storage_of(settings), forecast_spec(settings).channels, settings.stream.step_s, sites=site or (),
            zones=zone or (), since=since and since.replace(tzinfo=UTC), until=until and until.replace(tzinfo=UTC),
        )  # fmt: skip
        steps_s = History(storage_of(settings), (), settings.stream.step_s).zones.steps_s()
    for step_s in steps_s:
        if step_s != settings.stream.step_s:
            errors.print(
                f"rows of {step_s} s are left out, as stream.step_s is {settings.stream.step_s}: export them into "
                f"another file, with HOTHOUSE_STREAM__STEP_S={step_s}", markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
    if frame.empty:
        raise HothouseError(
            f"the history in {storage_of(settings).url} has no such row",
            "Ask for more sites, zones or time, or name the data folder: hothouse --data-dir DIR ...",
        )
    try:
        out.parent.stat()  # no folder is made by mistake
        with counting_bar("writing rows") as told:
            write_atomically(out, partial(_write_csv if out.suffix == ".csv" else _write_parquet, frame, told))
    except OSError as error:
        raise HothouseError(f"{out} cannot be written: {error.strerror or error}") from error
    zones = len(frame.groupby(["site", "zone"]))
    first, last = (f"{when:%Y-%m-%d %H:%M}" for when in (frame["time"].min(), frame["time"].max()))
    rows = f"{len(frame):,} row{'s' if len(frame) != 1 else ''} of {zones} zone{'s' if zones != 1 else ''}"
    line = f"{rows}, {first} to {last} UTC, in {out}"
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _write_csv(frame: pd.DataFrame, told: Callable[[int, int], None], out: Path) -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        for first in range(0, len(frame), ROWS_AT_A_TIME):
            told(first, len(frame))
            frame.iloc[first : first + ROWS_AT_A_TIME].to_csv(file, index=False, header=not first)


def _write_parquet(frame: pd.DataFrame, told: Callable[[int, int], None], out: Path) -> None:
    told(0, len(frame))
    frame.to_parquet(out, index=False)
