"""What the routes for readers and operators answer, as structures, and how OpenAPI describes them.

Answers are not validated on their way out: a part of another version that shows less must not turn ``/status`` into an
error. Tests hold what a whole system answers against these structures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_type_hints

import msgspec
from msgspec import Meta

from services.messages import (
    ForecastPath,
    LiveEvent,
    ModelRow,
    ModelSubmitted,
    Moved,
    TrainingAccepted,
    ZoneMixture,
    ZonePlan,
    ZoneQuality,
)
from services.messages.sentences import Codes
from services.serve.api.answers.alert_answers import AlertDetails, AlertsAnswer, OrderPublished, RulesAnswer
from services.serve.api.answers.alert_score_answers import AlertScores
from services.serve.api.answers.forecast_answers import ForecastAnswer, ForecastsAnswer, Problem, ZoneProblem
from services.serve.components import COMPONENTS, Figures
from services.serve.health import Readiness
from services.serve.models.model_pointer import PointerAnswer

__all__ = [
    "ChangeSaid",
    "DeadLettersAnswer",
    "HistoryAnswer",
    "IssuedAnswer",
    "KeptOut",
    "KeptOutLetter",
    "LiveAnswer",
    "ModelsAnswer",
    "PastForecasts",
    "PlanPublished",
    "QualityAnswer",
    "ReadyAnswer",
    "SeriesAnswer",
    "SiteShown",
    "StatusAnswer",
    "WhatIfAnswer",
    "ZoneNow",
    "ZonePlans",
    "ZonesAnswer",
    "ZonesServed",
    "answer_schemas",
    "described",
]

_REF = "#/components/schemas/{name}"
_ROLE = re.compile(r":\w+:`~?(?:\w+\.)*(\w+)`")


class StatusAnswer(TypedDict):
    """Everything that the parts report."""

    health: Readiness
    slot: Annotated[PointerAnswer, Meta(description="The model pointer: the champion, and what each replica serves.")]
    components: Annotated[dict[str, Figures], Meta(description="Figures of each part, by its name.")]
    component_age_s: Annotated[dict[str, float], Meta(description="Seconds since each part last told its figures.")]
    errors: Annotated[list[str], Meta(description="What fails now, a sentence a part.")]
    models: Annotated[list[ModelRow], Meta(description="Registered models, newest first.")]
    events: Annotated[list[LiveEvent], Meta(description="What the learning loop did, oldest first; the newest 200.")]
    codes: Codes


class LiveAnswer(TypedDict):
    """The process answers."""

    status: str


class ReadyAnswer(Readiness):
    """Forecasts can be served."""

    status: str


class ModelsAnswer(TypedDict):
    """The registered models."""

    models: Annotated[list[ModelRow], Meta(description="Newest first.")]
    serving: Annotated[list[str], Meta(description="The versions in the newest forecasts.")]
    errors: Annotated[list[str], Meta(description="What fails in training or registry now.")]


class ZonesServed(TypedDict):
    """What each zone is served by."""

    zones: list[ZoneMixture]


class ZoneNow(TypedDict):
    """A zone and what is known of it now."""

    site: str
    zone: str
    label: Annotated[str, Meta(description="What people call it; the zone's name where nobody said otherwise.")]
    timezone: Annotated[str, Meta(description="IANA time zone of the site, in which people are told times.")]
    origin: str
    origin_ms: int
    read_ms: Annotated[int, Meta(description="When a metric that is forecast was last read.")]
    model_version: str
    stale: Annotated[bool, Meta(description="Its forecast is too old to be used: /predict answers 503.")]
    degraded: list[str]
    now: dict[str, float | None]
    now_age_s: Annotated[dict[str, int], Meta(description="As in the answer of /predict.")]


class SiteShown(TypedDict):
    """A site as people know it; without coordinates the sun is not known."""

    site: str
    label: str
    timezone: str
    clock: Annotated[str, Meta(description="Which clock its control follows: `civil`, or `standard` all year.")]
    latitude: float | None
    longitude: float | None


class ZonesAnswer(TypedDict):
    """All zones, with the unit and label of every metric."""

    zones: list[ZoneNow]
    sites: list[SiteShown]
    units: dict[str, str]
    labels: dict[str, str]
    codes: Codes
    problems: NotRequired[Annotated[list[ZoneProblem], Meta(description="Of several zones that were asked for.")]]


class HistoryAnswer(TypedDict):
    """A zone's targets over the past 48 h; each list as long as ``end_ms``, null where missing."""

    site: str
    zone: str
    end_ms: list[int]
    values: dict[str, list[float | None]]


class SeriesAnswer(TypedDict):
    """A zone's past; each list of ``values`` (mean, min and max of each metric) is as long as ``end_ms``. The mean of a
    counter is what it gained in the interval.
    """

    site: str
    zone: str
    interval_s: int
    end_ms: list[int]
    values: dict[str, dict[str, list[float | None]]]
    cursor: Annotated[int | None, Meta(description="Asks for the next page; null on the last.")]


class KeptOut(TypedDict):
    """Letters of one reason and topic, with what the newest of them says."""

    reason: str
    topic: str
    count: int
    newest_ms: int
    detail: str


class KeptOutLetter(TypedDict):
    """A sample, value or message that was kept out; ``partition``, ``offset`` and ``item`` are its permanent name."""

    partition: int
    offset: int
    item: int
    receive_ms: int
    topic: str
    reason: str
    detail: str
    payload: Annotated[str, Meta(description="Its first 1,000 bytes, as text.")]


class DeadLettersAnswer(TypedDict):
    """What was kept out, the most frequent first, and the newest letters."""

    kept_out: list[KeptOut]
    letters: list[KeptOutLetter]


class IssuedAnswer(TypedDict):
    """What was forecast for a zone at an origin; each list of ``targets`` is as long as ``horizon_min``."""

    site: str
    zone: str
    origin_ms: int
    model_version: str
    horizon_min: list[int]
    targets: dict[str, dict[str, list[float | None]]]


class ZonePlans(TypedDict):
    """What is foreseen for a zone: the newest plan of each source, its own before those of the whole site."""

    site: str
    zone: str
    stream_ms: int | None  # how far the site's stream has got
    plans: list[ZonePlan]


class PastForecasts(TypedDict):
    """What was said of a target, one horizon ahead, beside what came; each list is as long as ``time_ms``."""

    target: str
    horizon_min: int
    time_ms: Annotated[list[int], Meta(description="The times foreseen, not those at which it was said.")]
    p10: list[float | None]
    p50: list[float | None]
    p90: list[float | None]
    came: Annotated[list[float | None], Meta(description="null where no row came.")]


class QualityAnswer(TypedDict):
    """How good forecasts have been: of one zone, or how long each is known."""

    zones: list[ZoneQuality]
    past: Annotated[PastForecasts | None, Meta(description="Where a target and a horizon are asked for.")]
    problems: NotRequired[Annotated[list[ZoneProblem], Meta(description="Of several zones that were asked for.")]]


class PlanPublished(TypedDict):
    """A plan that the broker has."""

    site: str
    zone: str
    source: str
    kind: str
    issued_ms: int
    topic: str


ChangeSaid = TypedDict(
    "ChangeSaid",
    {"metric": str, "how": str, "value": float, "from_ms": int, "to_ms": int, "from": str, "to": str},
)  # fmt: skip


class WhatIfAnswer(TypedDict):
    """A zone's newest forecast as a path, and what the changes would make of it."""

    site: str
    zone: str
    origin_ms: int
    origin: str
    step_s: int
    model_version: str
    degraded: list[str]
    changes: Annotated[list[ChangeSaid], Meta(description="What was asked, with its times.")]
    support: Annotated[
        Literal["here", "simulated", "none"],
        Meta(description="Where such changes were seen: in the zone, too; only in simulated houses; nowhere."),
    ]
    says: Annotated[str, Meta(description="The same in a sentence; without support it says: not enough evidence.")]
    reasons: Annotated[list[str], Meta(description="Why there is no support, and what would be needed.")]
    base: Annotated[ForecastPath, Meta(description="The path of the forecast.")]
    changed: Annotated[ForecastPath | None, Meta(description="The path with the changes; null without support.")]
    effect: Annotated[ForecastPath | None, Meta(description="The difference: p10 to p90 is its 80 % interval.")]
    codes: Codes


_ANSWERS = (
    ReadyAnswer, ModelsAnswer, ZonesServed, ZonesAnswer, HistoryAnswer, SeriesAnswer, IssuedAnswer, Moved,
    TrainingAccepted, DeadLettersAnswer, ModelSubmitted, ZonePlans, PlanPublished, WhatIfAnswer,
    AlertsAnswer, AlertDetails, OrderPublished, RulesAnswer, AlertScores,
    QualityAnswer, LiveAnswer, ForecastAnswer, ForecastsAnswer, Problem,
)  # fmt: skip


def described(answer: type, *others: type, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """For ``responses`` of a route: what it answers, or one of what."""
    references = [{"$ref": _REF.format(name=one.__name__)} for one in (answer, *others)]
    schema = {"anyOf": references} if others else references[0]
    words = (answer.__doc__ or answer.__name__).splitlines()[0]
    return {status: {"description": words, "content": {"application/json": {"schema": schema}}}}


def answer_schemas() -> dict[str, Any]:
    """JSON schemas of all answers, by name, for ``components.schemas`` of OpenAPI."""
    _, found = _schemas([*_ANSWERS, *COMPONENTS.values()])
    schemas = found | {StatusAnswer.__name__: _status_schema(found)}
    for schema in schemas.values():
        if "description" in schema:  # a docstring, which speaks to who reads the code
            schema["description"] = _ROLE.sub(r"`\1`", schema["description"]).replace("``", "`")
    return schemas


def _status_schema(found: dict[str, Any]) -> dict[str, Any]:
    """Which figures are a component's, its name says: msgspec knows no union of dictionaries."""
    hints = get_type_hints(StatusAnswer, include_extras=True)
    named = {f"^{name}(-.+)?$": {"$ref": _REF.format(name=kind.__name__)} for name, kind in COMPONENTS.items()}
    (components,), _ = _schemas([Annotated[dict[str, Any], *hints.pop("components").__metadata__]])
    properties, parts = _schemas(hints.values())
    found |= parts
    return {
        "title": StatusAnswer.__name__,
        "description": StatusAnswer.__doc__,
        "type": "object",
        "properties": dict(zip(hints, properties, strict=True))
        | {"components": components | {"patternProperties": named}},
        "required": sorted(StatusAnswer.__annotations__),
    }


def _schemas(types: Iterable[Any]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    return msgspec.json.schema_components(types, ref_template=_REF)
