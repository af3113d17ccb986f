"""The history as a pandas frame, to look at or to take elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from edge.wire.vocabulary import VOCABULARY
from services.store.history import ZONE_ROWS, History, zone_table
from services.store.storage import Storage

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RowPieces", "rows_frame"]

_KEYS = ZONE_ROWS.order
_DECIMALS = 6


def rows_frame(
    root: Storage | Path, channels: Sequence[str], step_s: int, *, sites: Sequence[str] = (), zones: Sequence[str] = (),
    since: datetime | None = None, until: datetime | None = None,
) -> pd.DataFrame:  # fmt: skip
    """The rows of the history in ``root``, sorted by site, zone and time; empty if there is none.

    Columns: ``site, zone, time`` (the end of the row, UTC) and each metric that has a value, NaN where missing. A
    counter is its sum from the first row on, as meters show it: so it is read again by an import or a backtest.
    ``since`` < time <= ``until``, both aware; no ``sites`` or ``zones`` means all. May be called while the system runs.
    Raises :class:`HistoryError` for a damaged file.
    """
    import pandas as pd

    pieces = RowPieces(root, channels, step_s, sites=sites, zones=zones, since=since, until=until)
    return pd.concat(pieces, ignore_index=True) if pieces.rows else _frame(zone_table(channels, []).select(_KEYS), [])


class RowPieces:
    """The same rows as several frames of some zones each, in their order, all with the same columns: for who has no
    memory for all of them. ``rows``: how many there are. Rows that come meanwhile are left out.
    """

    def __init__(
        self, root: Storage | Path, channels: Sequence[str], step_s: int, *, sites: Sequence[str] = (),
        zones: Sequence[str] = (), since: datetime | None = None, until: datetime | None = None,
    ) -> None:  # fmt: skip
        start_ms, end_ms = (None if when is None else round(when.timestamp() * 1000) for when in (since, until))
        self._history = History(root, channels, step_s)
        known, newest_ms, counts = set[str](), 0, list[pa.Table]()
        columns = [*_KEYS, *channels]  # not the ages, which are as much again
        for rows in self._history.zones.pieces(start_ms, end_ms, sites or None, zones or None, step_s, columns):
            if len(rows):
                names = set(rows.column_names) & set(channels) - known
                known |= {name for name in names if np.isfinite(rows[name].to_numpy()).any()}
                newest_ms = max(newest_ms, pc.max(rows["end_ms"]).as_py())
                counts.append(rows.group_by(["site", "zone"]).aggregate([([], "count_all")]))
        self.metrics = [name for name in channels if name in known]
        self._span = start_ms, newest_ms
        empty = pa.table(
            {
                "site": pa.array([], pa.string()),
                "zone": pa.array([], pa.string()),
                "count_all": pa.array([], pa.int64()),
            }
        )
        summed = pa.concat_tables([empty, *counts]).group_by(["site", "zone"]).aggregate([("count_all", "sum")])
        self._counts = summed.rename_columns(["site", "zone", "count_all"]).sort_by(
            [("site", "ascending"), ("zone", "ascending")]
        )
        self.rows = sum(self._counts["count_all"].to_pylist())
        self.zones = len(self._counts)

    def __iter__(self) -> Iterator[pd.DataFrame]:
        table, columns = self._history.zones, [*_KEYS, *self.metrics]
        for rows in table.zone_runs(self._counts, *self._span, self._history.step_s, columns):
            yield _frame(rows, self.metrics)


def _frame(rows: pa.Table, metrics: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    rows = rows.select([*_KEYS, *metrics]).sort_by([(key, "ascending") for key in _KEYS])
    frame: pd.DataFrame = rows.to_pandas(split_blocks=True, self_destruct=True)
    frame.insert(2, "time", pd.to_datetime(frame.pop("end_ms"), unit="ms", utc=True))
    for name in metrics:
        if name in VOCABULARY and VOCABULARY[name].kind == "counter":
            gained = frame[name].astype(np.float64)  # in single precision the sum of some years loses what a row gained
            frame[name] = gained.groupby([frame["site"], frame["zone"]]).cumsum().round(_DECIMALS)
    return frame
