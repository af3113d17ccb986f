"""The API's bodies, checked strictly, with examples: what OpenAPI shows is what is accepted and answered."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    field_validator,
    model_validator,
)

from edge.wire.vocabulary import VOCABULARY
from models.effects.plan_change import HOW_OF, How

__all__ = [
    "EARLIEST_MS", "EXAMPLE_FORECAST", "EXAMPLE_WHAT_IF", "HOW_TO_WRITE", "KEYED", "LATEST_MS", "ORDERED",
    "PREDICT_ANSWERS", "TOO_LARGE", "TOO_MANY", "TOO_SLOW",
    "ChangeIn", "ExpertName", "RowIn", "Since", "SiteOfZone", "Submission", "Until", "WhatIf", "few_members",
]  # fmt: skip

MAX_ROWS = 5000
MOST_MEMBERS = 1000

ExpertName = Annotated[
    Literal["network", "trees", "tuned"],
    Query(description="Whose model: the network's, that of the trees, or the network that is fine-tuned."),
]
SiteOfZone = Annotated[str | None, Query(max_length=64, description="Site, where two sites have such a zone.")]
Since = Annotated[int | None, Query(ge=0, le=2**47, description="Unix time in ms, UTC; left out: 48 h before until.")]
Until = Annotated[int | None, Query(ge=0, le=2**47, description="Unix time in ms, UTC; left out: the newest row.")]


def few_members(said: Any) -> Any:
    """Refuses a JSON object of very many members: each wrong one is an error of its own, and a body has room for so
    many of them that nobody else is answered for seconds.
    """
    if isinstance(said, dict) and len(said) > MOST_MEMBERS:
        raise ValueError(f"it has {len(said)} members; {MOST_MEMBERS} is the most")
    return said


Values = Annotated[dict[str, FiniteFloat | None], BeforeValidator(few_members)]


def _checked(values: Values) -> Values:
    for name, value in values.items():
        metric = VOCABULARY.get(name)
        if metric is None:
            raise ValueError(f"{name[:64]} is not a metric")
        if value is not None and not metric.low <= value <= metric.high:
            raise ValueError(f"{name} is {value:g} {metric.unit}, allowed is {metric.low:g} to {metric.high:g}")
    return values


EARLIEST_MS, LATEST_MS = 946_684_800_000, 4_102_444_800_000
HOW_TO_WRITE = "write 22:00, 2026-03-01T22:00 (both by the site's clock), 2026-03-01T22:00Z, or Unix time in ms"
"""A time of a change."""


def _time_of_change(said: Any) -> Any:
    """Refuses what is no time in one sentence: of a union each member would say what it misses."""
    is_ms = type(said) is int and EARLIEST_MS <= said <= LATEST_MS
    if not (said is None or is_ms or (isinstance(said, str) and 4 <= len(said) <= 40)):
        raise ValueError(f"{str(said)[:40]!r} is no time; {HOW_TO_WRITE}")
    return said


Moment = Annotated[int, Field(ge=EARLIEST_MS, le=LATEST_MS)] | Annotated[str, Field(min_length=4, max_length=40)]


class RowIn(BaseModel):
    """One row of a window: the step that ends at ``end_ms``."""

    model_config = ConfigDict(extra="forbid", strict=True)
    _few = model_validator(mode="before")(few_members)

    end_ms: int = Field(ge=EARLIEST_MS, le=LATEST_MS, description="End of the step, Unix time in ms, UTC.")
    values: Values = Field(description="metric: value; null or left out where missing.")

    _plausible = field_validator("values")(_checked)


class Submission(BaseModel):
    """An artefact that was made elsewhere."""

    model_config = ConfigDict(extra="forbid")

    folder: Annotated[str, Field(min_length=1, max_length=4096, description="On the machine of the retrainer.")]


class ChangeIn(BaseModel):
    """A change of a plan, or of the weather, over a time: with one of ``add``, ``set``, ``at_least``, ``at_most``."""

    model_config = ConfigDict(extra="forbid", strict=True)
    _few = model_validator(mode="before")(few_members)

    metric: Annotated[str, Field(max_length=64, description="A setpoint, the vents, or the weather.")]
    add: Annotated[FiniteFloat | None, Field(description="So much more than planned, in the metric's unit.")] = None
    set: Annotated[FiniteFloat | None, Field(description="This instead of what is planned.")] = None
    at_least: Annotated[FiniteFloat | None, Field(description="This, where less is planned.")] = None
    at_most: Annotated[FiniteFloat | None, Field(description="This, where more is planned.")] = None
    begin: Annotated[
        Moment | None,
        BeforeValidator(_time_of_change),
        Field(alias="from", description="Unix time in ms, ISO 8601, or 22:00 by the site's clock; left out: now."),
    ] = None
    end: Annotated[
        Moment | None,
        BeforeValidator(_time_of_change),
        Field(alias="to", description="The same; left out: a day ahead."),
    ] = None

    @property
    def wanted(self) -> tuple[How, float]:
        """How, and the value."""
        (found,) = [(how, value) for name, how in HOW_OF.items() if (value := getattr(self, name)) is not None]
        return found

    @model_validator(mode="after")
    def _says_one_thing(self) -> ChangeIn:
        metric = VOCABULARY.get(self.metric)
        if metric is None:
            nearest = get_close_matches(self.metric, VOCABULARY, 1)
            raise ValueError(f"{self.metric} is not a metric" + (f"; did you mean {nearest[0]}?" if nearest else ""))
        given = [name for name in HOW_OF if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"say how {self.metric} changes with one of {', '.join(HOW_OF)}; here are {len(given)}")
        value, width = float(getattr(self, given[0])), metric.high - metric.low
        low, high = (-width, width) if given[0] == "add" else (metric.low, metric.high)
        if not low <= value <= high:
            raise ValueError(f"{self.metric} is {value:g} {metric.unit}, allowed is {low:g} to {high:g}")
        return self


class WhatIf(BaseModel):
    """A question: what would change with another plan or other weather; or what follows from rows of your own."""

    model_config = ConfigDict(extra="forbid", strict=True)
    _few = model_validator(mode="before")(few_members)

    zone: Annotated[str, Field(min_length=1, max_length=130, description="Zone, or site/zone.")]
    site: Annotated[str | None, Field(max_length=64, description="Site, where two have such a zone.")] = None
    changes: Annotated[
        list[ChangeIn] | None,
        Field(min_length=1, max_length=20, description="Changes over a time. {metric: value} sets them for a day."),
    ] = None
    rows: Annotated[
        list[RowIn] | None,
        Field(
            min_length=1,
            max_length=MAX_ROWS,
            fail_fast=True,
            description="Rising by the step; the network alone answers.",
        ),
    ] = None

    @field_validator("changes", mode="before")
    @classmethod
    def _for_a_day(cls, changes: Any) -> Any:
        """``{metric: value}`` is short for this value from now on, for a day."""
        if isinstance(few_members(changes), dict):
            return [{"metric": metric, "set": value} for metric, value in changes.items()]
        return changes

    @model_validator(mode="after")
    def _asks_one_thing(self) -> WhatIf:
        if (self.rows is None) == (self.changes is None):
            raise ValueError("give changes (of the plan or the weather), or rows (a window of your own), and not both")
        times = [row.end_ms for row in self.rows or ()]
        if any(later <= earlier for earlier, later in pairwise(times)):
            raise ValueError("rows must be in order of end_ms, each once")
        return self


EXAMPLE_WHAT_IF: dict[str, Any] = {
    "zone": "north-1",
    "changes": [{"metric": "sp_heat_c", "add": -1.5, "from": "22:00", "to": "04:00"}],
}

EXAMPLE_FORECAST: dict[str, Any] = {
    "site": "demo",
    "zone": "north-1",
    "origin_ms": 1_646_092_800_000,
    "origin": "2022-03-01T00:00:00Z",
    "step_s": 300,
    "model_version": "v3",
    "degraded": [],
    "now": {"air_temp_c": 18.2, "rh_pct": 81.0, "co2_ppm": 612.0, "vpd_kpa": 0.4},
    "now_age_s": {"co2_ppm": 1200},
    "freshness_s": {"air_temp_c": 12.0},
    "reports_every_s": 0,
    "forecasts": {
        "air_temp_c": [
            {
                "horizon_min": 5,
                "time_ms": 1_646_093_100_000,
                "time": "2022-03-01T00:05:00Z",
                "p10": 18.0,
                "p50": 18.2,
                "p90": 18.3,
            }
        ]
    },
    "path": {
        "horizon_min": [5, 10],
        "targets": {"air_temp_c": {"p10": [18.0, 17.9], "p50": [18.2, 18.2], "p90": [18.3, 18.4]}},
    },
}


def _problem_answer(description: str, status: int, detail: str) -> dict[str, Any]:
    example = {"type": "about:blank", "title": description, "status": status, "detail": detail}
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {"application/problem+json": {"schema": schema, "example": example}}}


KEYED: dict[int | str, dict[str, Any]] = {
    401: _problem_answer("Unauthorized", 401, "reading needs a key: send the header 'Authorization: Bearer KEY'"),
    403: _problem_answer("Forbidden", 403, "the key that was sent does not allow reading"),
}
"""Of calls that need a key."""

TOO_LARGE = {"413": _problem_answer("Content Too Large", 413, "the body is larger than 4194304 bytes")}
"""Of calls with a body."""

TOO_SLOW = {"408": _problem_answer("Request Timeout", 408, "the body did not come within 30 s")}
"""Likewise."""

TOO_MANY: dict[str, dict[str, Any]] = {
    "429": _problem_answer(
        "Too Many Requests", 429,
        "too many requests of the key display: 100 a second are taken after 500 at once; ask again in 1 s",
    )
    | {"headers": {"Retry-After": {"description": "Seconds after which to ask again.", "schema": {"type": "integer"}}}}
}  # fmt: skip
"""Of every call but those about health."""

ORDERED: dict[int | str, dict[str, Any]] = {
    **KEYED,
    409: _problem_answer("Conflict", 409, "v3 is the champion already"),
    503: _problem_answer("Service Unavailable", 503, "the retrainer does not answer now; try again in a few seconds"),
}
"""Of orders to the retrainer."""

PREDICT_ANSWERS: dict[int | str, dict[str, Any]] = {
    **KEYED,
    404: _problem_answer("Not Found", 404, "there is no zone demo/x; known are demo/north-1, demo/north-2"),
    422: _problem_answer("Unprocessable Content", 422, "query.zone: field required"),
    503: _problem_answer(
        "Service Unavailable", 503, "the forecast of demo/north-1 is too old to be used: no row has closed for 2.1 h"
    ),
}
