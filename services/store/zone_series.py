"""Step 9 of the way of a reading: a zone's rows over any span, at any resolution, as the history has them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from edge.wire.vocabulary import VOCABULARY
from models.features.directions import mean_direction
from models.psychrometrics import DERIVED
from services.messages import Resampled
from services.store.history import History

__all__ = ["fingerprint", "resampled"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

_OF = ("air_temp_c", "rh_pct")


def resampled(
    history: History, site: str, zone: str, metrics: Sequence[str], start_ms: int, end_ms: int, interval_ms: int
) -> Resampled:
    """Rows with ``start_ms < row end <= end_ms``, by intervals of the same length; a row belongs to the interval
    ``(end - interval_ms, end]`` that its end lies in. Intervals without a row are left out, and so is what no file has.

    Derived metrics (``DERIVED``) are computed row by row where the history has none. The mean of an angle is that of
    the directions: of 350° and 10° it is 0°. That of a counter is what it gained in the interval, the sum of its rows:
    their mean would shrink with the interval's length. Raises :class:`~services.errors.HistoryError` for a damaged
    file.
    """
    wanted = list(dict.fromkeys([*metrics, *(_OF if set(metrics) & set(DERIVED) else ())]))
    table = _rows(history, site, zone, wanted, start_ms, end_ms)
    ends = -(-table["end_ms"].to_numpy() // interval_ms) * interval_ms
    values = {name: table[name].to_numpy(zero_copy_only=False) for name in wanted}
    for name in set(metrics) & set(DERIVED):
        values[name] = np.where(np.isnan(values[name]), DERIVED[name](*(values[of] for of in _OF)), values[name])
    at, first, row = np.unique(ends, return_index=True, return_inverse=True)
    found = Resampled(end_ms=at, mean={}, low={}, high={})
    for name in metrics:
        found["mean"][name], found["low"][name], found["high"][name] = _of_intervals(values[name], first)
        kind, known = VOCABULARY[name].kind if name in VOCABULARY else "", np.isfinite(values[name])
        if kind == "counter" and len(at):
            gained = np.add.reduceat(np.where(known, values[name], 0).astype(np.float64), first)
            found["mean"][name] = np.where(np.isnan(found["mean"][name]), np.nan, gained).astype(np.float32)
        if kind == "angle":
            mean = mean_direction(row[known], values[name][known].astype(np.float64), len(at))
            found["mean"][name] = mean.astype(np.float32)
    return found


def fingerprint(history: History, site: str, start_ms: int, end_ms: int) -> str:
    """Differs when the site's rows of a span may have changed: files never change, others come."""
    files = history.zones.files(start_ms, end_ms, [site], step_s=history.step_s)
    return hashlib.sha256(repr(files).encode()).hexdigest()[:32]


def _rows(history: History, site: str, zone: str, columns: Sequence[str], start_ms: int, end_ms: int) -> pa.Table:
    """The columns that are wanted, in the order of their ends; one that the history does not have is NaN."""
    found = history.zones.read(start_ms, end_ms, [site], [zone], history.step_s, columns=["end_ms", *columns])
    if found is None:
        return pa.table({"end_ms": pa.array([], pa.int64())} | {name: pa.array([], pa.float32()) for name in columns})
    found = found.sort_by("end_ms")
    nothing = pa.array(np.full(len(found), np.nan, np.float32))
    values = {name: pc.fill_null(found[name], np.nan) if name in found.column_names else nothing for name in columns}
    return pa.table({"end_ms": found["end_ms"]} | values)


def _of_intervals(values: npt.NDArray[np.floating], first: I64) -> tuple[F32, F32, F32]:
    """Mean, least and largest of what is known from each of the places ``first [T]`` to the next."""
    if not len(first):
        return (np.empty(0, np.float32),) * 3
    known = np.isfinite(values)
    count = np.add.reduceat(known.astype(np.int64), first)
    total = np.add.reduceat(np.where(known, values, 0).astype(np.float64), first)
    low = np.minimum.reduceat(np.where(known, values, np.inf), first)
    high = np.maximum.reduceat(np.where(known, values, -np.inf), first)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    low, high = (np.where(count > 0, side, np.nan) for side in (low, high))
    return mean.astype(np.float32), low.astype(np.float32), high.astype(np.float32)
