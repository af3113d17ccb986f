"""Step 2 of the way of a reading: plans, which say what is foreseen: weather, setpoints, what will be done to a crop.

A plan names its ``source`` and when it was ``issued``; of each metric it holds values and the times that they are
valid at. :func:`decode_plan` checks one from outside, as samples are checked, once: what passed goes into the log.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from edge.wire import hints
from edge.wire.reading import FUTURE_TOLERANCE_MS, MAX_AGE_MS, Refusal, Time, check_values, read_json, together
from edge.wire.topic import NAME_RULE, parse_topic
from edge.wire.vocabulary import VOCABULARY, Metric, is_weather
from models.durations import DAY_MS

__all__ = [
    "DONE",
    "LONGEST_AHEAD_MS",
    "LONGEST_PAST_MS",
    "MAX_PLAN_BYTES",
    "MAX_POINTS",
    "METRICS_OF",
    "SETPOINT_HOLD_MS",
    "DecodedPlan",
    "Path",
    "PlanKind",
    "PlanMessage",
    "decode_plan",
    "encode_plan",
    "next_issue_ms",
    "plan_topic",
]

PlanKind = Literal["weather", "setpoint", "event"]

Path = list[tuple[int, float]]
"""Of a metric: ``(valid_ms, value)``, times rising. Between two of them nothing is said."""

LONGEST_AHEAD_MS = 15 * DAY_MS
"""How far ahead of its issue a plan may look: as far as weather services do."""

LONGEST_PAST_MS = 2 * DAY_MS
"""How long before its issue a plan may begin: services begin at midnight."""

SETPOINT_HOLD_MS = DAY_MS
"""How long the last value of a setpoint holds: ``models.features.plans.HOLD_MS``, which is not imported here, says the
same.
"""

MAX_PLAN_BYTES = 256 * 1024
MAX_SOURCE_LENGTH = 64

MAX_POINTS = 8_000
"""Points of a plan, of all its metrics: 15 days of eight metrics each half hour are fewer."""

DONE: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("harvest_pct", "share of the crop that is harvested", "%", 0, 100),
        Metric("crop_change", "the crop is replaced (1), or not (0)", "0/1", 0, 1, kind="state"),
    )
}
"""What a plan of kind ``event`` names: what is done to the crop, at the time it is valid at."""


def _metrics_of() -> dict[str, dict[str, Metric]]:
    actuators = ("vent_", "lamp_", "screen_", "co2_dosing_", "fog_", "fan_", "heat_pipe_")
    weather = {n: m for n, m in VOCABULARY.items() if is_weather(n)}
    setpoints = {n: m for n, m in VOCABULARY.items() if n.startswith(("sp_", *actuators))}
    return {"weather": weather, "setpoint": setpoints, "event": dict(DONE)}


METRICS_OF: Mapping[str, Mapping[str, Metric]] = _metrics_of()
"""The metrics that a plan may hold, by kind. A setpoint plan may also hold positions that the grower sets by hand."""


class PlanMessage(msgspec.Struct, frozen=True):
    """What ``source`` foresaw at ``issued_ms``. In zone ``_site`` it is meant for all zones of the site.

    ``(site, zone, source, issued_ms)`` names a plan for ever. ``values`` holds finite numbers only, each within its
    metric's range, of metrics of its kind, none empty.
    """

    site: str
    zone: str
    source: str
    kind: PlanKind
    issued_ms: int
    values: dict[str, Path]

    @property
    def last_ms(self) -> int:
        """The newest time that anything of it is valid at."""
        return max(path[-1][0] for path in self.values.values())


class DecodedPlan(msgspec.Struct, frozen=True):
    """What a message held: a plan where any of it passed, and what was refused."""

    plan: PlanMessage | None
    refusals: list[Refusal]


class _Message(msgspec.Struct):
    issued: Time
    source: str
    values: dict[str, msgspec.Raw]
    kind: str | None = None


class _RefusedError(Exception):
    """``args`` are reason and sentence."""


_DECODER = msgspec.json.Decoder(_Message)
_PATH = msgspec.json.Decoder(list[tuple[Time, float | None]])
_KINDS: tuple[PlanKind, ...] = ("weather", "setpoint", "event")
_SHAPE = "[[valid_ms, value], ...]"
_NO_NUMBER = re.compile(rb"NaN|Infinity")
_SUGGESTIONS = 3


def plan_topic(site: str, zone: str, device: str) -> str:
    """The topic a plan is published on.

    >>> plan_topic("demo", "_site", "weather-service")
    'hothouse/v1/demo/_site/weather-service/plan'
    """
    return f"hothouse/v1/{site}/{zone}/{device}/plan"


def next_issue_ms(now_ms: int, newest_ms: int) -> int:
    """When a plan is issued now whose source issued its newest at ``newest_ms``: later than that. One that no gateway
    would let through now is by a clock that was ahead, and does not count.

    >>> [next_issue_ms(1000, newest_ms) for newest_ms in (0, 1000, 7_200_000)]
    [1000, 1001, 1000]
    """
    return newest_ms + 1 if now_ms <= newest_ms < now_ms + FUTURE_TOLERANCE_MS else now_ms


def encode_plan(plan: PlanMessage) -> bytes:
    """The payload: all of a plan but its site and zone, which the topic names.

    >>> encode_plan(PlanMessage("s", "z", "grower", "setpoint", 1646092800000, {"sp_heat_c": [(1646096400000, 18.5)]}))
    b'{"issued":1646092800000,"source":"grower","kind":"setpoint","values":{"sp_heat_c":[[1646096400000,18.5]]}}'
    """
    body = {"issued": plan.issued_ms, "source": plan.source, "kind": plan.kind, "values": plan.values}
    return msgspec.json.encode(body)


def decode_plan(topic: str, payload: bytes, receive_ms: int, now_ms: int | None = None) -> DecodedPlan:
    """Check one plan from outside; never raises. What is refused has one sentence that says why.

    What is past is past at ``now_ms``, where that is known better than by the receive time, which may be ahead.

    Reasons: ``unknown_topic, oversized, malformed, too_many_points, future_ts, ancient_ts, past, no_values`` refuse the
    plan. ``unknown_metric, wrong_kind, out_of_range, not_rising, too_far_ahead, past`` refuse what it says of one
    metric, and the plan when nothing of it is left. A value of null says nothing, as where the point is left out. A
    setpoint whose last time has passed still holds for a day: it is not past until then.

    >>> body = b'{"issued":1646092800000,"source":"grower","values":{"sp_heat_c":[[1646096400000,18]],"sp_heat":[]}}'
    >>> found = decode_plan("hothouse/v1/s/z/office/plan", body, 1646092801000)
    >>> found.plan.kind, [(refusal.reason, refusal.detail) for refusal in found.refusals]
    ('setpoint', [('unknown_metric', 'sp_heat is not in the vocabulary; did you mean sp_heat_c?')])
    """
    where = parse_topic(topic)
    if where is None or where.kind != "plan":
        expected = f"expected hothouse/v1/{{site}}/{{zone}}/{{device}}/plan; {NAME_RULE}"
        return _refused("unknown_topic", topic, expected, payload)
    if len(payload) > MAX_PLAN_BYTES:
        return _refused("oversized", topic, f"{len(payload)} bytes, at most {MAX_PLAN_BYTES}", payload)
    try:
        message = _message(payload)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        return _refused("malformed", topic, str(error), payload)
    now_ms = receive_ms if now_ms is None else now_ms
    try:
        _check_issue(message, receive_ms, now_ms)
        paths, kind, wrong = _read(message)
        passed = {}
        for name, path in paths.items():
            try:
                passed[name] = _checked(name, path, kind, message.issued, now_ms)
            except _RefusedError as refused:
                wrong.append(refused.args)
        if not passed:
            raise _RefusedError(*(wrong[0] if len(wrong) == 1 else _together(wrong)))
    except _RefusedError as refused:
        reason, detail = refused.args
        return _refused(reason, topic, detail, payload)
    plan = PlanMessage(where.site, where.zone, message.source, kind, message.issued, passed)
    shown = (payload[:1024], *[b""] * len(wrong))
    refusals = [
        Refusal(reason, topic, detail, part, whole=False) for (reason, detail), part in zip(wrong, shown, strict=False)
    ]
    return DecodedPlan(plan, refusals)


def _message(payload: bytes) -> _Message:
    """The plan in a payload; raises ``ValueError`` or ``RecursionError``. NaN is no JSON, but wrong with its own metric
    alone.
    """
    try:
        return _DECODER.decode(payload)
    except msgspec.DecodeError:
        if not _NO_NUMBER.search(payload):
            raise
        said = read_json(payload)
        values = said.get("values") if isinstance(said, dict) else None
        if isinstance(values, dict):
            said["values"] = {name: msgspec.Raw(json.dumps(path).encode()) for name, path in values.items()}
        return msgspec.convert(said, _Message)


def _together(wrong: list[Any]) -> tuple[str, str]:
    if not wrong:
        return "no_values", "the plan says nothing of any metric"
    return wrong[0][0], together([detail for _, detail in wrong])


def _check_issue(message: _Message, receive_ms: int, now_ms: int) -> None:
    issued, meant = message.issued, hints.of_time(message.issued, receive_ms, FUTURE_TOLERANCE_MS)
    source = message.source
    if not 1 <= len(source) <= MAX_SOURCE_LENGTH or not source.isprintable() or source != source.strip():
        raise _RefusedError("malformed", "source must be 1 to 64 characters that can be printed")
    if issued > receive_ms + FUTURE_TOLERANCE_MS:
        raise _RefusedError("future_ts", f"issued {issued} is {issued - receive_ms} ms after its receive time{meant}")
    if issued < max(now_ms - MAX_AGE_MS, 0):
        raise _RefusedError("ancient_ts", f"issued {issued} was {now_ms - issued} ms ago when it came{meant}")


def _read(message: _Message) -> tuple[dict[str, list[Any]], PlanKind, list[Any]]:
    """The paths as they came, the plan's kind, and ``(reason, sentence)`` of what has no path."""
    paths: dict[str, list[Any]] = {}
    wrong: list[Any] = []
    for name, raw in message.values.items():
        try:
            _known(name, len(wrong) < _SUGGESTIONS)
            path = [point for point in _PATH.decode(raw) if point[1] is not None]
        except _RefusedError as refused:
            wrong.append(refused.args)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            meant = "; JSON has no NaN: leave such a point out" if _NO_NUMBER.search(bytes(raw)) else ""
            wrong.append(("malformed", f"{name[:64]} must be {_SHAPE}: {error}{meant}"))
        else:
            if path:
                paths[name] = path
    points = sum(map(len, paths.values()))
    if points > MAX_POINTS:
        raise _RefusedError("too_many_points", f"{points} points, at most {MAX_POINTS} in one plan")
    return paths, _kind_of(message.kind, paths), wrong


@functools.cache
def _kinds() -> dict[str, PlanKind]:
    return {name: kind for kind, names in METRICS_OF.items() for name in names}  # type: ignore[misc]


def _known(name: str, suggest: bool) -> None:
    if name in _kinds():
        return
    if name in VOCABULARY:
        raise _RefusedError("wrong_kind", f"{name} is measured: nobody plans it")
    meant = hints.nearest(name[:64], tuple(_kinds())) if suggest else ""
    raise _RefusedError("unknown_metric", f"{name[:64]} is not in the vocabulary{meant}")


def _kind_of(named: str | None, paths: Mapping[str, Any]) -> PlanKind:
    """The kind that a plan names, else that of all that it holds."""
    if named is not None:
        for kind in _KINDS:
            if kind == named:
                return kind
        meant = hints.nearest(named[:64], _KINDS)
        raise _RefusedError("malformed", f"kind {named[:64]!r} is none of {', '.join(_KINDS)}{meant}")
    kinds = {_kinds()[name] for name in paths}
    if len(kinds) > 1:
        raise _RefusedError("malformed", f"it names no kind and holds {' and '.join(sorted(kinds))} metrics")
    return kinds.pop() if kinds else "event"


def _checked(name: str, path: list[tuple[int, float]], kind: PlanKind, issued_ms: int, now_ms: int) -> Path:
    metric = METRICS_OF[kind].get(name)
    if metric is None:
        raise _RefusedError("wrong_kind", f"{name} belongs into a plan of kind {_kinds()[name]}, not {kind}")
    before = None
    for valid_ms, _ in path:
        if before is not None and valid_ms <= before:
            words = "twice" if valid_ms == before else f"after {before}"
            raise _RefusedError("not_rising", f"{name} names the time {valid_ms} {words}; valid times must rise")
        before = valid_ms
    first_ms, last_ms = path[0][0], path[-1][0]
    if last_ms > issued_ms + LONGEST_AHEAD_MS:
        meant = hints.of_time(last_ms, issued_ms, LONGEST_AHEAD_MS)
        allowed = f"at most 15 days after the issue, until {_iso(issued_ms + LONGEST_AHEAD_MS)}"
        raise _RefusedError("too_far_ahead", f"{name} at {_iso(last_ms)} is too far ahead: {allowed}{meant}")
    held_ms = SETPOINT_HOLD_MS if kind == "setpoint" else 0
    if last_ms + held_ms <= now_ms:
        meant = hints.of_time(last_ms, issued_ms, LONGEST_AHEAD_MS)
        held = " and is held for a day" if held_ms else ""
        raise _RefusedError("past", f"{name} ends at {_iso(last_ms)}{held}, which had passed when it came{meant}")
    if first_ms < issued_ms - LONGEST_PAST_MS:
        raise _RefusedError("past", f"{name} begins at {_iso(first_ms)}, more than 2 days before the issue")
    return [(valid_ms, _in_range(name, metric, valid_ms, value)) for valid_ms, value in path]


def _in_range(name: str, metric: Metric, valid_ms: int, value: float) -> float:
    if metric.low <= value <= metric.high:
        return float(value)
    passed, wrong = check_values({name: value}, {name: metric})
    if wrong:
        raise _RefusedError("out_of_range", f"{wrong[0][1]}, at {_iso(valid_ms)}")
    return float(passed[name])


def _iso(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")
    except (ValueError, OverflowError, OSError):
        return str(ms)


def _refused(reason: str, topic: str, detail: str, payload: bytes) -> DecodedPlan:
    return DecodedPlan(None, [Refusal(reason, topic[:256], detail, payload[:1024])])
