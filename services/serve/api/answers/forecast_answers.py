"""What the routes about forecasts answer, and the problems that all routes answer with."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

from services.messages import ForecastPath
from services.messages.sentences import Codes

__all__ = ["EventSaid", "ForecastAnswer", "ForecastsAnswer", "Problem", "ScenariosSaid", "ZoneProblem"]


class PointSaid(TypedDict):
    """A forecast of one target at one horizon; other quantiles have names such as ``p5`` and ``p97.5``."""

    horizon_min: int
    time_ms: int
    time: Annotated[str, Meta(description="ISO 8601, UTC.")]
    p10: NotRequired[float]
    p50: NotRequired[float]
    p90: NotRequired[float]


class ScenariosSaid(TypedDict):
    """Joint scenarios; number n of one target belongs to number n of all others, and of all other zones of the site."""

    horizon_min: list[int]
    targets: Annotated[
        dict[str, list[list[float]]], Meta(description="Of each target 100 lists as long as horizon_min.")
    ]


EventSaid = TypedDict(
    "EventSaid",
    {
        "event": str,
        "target": str,
        "missing": NotRequired[Annotated[str, Meta(description="Why there is no answer.")]],
        "p10": NotRequired[float],
        "p50": NotRequired[float],
        "p90": NotRequired[float],
        "chance": NotRequired[float],
        "limit": NotRequired[float],
        "minutes": NotRequired[float],
        "low": NotRequired[float],
        "high": NotRequired[float],
        "unit": NotRequired[str],
        "from": NotRequired[str],
        "to": NotRequired[str],
        "goes_on": NotRequired[Annotated[bool, Meta(description="The night or day goes on now, and counts from now.")]],
        "time": NotRequired[str],
        "earliest": NotRequired[str],
        "latest": NotRequired[str],
        "nights": NotRequired[int],
        "days": NotRequired[int],
    },
)
EventSaid.__doc__ = "What is read from scenarios of one target; which members there are depends on the event."


class ForecastAnswer(TypedDict):
    """A zone's forecast."""

    site: str
    zone: str
    origin_ms: int
    origin: Annotated[str, Meta(description="ISO 8601, UTC: the end of the newest row that it is made from.")]
    step_s: int
    model_version: str
    degraded: Annotated[list[str], Meta(description="Why it is worth less than it should be, a sentence each.")]
    now: Annotated[dict[str, float | None], Meta(description="The newest value of at most an hour.")]
    now_age_s: Annotated[
        dict[str, int],
        Meta(description="Of values in now that are not of the newest row: the reading's age at the origin."),
    ]
    freshness_s: dict[str, float | None]
    reports_every_s: Annotated[
        int,
        Meta(description="The usual time between readings of what is forecast; 0 where it is a step, or unknown."),
    ]
    forecasts: Annotated[dict[str, list[PointSaid]], Meta(description="By target, at the learned horizons.")]
    path: NotRequired[ForecastPath]
    scenarios: NotRequired[ScenariosSaid]
    events: NotRequired[list[EventSaid]]
    codes: NotRequired[Codes]


class ZoneProblem(TypedDict):
    """Why one of several zones has no answer; the same words and status as where it is asked for alone."""

    zone: Annotated[str, Meta(description="As it was asked for.")]
    status: int
    detail: str


class ForecastsAnswer(TypedDict):
    """The forecasts of several zones, in the order in which they were asked for."""

    zones: list[ForecastAnswer]
    problems: Annotated[list[ZoneProblem], Meta(description="The zones without an answer.")]


class Mistake(TypedDict):
    """One of several things that are wrong with a request."""

    message: str
    where: NotRequired[str]
    reason: NotRequired[str]


class Problem(TypedDict):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: Annotated[str, Meta(description="One sentence.")]
    errors: NotRequired[list[Mistake]]
    zones: NotRequired[Annotated[list[str], Meta(description="Those that there are, or that could be meant.")]]
    sites: NotRequired[list[str]]
    origin: NotRequired[str]
    degraded: NotRequired[list[str]]
    reasons: NotRequired[Annotated[list[str], Meta(description="What is waited for.")]]
    codes: NotRequired[Codes]
