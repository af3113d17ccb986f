"""``POST /predict``: a window of rows, or changed inputs, as a request to the model. Pure functions over arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from models.features import targets_of
from models.spec import ForecastSpec
from services.ingest.forecasting import Origin, zone_forecasts
from services.messages import F32, ForecastReply, ForecastRequest, ZoneForecast
from services.serve.problems import ProblemError
from services.serve.schemas import RowIn

__all__ = ["Window", "apply_changes", "forecast_request", "what_if_answer", "window_of_rows"]


class Window(TypedDict):
    """A zone's look-back as its shard keeps it (``ShardActor.window``)."""

    values: F32  # [L, C], newest row last
    origin_ms: int
    baseline: F32  # [H, M, Q]


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
    """One example as a request to the Forecaster."""
    return ForecastRequest(
        schema_hash=spec.hash,
        sites=[site],
        values=values[None].astype(np.float32, copy=False),
        origin_ms=np.array([origin_ms], np.int64),
        baseline=baseline[None].astype(np.float32, copy=False),
    )


def what_if_answer(
    site: str, zone: str, values: F32, origin_ms: int, reply: ForecastReply, spec: ForecastSpec
) -> ZoneForecast:
    """The reply as ``GET /predict`` would say it; the age of given values is not known."""
    newest = values[-1:]
    origin = Origin(
        partition=0, site=site, end_ms=origin_ms, zones=(zone,), indices=np.zeros(1, np.int64), values=newest,
        ages_s=np.full_like(newest, np.nan), baseline=reply["quantiles"],
    )  # fmt: skip
    (forecast,) = zone_forecasts(spec, origin, reply["version"], reply["quantiles"])
    forecast["degraded"] = ["what-if: the inputs were given or changed by the request"]
    return forecast
