"""Step 10 of the way of a reading: matured forecasts are scored against what happened.

The truth at horizon h is the row that ends at origin + h, or what was read last in the quarter of an hour up to there.
The model stands beside persistence, the 24-hour naive and the climatology, on exactly the same cases: a case counts
only where all four and the truth are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from models.evaluation.truth import truth_of
from models.half_precision import cut
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays, ZoneState

__all__ = ["LiveScore", "Score", "ScoreTable", "ScoreTotals"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

_NAMES = ("model", "climatology", "persistence", "naive_24h")


class Score(TypedDict):
    """Mean absolute errors at one horizon, and the share of truths within p10 ... p90; ``None`` where ``n`` is 0."""

    model: float | None
    climatology: float | None
    persistence: float | None
    naive_24h: float | None
    coverage: float | None
    n: int


ScoreTable = dict[str, dict[int, Score]]
"""By target and horizon in minutes."""


class ScoreTotals(TypedDict):
    """What was scored so far, by target and horizon in minutes; each number only rises. Errors are in the target's
    unit.
    """

    matured: dict[str, dict[int, int]]  # scored forecasts whose truth came
    inside: dict[str, dict[int, int]]  # whose truth was within p10 ... p90
    absolute_error: dict[str, dict[int, float]]  # sum of absolute errors
    climatology_absolute_error: dict[str, dict[int, float]]  # of the climatology, on the same cases


class LiveScore(ZoneState):
    """Sums of absolute errors of live forecasts, a zone, target and horizon; vectorised over zones.

    Each step and zone, in this order: :meth:`learn` with the row that closed (all NaN where the zone was silent: a
    step must not be left out), then :meth:`issue` with the forecast made from it; issued again, the last one counts.
    Of each zone the first forecast in a quarter of an hour is scored: neighbouring ones say nearly the same. It waits
    in a ring as long as its horizon and no longer: 10 KB a zone, because half precision is finer than any sensor.

    >>> spec = ForecastSpec(channels=("air_temp_c",), targets=("air_temp_c",), horizons_min=(60,), step_ms=3_600_000)
    >>> score = LiveScore(spec)
    >>> zone = np.array([score.add_zones()])
    >>> for hour in range(48):
    ...     score.learn(zone, np.array([[float(hour)]], dtype=np.float32))
    ...     quantiles = np.array([[[[hour, hour + 2, hour + 3]]]], dtype=np.float32)
    ...     score.issue(zone, quantiles, quantiles[..., 1])
    >>> score.table()["air_temp_c"][60]
    {'model': 1.0, 'climatology': 1.0, 'persistence': 1.0, 'naive_24h': 24.0, 'coverage': 1.0, 'n': 24}
    """

    def __init__(self, spec: ForecastSpec, capacity: int = 16) -> None:
        self._spec = spec
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        # The naive forecast for a row is the row this many steps before it: whole days, back to before the origin.
        self._days = -(-self._steps // spec.steps_per_day) * spec.steps_per_day
        self._stride = spec.example_steps
        # So many, that a forecast's truth has come before another takes its place, wherever in a quarter both are from.
        self._slots = (self._steps + 2 * self._stride - 2) // self._stride
        self._first = np.concatenate([[0], np.cumsum(self._slots)[:-1]])
        cells, targets = (len(self._steps), len(spec.targets)), len(spec.targets)
        ring = int(max(self._steps[-1], self._days.max())) + 1
        self._zones = ZoneArrays(
            capacity,
            rows=((), np.int64, 0),
            seen=((ring, targets), np.float16, np.nan),
            waiting=((int(self._slots.sum()), targets, 4), np.float16, np.nan),
            origin=((int(self._slots.max()),), np.int32, -1),  # the row that a quarter's forecast was made from
            sums=((*cells, len(_NAMES)), np.float64, 0.0),
            n=(cells, np.int64, 0),
            inside=(cells, np.int64, 0),
        )
        self._table: ScoreTable | None = None  # of all zones, until something is learned

    def __len__(self) -> int:
        return len(self._zones)

    def learn(self, indices: I64, y: F32, held: F32 | None = None) -> None:
        """Take the newest rows of zones ``indices`` (each at most once), ``y [Z, M]``, and score what matures.

        ``held [Z, M]`` are the newest values of the quarter of an hour that ends with these rows, by default ``y``: a
        sensor that reports that often is missing in most rows. They are the truth of horizons that are as long.
        """
        self._table = None
        s = self._zones
        rows = s["rows"][indices]
        of_row, newest = (
            np.where(np.isfinite(x), cut(x), np.float32(np.nan)).astype(np.float32)
            for x in (y, y if held is None else held)
        )
        s["seen"][indices, rows % s["seen"].shape[1]] = newest
        origins = rows[:, None] - self._steps
        quarters = origins // self._stride % s["origin"].shape[1]
        z, h = np.nonzero((origins >= 0) & (s["origin"][indices[:, None], quarters] == origins))
        truth = truth_of(of_row[z], newest[z], self._steps[h], self._spec)
        self._score(indices[z], h, origins[z, h], truth)
        s["rows"][indices] = rows + 1

    def _score(self, zones: I64, h: I64, origins: I64, truth: F32) -> None:
        """Score forecasts of ``zones [P]``, horizons ``h [P]`` and rows ``origins [P]`` against ``truth [P, M]``."""
        s, ring = self._zones, self._zones["seen"].shape[1]
        slots = self._place(h, origins)
        waiting = s["waiting"][zones, slots]  # [P, M, 4]
        naive = s["seen"][zones, (origins + self._steps[h] - self._days[h]) % ring]
        yardsticks = np.stack([s["seen"][zones, origins % ring], naive], axis=-1)
        error = np.abs(np.concatenate([waiting[..., 2:], yardsticks], axis=-1) - truth[..., None])
        paired = np.asarray(np.isfinite(error).all(-1))
        s["sums"][zones, h] += np.where(paired[..., None], error, 0)
        s["n"][zones, h] += paired
        s["inside"][zones, h] += paired & (truth >= waiting[..., 0]) & (truth <= waiting[..., 1])
        s["waiting"][zones, slots] = np.nan

    def skip(self, indices: I64, steps: int) -> None:
        """Zones ``indices`` had no row for this many steps: forecasts for these steps do not mature."""
        s = self._zones
        ring = s["seen"].shape[1]
        none = np.full((len(indices), len(self._spec.targets)), np.nan, np.float32)
        for _ in range(min(steps, ring)):  # after as many nothing of before is left
            self.learn(indices, none)

    def issue(self, indices: I64, quantiles: F32, climatology: F32, age: int = 0) -> None:
        """Remember forecasts made from the rows learned ``age`` steps ago, unless one from another row of their quarter
        of an hour waits: the model's ``[Z, H, M, Q]``, and the climatology's median ``[Z, H, M]`` beside it.

        Horizons whose truth has been learned meanwhile are left out: a forecast is only scored ahead of its truth.
        """
        s, origins = self._zones, self._zones["rows"][indices] - 1 - age
        place = origins // self._stride % s["origin"].shape[1]
        held = s["origin"][indices, place]
        first = (held == origins) | (held // self._stride != origins // self._stride)
        scored = np.flatnonzero(first & (origins >= 0))
        s["origin"][indices[scored], place[scored]] = origins[scored]
        ahead = np.flatnonzero(self._steps > age)
        parts = np.stack((quantiles[..., 0], quantiles[..., 2], quantiles[..., 1], climatology), axis=-1)
        slots = self._place(ahead, origins[scored, None])
        s["waiting"][indices[scored, None], slots] = cut(parts[np.ix_(scored, ahead)])

    def _place(self, h: I64, origins: I64) -> I64:
        """Where forecasts from the rows ``origins`` wait."""
        return np.asarray(self._first[h] + origins // self._stride % self._slots[h])

    def rows(self, index: int) -> int:
        """How many steps have been learned of a zone, those without a row among them."""
        return int(self._zones["rows"][index])

    def table(self, indices: I64 | None = None) -> ScoreTable:
        """``{target: {horizon_min: {model, climatology, persistence, naive_24h, coverage, n}}}``, zones pooled.

        ``indices`` picks zones. Not to be changed by the caller.
        """
        if indices is not None:
            return self._pooled(indices)
        if self._table is None:
            self._table = self._pooled(None)
        return self._table

    def totals(self) -> ScoreTotals:
        """Sums over all zones since the beginning."""
        sums, n, inside = (self._zones[name][: len(self)].sum(axis=0) for name in ("sums", "n", "inside"))
        # A sum's last digits change with the number of zones that it adds up: that must not look like a fall.
        error = np.round(sums, 3)

        def by_cell(cells: _Array) -> dict[str, dict[int, Any]]:
            by_target = zip(self._spec.targets, cells.T.tolist(), strict=True)
            return {name: dict(zip(self._spec.horizons_min, column, strict=True)) for name, column in by_target}

        return ScoreTotals(
            matured=by_cell(n), inside=by_cell(inside), absolute_error=by_cell(error[..., _NAMES.index("model")]),
            climatology_absolute_error=by_cell(error[..., _NAMES.index("climatology")]),
        )  # fmt: skip

    def _pooled(self, indices: I64 | None) -> ScoreTable:
        at = np.arange(len(self._zones)) if indices is None else indices
        sums, n, inside = (self._zones[name][at].sum(axis=0) for name in ("sums", "n", "inside"))
        out: ScoreTable = {}
        for m, target in enumerate(self._spec.targets):
            out[target] = {}
            for h, minutes in enumerate(self._spec.horizons_min):
                cases = int(n[h, m])
                means = [float(total) / cases if cases else None for total in sums[h, m]]
                out[target][minutes] = Score(
                    model=means[0], climatology=means[1], persistence=means[2], naive_24h=means[3],
                    coverage=int(inside[h, m]) / cases if cases else None, n=cases,
                )  # fmt: skip
        return out

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave, also in a release before ADR 70; raises ``ValueError`` if it does not
        fit.
        """
        self._table = None
        self._zones.load_state_dict(state if "origin" in state else self._of_now(state))

    def _of_now(self, state: Mapping[str, _Array]) -> dict[str, _Array]:
        """Of forecasts of every row, as they waited before, those from the first row of each quarter."""
        fresh, rows = LiveScore(self._spec, len(state["rows"])), state["rows"][:, None]
        fresh.add_zones(len(rows))
        made, zone = fresh.state_dict(), np.arange(len(rows))[:, None]
        newest, size, old = (rows - 1) // self._stride, made["origin"].shape[1], 0
        quarters = newest - np.arange(size)
        made["origin"][zone, quarters % size] = np.where(quarters >= 0, quarters * self._stride, -1)
        for h, steps in enumerate(self._steps.tolist()):
            origins = (newest - np.arange(self._slots[h])) * self._stride
            waits = ((origins >= 0) & (origins > rows - 1 - steps))[..., None, None]
            held = state["waiting"][zone, old + origins % steps]
            made["waiting"][zone, self._place(np.array(h), origins)] = np.where(waits, held, np.float16(np.nan))
            old += steps
        return {**made, **{name: held for name, held in state.items() if name != "waiting"}}
