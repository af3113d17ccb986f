"""The history as a pandas frame, to look at or to take elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from services.store.history import History
from services.store.storage import Storage

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["rows_frame"]


def rows_frame(
    root: Storage | Path, channels: Sequence[str], step_s: int, *, sites: Sequence[str] = (), zones: Sequence[str] = (),
    since: datetime | None = None, until: datetime | None = None,
) -> pd.DataFrame:  # fmt: skip
    """The rows of the history in ``root``, sorted by site, zone and time; empty if there is none.

    Columns: ``site, zone, time`` (the end of the row, UTC) and each metric that has a value, NaN where missing.
    ``since`` < time <= ``until``, both aware; no ``sites`` or ``zones`` means all. May be called while the system runs.
    Raises :class:`HistoryError` for a damaged file.
    """
    import pandas as pd

    start_ms, end_ms = (None if when is None else round(when.timestamp() * 1000) for when in (since, until))
    history = History(root, channels, step_s)
    frame: pd.DataFrame = history.read(start_ms, end_ms, sites or None).to_pandas()
    if zones:
        frame = frame.loc[frame["zone"].isin(zones)]
    metrics = [name for name in channels if name in frame and frame[name].notna().any()]
    times = pd.to_datetime(frame["end_ms"], unit="ms", utc=True)
    return frame.assign(time=times)[["site", "zone", "time", *metrics]].reset_index(drop=True)
