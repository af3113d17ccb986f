"""The history as a pandas frame, to look at or to take elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from edge.wire.vocabulary import VOCABULARY
from services.store.history import ZONE_ROWS, History, zone_table
from services.store.storage import Storage

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["rows_frame"]

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
    import pyarrow.compute as pc

    start_ms, end_ms = (None if when is None else round(when.timestamp() * 1000) for when in (since, until))
    history = History(root, channels, step_s)
    only = zones[0] if len(zones) == 1 else None
    columns = [*_KEYS, *channels]  # not the ages, which are as much again
    rows = history.zones.read(start_ms, end_ms, sites or None, only, step_s, columns)
    if rows is None:
        rows = zone_table(channels, []).select(columns)
    if zones:
        rows = rows.filter(pc.is_in(rows["zone"], pa.array(zones, pa.string())))
    metrics = [name for name in channels if name in rows.column_names and np.isfinite(rows[name].to_numpy()).any()]
    rows = rows.select([*_KEYS, *metrics]).sort_by([(key, "ascending") for key in _KEYS])
    frame: pd.DataFrame = rows.to_pandas(split_blocks=True, self_destruct=True)
    frame.insert(2, "time", pd.to_datetime(frame.pop("end_ms"), unit="ms", utc=True))
    for name in metrics:
        if name in VOCABULARY and VOCABULARY[name].kind == "counter":
            gained = frame[name].astype(np.float64)  # in single precision the sum of some years loses what a row gained
            frame[name] = gained.groupby([frame["site"], frame["zone"]]).cumsum().round(_DECIMALS)
    return frame
