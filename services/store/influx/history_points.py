"""Step 6 of the way of a reading: the points of a span of time, made again from the history and the forecasts in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from models.spec import ForecastSpec
from services.store.forecasts import IssuedForecasts
from services.store.influx.gaps import Stream
from services.store.influx.lines import issued_lines, row_lines
from services.store.rows import SiteStep
from services.store.tables.table_reader import TableReader

__all__ = ["HistoryPoints", "PointSource", "Points"]


class Points(NamedTuple):
    """Lines of a stream, and the newest row's end, or origin, up to which they are all that there is; 0 where there is
    none: newer ones may come.
    """

    lines: list[str]
    reached_ms: int


class PointSource(Protocol):
    """Has points that are in no queue."""

    def read(self, stream: Stream, after_ms: int, until_ms: int) -> Points | None:
        """The points after ``after_ms``, not after ``until_ms``; ``None`` while it may not have them all yet.

        Raises :class:`HistoryError` for a damaged file, ``OSError`` when files cannot be read.
        """


class HistoryPoints:
    """Zone rows from the history's table, of whatever step: charts show them as they closed. Forecasts from what was
    kept of them before they were published.
    """

    def __init__(self, rows: TableReader, issued: IssuedForecasts, spec: ForecastSpec) -> None:
        self._rows, self._issued, self._spec = rows, issued, spec

    def read(self, stream: Stream, after_ms: int, until_ms: int) -> Points | None:
        """See :class:`PointSource`. Rows are in the history after its next flush."""
        site = stream.site
        if stream.kind == "forecasts":
            horizons, targets = self._spec.horizons_min, self._spec.targets
            found = self._issued.read(site, after_ms, horizons, targets, until_ms)
            lines = [line for forecast in found for line in issued_lines(forecast, horizons, targets)]
            return Points(lines, max((forecast.origin_ms for forecast in found), default=0))
        table = self._rows.read(after_ms, until_ms, [site]) if self._rows.newest_ms(site) >= until_ms else None
        if table is None:
            return None
        return Points(row_lines(self._spec.channels, _steps(table, self._spec.channels, site)), until_ms)


def _steps(table: pa.Table, channels: Sequence[str], site: str) -> list[SiteStep]:
    """A site's zone rows in the order of time; ages and device rows are left out."""
    table = table.sort_by([("end_ms", "ascending"), ("zone", "ascending")])
    zones, ends = table["zone"].to_pylist(), table["end_ms"].to_numpy()
    values = np.full((len(table), len(channels)), np.nan, np.float32)
    for index, channel in enumerate(channels):
        if channel in table.column_names:  # an older version may not have known it
            values[:, index] = table[channel].to_numpy()
    steps = []
    for end_ms in np.unique(ends).tolist():
        first, last = np.searchsorted(ends, [end_ms, end_ms + 1]).tolist()
        rows = values[first:last]
        steps.append(SiteStep(0, site, end_ms, tuple(zones[first:last]), rows, np.full_like(rows, np.nan)))
    return steps
