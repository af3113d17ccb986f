"""``POST /predict``: a window of rows, or changed inputs, as a question to the network. Pure functions over arrays.

The forecast that ``GET`` answers is mixed from the network and from learners that know a zone by its past, not by a
window. So a changed window moves it by as much as it moves the network's median: no change, the same forecast. Only
rows of another time, of which no forecast was issued, are answered by the network alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from models.features.inputs import targets_of
from models.spec import ForecastSpec
from services.ingest.forecasting import zone_forecasts
from services.messages import F32, ForecastRequest, ZoneForecast
from services.serve.api.problems import ProblemError
from services.serve.api.schemas import RowIn
from services.store.rows import SiteStep

__all__ = ["WhatIfWindow", "apply_changes", "forecast_request", "moved", "what_if_answer", "window_of_rows"]


class WhatIfWindow(TypedDict):
    """A zone's newest forecast with its look-back, as its shard keeps it (``ShardActor.window``)."""

    values: F32  # [L, C], newest row last
    origin_ms: int
    quantiles: F32  # [H, M, Q]


def window_of_rows(rows: Sequence[RowIn], spec: ForecastSpec) -> tuple[F32, int]:
    """Rows as ``(values [L, C], origin_ms)``; steps that are left out are missing, rows before the look-back unused.

    Raises a 422 problem where rows are not on the grid of steps or the newest holds no target.
    """
    origin_ms = rows[-1].end_ms
    values = np.full((spec.lookback_steps, len(spec.channels)), np.nan, np.float32)
    column = {name: index for index, name in enumerate(spec.channels)}
    for index, row in enumerate(rows):
        if row.end_ms % spec.step_ms:
            raise ProblemError(
                422, f"body.rows.{index}.end_ms: {row.end_ms} is not a multiple of the step, {spec.step_ms} ms"
            )
        place = spec.lookback_steps - 1 - (origin_ms - row.end_ms) // spec.step_ms
        if place >= 0:
            for name, value in row.values.items():
                values[place, column[name]] = np.nan if value is None else value
    if np.isnan(targets_of(values[-1], spec)).all():
        raise ProblemError(
            422, f"body.rows.{len(rows) - 1}.values: the newest row holds none of {', '.join(spec.targets)}"
        )
    return values, origin_ms


def apply_changes(values: F32, changes: Mapping[str, float | None], spec: ForecastSpec) -> F32:
    """A copy of ``[L, C]`` whose newest row has these values; ``None`` makes one missing."""
    changed = values.copy()
    for name, value in changes.items():
        changed[-1, spec.channels.index(name)] = np.nan if value is None else value
    return changed


def forecast_request(site: str, values: F32, origin_ms: int, baseline: F32, spec: ForecastSpec) -> ForecastRequest:
    """Windows ``[N, L, C]`` of one site and origin as a request to the Forecaster; ``baseline [N, H, M, Q]``."""
    return ForecastRequest(
        schema_hash=spec.hash,
        sites=[site] * len(values),
        values=values.astype(np.float32, copy=False),
        origin_ms=np.full(len(values), origin_ms, np.int64),
        baseline=baseline.astype(np.float32, copy=False),
    )


def moved(issued: F32, changed: F32, unchanged: F32, spec: ForecastSpec) -> F32:
    """The issued forecast, moved by as much as a change moves the network's median: all ``[H, M, Q]``."""
    low, high = (np.array(limits, np.float32)[:, None] for limits in zip(*spec.limits, strict=True))
    return np.asarray(np.clip(issued + (changed - unchanged)[..., 1:2], low, high), np.float32)


def what_if_answer(
    site: str, zone: str, values: F32, origin_ms: int, version: str, quantiles: F32, spec: ForecastSpec
) -> ZoneForecast:
    """A forecast ``[H, M, Q]`` as ``GET /predict`` would say it; the age of given values is not known."""
    newest = values[-1:]
    step = SiteStep(0, site, origin_ms, (zone,), newest, np.full_like(newest, np.nan))
    (forecast,) = zone_forecasts(spec, step, version, quantiles[None])
    forecast["degraded"] = ["what-if: the inputs were given or changed by the request"]
    return forecast
