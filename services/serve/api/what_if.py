"""``POST /predict``: what a zone would do if its plan or the weather were another. Times, words and shapes.

Rows of the asker's own are another question: of them no forecast was issued, and the network alone answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from models.durations import DAY_MS, MINUTE_MS
from models.features.inputs import targets_of
from models.spec import ForecastSpec, Place
from services.ingest.forecasting import zone_forecasts
from services.messages import DECIMALS, F32, ChangeAsked, ForecastPath, ForecastRequest, ZoneForecast, ZoneWhatIf
from services.messages.sentences import codes_of
from services.observe.duration import utc_text
from services.serve.api.answer_types import WhatIfAnswer
from services.serve.api.problems import ProblemError
from services.serve.api.schemas import EARLIEST_MS, HOW_TO_WRITE, LATEST_MS, ChangeIn, RowIn
from services.store.rows import SiteStep

__all__ = ["answer_to_rows", "changes_asked", "rows_request", "what_if_answer", "window_of_rows"]

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})\Z")


def changes_asked(changes: Sequence[ChangeIn], origin_ms: int, place: Place) -> list[ChangeAsked]:
    """The changes with their times; raises a 422 problem for one that does not lie in the day after ``origin_ms``.

    A clock time is the site's: the first from the origin on, and of an end the first after its beginning. So is a date
    and time of an hour that the clock shows twice.
    """
    asked = []
    for number, change in enumerate(changes):
        where = f"body.changes.{number}"
        begin_ms = origin_ms if change.begin is None else _time(f"{where}.from", change.begin, origin_ms - 1, place)
        if begin_ms >= origin_ms + DAY_MS:
            words = f"{utc_text(begin_ms)} does not lie in the day after the forecast's origin, {utc_text(origin_ms)}"
            raise ProblemError(422, f"{where}.from: {words}")
        end_ms = origin_ms + DAY_MS if change.end is None else _time(f"{where}.to", change.end, begin_ms, place)
        if end_ms <= begin_ms:
            raise ProblemError(422, f"{where}.to: {utc_text(end_ms)} is not after its beginning, {utc_text(begin_ms)}")
        if end_ms <= origin_ms:
            words = f"{where}.to: the change is over before the forecast begins, at {utc_text(origin_ms)}"
            raise ProblemError(422, words)
        how, value = change.wanted
        asked.append(
            ChangeAsked(metric=change.metric, how=how, value=value, begin_ms=max(begin_ms, origin_ms), end_ms=end_ms)
        )
    return asked


def what_if_answer(
    forecast: ZoneForecast, degraded: list[str], asked: Sequence[ChangeAsked], found: ZoneWhatIf, spec: ForecastSpec
) -> WhatIfAnswer:
    """What is answered, of a zone whose newest ``forecast`` is published."""
    numbers = np.asarray(np.isfinite(found["path"]).all(axis=(0, 2)))
    minutes = found["minutes"].tolist()

    def path(values: F32 | None) -> ForecastPath | None:
        if values is None:
            return None
        known = np.asarray(numbers & np.isfinite(values).all(axis=(0, 2)))
        rounded = np.round(values.astype(np.float64), DECIMALS) + 0.0  # no -0.0
        return ForecastPath(
            horizon_min=minutes,
            targets={
                target: dict(zip(("p10", "p50", "p90"), rounded[:, m].T.tolist(), strict=True))
                for m, target in enumerate(spec.targets) if known[m]
            },
        )  # fmt: skip

    base = path(found["path"])
    assert base is not None
    return WhatIfAnswer(
        site=forecast["site"], zone=forecast["zone"], origin_ms=found["origin_ms"], origin=utc_text(found["origin_ms"]),
        step_s=forecast["step_s"], model_version=found["version"], degraded=degraded,
        changes=[
            {
                "metric": one["metric"], "how": one["how"], "value": one["value"], "from_ms": one["begin_ms"],
                "to_ms": one["end_ms"], "from": utc_text(one["begin_ms"]), "to": utc_text(one["end_ms"]),
            } for one in asked
        ],
        support=found["support"], says=found["says"], reasons=found["reasons"], base=base,
        changed=path(found["changed"]), effect=path(found["effect"]),
        codes=codes_of([*degraded, *found["reasons"]]),
    )  # fmt: skip


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


def rows_request(site: str, values: F32, origin_ms: int, baseline: F32, spec: ForecastSpec) -> ForecastRequest:
    """A window ``[L, C]`` as a request to the Forecaster; ``baseline [1, H, M, Q]``."""
    return ForecastRequest(
        schema_hash=spec.hash, sites=[site], values=values[None].astype(np.float32, copy=False),
        origin_ms=np.array([origin_ms], np.int64), baseline=baseline.astype(np.float32, copy=False),
    )  # fmt: skip


def answer_to_rows(
    site: str, zone: str, values: F32, origin_ms: int, version: str, quantiles: F32, spec: ForecastSpec
) -> ZoneForecast:
    """A forecast ``[H, M, Q]`` as ``GET /predict`` would say it; the age of given values is not known."""
    newest = values[-1:]
    step = SiteStep(0, site, origin_ms, (zone,), newest, np.full_like(newest, np.nan))
    (forecast,) = zone_forecasts(spec, step, version, quantiles[None])
    forecast["degraded"] = ["the rows were given by the request"]
    return forecast


def _time(where: str, said: int | str, after_ms: int, place: Place) -> int:
    if isinstance(said, int):
        return said
    clock = _CLOCK.match(said)
    if clock and int(clock[1]) < 24 and int(clock[2]) < 60:
        in_day = (int(clock[1]) * 60 + int(clock[2])) * MINUTE_MS
        today = place.local_ms(after_ms) // DAY_MS
        days = range(today - 1, today + 3)  # a day of the clock may be over and come again, or be left out
        return min(ms for day in days for ms in _moments(day * DAY_MS + in_day, place) if ms > after_ms)
    try:
        at = datetime.fromisoformat(said)
    except ValueError:
        raise ProblemError(422, f"{where}: {said[:40]!r} is no time; {HOW_TO_WRITE}") from None
    shown = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    if not EARLIEST_MS <= shown <= LATEST_MS:
        raise ProblemError(422, f"{where}: {said[:40]!r} does not lie between 2000 and 2100")
    if at.tzinfo:
        return shown
    moments = _moments(shown, place)
    return next((ms for ms in moments if ms > after_ms), moments[-1])


def _moments(local_ms: int, place: Place) -> list[int]:
    """When the site's clock shows that, rising: twice where it is put back over it. In the hour that a clock leaves
    out, when it would have shown it if it had not been put forward.
    """
    before_ms, after_ms = (local_ms - (place.local_ms(ms) - ms) for ms in (local_ms - DAY_MS, local_ms + DAY_MS))
    shown = sorted({ms for ms in (before_ms, after_ms) if place.local_ms(ms) == local_ms})
    return shown or [before_ms]
