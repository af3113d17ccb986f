"""Step 13 of the way of a reading: rows as the online learners see them, for models that correct the climatology.

An :class:`ExampleSet` is a :class:`~models.features.windows.WindowSet` whose inputs are the regressors of an
:class:`~models.online.online_forecaster.OnlineForecaster` that has gone through the rows, as a shard goes through them
live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from models.features.inputs import day_bins, sun_sine
from models.features.sensor_faults import SensorFaults
from models.features.windows import WindowSet
from models.online.basis import Example
from models.online.online_forecaster import OnlineForecaster
from models.spec import QUANTILES, ForecastSpec, Place

__all__ = ["ExampleSet", "Regressors"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Regressors:
    """What the online learners know of ``N`` zones at their origins; NaN where missing."""

    common: F32  # [N, D'], of the row
    ahead: F32  # [N, H, E'], of a horizon
    unit: F32  # [N, H, M], the climatology's usual error: what answers are measured in
    now: F32  # [N, M], the targets in the newest row
    base: F32  # [N, H, M], the climatology's median

    def __len__(self) -> int:
        return len(self.common)

    @property
    def baseline(self) -> F32:
        """The climatology's median for each quantile, ``[N, H, M, Q]``."""
        return thrice(self.base)

    def take(self, indices: Any) -> Regressors:
        """The examples at ``indices``."""
        return Regressors(
            self.common[indices], self.ahead[indices], self.unit[indices], self.now[indices], self.base[indices]
        )


def thrice(median: F32) -> F32:
    """A median as quantiles without a width, ``[...] -> [..., Q]``."""
    return np.repeat(median[..., None], len(QUANTILES), axis=-1)


class ExampleSet(WindowSet):
    """Rows of some zones, without what faulty sensors said, and the example of every quarter of an hour.

    Only rows with an example are origins. :meth:`from_columns` makes a set. Zones are named ``site/zone``; those of one
    site are each other's neighbours. ``examples`` has one a step, in order; between the quarters it holds only the
    truth.
    """

    examples: Sequence[Example]

    @classmethod
    def from_columns(cls, zone_ids: Sequence[str] | npt.NDArray[Any], end_ms: I64, values: F32,
                     places: Mapping[str, Place], spec: ForecastSpec) -> ExampleSet:  # fmt: skip
        """See :meth:`WindowSet.from_columns`; half the work of the learners in a shard."""
        names, zone = np.unique(np.asarray(zone_ids, dtype=str), return_inverse=True)
        ends = np.asarray(end_ms, dtype=np.int64)
        values, examples, units = _examined(names.tolist(), zone, ends, values, places, spec)
        made = super().from_columns(zone_ids, ends, values, places, spec)
        assert isinstance(made, ExampleSet)
        made.examples, made._units = examples, units
        first = made.first_end_ms // spec.step_ms
        made._at = {example.step - first: example for example in examples if len(example.common)}
        return made

    _at: dict[int, Example]  # by place on the grid
    _units: dict[int, F64]  # by step

    def unit(self, until_ms: int) -> F64:
        """The climatology's usual error ``[H, M]``, as the rows until then have it."""
        newest = until_ms // self.spec.step_ms
        return self._units[max((step for step in self._units if step <= newest), default=min(self._units))]

    def origins(self, warm_steps: int = 0) -> I64:
        """The origins of :meth:`WindowSet.origins` that have an example, ordered by time."""
        found = super().origins(warm_steps)
        known = np.zeros((len(self.zone_ids), self.length), bool)
        for t, example in self._at.items():
            known[example.zones, t] = True
        return np.asarray(found[known[np.divmod(found, self.length)]])

    def inputs(self, origins: I64) -> Regressors:  # type: ignore[override]  # what models that take examples take
        """The regressors of each origin; all must be of :meth:`origins`."""
        zone, when = np.divmod(origins, self.length)
        n, h, m = len(origins), len(self.spec.horizons_min), len(self.spec.targets)
        d, e = next(((one.common.shape[1], one.ahead.shape[2]) for one in self._at.values()), (0, 0))
        shapes = ((n, d), (n, h, e), (n, h, m), (n, m), (n, h, m))
        found = Regressors(*(np.empty(shape, np.float32) for shape in shapes))
        for t in np.unique(when).tolist():
            rows, example = np.flatnonzero(when == t), self._at[t]
            mine = np.searchsorted(example.zones, zone[rows])
            found.common[rows], found.ahead[rows] = example.common[mine], example.ahead[mine]
            found.unit[rows] = self._units[example.step]
            found.now[rows], found.base[rows] = example.y[mine], example.base[mine]
        return found


def _examined(
    names: Sequence[str], zone: I64, end_ms: I64, values: F32, places: Mapping[str, Place], spec: ForecastSpec
) -> tuple[F32, list[Example], dict[int, F64]]:
    """The rows without faults, every step's example, and the climatology's usual error after it."""
    forecaster = OnlineForecaster(spec, len(names))
    sensors, sites = (
        SensorFaults(spec.channels, spec.step_ms, len(names)),
        np.array([n.split("/", 1)[0] for n in names]),
    )
    for _ in names:
        forecaster.add_zones()
        sensors.add_zones()
    clean, examples, units = values.copy(), [], {}
    stride = spec.example_steps
    for end, at in _by_time(zone, end_ms):
        here, step, now = zone[at].astype(np.int64), end // spec.step_ms, values[at]
        bins, sun = _sky([places[names[z]] for z in here], end, spec)
        for site in dict.fromkeys(sites[here].tolist()):
            mine = np.flatnonzero(sites[here] == site)
            hour = int(bins[mine[0]]) * 24 // spec.steps_per_day
            now[mine], _ = sensors.learn(here[mine], step, now[mine], hour)
        clean[at] = now
        example = forecaster.examine(here, step, now, bins, sun)
        if step % stride:
            example = replace(example, common=_NOTHING, ahead=_NOTHING, base=_NOTHING)
        examples.append(example)
        units[step] = forecaster.unit
    return clean, examples, units


_NOTHING = np.empty(0, np.float32)


def _by_time(zone: I64, end_ms: I64) -> Iterator[tuple[int, I64]]:
    """``(end, rows)`` of each step, in order of time and zone."""
    order = np.lexsort((zone, end_ms))
    times, starts = np.unique(end_ms[order], return_index=True)
    yield from zip(times.tolist(), np.split(order, starts[1:]), strict=True)


def _sky(places: Sequence[Place], end_ms: int, spec: ForecastSpec) -> tuple[I64, F32]:
    """Day bins ``[Z]`` and the sun ``[Z, 1 + H]``, as shards have them."""
    ahead = end_ms + np.array((0, *spec.horizon_steps), np.int64) * spec.step_ms
    now = ahead[:1]
    seen = {place: (day_bins(place, now, spec)[0], sun_sine(place, ahead)) for place in dict.fromkeys(places)}
    bins, sun = zip(*(seen[place] for place in places), strict=True)
    return np.array(bins, np.int64), np.stack(sun)
