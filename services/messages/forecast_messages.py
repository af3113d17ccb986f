"""The actors' names, and what they ask each other: forecasts, models that serve, zones.

Arrays are NumPy; the letters of shapes are those of ``models.spec``.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from models.evaluation.scoring import ScoreTable

__all__ = [
    "ASK_AGAIN",
    "DECIMALS",
    "DRIFTS",
    "F32",
    "FORECASTER_DEPLOYMENT",
    "I64",
    "MODEL_POINTER_ACTOR",
    "ONLINE_VERSION",
    "RETRAINER_ACTOR",
    "STILL_READ",
    "ChangeAsked",
    "Extreme",
    "FirstRow",
    "ForecastPath",
    "ForecastPoint",
    "ForecastReply",
    "ForecastRequest",
    "LeftZone",
    "ServedModel",
    "ZoneForecast",
    "ZoneMixture",
    "ZoneOutlook",
    "ZonePlan",
    "ZoneQuality",
    "ZoneWhatIf",
    "live_state_actor",
    "shard_actor",
]  # fmt: skip

FORECASTER_DEPLOYMENT = "Forecaster"
MODEL_POINTER_ACTOR = "slot"
RETRAINER_ACTOR = "retrainer"
ONLINE_VERSION = "online"
"""The ``model_version`` while the online learners answer alone: no network is champion."""

STILL_READ = "earlier readings are still being read"
"""Why a forecast is weak, or a training waits, while a shard reads what has piled up; the page translates it."""

DECIMALS = 4
"""Decimals of published values: finer than any sensor."""

ASK_AGAIN = ""
DRIFTS = ("input drift", "error drift")
"""The kinds of a shard's events that a training may answer; the others are faults of sensors."""

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


def live_state_actor(index: int = 0) -> str:
    """The name of a live state actor in the installation's namespace; the first knows the models, too."""
    return f"board-{index}"


def shard_actor(index: int) -> str:
    """The name of a shard actor in the installation's namespace."""
    return f"shard-{index}"


class ForecastRequest(TypedDict):
    """Shard -> Forecaster: ``N`` examples, each a zone at an origin."""

    schema_hash: str
    sites: list[str]  # N
    values: F32  # [N, L, C], newest row last, NaN where missing; L is 0 where the sender believes no network serves
    origin_ms: I64  # [N]
    baseline: F32  # [N, H, M, Q], the climatology's forecast


class ForecastReply(TypedDict):
    """Forecaster -> shard; one version for the whole batch."""

    version: str  # ASK_AGAIN: a network serves and needs the rows that the request did without
    quantiles: F32  # [N, H, M, Q], p10 <= p50 <= p90


class ServedModel(TypedDict):
    """What the model pointer tells replicas to serve; ``generation`` rises with every change."""

    generation: int
    version: str  # ONLINE_VERSION, or "v3" and so on
    folder: str  # artefact folder; empty without a network
    network_soon: bool  # a network may have to be served soon: who serves may prepare for it


class FirstRow(TypedDict):
    """A row that a site's first forecast waits for, in a shard's figures."""

    site: str
    end_ms: int
    closes_ms: int  # the event time at which it closes


class LeftZone(TypedDict):
    """A zone that has left, in a shard's figures: no forecast from ``left_ms`` or before is shown any more."""

    site: str
    zone: str
    left_ms: int  # the end of the last row that it was in


class ZoneMixture(TypedDict):
    """What a zone's newest forecast was mixed from (JSON-able)."""

    site: str
    zone: str
    origin_ms: int
    serving: dict[str, str]  # expert with models of its own -> version; ONLINE_VERSION where it has none
    weights: dict[str, dict[str, float]]  # expert -> horizon in minutes -> share, the mean over forecast targets


class ZoneQuality(TypedDict):
    """How good a zone's forecasts have been (JSON-able)."""

    site: str
    zone: str
    days: float  # since its first row
    scores: ScoreTable  # of what was issued, by target and horizon in minutes; empty where all zones are asked for


class ZonePlan(TypedDict):
    """The newest plan of one source that holds for a zone (JSON-able)."""

    source: str
    kind: str  # weather, setpoint or event
    zone: str  # _site where it is meant for the whole site
    issued_ms: int
    known_ms: int  # rows that end at this time or later use it
    values: dict[str, list[list[float]]]  # metric -> [[valid_ms, value], ...]


class ForecastPoint(TypedDict):
    """A forecast of one target at one horizon."""

    horizon_min: int
    time_ms: int
    time: str  # ISO 8601, UTC
    p10: float
    p50: float
    p90: float


class ForecastPath(TypedDict):
    """A forecast of the whole day ahead; each list is as long as ``horizon_min``."""

    horizon_min: list[int]
    targets: dict[str, dict[str, list[float]]]  # target -> p10, p50, p90


class ZoneForecast(TypedDict):
    """One zone's forecast as the live state keeps it and ``/predict`` answers it (JSON-able)."""

    site: str
    zone: str
    origin_ms: int
    origin: str  # ISO 8601, UTC
    step_s: int
    model_version: str
    degraded: list[str]
    now: dict[str, float | None]
    now_age_s: dict[str, int]  # of what ``now`` has from a row before the newest: how old the reading is
    freshness_s: dict[str, float | None]
    reports_every_s: int  # the usual time between readings of what is forecast; 0: a step, or not known yet
    forecasts: dict[str, list[ForecastPoint]]  # by target
    path: NotRequired[ForecastPath]  # an answer to rows of the asker's own has none


class ZoneOutlook(TypedDict):
    """Shard -> API: what a zone's events are read from; ``S`` scenarios at ``T`` times of the path."""

    origin_ms: int
    now: F32  # [M]
    steps: I64  # [T], ahead
    scenarios: F32  # [S, T, M]
    extremes: dict[str, Extreme]  # ``night`` and ``day``, where one ends within the path


class SaidAhead(TypedDict):
    """What was forecast of one target, one horizon ahead: each list is as long as ``time_ms``, the times foreseen."""

    time_ms: I64
    p10: F32
    p50: F32
    p90: F32


class Resampled(TypedDict):
    """A zone's past in ``T`` intervals: mean, least and largest row of each metric, NaN where none is known.

    The mean of a counter is what it gained in the interval.
    """

    end_ms: I64  # [T], the intervals' ends
    mean: dict[str, F32]  # metric -> [T]
    low: dict[str, F32]
    high: dict[str, F32]


class Extreme(TypedDict):
    """The minimum of the next night or the maximum of the next day in each scenario, and those of past ones."""

    first: int  # its first and last time of the path
    last: int
    values: F32  # [S, M]
    at: I64  # [S, M], which time of the path
    past: F32  # [N, M], NaN where unknown


class ChangeAsked(TypedDict):
    """API -> shard: a change of a plan or of the weather, as ``models.effects.plan_change`` has it."""

    metric: str
    how: Literal["add", "set", "least", "most"]
    value: float
    begin_ms: int
    end_ms: int


class ZoneWhatIf(TypedDict):
    """Shard -> API: a zone's newest forecast as a path, and what changes do to it; ``T`` times of the path."""

    origin_ms: int
    version: str
    now: F32  # [M]
    minutes: I64  # [T], after the origin
    path: F32  # [T, M, Q]
    changed: F32 | None  # [T, M, Q]; None where there is no evidence, as is ``effect``
    effect: F32 | None  # [T, M, Q]; NaN for targets of which no effects are known
    support: Literal["here", "simulated", "none"]
    says: str
    reasons: list[str]
