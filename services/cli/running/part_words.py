"""What each part of a running system does, in a line, for ``hothouse status``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from services.cli.base import utc_minute
from services.observe.duration import in_words

__all__ = ["part_words"]

Figures = Mapping[str, Any]
"""Of a part, as ``/status`` answers; a system of another release may lack some."""

_GIB = 1 << 30


def part_words(name: str, figures: Figures) -> str:
    """The figures that an operator asks for first; of a part that is not known all that are not 0.

    >>> part_words("shard-0", {"accepted": 1200, "late": 3, "rejected": {"malformed": 2}, "forecasts": 5})
    '1,200 samples taken, 2 refused (malformed 2), 3 late; 5 forecasts'
    >>> part_words("forecaster", {"champion": "v3", "serving": "v2", "replicas": 2, "replicas_failing": 1})
    'champion v3; 2 replicas serve v2; 1 cannot load the champion'
    """
    say = _PARTS.get(name.partition("-")[0], _any)
    return "; ".join(words for words in say(figures) if words)


def _shard(figures: Figures) -> Iterator[str]:
    kept_out = [
        _counted(figures.get("rejected", {}), "refused"), _count(figures.get("late"), "late"),
        _count(figures.get("duplicates"), "duplicates", "duplicate"),
    ]  # fmt: skip
    yield ", ".join([f"{figures.get('accepted', 0):,} samples taken", *filter(None, kept_out)])
    closed_ms = max(figures.get("watermark_ms", {}).values(), default=None)
    if closed_ms is not None:
        yield f"{figures.get('zone_rows', 0):,} rows of zones, to {utc_minute(closed_ms)} UTC"
    yield _count(figures.get("forecasts"), "forecasts", "forecast")
    yield _count(sum(figures.get("plans_refused", {}).values()), "plans refused", "plan refused")
    yield _count(figures.get("sensor_faults_now"), "sensors are faulty now", "sensor is faulty now")
    yield _count(figures.get("alerts", {}).get("firing"), "alerts fire", "alert fires")
    if figures.get("behind"):
        yield "it reads on" + (f", {backlog:,} records wait" if (backlog := figures.get("backlog")) else "")
    yield _count(figures.get("series", {}).get("queued"), "points wait for InfluxDB")
    yield _count(figures.get("series", {}).get("dropped"), "points lost")
    yield figures.get("repaired", "")


def _gateway(figures: Figures) -> Iterator[str]:
    if "connected" not in figures:  # it has not told anything yet, or cannot
        yield figures.get("error") or "it has told nothing yet"
        return
    yield "connected" if figures["connected"] else "not connected"
    counts = [
        _count(figures.get("refused"), "refused"), _count(figures.get("other_topics"), "on topics that nobody reads"),
        _count(figures.get("retained"), "kept by the broker, left out"),
        _count(figures.get("removed"), "removed by Kafka unread"),
        _count(figures.get("dropped_qos0"), "lost (QoS 0)"),
    ]  # fmt: skip
    messages, samples = figures.get("messages", 0), figures.get("samples", 0)
    yield ", ".join([f"{messages:,} messages with {samples:,} samples", *filter(None, counts)])
    if waiting := _count(figures.get("buffered_records"), "records wait for the uplink"):
        yield f"{waiting}, the oldest for {in_words(figures.get('oldest_unsent_s') or 0.0)}"
    if (left := figures.get("bytes_free")) is not None:
        yield f"{left / _GIB:.1f} GiB left for the log"
    yield _count(figures.get("restarts"), "restarts", "restart")


def _retrainer(figures: Figures) -> Iterator[str]:
    yield f"serves {figures['serving']}" if "serving" in figures else ""
    yield "trains now" if figures.get("training") else ""
    run = figures.get("last_run") or {}
    if run.get("ended_ms"):
        result = " ".join(filter(None, (run.get("version"), run.get("result"))))
        yield f"last training ended {utc_minute(run['ended_ms'])} UTC: {result}"
    counts = [
        _count(figures.get("retrains"), "trainings", "training"), _count(figures.get("refused"), "refused"),
        _count(figures.get("failed"), "failed"), _count(figures.get("rollbacks"), "rolled back"),
    ]  # fmt: skip
    yield ", ".join(filter(None, counts)) or "no training yet"


def _forecaster(figures: Figures) -> Iterator[str]:
    if "champion" not in figures:
        return
    yield f"champion {figures['champion']}"
    replicas = figures.get("replicas", 0)
    yield f"{replicas:,} {'replica serves' if replicas == 1 else 'replicas serve'} {figures.get('serving')}"
    yield _count(figures.get("replicas_failing"), "cannot load the champion")


def _runtime(figures: Figures) -> Iterator[str]:
    yield f"requests come through {figures['kind']}" if "kind" in figures else ""
    for name, words in (("told", "told of alerts"), ("waiting", "of alerts wait"), ("lost", "of alerts lost")):
        yield _counted(figures.get(f"alerts_{name}", {}), f"messages {words}")


def _any(figures: Figures) -> Iterator[str]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{key} {inner}" for key, inner in value.items() if inner)
        elif isinstance(value, (int, float, str)) and value:
            yield f"{name} {value}"


_PARTS: dict[str, Callable[[Figures], Iterator[str]]] = {
    "shard": _shard, "gateway": _gateway, "retrainer": _retrainer, "forecaster": _forecaster, "runtime": _runtime,
}  # fmt: skip
"""First part of a name -> its words."""


def _count(number: int | None, words: str, one: str = "") -> str:
    return f"{number:,} {one if number == 1 and one else words}" if number else ""


def _counted(by: Mapping[str, int], words: str) -> str:
    """A sum, and what it is made of."""
    found = {name: number for name, number in by.items() if number}
    inside = ", ".join(f"{name} {number:,}" for name, number in found.items())
    return f"{sum(found.values()):,} {words} ({inside})" if found else ""
