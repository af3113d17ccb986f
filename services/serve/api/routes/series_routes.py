"""``/zones/{zone}/series`` and ``/zones/{zone}/forecasts``: what came in a zone, and what was said of it then."""

from __future__ import annotations

import hashlib
from asyncio import to_thread
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from fastapi import APIRouter, Header, Path, Query, Request, Response

from models.durations import HOUR_MS
from models.psychrometrics import DERIVED
from services.messages import Resampled
from services.serve.api.answer_types import IssuedAnswer, SeriesAnswer, described
from services.serve.api.parameters import StrictRoute
from services.serve.api.problems import ProblemError
from services.serve.api.schemas import PREDICT_ANSWERS, Since, SiteOfZone, Until
from services.serve.api.state import ApiState, Authorization

__all__ = ["interval_for", "series_routes"]

SPAN_MS = 48 * HOUR_MS
POINTS = 1000
"""Where no interval is asked for, the answer has at most so many points: a screen shows no more."""

PAGE = 10_000
_PARTS: tuple[tuple[str, Literal["mean", "low", "high"]], ...] = (("mean", "mean"), ("min", "low"), ("max", "high"))
INTERVALS_S = (300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 86_400, 7 * 86_400)

Zone = Annotated[str, Path(min_length=1, max_length=64, description="Zone.")]
Metrics = Annotated[
    str | None,
    Query(max_length=1000, description="Several with commas; left out: the targets.", examples=["air_temp_c"]),
]
IntervalS = Annotated[
    int | None,
    Query(ge=1, le=31 * 86_400, description=f"Seconds, whole steps; left out: for {POINTS} points at most."),
]
Cursor = Annotated[int | None, Query(ge=0, le=2**47, description="The cursor of the page before.")]
IssuedAt = Annotated[int | None, Query(ge=0, le=2**47, description="Unix time in ms, UTC; left out: the newest.")]
Known = Annotated[str | None, Header(alias="If-None-Match", description="The ETag of an answer that is held.")]


def series_routes(state: ApiState) -> APIRouter:
    """The routes about a zone's past."""
    routes = APIRouter(tags=["forecasts"], route_class=StrictRoute, responses={422: PREDICT_ANSWERS[422]})
    backend, spec = state.backend, state.spec
    answers: dict[int | str, dict[str, Any]] = {
        **described(SeriesAnswer), 304: {"description": "What is held is still right."},
        **{status: PREDICT_ANSWERS[status] for status in (401, 403, 404, 503)},
    }  # fmt: skip

    @routes.get("/zones/{zone}/series", response_model=None, responses=answers)
    async def series(
        request: Request, zone: Zone, site: SiteOfZone = None, metrics: Metrics = None, since_ms: Since = None,
        until_ms: Until = None, interval_s: IntervalS = None, cursor: Cursor = None, if_none_match: Known = None,
        authorization: Authorization = None,
    ) -> Response:  # fmt: skip
        """The zone's past: mean, least and largest row of each metric, by intervals with rows.

        Rows are there some seconds after they closed. Intervals begin at whole multiples of their length, UTC. A page
        has 10,000 points at most; `cursor` asks for the next one.
        """
        view = state.readable(authorization)
        key = view.find(zone, site)
        names = _metrics(metrics, (*spec.channels, *DERIVED), spec.targets)
        stream_ms = view.stream_ms(key[0])
        until = until_ms if until_ms is not None else (stream_ms or 0)
        since = since_ms if since_ms is not None else max(until - SPAN_MS, 0)
        if since > until:
            raise ProblemError(422, f"query.since_ms: {since} is after until_ms, {until}")
        step_s = spec.step_ms // 1000
        interval = interval_s or interval_for(until - since, step_s)
        if interval % step_s:
            raise ProblemError(422, f"query.interval_s: {interval} is no multiple of the step, {step_s} s")
        begin = since if cursor is None else max(cursor, since)
        if until - begin > PAGE * interval * 1000:  # else the first pages may be years without a row
            first_ms = await backend.oldest_ms(key[0])
            begin = max(begin, min(first_ms - 1, until)) if first_ms else until
        end = begin + PAGE * interval * 1000
        end = until if end >= until else end - end % (interval * 1000)  # the next page has the interval that it cuts
        # No row ends after what the stream has reached, which another replica may know an hour better: pages are empty.
        is_last = end >= (until if stream_ms is None else min(until, stream_ms + HOUR_MS))
        asked = (*key, names, begin, end, interval * 1000)
        # The next release may work out other values from the same rows.
        said = repr((request.app.version, *asked, is_last, await backend.series_tag(key[0], begin, end)))
        tag = f'"{hashlib.sha256(said.encode()).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if if_none_match and _is_held(tag, if_none_match):
            return Response(status_code=304, headers=headers)
        found = await backend.series(*asked)

        def written() -> bytes:
            answer = SeriesAnswer(
                site=key[0], zone=key[1], interval_s=interval, end_ms=found["end_ms"].tolist(),
                values=_values(found, names), cursor=None if is_last else end,
            )  # fmt: skip
            return msgspec.json.encode(answer)

        # A page of all metrics is a million numbers, which take seconds.
        return Response(await to_thread(written), media_type="application/json", headers=headers)

    told: dict[int | str, dict[str, Any]] = {
        **described(IssuedAnswer), **{status: PREDICT_ANSWERS[status] for status in (401, 403, 404, 503)},
    }  # fmt: skip

    @routes.get("/zones/{zone}/forecasts", response_model=None, responses=told)
    async def forecasts(
        zone: Zone, issued_at: IssuedAt = None, site: SiteOfZone = None, authorization: Authorization = None
    ) -> IssuedAnswer:
        """What was said then: the newest forecast whose origin is not after `issued_at`, at the learned horizons."""
        view = state.readable(authorization)
        key = view.find(zone, site)
        at_ms = (view.stream_ms(key[0]) or 0) if issued_at is None else issued_at
        found = await backend.issued(*key, at_ms)
        if found is None:
            raise ProblemError(404, f"no forecast of {'/'.join(key)} was issued in the day before {at_ms}")
        said = found.quantiles[found.zones.index(key[1])]
        return IssuedAnswer(
            site=key[0], zone=key[1], origin_ms=found.origin_ms, model_version=found.version,
            horizon_min=list(spec.horizons_min),
            targets={
                target: {name: _listed(said[:, m, q]) for q, name in enumerate(("p10", "p50", "p90"))}
                for m, target in enumerate(spec.targets)
            },
        )  # fmt: skip

    return routes


def _is_held(tag: str, if_none_match: str) -> bool:
    """Whether an answer need not be sent again (RFC 9110, 13.1.2): ``*`` is any that there is.

    >>> [_is_held('"a"', said) for said in ('"b", W/"a"', "*", '"b"', "a")]
    [True, True, False, False]
    """
    return {"*", tag}.intersection(one.strip().removeprefix("W/") for one in if_none_match.split(",")) != set()


def interval_for(span_ms: int, step_s: int) -> int:
    """Seconds of the shortest usual interval, of whole steps, that gives at most :data:`POINTS` points.

    >>> interval_for(48 * 3_600_000, 300), interval_for(365 * 86_400_000, 300)
    (300, 86400)
    """
    usual = [one for one in (step_s, *INTERVALS_S) if one % step_s == 0]
    return next((one for one in usual if span_ms <= POINTS * one * 1000), usual[-1])


def _metrics(said: str | None, known: tuple[str, ...], targets: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in said.split(","))) if said else targets
    for name in names:
        if name not in known:
            raise ProblemError(422, f"query.metrics: there is no metric {name[:64]!r}; known are {', '.join(known)}")
    return names


def _values(found: Resampled, names: tuple[str, ...]) -> dict[str, dict[str, list[float | None]]]:
    return {name: {said: _listed(found[part][name]) for said, part in _PARTS} for name in names}


def _listed(values: np.ndarray[Any, Any]) -> list[float | None]:
    """Numbers of seven digits, as single precision has them; null where unknown."""
    return [float(f"{value:.7g}") if np.isfinite(value) else None for value in values]
