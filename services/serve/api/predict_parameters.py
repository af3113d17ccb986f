"""``GET /predict`` with parameters: some targets, horizons and quantiles; scenarios, and what is read from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.durations import MINUTE_MS
from models.paths.past_nights import LEAST, pooled_chance, usual_limit
from models.paths.scenario_events import chance_of_crossing, dense, hours_outside, mean_ahead, quantiles_of
from models.paths.scenarios import quantile_at
from models.spec import ForecastSpec
from services.messages import Extreme, ZoneOutlook
from services.messages.sentences import codes_of
from services.observe.duration import utc_text
from services.serve.api.problems import ProblemError

__all__ = ["Asked", "Event", "answer_of"]

LEVELS = (0.1, 0.5, 0.9)
KINDS: dict[str, tuple[str, ...]] = {
    "night": (), "day": (), "mean": (), "night_below": ("limit",), "day_above": ("limit",),
    "outside": ("low", "high"), "below": ("limit", "minutes"), "above": ("limit", "minutes"),
}  # fmt: skip
"""Events -> the numbers that follow the target."""
OPTIONAL = {"night_below": 1, "day_above": 1, "below": 1, "above": 1}
"""How many of them may be left out. The limit of a night or day is then what one in ten of the past ones was beyond."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that is asked of scenarios; of every target where none is named."""

    kind: str
    target: str = ""
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question limits its answer to; None is everything."""

    targets: tuple[str, ...] | None
    horizons_min: tuple[int, ...] | None
    levels: tuple[float, ...] | None
    events: tuple[Event, ...]

    @classmethod
    def of(
        cls, spec: ForecastSpec, targets: str | None, horizons: str | None, quantiles: str | None, events: str | None
    ) -> Asked:
        """Read the parameters, of which an empty one is as if left out; raises a 422 problem with a sentence."""
        named = _parts("query.targets", targets)
        for target in named or ():
            _check_target("query.targets", target, spec)
        return cls(
            None if named is None else tuple(named),
            None if not horizons else tuple(_numbers("query.horizons", horizons, int, 1, 1440 * 15)),
            None if not quantiles else tuple(_numbers("query.quantiles", quantiles, float, 0.01, 0.99)),
            tuple(_event(said, spec) for said in _parts("query.events", events) or ()),
        )


def answer_of(
    forecast: dict[str, Any], asked: Asked, outlook: ZoneOutlook | None, spec: ForecastSpec, *, with_scenarios: bool
) -> dict[str, Any]:
    """A zone's forecast as ``/predict`` says it, with what is asked; raises a 422 problem for a foreign horizon."""
    shown = [name for name in forecast["forecasts"] if asked.targets is None or name in asked.targets]
    path, levels = forecast.get("path") or {"horizon_min": [], "targets": {}}, asked.levels or LEVELS
    answer = {**forecast, "forecasts": {}, "path": {"horizon_min": path["horizon_min"], "targets": {}}}
    for name in shown:
        points = forecast["forecasts"][name]
        if asked.horizons_min is not None:
            points = _at(points, path["horizon_min"], path["targets"].get(name), asked.horizons_min, forecast)
        answer["forecasts"][name] = [_point(point, levels, spec, name) for point in points]
        if name in path["targets"]:
            said = np.array([path["targets"][name][key] for key in ("p10", "p50", "p90")]).T
            answer["path"]["targets"][name] = {
                _label(level): _bounded(quantile_at(said, level), spec, name) for level in levels
            }
    if outlook is not None and with_scenarios:
        answer["scenarios"] = _scenarios(outlook, shown, spec)
    if outlook is not None and asked.events:
        found = answer["events"] = [
            _said(event, name, outlook, spec)
            if name in forecast["forecasts"]
            else {"event": event.kind, "target": name, "missing": f"there is no forecast of {name}"}
            for event in asked.events
            for name in ((event.target,) if event.target else shown)
        ]
        answer["codes"] = answer.get("codes", {}) | codes_of(one["missing"] for one in found if "missing" in one)
    return answer


def _scenarios(outlook: ZoneOutlook, targets: Sequence[str], spec: ForecastSpec) -> dict[str, Any]:
    """Each scenario of each target, ``[scenario][time]``."""
    values = np.round(outlook["scenarios"].astype(float), 3)
    return {
        "horizon_min": (outlook["steps"] * spec.step_ms // MINUTE_MS).tolist(),
        "targets": {name: values[:, :, spec.targets.index(name)].tolist() for name in targets},
    }


def _at(
    points: Sequence[dict[str, Any]], minutes: Sequence[int], path: dict[str, list[float]] | None,
    wanted: Sequence[int], forecast: dict[str, Any],
) -> list[dict[str, Any]]:  # fmt: skip
    """The points at these horizons, learned or of the path."""
    learned = {point["horizon_min"]: point for point in points}
    found = []
    for horizon in wanted:
        if horizon in learned:
            found.append(learned[horizon])
        elif path is not None and horizon in minutes:
            time_ms = forecast["origin_ms"] + horizon * MINUTE_MS
            at = list(minutes).index(horizon)
            found.append({"horizon_min": horizon, "time_ms": time_ms, "time": utc_text(time_ms),
                          **{name: path[name][at] for name in ("p10", "p50", "p90")}})  # fmt: skip
        else:
            known = sorted({*learned, *minutes})
            raise ProblemError(
                422, f"query.horizons: {horizon} min is no time of the path; it has every 30 minutes up to "
                f"{known[-1]}, and in the first hour {', '.join(str(one) for one in known if one <= 60)}",
            )  # fmt: skip
    return found


def _point(point: dict[str, Any], levels: Sequence[float], spec: ForecastSpec, target: str) -> dict[str, Any]:
    said = np.array([point["p10"], point["p50"], point["p90"]])
    when = {name: point[name] for name in ("horizon_min", "time_ms", "time")}
    return when | {_label(level): _bounded(quantile_at(said, level), spec, target) for level in levels}


def _said(event: Event, target: str, outlook: ZoneOutlook, spec: ForecastSpec) -> dict[str, Any]:
    """The answer to one question about one target."""
    m = spec.targets.index(target)
    said: dict[str, Any] = {"event": event.kind, "target": target}
    said |= dict(zip(KINDS[event.kind], event.numbers, strict=False))
    if event.kind in ("night", "day", "night_below", "day_above"):
        span = event.kind.partition("_")[0]
        extreme = outlook["extremes"].get(span)
        if extreme is None:
            return said | {"missing": f"no {span} ends within the path"}
        return said | _of_span(event, m, extreme, outlook, spec)
    course = dense(outlook["scenarios"][:, :, m], outlook["now"][m], outlook["steps"])
    if not np.isfinite(outlook["now"][m]):  # of the other kinds the first value is not looked at, as it is that of now
        course = course[:, outlook["steps"][0] - (event.kind != "mean") :]
    if event.kind == "mean":
        return said | _quantiles(mean_ahead(course))
    if event.kind == "outside":
        low, high = event.numbers
        return said | _quantiles(hours_outside(course, low, high, spec.step_ms)) | {"unit": "h"}
    limit, minutes = (*event.numbers, 0.0)[:2]
    steps = -(-round(minutes * MINUTE_MS) // spec.step_ms)
    sign = 1 if event.kind == "above" else -1
    return said | {"chance": round(chance_of_crossing(course, limit, sign, steps), 3)}


def _of_span(
    event: Event, m: int, extreme: Extreme, outlook: ZoneOutlook, spec: ForecastSpec
) -> dict[str, Any]:  # fmt: skip
    times = [outlook["origin_ms"] + int(step) * spec.step_ms for step in outlook["steps"]]
    said: dict[str, Any] = {
        "from": utc_text(times[extreme["first"]]), "to": utc_text(times[extreme["last"]]),
        "goes_on": extreme["first"] == 0
    }  # fmt: skip
    values, past = extreme["values"][:, m], extreme["past"][:, m]
    past = past[np.isfinite(past)]
    if event.kind in ("night_below", "day_above"):
        sign, spans = (-1, "nights") if event.kind == "night_below" else (1, "days")
        limit = event.numbers[0] if event.numbers else usual_limit(past, sign)
        said |= {spans: len(past)}
        if limit is None:
            return said | {"missing": f"too few {spans} were seen as a whole: {len(past)} of {LEAST}"}
        whole = past[: 0 if said["goes_on"] else None]  # past nights say nothing of what is left of one
        chance = pooled_chance(values, whole, limit, sign)
        return said | {"limit": round(limit, 4), "chance": round(chance, 3)}
    earliest, usual, latest = np.quantile(extreme["at"][:, m], LEVELS, method="nearest")
    return said | _quantiles(values) | {
        "time": utc_text(times[int(usual)]), "earliest": utc_text(times[int(earliest)]),
        "latest": utc_text(times[int(latest)])
    }  # fmt: skip


def _quantiles(values: Any) -> dict[str, float]:
    return {_label(level): round(float(value), 4) for level, value in zip(LEVELS, quantiles_of(values), strict=True)}


def _bounded(values: Any, spec: ForecastSpec, target: str) -> Any:
    low, high = spec.limits[spec.targets.index(target)]
    return np.round(np.clip(np.asarray(values, dtype=np.float64), low, high), 4).tolist()


def _label(level: float) -> str:
    """A quantile's name.

    >>> _label(0.1), _label(0.975)
    ('p10', 'p97.5')
    """
    return f"p{100 * level:g}"


def _event(said: str, spec: ForecastSpec) -> Event:
    kind, *rest = said.split(":")
    if kind not in KINDS:
        raise ProblemError(422, f"query.events: {kind[:64]!r} is no event; known are {', '.join(KINDS)}")
    names = KINDS[kind]
    if not names:
        if rest:
            raise ProblemError(422, f"query.events: {kind} takes nothing, but {said[:64]!r} was asked")
        return Event(kind)
    form = ":".join((kind, "TARGET", *(name.upper() for name in names)))
    least = len(names) - OPTIONAL.get(kind, 0)
    if not least + 1 <= len(rest) <= len(names) + 1:
        raise ProblemError(422, f"query.events: {said[:64]!r} is not of the form {form}")
    _check_target("query.events", rest[0], spec)
    numbers = tuple(
        _numbers(f"query.events, {name} of {kind}", text, float, -1e6, 1e6)[0]
        for name, text in zip(names, rest[1:], strict=False)
    )
    if kind == "outside" and numbers[0] > numbers[1]:
        raise ProblemError(422, f"query.events: the band of {said[:64]!r} ends below its beginning")
    if len(numbers) == 2 and kind != "outside" and not 0 <= numbers[1] <= 1440:
        raise ProblemError(422, f"query.events: minutes of {said[:64]!r} are not between 0 and 1440")
    return Event(kind, rest[0], numbers)


def _check_target(where: str, target: str, spec: ForecastSpec) -> None:
    if target not in spec.targets:
        raise ProblemError(422, f"{where}: {target[:64]!r} is not forecast; known are {', '.join(spec.targets)}")


def _parts(where: str, text: str | None) -> list[str] | None:
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if text and not parts:
        raise ProblemError(422, f"{where}: {text[:64]!r} names nothing")
    return parts or None


def _numbers(where: str, text: str, kind: type, low: float, high: float) -> list[Any]:
    found = []
    for part in _parts(where, text) or [""]:
        try:
            number = kind(part)
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            whole = "a whole number" if kind is int else "a number"
            raise ProblemError(422, f"{where}: {part[:64]!r} is not {whole} from {low:g} to {high:g}")
        found.append(number)
    return found
