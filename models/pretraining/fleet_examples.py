"""Step 13 of the way of a reading: what a network is pre-trained on, made from a recorded fleet.

The online layer runs over the fleet as it runs in service. Of each zone some origins are drawn, most of them in its
first days; an example is what the network would be given there, what the online layer forecast, and what came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from models.features.inputs import Inputs, build_inputs, day_bins, sun_sine, targets_along
from models.features.plans import BINS_BACK, PLANNED, bins_ahead
from models.network.house_features import HouseFeatures
from models.online.online_forecaster import OnlineForecaster
from models.pretraining.fleet_chunk import FleetChunk
from models.spec import ForecastSpec

__all__ = ["Drawing", "FleetExamples", "draw_examples"]

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

TOGETHER = 96
"""Zones that share an online layer, whole sites at a time: where there are many more, young zones take turns."""

LEAST_STEPS = 12
"""No origin in a zone's first hour."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """Which zones and origins are taken. The same seed takes the same."""

    seed: int = 1
    days: int = 8
    """So long the online layer runs in each zone, from a row of its first day on."""
    zones_each: int = 2
    """No more zones of one site: those of one site resemble each other."""
    origins_each: int = 150
    young: float = 0.4
    """The share of origins in a zone's first day; the second and third have half of the rest."""
    told: float = 0.5
    """The share of zones in which the online layer and the network are told of plans; the others know of none."""


@dataclass(frozen=True, slots=True)
class FleetExamples:
    """``N`` examples: features of :class:`HouseFeatures`, the online layer's forecast, and the truth."""

    origin: F16  # [N, D]
    ahead: F16  # [N, H, E]
    baseline: F32  # [N, H, M, Q]
    truth: F32  # [N, H, M]
    zone: I64  # [N], a number that is each zone's own
    day: F32  # [N], days since the zone's first row

    def __len__(self) -> int:
        return len(self.origin)

    def take(self, indices: npt.NDArray[np.int64] | slice) -> FleetExamples:
        """The examples at ``indices``."""
        return FleetExamples(*(getattr(self, field.name)[indices] for field in fields(self)))

    @staticmethod
    def concatenate(parts: list[FleetExamples]) -> FleetExamples:
        """The examples of all ``parts``, in order."""
        return FleetExamples(
            *(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(FleetExamples))
        )


def draw_examples(
    chunk: FleetChunk, spec: ForecastSpec, drawing: Drawing, number: int = 0,
    told: Callable[[int], None] = lambda zone_days: None,
) -> tuple[FleetExamples, Inputs]:  # fmt: skip
    """The examples of a chunk, and a handful of the inputs that they were made from.

    ``number`` is the chunk's, so that no two draw alike; ``told`` is called with zone-days as they are done. Raises
    ``ValueError`` where the recordings are shorter than ``drawing.days`` and three days.
    """
    if chunk.step_ms != spec.step_ms:
        raise ValueError(f"the fleet's rows are {chunk.step_ms} ms long, this schema wants {spec.step_ms}")
    day = spec.steps_per_day
    if chunk.rows_each < (drawing.days + 3) * day:
        raise ValueError(f"{drawing.days} days of each zone need recordings of {drawing.days + 3} days or more")
    rng = np.random.default_rng([drawing.seed, number])
    rows, features = chunk.rows(spec.channels), HouseFeatures(spec)
    stride = spec.example_steps
    parts: list[FleetExamples] = []
    kept: list[Inputs] = []
    sites = np.arange(len(chunk.arrays["site"]))
    for group in _groups(chunk.arrays["zone_site"], sites, drawing.zones_each, rng):
        begins = rng.integers(0, day // stride, len(group)) * stride
        asked = [_origins(drawing, day, stride, rng) for _ in group]
        planned = rng.random(len(group)) < drawing.told
        forecasts = _online(chunk, spec, rows, group, begins, asked, planned, told)
        for zone, begin, at, plans, given in zip(
            group.tolist(), begins.tolist(), asked, planned.tolist(), forecasts, strict=True
        ):
            inputs, truth = _of_zone(chunk, spec, rows[zone], zone, begin, at, given, plans)
            fits = np.isfinite(inputs.now[:, :2]).all(-1) & np.isfinite(truth).any((1, 2))
            inputs, truth, at = inputs.take(fits), truth[fits], at[fits]
            origin, ahead = (x.astype(np.float16) for x in features(*inputs.arrays()))
            of = np.full(len(at), number * 1_000_000 + zone, np.int64)
            age = ((at + 1) / day).astype(np.float32)
            parts.append(FleetExamples(origin, ahead, inputs.baseline, truth.astype(np.float32), of, age))
            if len(kept) < 8:
                kept.append(inputs.take(slice(len(at) // 2, len(at) // 2 + 1)))
    return FleetExamples.concatenate(parts), Inputs.concatenate(kept)


def _groups(site: I64, sites: I64, zones_each: int, rng: np.random.Generator) -> Iterator[I64]:
    """The zones that are taken, whole sites together, so many as share an online layer."""
    group: list[int] = []
    for one in sites:
        mine = np.flatnonzero(site == one)
        taken = rng.permutation(mine)[:zones_each]
        if group and len(group) + len(taken) > TOGETHER:
            yield np.array(group, np.int64)
            group = []
        group += sorted(taken.tolist())
    if group:
        yield np.array(group, np.int64)


def _origins(drawing: Drawing, day: int, stride: int, rng: np.random.Generator) -> I64:
    """Rows of a zone, counted from its first, ascending; at each the online layer takes an example."""
    first = round(drawing.origins_each * drawing.young)
    early = (drawing.origins_each - first) // 2
    late = drawing.origins_each - first - early
    short = min(3, drawing.days)
    spans = ((LEAST_STEPS, day, first), (min(1, short - 1) * day, short * day, early),
             (LEAST_STEPS if drawing.days <= short else short * day, drawing.days * day, late))  # fmt: skip
    drawn = [rng.integers(low, high, count) for low, high, count in spans]
    return np.unique(np.maximum(np.concatenate(drawn) // stride, LEAST_STEPS // stride) * stride)


def _online(
    chunk: FleetChunk, spec: ForecastSpec, rows: F32, group: I64, begins: I64, asked: list[I64],
    planned: npt.NDArray[np.bool_], told: Callable[[int], None],
) -> list[F32]:  # fmt: skip
    """What the online layer forecasts for each zone of ``group`` at the origins ``asked``: ``[N, H, M, Q]`` each.

    Zones that are ``planned`` are told of plans.
    """
    steps = np.array((0, *spec.horizon_steps), dtype=np.int64)
    length = max(int(at[-1]) for at in asked) + 1
    span = np.arange(length + int(steps[-1]))
    ends = np.stack([chunk.end_ms(np.full(len(span), z), b + span) for z, b in zip(group, begins, strict=True)])
    places = [chunk.place(int(zone)) for zone in group]
    sun = np.stack([sun_sine(place, row) for place, row in zip(places, ends, strict=True)])
    bin_ = np.stack([day_bins(place, row[:length], spec) for place, row in zip(places, ends, strict=True)])
    shape = (len(spec.horizons_min), len(spec.targets), 3)
    found = [np.full((len(at), *shape), np.nan, np.float32) for at in asked]
    place_of = [{int(row): n for n, row in enumerate(at)} for at in asked]
    forecaster, everyone = OnlineForecaster(spec, len(group)), np.arange(len(group))
    forecaster.add_zones(len(group))
    for t in range(length):
        foreseen = None
        if planned.any():
            foreseen = chunk.foreseen(group, begins + t, PLANNED, BINS_BACK, bins_ahead(spec))
            foreseen[~planned] = np.nan
        learned = forecaster.learn(everyone, t, rows[group, begins + t], bin_[:, t], sun[:, t + steps], foreseen)
        wanted = [z for z, held in enumerate(place_of) if t in held]
        if wanted:
            given = forecaster.predict(learned)
            for z in wanted:
                found[z][place_of[z][t]] = given[z]
        if (t + 1) % spec.steps_per_day == 0:
            told(len(group))
    return found


def _of_zone(
    chunk: FleetChunk, spec: ForecastSpec, rows: F32, zone: int, begin: int, at: I64, forecasts: F32, planned: bool
) -> tuple[Inputs, F32]:
    """The inputs and truths of a zone's origins ``at``; no row before its first is known."""
    before = np.full((spec.lookback_steps - 1, rows.shape[1]), np.nan, np.float32)
    held = np.concatenate([before, rows[begin:]])
    values = held[at[:, None] + np.arange(spec.lookback_steps)]
    zones, absolute = np.full(len(at), zone, np.int64), begin + at
    ahead = chunk.foreseen(zones, absolute, PLANNED, BINS_BACK, bins_ahead(spec))
    if not planned:
        ahead[:] = np.nan
    places = [chunk.place(zone)] * len(at)
    inputs = build_inputs(values, chunk.end_ms(zones, absolute), places, forecasts, spec, ahead)
    when = absolute[:, None] + np.array(spec.horizon_steps)
    truth = targets_along(rows[None], spec)[0][np.minimum(when, len(rows) - 1)]
    truth[when >= len(rows)] = np.nan
    return inputs, truth
