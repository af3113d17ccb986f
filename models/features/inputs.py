"""Step 7 of the way of a reading: rows become a model's input.

One function, :func:`build_inputs`, for the shard, training, backtests and ``POST /predict``, so that a model never
sees anything in service that it did not see in training. It is pure, and an example's input does not depend on the
examples beside it. Missing stays NaN here; the network masks it and scales the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from sunposition import sunpos

from models.durations import DAY_MS, HOUR_MS
from models.features.plan_differences import plan_differences
from models.masked import held_along, masked_mean, newest_known
from models.psychrometrics import absolute_humidity_g_m3, dew_point_c, vpd_kpa
from models.spec import ForecastSpec, Place

__all__ = [
    "BRIDGE_MS",
    "VPD_OF",
    "Inputs",
    "build_inputs",
    "clear_sky_w_m2",
    "day_bins",
    "input_channels",
    "local_ms",
    "refracted_deg",
    "sun_elevation_deg",
    "sun_sine",
    "targets_along",
    "targets_of",
    "window_tokens",
]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

RECENT_MS = HOUR_MS
"""The newest hour enters the network row by row, everything before as means over an hour."""

VPD_OF = ("air_temp_c", "rh_pct")
"""What ``vpd_kpa`` is made of, where it is no channel itself."""

BRIDGE_MS = 1_800_000
"""A row that has only one of ``VPD_OF`` takes the other from up to so long before. Of two sensors that report each
hour, at any minute, one speaks within half an hour after the other."""

_DERIVED = ("vpd_kpa", "abs_humidity_g_m3", "dew_point_c")
_QUARTER_MS = 900_000


@dataclass(frozen=True, slots=True)
class Inputs:
    """A model's input for ``N`` examples; float32, NaN where missing. Tokens ``T``: hourly means, then newest rows."""

    window: F32  # [N, T, F], channels as input_channels() names them
    now: F32  # [N, M], the targets in the newest row, or of what was read last in the hour up to its end
    calendar: F32  # [N, 1 + H, 4], sine and cosine of the local day and half day, at the origin and each horizon
    sun: F32  # [N, 1 + H, 2], elevation / 90° and clear-sky radiation / 1000 W/m²; NaN where the place is unknown
    yesterday: F32  # [N, H, M], the targets a whole number of days before each horizon
    future: F32  # [N, H, K], plans as plan_differences() gives them; K = 0 for examples that are not told of plans
    baseline: F32  # [N, H, M, Q]

    def __len__(self) -> int:
        return len(self.window)

    def take(self, indices: Any) -> Inputs:
        """The examples at ``indices``."""
        return Inputs(*(getattr(self, field.name)[indices] for field in fields(self)))

    def arrays(self) -> tuple[F32, ...]:
        """All of them, in order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    @staticmethod
    def concatenate(parts: Sequence[Inputs]) -> Inputs:
        """The examples of all ``parts``, in order."""
        return Inputs(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Inputs)))


def input_channels(spec: ForecastSpec) -> tuple[str, ...]:
    """The ``F`` channels of ``Inputs.window``: a row's, with angles as sine and cosine, and the derived ones.

    >>> input_channels(ForecastSpec(channels=("air_temp_c", "wind_dir_deg"), angles=("wind_dir_deg",)))
    ('air_temp_c', 'sin wind_dir_deg', 'cos wind_dir_deg', 'vpd_kpa', 'abs_humidity_g_m3', 'dew_point_c')
    """
    plain = tuple(name for name in spec.channels if name not in spec.angles)
    angles = tuple(f"{part} {name}" for name in spec.channels if name in spec.angles for part in ("sin", "cos"))
    return plain + angles + _DERIVED


def window_tokens(spec: ForecastSpec) -> int:
    """How many tokens ``T`` a look-back window becomes."""
    hourly, recent, _ = _token_shape(spec)
    return hourly + recent


def targets_of(values: F32, spec: ForecastSpec, held: F32 | None = None) -> F32:
    """The targets in rows: ``[..., C] -> [..., M]``; NaN where a channel is missing or unknown.

    ``vpd_kpa`` is computed from air temperature and relative humidity unless it is a channel itself. Two sensors may
    never share a row: where a row has one of the two only, the other is that of ``held [..., 2]``, which are the newest
    readings of :data:`VPD_OF` before the row, NaN where they are older than :data:`BRIDGE_MS`.

    >>> spec = ForecastSpec(channels=("air_temp_c", "rh_pct"), targets=("vpd_kpa",))
    >>> rows, held = np.float32([[20, np.nan], [np.nan, np.nan]]), np.float32([[19, 50], [20, 50]])
    >>> targets_of(rows, spec, held).round(2)
    array([[1.17],
           [ nan]], dtype=float32)
    """
    columns = []
    for target in spec.targets:
        if target == "vpd_kpa" and target not in spec.channels:
            column = vpd_kpa(*_bridged([_channel(values, name, spec) for name in VPD_OF], held))
        else:
            column = _channel(values, target, spec)
        columns.append(column.astype(np.float32, copy=False))
    return np.stack(columns, axis=-1)


def targets_along(values: F32, spec: ForecastSpec) -> F32:
    """:func:`targets_of` rows that follow each other, ``[Z, T, C] -> [Z, T, M]``."""
    made = "vpd_kpa" in spec.targets and "vpd_kpa" not in spec.channels and set(VPD_OF) <= set(spec.channels)
    if not made:
        return targets_of(values, spec)
    parts = values[..., [spec.channels.index(name) for name in VPD_OF]]
    return targets_of(values, spec, held_along(parts, BRIDGE_MS // spec.step_ms))


def build_inputs(
    values: F32, origin_ms: I64, places: Sequence[Place], baseline: F32, spec: ForecastSpec, ahead: F32 | None = None
) -> Inputs:
    """Build the input of ``N`` examples from their look-back windows.

    ``values`` is ``[N, L, C]``, newest row last (it ends at the origin), NaN where missing. What is missing in the
    newest row is as it was read last within :data:`RECENT_MS`, but for counters. ``places`` has one entry an example;
    ``baseline`` is ``[N, H, M, Q]``; ``ahead`` is what was foreseen, as
    :func:`~models.features.plan_differences.plan_differences` takes it. Raises ``ValueError`` if shapes do not fit
    ``spec``.
    """
    n, horizons = len(origin_ms), np.array((0, *spec.horizon_steps), dtype=np.int64)
    expected = (n, spec.lookback_steps, len(spec.channels))
    if values.shape != expected:
        raise ValueError(f"values have shape {values.shape}, this schema wants {expected}")
    if baseline.shape[:3] != (n, len(spec.horizons_min), len(spec.targets)) or len(places) != n:
        raise ValueError(f"baseline {baseline.shape} or places {len(places)} do not fit {n} examples of this schema")
    times = np.asarray(origin_ms, dtype=np.int64)[:, None] + horizons * spec.step_ms
    calendar = np.empty((*times.shape, 4), dtype=np.float32)
    sun = np.full((*times.shape, 2), np.nan, dtype=np.float32)
    for place, rows in _by_place(places):
        angle = local_ms(place, times[rows]) % DAY_MS * (2 * np.pi / DAY_MS)
        calendar[rows] = np.stack([np.sin(angle), np.cos(angle), np.sin(2 * angle), np.cos(2 * angle)], axis=-1)
        if place.latitude is not None and place.longitude is not None:
            elevation = sun_elevation_deg(times[rows], place.latitude, place.longitude)
            sun[rows] = np.stack([elevation / 90, clear_sky_w_m2(elevation) / 1000], axis=-1)
    future = np.empty((n, len(spec.horizons_min), 0), dtype=np.float32)
    if ahead is not None:
        future = plan_differences(ahead, values, np.asarray(origin_ms, dtype=np.int64), spec)
    return Inputs(
        window=_window(values, spec),
        now=targets_of(_newest(values, _token_shape(spec)[1], spec), spec),
        calendar=calendar,
        sun=sun,
        yesterday=_yesterday(values, spec),
        future=future,
        baseline=np.asarray(baseline, dtype=np.float32),
    )


def local_ms(place: Place, utc_ms: I64) -> I64:
    """:meth:`Place.local_ms` of an array of times."""
    quarters, inverse = np.unique(utc_ms // _QUARTER_MS, return_inverse=True)
    starts = [int(quarter) * _QUARTER_MS for quarter in quarters]
    offsets = np.array([place.local_ms(start) - start for start in starts], dtype=np.int64)
    return utc_ms + offsets[inverse].reshape(utc_ms.shape)


def day_bins(place: Place, end_ms: I64, spec: ForecastSpec) -> I64:
    """Which step of the local day each row is, ``0 ... steps_per_day - 1``: what the climatology goes by."""
    return local_ms(place, end_ms) // spec.step_ms % spec.steps_per_day


def sun_elevation_deg(utc_ms: I64, latitude: float, longitude: float) -> F32:
    """The sun's elevation above the horizon in degrees, with refraction.

    After I. Reda and A. Andreas, Solar Position Algorithm, NREL (2008), at every quarter of an hour, linear between.

    >>> noon = np.array([1646136000000])  # 2022-03-01T12:00Z
    >>> round(float(sun_elevation_deg(noon, 51.98, 4.53)[0]), 1)
    30.5
    """
    day, in_day = np.divmod(utc_ms, DAY_MS)
    quarter, rest = np.divmod(in_day, _QUARTER_MS)
    days, inverse = np.unique(day, return_inverse=True)
    table = np.stack([_sun_of_day(int(d), round(latitude, 4), round(longitude, 4)) for d in days])
    inverse = inverse.reshape(utc_ms.shape)
    share = (rest / _QUARTER_MS).astype(np.float32)
    before, after = table[inverse, quarter], table[inverse, quarter + 1]
    return np.asarray(before + share * (after - before))


def sun_sine(place: Place, utc_ms: I64) -> F32:
    """Sine of the sun's elevation, as :func:`sun_elevation_deg`; NaN where the place is unknown."""
    if place.latitude is None or place.longitude is None:
        return np.full(utc_ms.shape, np.nan, dtype=np.float32)
    return np.sin(np.deg2rad(sun_elevation_deg(utc_ms, place.latitude, place.longitude))).astype(np.float32)


def clear_sky_w_m2(elevation_deg: F32) -> F32:
    """Global radiation under a clear sky: B. Haurwitz, Journal of Meteorology 2 (1945) 154.

    >>> clear_sky_w_m2(np.array([-5.0, 30.0, 90.0], dtype=np.float32)).round().tolist()
    [0.0, 490.0, 1037.0]
    """
    height = np.maximum(np.sin(np.deg2rad(elevation_deg)), 1e-3)
    return np.where(elevation_deg > 0, 1098 * height * np.exp(-0.057 / height), 0).astype(np.float32)


@lru_cache(maxsize=4096)
def _sun_of_day(day: int, latitude: float, longitude: float) -> F32:
    """Elevations at the 97 quarters of an hour from a UTC day's start to its end.

    Declination and hour angle are computed three times a day, which takes nearly all of the time, and lie on a parabola
    between: that is right to 0.003 degrees.
    """
    at, share = np.array([0.0, 0.5, 1.0]), np.arange(97) / 96
    _, _, _, declination, angle = (np.asarray(found).ravel() for found in sunpos(
        (day + at) * 86_400.0, latitude, longitude, 0, jit=False,
    ))  # fmt: skip
    angle += 360 * np.round((angle[0] + 360 * at - angle) / 360)  # it goes round once a day, about
    weights = np.stack([(share - 0.5) * (share - 1) * 2, -share * (share - 1) * 4, share * (share - 0.5) * 2], axis=1)
    north, hour, here = (np.deg2rad(x) for x in (weights @ declination, weights @ angle, latitude))
    true = np.rad2deg(np.arcsin(np.sin(here) * np.sin(north) + np.cos(here) * np.cos(north) * np.cos(hour)))
    return np.asarray(refracted_deg(true), dtype=np.float32)


def refracted_deg(true: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Where the sun is seen whose true elevation that is, at 1013 hPa and 14.6 °C: as sunposition has it, from when its
    upper edge is seen. Far below the horizon the formula has poles, where it says anything.

    >>> refracted_deg(np.array([-5.1, 0.0, 45.0])).round(2).tolist()
    [-5.1, 0.48, 45.02]
    """
    bent = true + 1013 / 1010 * 283 / 287.6 * 1.02 / (60 * np.tan(np.deg2rad(true + 10.3 / (true + 5.11))))
    return np.where((bent >= -0.26667) & (true > -2), bent, true)


def _by_place(places: Sequence[Place]) -> list[tuple[Place, I64]]:
    rows: dict[Place, list[int]] = {}
    for row, place in enumerate(places):
        rows.setdefault(place, []).append(row)
    return [(place, np.array(at, dtype=np.int64)) for place, at in rows.items()]


def _channel(values: F32, name: str, spec: ForecastSpec, columns: Sequence[int] | None = None) -> F32:
    """The column of ``name``, where ``columns`` of the row's channels are left; all NaN where there is none."""
    if name not in spec.channels:
        return np.full(values.shape[:-1], np.nan, dtype=np.float32)
    at = spec.channels.index(name)
    return np.asarray(values[..., at if columns is None else columns.index(at)])


def _bridged(parts: Sequence[F32], held: F32 | None) -> Sequence[F32]:
    """Two ``parts [...]``; where one of them only is known, the other is that of ``held [..., 2]``."""
    if held is None:
        return parts
    one = np.isnan(parts[0]) != np.isnan(parts[1])
    return [np.where(one & np.isnan(part), held[..., place], part) for place, part in enumerate(parts)]


def _newest(values: F32, rows: int, spec: ForecastSpec) -> F32:
    """What was read last of each channel in the newest ``rows`` of ``[N, L, C]``; of counters in the newest one."""
    newest, _ = newest_known(values[:, -rows:], rows - 1)
    counters = [place for place, name in enumerate(spec.channels) if name in spec.counters]
    newest[:, counters] = values[:, -1, counters]
    return np.asarray(newest)


def _token_shape(spec: ForecastSpec) -> tuple[int, int, int]:
    """Hourly tokens, newest rows, and rows an hour (at least one)."""
    an_hour = max(HOUR_MS // spec.step_ms, 1)
    recent = min(max(RECENT_MS // spec.step_ms, 1), spec.lookback_steps)
    return spec.lookback_steps // an_hour, recent, an_hour


def _window(values: F32, spec: ForecastSpec) -> F32:
    plain = [i for i, name in enumerate(spec.channels) if name not in spec.angles]
    angles = [i for i, name in enumerate(spec.channels) if name in spec.angles]
    newest = _newest(values, _token_shape(spec)[1], spec)
    tokens = _tokens(values, newest, spec)[..., plain]
    turned = _tokens(_turned(values[..., angles]), _turned(newest[..., angles]), spec)
    temp, humidity = (_channel(tokens, name, spec, plain) for name in VPD_OF)
    moist = [vpd_kpa(temp, humidity), absolute_humidity_g_m3(temp, humidity), dew_point_c(temp, humidity)]
    return np.concatenate([tokens, turned, np.stack(moist, axis=-1)], axis=-1, dtype=np.float32)


def _turned(degrees: F32) -> F32:
    """Sine and cosine of each angle, ``[..., A] -> [..., 2 * A]``."""
    radians = np.deg2rad(degrees)
    return np.stack([np.sin(radians), np.cos(radians)], axis=-1).reshape(*degrees.shape[:-1], 2 * degrees.shape[-1])


def _tokens(values: F32, newest: F32, spec: ForecastSpec) -> F32:
    """Hourly means, then the newest rows, of which the last is ``newest [N, X]``: ``[N, L, X] -> [N, T, X]``."""
    hourly, recent, an_hour = _token_shape(spec)
    n, length, width = values.shape
    hours = values[:, length - hourly * an_hour :].reshape(n, hourly, an_hour, width)
    rows = values[:, length - recent : length - 1]
    return np.concatenate([masked_mean(hours, axis=2), rows, newest[:, None]], axis=1)


def _yesterday(values: F32, spec: ForecastSpec) -> F32:
    """The targets a whole number of days before each horizon; of what was read last in the quarter of an hour up to
    there.
    """
    back = -np.array(spec.horizon_steps) % spec.steps_per_day
    at = (values.shape[1] - 1 - back)[:, None] + np.arange(1 - spec.example_steps, 1)  # [H, R]
    rows = values[:, np.maximum(at, 0)]
    rows[:, at < 0] = np.nan
    n, horizons, count, width = rows.shape
    held = _newest(rows.reshape(n * horizons, count, width), count, spec)
    return targets_of(held.reshape(n, horizons, width), spec)
