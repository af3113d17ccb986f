"""Several zones a call: which were asked for, and an answer or a problem for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from services.serve.api.answers.forecast_answers import ZoneProblem
from services.serve.api.problems import ProblemError
from services.serve.view import View

__all__ = ["MOST_ZONES", "SeveralZones", "each_zone", "zones_asked"]

MOST_ZONES = 100
AT_ONCE = 8
"""Zones that are asked for at the same time: a call must not fill the queues of the shards."""

SeveralZones = Annotated[
    str | None,
    Query(
        max_length=8000, examples=["north-1,north-2"],
        description=f"Several zones with commas, each as zone or site/zone; {MOST_ZONES} at most. One that cannot be "
        "answered stands in `problems`.",
    ),
]  # fmt: skip

LONGEST_S = 10.0
"""What has not been answered by then stands in `problems`: the call is as long as that, however many zones it names."""

T = TypeVar("T")


def zones_asked(zone: str | None, zones: str | None) -> list[str]:
    """The zones of the parameter ``zones``, each once; none without it. Raises a 422 problem for both parameters."""
    if zones is None:
        return []
    if zone is not None:
        raise ProblemError(422, "query.zones: give zone or zones, and not both")
    named = [part.strip() for part in zones.split(",") if part.strip()]
    if not named:
        raise ProblemError(422, "query.zones: name at least one zone")
    asked = list(dict.fromkeys(named))
    if len(asked) > MOST_ZONES:
        raise ProblemError(422, f"query.zones: {len(asked)} zones are named; {MOST_ZONES} is the most")
    return asked


async def each_zone(
    view: View, asked: Sequence[str], site: str | None, answer: Callable[[tuple[str, str]], Awaitable[T]]
) -> tuple[list[T], list[ZoneProblem]]:
    """What ``answer`` gives for each zone that is found, and why the others have none, both as they were asked for."""
    until_s = asyncio.get_running_loop().time() + LONGEST_S

    async def one(name: str) -> T | ProblemError:
        try:
            async with asyncio.timeout_at(until_s):
                return await answer(view.find(name, site))
        except TimeoutError:
            return ProblemError(503, f"there was no answer for {name[:130]} within the {LONGEST_S:g} s of a call")
        except ProblemError as error:
            return error

    answers, problems = [], []
    for begin in range(0, len(asked), AT_ONCE):
        names = asked[begin : begin + AT_ONCE]
        for name, found in zip(names, await asyncio.gather(*map(one, names)), strict=True):
            if isinstance(found, ProblemError):
                problems.append(ZoneProblem(zone=name[:130], status=found.status, detail=found.detail))
            else:
                answers.append(found)
    return answers, problems
