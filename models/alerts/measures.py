"""Step 9 of the way of a reading: the number that a rule watches, along rows and along scenarios.

The same functions read what was measured and what is foreseen: every metric is an array whose last axis is time, and
an axis before it are scenarios.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.alerts.alert_rule import DAY_MIN, AlertRule
from models.alerts.fruit_temperature import fruit_temperature_c
from models.durations import DAY_MS
from models.psychrometrics import dew_point_c, vpd_kpa

__all__ = ["OF_A_DAY", "Track", "evidence", "is_read", "margin", "measure"]

Bool = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

KNOWN = 0.8
"""A mean or sum of 24 hours needs this share of its values."""

ROUNDING_C = 0.00005
"""A surface as warm as its dew point, but for rounding, is wet, as in saturated air."""

OF_A_DAY = ("botrytis", "mean_low", "mean_high")
"""The kinds whose number is of the last 24 hours: rows of a day tell that of the newest alone."""


@dataclass(frozen=True, slots=True)
class Track:
    """Values on a regular time line. ``values`` are metric -> ``[..., N]``, NaN where unknown; they broadcast."""

    values: Mapping[str, _Array]
    step_ms: int
    night: Bool  # [N]
    minute: I64  # [N], of the zone's day

    def __getitem__(self, metric: str) -> _Array:
        found = self.values.get(metric)
        return np.full(len(self.minute), np.nan, dtype=np.float32) if found is None else found


def margin(rule: AlertRule, track: Track) -> _Array:
    """How far the number is beyond the rule's limit, ``[..., N]``: above 0 is bad, NaN is unknown.

    Outside of the rule's hours it is far on the good side.
    """
    limit = np.full(len(track.night), rule.limit, dtype=np.float32)
    if rule.night_limit is not None:
        limit[track.night] = rule.night_limit
    beyond = rule.sign * (measure(rule, track) - limit)
    return np.asarray(np.where(_within(rule.hours, track.minute), beyond, np.float32(-np.inf)))


def measure(rule: AlertRule, track: Track) -> _Array:
    """The number that the rule watches, ``[..., N]`` in the unit of :data:`~models.alerts.alert_rule.COURSES`."""
    if rule.kind in ("frost", "heat"):
        return track["air_temp_c"]
    if rule.kind in ("co2_low", "co2_high"):
        return track["co2_ppm"]
    if rule.kind in ("vpd_low", "vpd_high"):
        return vpd_kpa(track["air_temp_c"], track["rh_pct"])
    if rule.kind == "condensation":
        return _distance(rule, track)
    if rule.kind == "botrytis":
        return _wet_hours(rule, track)
    if rule.kind in ("mean_low", "mean_high"):
        return _beside_light(rule, track)
    raise ValueError(f"a rule of kind {rule.kind} watches no number")


def is_read(rule: AlertRule, past: Track) -> bool:
    """Whether any of what the number is made of was read in the time of ``past``: where none was, as of a sensor that
    was taken away, scenarios tell what was usual and not what is to come.
    """
    if rule.kind in ("co2_low", "co2_high"):
        needed = ["co2_ppm"]
    elif rule.kind in ("frost", "heat", "mean_low", "mean_high"):
        needed = ["air_temp_c"]
    else:
        needed = ["air_temp_c", "rh_pct"]
    return all(bool(np.isfinite(past[metric]).any()) for metric in needed)


def evidence(rule: AlertRule, track: Track) -> dict[str, _Array]:
    """What speaks for an event, by the names of :data:`~models.alerts.alert_words.INPUTS`, each ``[..., N]``."""
    air, rh = track["air_temp_c"], track["rh_pct"]
    if rule.kind in ("frost", "heat"):
        return {"air": air}
    if rule.kind in ("co2_low", "co2_high"):
        return {"co2": track["co2_ppm"]}
    if rule.kind in ("vpd_low", "vpd_high"):
        return {"vpd": vpd_kpa(air, rh), "air": air, "humidity": rh}
    if rule.kind == "condensation":
        return {"air": air, **_surfaces(rule, track), "dew_point": dew_point_c(air, rh)}
    if rule.kind == "botrytis":
        return {"wet_hours": _wet_hours(rule, track), "air": air, "humidity": rh}
    return {"beside_light": _beside_light(rule, track)}


def _surfaces(rule: AlertRule, track: Track) -> dict[str, _Array]:
    """Temperatures of what vapour may condense on: the leaf where it is measured, and the fruit.

    Without a fruit the air stands for the leaf wherever that is unknown: it condenses where the air is saturated. A
    sensor may fall silent at any time.
    """
    air, leaf = track["air_temp_c"], track["leaf_temp_c"]
    if rule.fruit_mm is None:
        return {"leaf": np.where(np.isnan(leaf), air, leaf)}
    fruit = fruit_temperature_c(air, track.step_ms, rule.fruit_mm)
    return {"fruit": fruit} if np.isnan(leaf).all() else {"leaf": leaf, "fruit": fruit}


def _distance(rule: AlertRule, track: Track) -> _Array:
    coldest = None
    for surface in _surfaces(rule, track).values():
        coldest = surface if coldest is None else np.fmin(coldest, surface)
    return np.asarray(coldest - dew_point_c(track["air_temp_c"], track["rh_pct"]) - np.float32(ROUNDING_C))


def _wet_hours(rule: AlertRule, track: Track) -> _Array:
    """Hours of the last 24 in which the plants were wet within the temperature band.

    A crop counts as wet from a relative humidity of ``wet_rh_pct`` on (P. C. Sentelhas and others, *Agricultural and
    Forest Meteorology* 148 (2008) 392-400: 90 %), and where vapour condenses on it. Grey mould (*Botrytis cinerea*)
    infects flowers the more the longer they are wet, and much less below 15 and above 25 °C (M. A. Bulger, M. A. Ellis
    and L. V. Madden, *Phytopathology* 77 (1987) 1225-1230); on a field hours wet at 15 to 25 °C told the disease
    (W. F. Wilcox and R. C. Seem, *Phytopathology* 84 (1994) 264-270).
    """
    air, rh = track["air_temp_c"], track["rh_pct"]
    wet = (rh >= rule.wet_rh_pct) | (_distance(rule, track) <= 0)
    counts = (wet & (air >= rule.band_c[0]) & (air <= rule.band_c[1])).astype(np.float32)
    unknown = np.isnan(air) | np.isnan(rh)
    total, known = _day_sums(np.where(unknown, np.float32(0), counts), ~unknown, track.step_ms)
    # A gap counts as the rest of the day does.
    hours = 24 * total / np.maximum(_day_counts(~unknown, DAY_MS // track.step_ms), 1)
    return np.asarray(np.where(known, hours, np.float32(np.nan)))


def _beside_light(rule: AlertRule, track: Track) -> _Array:
    air, light = track["air_temp_c"], track["out_radiation_w_m2"]
    per_day = DAY_MS // track.step_ms
    warm, known = _day_sums(np.nan_to_num(air), np.isfinite(air), track.step_ms)
    bright, lit = _day_sums(np.maximum(np.nan_to_num(light), 0), np.isfinite(light), track.step_ms)
    count = _day_counts(np.isfinite(air), per_day)
    lit_count = _day_counts(np.isfinite(light), per_day)
    radiation_j_cm2 = bright / np.maximum(lit_count, 1) * np.float32(86_400 / 10_000)
    wanted = np.float32(rule.base_c) + np.float32(rule.per_100_j_cm2) * radiation_j_cm2 / 100
    mean = warm / np.maximum(count, 1)
    return np.asarray(np.where(known & lit, mean - wanted, np.float32(np.nan)))


def _day_sums(values: _Array, known: Bool, step_ms: int) -> tuple[_Array, Bool]:
    """Sums of the 24 hours that end at each step, and where enough of them is known."""
    per_day = DAY_MS // step_ms
    total = np.cumsum(values, axis=-1, dtype=np.float64)
    before = np.zeros_like(total)
    before[..., per_day:] = total[..., :-per_day] if total.shape[-1] > per_day else 0
    return (total - before).astype(np.float32), np.asarray(_day_counts(known, per_day) >= KNOWN * per_day)


def _day_counts(known: Bool, per_day: int) -> _Array:
    total = np.cumsum(known, axis=-1)
    before = np.zeros_like(total)
    before[..., per_day:] = total[..., :-per_day] if total.shape[-1] > per_day else 0
    return np.asarray(total - before, dtype=np.float32)


def _within(hours: tuple[int, int] | None, minute: I64) -> Bool:
    if hours is None:
        return np.ones(len(minute), dtype=np.bool_)
    first, end = hours[0] % DAY_MIN, hours[1]
    if first < end:
        return np.asarray((minute >= first) & (minute < end))
    return np.asarray((minute >= first) | (minute < end))
