"""DataFrames become samples: times in UTC, values in the vocabulary's units; what does not fit is one sentence."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd

from models.durations import DAY_MS
from models.frames.frame_times import utc_index

__all__ = [
    "ONLY_ZONE",
    "Frames",
    "MetricMeaning",
    "ZoneSamples",
    "check_units",
    "plausible",
    "read_frames",
]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

Frames = pd.DataFrame | Mapping[str, pd.DataFrame]
"""A frame a zone, or one frame with a column ``zone``; one without it is the only zone."""

ONLY_ZONE = "zone"
"""The name of the zone where a frame does not name any."""

OUT_OF_RANGE = 0.1
"""When more of a column than this share is impossible, it is in another unit. What is less is left out."""

SHARE_MOST, SHARE_LEAST = 1.5, 0.05
"""A percentage of which the most is between these is a share; less is a broken sensor, or one that hangs in the air."""

WARM_C = 45.0
"""A greenhouse whose median is above this was measured in °F or K."""

HOT_F = 200.0
"""No greenhouse has as many °F; in K it is frost."""

LONGEST_GAP_MS = 366 * DAY_MS
"""A jump in time that is longer is a date mistyped."""

_SHARES = ("rh_pct", "out_rh_pct", "sp_rh_pct", "soil_vwc_pct")
_TEMPERATURES = ("air_temp_c", "leaf_temp_c", "soil_temp_c", "out_temp_c")


@runtime_checkable
class MetricMeaning(Protocol):
    """What a vocabulary says of a metric: ``edge.wire.vocabulary.VOCABULARY`` is one."""

    @property
    def label(self) -> str:
        """What people call it."""

    @property
    def unit(self) -> str:
        """Of its values."""

    @property
    def low(self) -> float:
        """The least that is plausible."""

    @property
    def high(self) -> float:
        """The most that is plausible."""

    @property
    def kind(self) -> Any:
        """``gauge``, ``angle`` (in degrees), ``state`` or ``counter``."""

    @property
    def hold_s(self) -> int | None:
        """How long a value holds that is sent on change; ``None``: in its own step only."""

    @property
    def clip_from(self) -> float | None:
        """Values up to this one, and above ``high``, count as ``high``."""


@dataclass(frozen=True, slots=True)
class ZoneSamples:
    """One zone's samples: ``times_ms [N]`` in UTC, rising; ``values [N, C]``, NaN where nothing was said."""

    times_ms: I64
    values: F64


def read_frames(
    frames: Frames, metrics: Mapping[str, MetricMeaning], timezone: str, newest_ms: int | None = None
) -> dict[str, ZoneSamples]:
    """The samples of each zone; ``newest_ms`` is the time that all must be later than.

    Raises ``ValueError`` in one sentence that says what to do. Frames are not changed.
    """
    zones = {zone: _read(zone, frame, metrics, timezone, newest_ms) for zone, frame in _by_zone(frames).items()}
    if not any(len(samples.times_ms) for samples in zones.values()):
        raise ValueError("there is no row in what you gave: give at least one")
    together = np.unique(np.concatenate([zone.times_ms for zone in zones.values()]))
    _check_gaps("the time of the zones", together, timezone)  # each row between would be learned
    return zones


def check_units(zones: Mapping[str, ZoneSamples], metrics: Mapping[str, MetricMeaning]) -> None:
    """Raise ``ValueError`` where a column looks like another unit than its metric's."""
    for zone, samples in zones.items():
        for (name, metric), column in zip(metrics.items(), samples.values.T, strict=True):
            said = column[~np.isnan(column)]
            if not len(said):
                continue
            out = int(np.isnan(plausible(said, metric)).sum())
            where = f"{name} of {zone}"
            mend = f"convert it to {metric.unit}"
            if name in _SHARES and SHARE_LEAST < said.max() <= SHARE_MOST:
                raise ValueError(f"{where} is never above {SHARE_MOST}, so it looks like a share: multiply it by 100")
            if name in _TEMPERATURES and np.median(said) > WARM_C:
                unit = "K" if np.median(said) > HOT_F else "°F"
                raise ValueError(f"{where} has a median of {np.median(said):.1f}, so it looks like {unit}: {mend}")
            if out > OUT_OF_RANGE * len(said):
                raise ValueError(
                    f"{where} is outside of {metric.low:g} to {metric.high:g} {metric.unit} in {out} of {len(said)}"
                    f" values: {mend}, or set to NaN what is no measurement"
                )


def plausible(values: F64, metric: MetricMeaning) -> F64:
    """What can be; NaN instead of the rest."""
    at_most = metric.high if metric.clip_from is None else metric.clip_from
    return np.where((values >= metric.low) & (values <= at_most), np.minimum(values, metric.high), np.nan)


def _by_zone(frames: Frames) -> dict[str, pd.DataFrame]:
    if isinstance(frames, pd.DataFrame):
        if "zone" not in frames.columns:
            return {ONLY_ZONE: frames}
        zone = frames["zone"]
        if isinstance(zone, pd.DataFrame):
            raise ValueError("the frame has two columns 'zone': keep one")
        if zone.isna().any():
            raise ValueError("the column 'zone' is empty in some rows: fill it in, or drop those rows")
        return _named((name, part.drop(columns="zone")) for name, part in frames.groupby("zone", observed=True))
    wrong = frames if not isinstance(frames, Mapping) else next(
        (part for part in frames.values() if not isinstance(part, pd.DataFrame)), None
    )  # fmt: skip
    if wrong is not None or frames is None:
        given = type(wrong).__module__.partition(".")[0] + "'s " if type(wrong).__name__ == "DataFrame" else ""
        raise ValueError(
            "give a DataFrame of pandas, or one for each zone as {zone: frame}, not "
            f"{given}{'None' if wrong is None else type(wrong).__name__}"
        )
    return _named(frames.items())


def _named(parts: Iterable[tuple[Hashable, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    found: dict[str, pd.DataFrame] = {}
    for name, part in parts:
        if str(name) in found:
            raise ValueError(f"two zones are called {str(name)!r}, as a number and as text: name them differently")
        found[str(name)] = part
    return found


def _read(
    zone: str, frame: pd.DataFrame, metrics: Mapping[str, MetricMeaning], timezone: str, newest_ms: int | None
) -> ZoneSamples:
    whose = f"the frame of {zone}"
    times_ms = utc_index(frame.index, timezone, newest_ms, whose)
    _check_columns(whose, frame.columns, metrics)
    _check_times(whose, times_ms, timezone, newest_ms)
    values = np.full((len(frame), len(metrics)), np.nan)
    for c, name in enumerate(metrics):
        if name in frame.columns:
            values[:, c] = _numbers(whose, frame[name])
    return ZoneSamples(times_ms, values)


def _check_columns(whose: str, columns: Iterable[Hashable], metrics: Mapping[str, MetricMeaning]) -> None:
    names = list(columns)
    if names and all(isinstance(name, tuple) for name in names):  # of a wide frame, a zone beside another
        raise ValueError(
            f"the columns of {whose} have several levels: give a frame a zone, as in "
            "{zone: frame[zone] for zone in frame.columns.levels[0]}"
        )
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{whose} has two columns {name!r}: keep one, or their mean")
        if name not in metrics:
            near = difflib.get_close_matches(str(name), list(metrics), 1)
            like = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(
                f"{whose} has a column {name!r}, which is no metric of the vocabulary{like}: rename it or drop it"
            )


def _check_times(whose: str, times_ms: I64, timezone: str, newest_ms: int | None) -> None:
    back = np.flatnonzero(np.diff(times_ms) <= 0)
    if len(back):
        at = _words(times_ms[back[0] + 1], timezone)
        if (np.sort(times_ms)[1:] == np.sort(times_ms)[:-1]).any() and not (np.diff(times_ms) < 0).any():
            raise ValueError(f"{whose} has two rows at {at}: keep one with frame[~frame.index.duplicated()]")
        raise ValueError(f"{whose} is not in the order of time at {at}: sort it with frame.sort_index()")
    if not len(times_ms):
        return
    if times_ms[0] < 0:  # learners number steps from 1970 on
        raise ValueError(f"{whose} begins at {_words(times_ms[0], timezone)}, before 1970: give times with their year")
    if newest_ms is not None and times_ms[0] <= newest_ms:
        raise ValueError(
            f"{whose} begins at {_words(times_ms[0], timezone)}, but rows up to {_words(newest_ms, timezone)} are"
            " learned already: update with later rows only, those of all zones in one call"
        )
    _check_gaps(whose, times_ms if newest_ms is None else np.concatenate([[newest_ms], times_ms]), timezone)


def _check_gaps(whose: str, line: I64, timezone: str) -> None:
    far = np.flatnonzero(np.diff(line) > LONGEST_GAP_MS)
    if len(far):
        one, other = (_words(line[far[0] + i], timezone) for i in (0, 1))
        raise ValueError(f"{whose} jumps from {one} to {other}: mend the date, or begin after the gap")


_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*\Z")  # the conversion would make it missing
_CONVERT = "convert it with pd.to_numeric(column, errors='coerce')"


def _numbers(whose: str, column: pd.Series[Any]) -> F64:
    if pd.api.types.is_complex_dtype(column) or not pd.api.types.is_numeric_dtype(column):  # a bool is numeric
        has_commas = any(isinstance(one, str) and _COMMA.match(one) for one in column)
        how = "pd.read_csv(..., decimal=',') reads its commas" if has_commas else _CONVERT
        raise ValueError(f"{column.name} of {whose} holds {column.dtype}, not numbers: {how}")
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isinf(values), np.nan, values)


def _words(utc_ms: Any, timezone: str) -> str:
    return str(pd.Timestamp(int(utc_ms), unit="ms", tz="UTC").tz_convert(timezone))
