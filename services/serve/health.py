"""Whether the system can answer, and what fails, from the figures that its parts show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypedDict
from zoneinfo import ZoneInfo

from services.messages.sentences import Codes, codes_of
from services.observe.duration import in_words
from services.serve.components import FORECASTER, Figures, shards_of
from services.serve.models.model_pointer import PointerAnswer

__all__ = ["Readiness", "awaited", "component_errors", "readiness", "summarise_errors"]


class Readiness(TypedDict):
    """``reasons`` say what is degraded and, last, what is waited for.

    ``degraded`` names the components that report an error; :func:`summarise_errors` has their words.
    """

    ready: bool
    reasons: list[str]
    degraded: list[str]
    zones: int
    zones_usable: int
    codes: Codes


def readiness(
    zones: Mapping[str, Sequence[str]], usable: int, following: bool, degraded: Sequence[str] = (), *,
    ready: bool, awaited: str,
) -> Readiness:  # fmt: skip
    """Put it into words; ``zones`` maps each zone to why its forecast is degraded, ``following`` says whether the live
    state answers, ``awaited`` what :func:`awaited` says.

    >>> readiness({}, 0, True, ready=False, awaited="no sample has come yet")["reasons"]
    ['no zone has a forecast yet: no sample has come yet']
    >>> readiness({"demo/north-1": []}, 1, True, ready=True, awaited="")["reasons"]
    []
    """
    of_zones = [f"{zone}: {reason}" for zone, found in sorted(zones.items()) for reason in found]
    away = [] if following else ["the live state does not answer; the last known forecasts are served"]
    waits = []
    if not zones:
        waits = [f"no zone has a forecast yet: {awaited}"]
    elif not usable:
        waits = [f"no zone has a forecast that is fresh enough: {awaited}"]
    elif not ready:
        waits = [awaited]
    return Readiness(
        ready=ready, reasons=[*away, *of_zones, *waits], degraded=list(degraded), zones=len(zones),
        zones_usable=usable, codes=codes_of([*away, *waits]),
    )  # fmt: skip


def awaited(stats: Mapping[str, Figures], timezone: Callable[[str], str] = lambda site: "UTC") -> str:
    """What a usable forecast waits for, from the shards' figures; times are those of the site's ``timezone``.

    >>> shard = {"samples": 12, "accepted": 12, "zone_rows": 0, "stream_ms": {"demo": 1646092930000}}
    >>> awaited({"shard-0": {**shard, "first_rows": [{"site": "demo", "closes_ms": 1646093130000}]}})
    '12 samples came; the first row, of demo, closes in 3.3 min of the stream, at 2022-03-01 00:05:30 UTC'
    >>> awaited({"shard-0": {**shard, "first_rows": [{"site": "demo", "closes_ms": 1646093130000}]}},
    ...         {"demo": "Europe/Amsterdam"}.__getitem__).split(", at ")[1]
    '2022-03-01 01:05:30 Europe/Amsterdam'
    """
    shards = [figures for figures in shards_of(stats).values() if "zone_rows" in figures]
    if not shards:
        return "the shards have not reported yet"
    samples, accepted = sum(f.get("samples", 0) for f in shards), sum(f.get("accepted", 0) for f in shards)
    rows = sum(f["zone_rows"] for f in shards)
    if any(figures.get("behind") for figures in shards):
        return f"the log is read, {sum(f.get('backlog', 0) for f in shards):,} records wait"
    if not samples:
        return "no sample has come yet"
    if not accepted:
        return f"{samples:,} samples came, none could be taken: `hothouse deadletters` says why"
    first = [
        (row["closes_ms"] - figures.get("stream_ms", {}).get(row["site"], row["closes_ms"]), row)
        for figures in shards
        for row in figures.get("first_rows", ())
    ]
    if first:
        left_ms, row = min(first, key=lambda found: found[0])
        clock = timezone(row["site"])
        at = f"{datetime.fromtimestamp(row['closes_ms'] / 1000, ZoneInfo(clock)):%Y-%m-%d %H:%M:%S} {clock}"
        soon = (
            f"in {in_words(-(-left_ms // 1000))} of the stream, at {at}"
            if left_ms > 0
            else "with the next sample, or soon without one"
        )
        return f"{samples:,} samples came; the first row, of {row['site']}, closes {soon}"
    if not rows:
        return f"{samples:,} samples came, of weather stations alone: a zone must send some"
    if not any(figures.get("zones") for figures in shards):
        return "every zone has left, and comes back with its next sample"
    return f"{rows:,} rows are closed; a forecast from the newest is awaited"


def component_errors(stats: Mapping[str, Figures], pointer: PointerAnswer | None = None) -> dict[str, str]:
    """What fails now, by component: its own error, and that of a part that it reports on (a shard's ``series``).

    ``pointer`` is the model pointer's status, where it was asked: each replica says why it does not serve the champion,
    and nothing is said of them together.

    >>> component_errors({"shard-0": {"last_error": "", "series": {"last_error": "refused"}}})
    {'shard-0 series': 'refused'}
    >>> component_errors({}, {"replicas": {"a1": {"error": "torn"}, "b2": {"error": ""}}})
    {'forecaster a1': 'torn'}
    """
    found: dict[str, object] = {}
    for name, figures in stats.items():
        found[name] = figures.get("error") or figures.get("last_error")
        found[f"{name} registry"] = figures.get("registry_error")
        for part, nested in figures.items():
            if isinstance(nested, Mapping):
                found[f"{name} {part}"] = nested.get("last_error")
    if pointer is not None:
        found["slot"] = pointer.get("error")
        if "replicas" in pointer:
            found.pop(FORECASTER, None)
        found |= {f"forecaster {name}": report["error"] for name, report in pointer.get("replicas", {}).items()}
    return {name: str(error) for name, error in sorted(found.items()) if error}


def summarise_errors(stats: Mapping[str, Figures], pointer: PointerAnswer | None = None) -> list[str]:
    """:func:`component_errors` as sentences, for operators.

    >>> summarise_errors({"shard-0": {"error": ""}, "retrainer": {"last_error": "no history"}})
    ['retrainer: no history']
    """
    return [f"{name}: {error}" for name, error in component_errors(stats, pointer).items()]
