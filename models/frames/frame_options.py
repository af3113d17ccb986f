"""What a forecaster of frames is asked for, checked: place, step, targets and horizons."""

from __future__ import annotations

import difflib
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Real

import numpy as np
import pandas as pd

from models.durations import MINUTE_MS
from models.frames.frame_samples import MetricMeaning, ZoneSamples, plausible
from models.half_precision import LARGEST
from models.spec import ForecastSpec, Place

__all__ = ["Duration", "FrameOptions", "checked_options", "spec_of_frames"]

STEPS_MIN = (5, 10, 15, 30)
TARGETS = ("air_temp_c", "rh_pct", "co2_ppm", "vpd_kpa")
_NEEDS = {"vpd_kpa": ("air_temp_c", "rh_pct")}
"""Targets that are computed, and of what."""

_DAY_MIN = 1440

Duration = str | pd.Timedelta


@dataclass(frozen=True, slots=True)
class FrameOptions:
    """Everything besides its rows that a forecast depends on; ``None``: chosen by the first rows."""

    metrics: Mapping[str, MetricMeaning]
    place: Place
    step_min: int | None
    targets: tuple[str, ...] | None
    horizons_min: tuple[int, ...] | None


def checked_options(
    metrics: Mapping[str, MetricMeaning], timezone: str, latitude: float, longitude: float,
    step: Duration | None, targets: Sequence[str] | None, horizons: Sequence[Duration] | None,
) -> FrameOptions:  # fmt: skip
    """What people write, as numbers; raises ``ValueError`` in one sentence."""
    if not (isinstance(metrics, Mapping) and metrics and all(isinstance(m, MetricMeaning) for m in metrics.values())):
        raise ValueError(
            "metrics are a vocabulary, {name: Metric}: give VOCABULARY of edge.wire.vocabulary, or one made like it"
        )
    try:
        zoneinfo.ZoneInfo(timezone)
    except (KeyError, ValueError, TypeError, OSError) as error:  # OSError for the name of a folder
        raise ValueError(f"{timezone!r} is not a time zone: give an IANA name such as Europe/Amsterdam") from error
    for name, value, most in (("latitude", latitude, 90), ("longitude", longitude, 180)):
        if not isinstance(value, Real) or not -most <= value <= most:
            raise ValueError(f"{name} {value!s} is not within -{most} to {most}: give degrees, north and east positive")
    step_min = None if step is None else _minutes("step", step)
    if step_min is not None and step_min not in STEPS_MIN:
        raise ValueError(f"step {step!s} is not possible: give 5min, 10min, 15min or 30min")
    asked = None
    if horizons is not None:
        listed = [] if isinstance(horizons, str) or not isinstance(horizons, Iterable) else list(horizons)
        if not listed:
            raise ValueError("horizons are a list of durations: give one or more, as in horizons=['1h', '24h']")
        asked = tuple(sorted({_minutes("horizon", each) for each in listed}))
    place = Place(timezone, latitude=float(latitude), longitude=float(longitude))
    options = FrameOptions(
        dict(metrics), place, step_min, None if targets is None else _checked_targets(targets, metrics), asked
    )
    if step_min is not None:
        _horizons_min(options, step_min)
    return options


def spec_of_frames(options: FrameOptions, samples: Mapping[str, ZoneSamples]) -> ForecastSpec:
    """The forecasts that are asked for and that these rows allow; raises ``ValueError`` where none are."""
    metrics = options.metrics
    gaps = np.concatenate([np.diff(zone.times_ms) for zone in samples.values()])
    interval_min = float(np.median(gaps)) / MINUTE_MS if len(gaps) else 0.0
    longest_min = max((step for step in STEPS_MIN if step <= interval_min), default=STEPS_MIN[0])
    step_min = longest_min if options.step_min is None else options.step_min
    if step_min < longest_min:
        raise ValueError(
            f"rows come every {interval_min:g} min, but step is {step_min}min: leave step out, or give {longest_min}min"
        )
    measured = {
        name for zone in samples.values()
        for name, column in zip(metrics, zone.values.T, strict=True) if np.isfinite(column).any()
    }  # fmt: skip
    lacks = sorted({name for target in options.targets or () for name in _needs(target)} - measured)
    if lacks:
        raise ValueError(
            f"no zone has a value of {', '.join(lacks)}, which the targets need: give the column, or other targets"
        )
    targets = options.targets or tuple(target for target in TARGETS if measured.issuperset(_needs(target)))
    if not targets:
        raise ValueError(
            "the rows have no value to forecast: give a column air_temp_c, rh_pct or co2_ppm, or name others as targets"
        )
    for target in targets:
        if target in metrics:  # what is computed of others is small
            _check_size(target, metrics, samples)
    angles, counters = (
        tuple(name for name, metric in metrics.items() if metric.kind == kind) for kind in ("angle", "counter")
    )
    return ForecastSpec(
        tuple(metrics), targets, _horizons_min(options, step_min), step_ms=step_min * MINUTE_MS,
        lookback_steps=_DAY_MIN // step_min, angles=angles, counters=counters,
    )  # fmt: skip


def _check_size(target: str, metrics: Mapping[str, MetricMeaning], samples: Mapping[str, ZoneSamples]) -> None:
    """Raise ``ValueError`` where values are larger than what is kept of them; of a counter only increases are."""
    metric, column = metrics[target], list(metrics).index(target)
    if metric.kind == "counter":
        return
    for zone, of_zone in samples.items():
        largest = np.nanmax(np.abs(plausible(of_zone.values[:, column], metric)), initial=0)
        if largest > LARGEST:
            raise ValueError(
                f"{target} of {zone} goes to {largest:,.0f} {metric.unit}, forecasts to {LARGEST:,.0f} only: give a"
                " metric in a larger unit"
            )


def _checked_targets(targets: Sequence[str], metrics: Mapping[str, MetricMeaning]) -> tuple[str, ...]:
    # A set has another order in each process, and forecasts are the same bit for bit.
    is_list = isinstance(targets, Iterable) and not isinstance(targets, str | Set | Mapping)
    listed = list(targets) if is_list else []
    if not listed or len(set(listed)) < len(listed):
        raise ValueError("targets are a list of metrics: give one or more, each once, as in targets=['air_temp_c']")
    for target in listed:
        unknown = [name for name in _needs(target) if name not in metrics]
        if unknown:
            near = difflib.get_close_matches(str(target), list(metrics), 1)
            like = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"the target {target!r} is no metric of the vocabulary{like}: give one of its names")
        if target in metrics and metrics[target].kind == "angle":
            raise ValueError(f"the target {target!r} is a direction, which cannot be forecast: take it from targets")
    return tuple(listed)


def _needs(target: str) -> tuple[str, ...]:
    """The columns that a target is made of."""
    return _NEEDS.get(target, (target,))


def _horizons_min(options: FrameOptions, step_min: int) -> tuple[int, ...]:
    """Those that are asked for; by default those of a running system that a step of this length has."""
    asked = options.horizons_min
    if asked is None:
        return tuple(each for each in ForecastSpec(()).horizons_min if each % step_min == 0)
    wrong = [each for each in asked if each % step_min]
    if wrong:
        raise ValueError(f"the horizon {wrong[0]}min is no multiple of the step of {step_min}min: give one that is")
    return asked


def _minutes(what: str, given: Duration) -> int:
    try:
        minutes = pd.Timedelta(given) / pd.Timedelta("1min")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{what} {given!r} is not a duration: write it as 30min, 1h or 24h") from error
    if not (minutes % 1 == 0 and 1 <= minutes <= _DAY_MIN):
        raise ValueError(f"{what} {given!s} is not possible: give whole minutes up to 24h, such as 30min or 1h")
    return int(minutes)
