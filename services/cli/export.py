"""``export``: the rows of the history as one file, for a spreadsheet, a notebook or a backtest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.base import console, counting_bar, errors, need_cluster, need_out, options_of
from services.errors import HothouseError

if TYPE_CHECKING:
    import pandas as pd

    from services.store.frames import RowPieces

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
        from services.store.frames import RowPieces
        from services.store.history import History
        from services.store.storage import storage_of
    with errors.status("reading the history ..."):
        pieces = RowPieces(
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
    if not pieces.rows:
        raise HothouseError(
            f"the history in {storage_of(settings).url} has no such row",
            "Ask for more sites, zones or time, or name the data folder: hothouse --data-dir DIR ...",
        )
    span = _Span()
    try:
        out.parent.stat()  # no folder is made by mistake
        with counting_bar("writing rows") as told:
            write = _write_csv if out.suffix == ".csv" else _write_parquet
            write_atomically(out, lambda beside: write(span.of(pieces, told), beside))
    except OSError as error:
        raise HothouseError(f"{out} cannot be written: {error.strerror or error}") from error
    rows = (
        f"{pieces.rows:,} row{'s' if pieces.rows != 1 else ''} of {pieces.zones} zone{'s' if pieces.zones != 1 else ''}"
    )
    line = f"{rows}, {span} UTC, in {out}"
    console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Span:
    """From when to when the rows are that were written."""

    def __init__(self) -> None:
        self._times: list[pd.Timestamp] = []

    def of(self, pieces: RowPieces, told: Callable[[int, int], None]) -> Iterator[pd.DataFrame]:
        """The pieces, looked at on their way."""
        self._times, done = [], 0
        for frame in pieces:
            told(done, pieces.rows)
            self._times += [frame["time"].min(), frame["time"].max()]
            done += len(frame)
            yield frame

    def __str__(self) -> str:
        return f"{min(self._times):%Y-%m-%d %H:%M} to {max(self._times):%Y-%m-%d %H:%M}"


def _write_csv(frames: Iterable[pd.DataFrame], out: Path) -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        for number, frame in enumerate(frames):
            frame.to_csv(file, index=False, header=not number, chunksize=ROWS_AT_A_TIME)


def _write_parquet(frames: Iterable[pd.DataFrame], out: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for frame in frames:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            writer = writer or stack.enter_context(pq.ParquetWriter(out, table.schema))
            writer.write_table(table.cast(writer.schema))
