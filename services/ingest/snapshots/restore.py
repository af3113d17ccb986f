"""Step 4 of the way of a reading: a partition goes on from its snapshot, if it was made under the same settings."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple

import msgspec

from edge.log import Log
from edge.wire.vocabulary import VOCABULARY
from models.durations import HOUR_MS
from models.spec import ForecastSpec
from services.config import Settings
from services.errors import ConfigError, SnapshotError
from services.forecast_spec import place_of
from services.ingest.forecasting import MAX_ORIGINS
from services.ingest.partition import Partition
from services.ingest.snapshots.parts import LEARNED
from services.ingest.snapshots.snapshot import Snapshots
from services.ingest.snapshots.snapshot_file import Snapshot
from services.ingest.windows.partition_windows import PartitionWindows
from services.store.forecasts import IssuedForecast, IssuedForecasts

__all__ = ["Restored", "issued_lately", "restore", "snapshot_state"]

_log = logging.getLogger(__name__)


class RowSettings(NamedTuple):
    """The settings that a site's rows are made with, in seconds."""

    step_s: int
    lateness_s: int
    idle_s: int

    @classmethod
    def of(cls, settings: Settings) -> RowSettings:
        """The settings of the configuration."""
        return cls(settings.stream.step_s, settings.stream.lateness_s, settings.stream.idle_s)

    @classmethod
    def of_ms(cls, step_ms: int, lateness_ms: int, idle_ms: int) -> RowSettings:
        """The settings of windows."""
        return cls(step_ms // 1000, lateness_ms // 1000, idle_ms // 1000)


class Restored(NamedTuple):
    """A partition, the state of what waited for its forecast, and what the snapshot has lost."""

    partition: Partition
    waiting: Sequence[Mapping[str, Any]] = ()
    missing: Mapping[str, str] = {}  # parts that are to be grown again, and why
    damage: tuple[str, ...] = ()  # sentences for operators


def snapshot_state(
    settings: Settings, spec: ForecastSpec, log: str, partition: Partition, waiting: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What a snapshot holds; inverse of :func:`restore`."""
    sites = partition.windows.sites
    return {
        "made_by": {
            "rows_by": {**_rows_by(settings, sites), **_named(RowSettings.of_ms(*partition.windows.initial_ms))},
            "learned_by": _learned_by(settings, spec, sites),
            "log": log,
        },
        "waiting": waiting, **partition.state(),
    }  # fmt: skip


def restore(
    settings: Settings, spec: ForecastSpec, log: Log, snapshots: Snapshots, issued: IssuedForecasts
) -> Restored:
    """Continue from the newest snapshot, or begin where the log begins.

    If a snapshot cannot be read and the log holds everything, the log is read again from its beginning.

    Raises ``ConfigError`` if rows would be made in another way than those that are there, and ``SnapshotError``
    where no snapshot can be read, or the log has lost what comes after it, or what came before it.
    """
    number = snapshots.partition
    begin = log.begin_offset(number)
    damage: tuple[str, ...] = ()
    try:
        found = snapshots.load(begin)
    except SnapshotError as error:
        if begin > 0:
            raise
        found, damage = None, (f"{error.message}: the log is read again from its beginning",)
    if found is None:
        partition = _empty(settings, spec, number, RowSettings.of(settings))
        _begin_at(partition, begin)
        return Restored(partition, damage=damage)
    parts, made_by = found.parts, found.parts["made_by"]
    _refuse_another_log(log, number, found.offset, made_by.get("log", ""))
    partition = _with_rules(settings, spec, number, parts)
    if made_by["learned_by"] != _learned_by(settings, spec, list(made_by["rows_by"]["sites"])):
        _log.warning("what is forecast, or a site's clock, has changed: partition %d is replayed from the log", number)
        return Restored(_to_replay(settings, partition, parts, begin))
    if begin > found.offset:
        raise SnapshotError(
            f"the log of partition {number} was truncated behind the snapshot's offset {found.offset}; it begins at "
            f"{begin}",
            f"Remove snapshots/p{number}-* of the storage to go on with what the log still holds. What was learned, "
            "rules of alerts and changes such as calibrations begin anew; rows stay.",
        )
    return _continued(partition, spec, found, issued)


def _with_rules(settings: Settings, spec: ForecastSpec, number: int, parts: Mapping[str, Any]) -> Partition:
    """An empty partition whose sites have the rules for rows that they had in a snapshot.

    Raises ``ConfigError`` if rows would be made in another way under the settings.
    """
    rows_by = parts["made_by"]["rows_by"]
    partition = _empty(settings, spec, number, _initial(settings, parts))
    in_force = [
        RowSettings.of_ms(site.grid.newest_step_ms, site.lateness_ms, site.own_idle_ms)
        for site in partition.windows.begin_with(parts["windows"])
    ]
    _refuse_other_rows(rows_by, _rows_by(settings, list(rows_by["sites"])), in_force)
    return partition


def _to_replay(settings: Settings, partition: Partition, parts: Mapping[str, Any], begin: int) -> Partition:
    """One that learns anew from what the log holds; ``partition`` has the rules that its sites had in the snapshot."""
    if begin > 0:
        # The first rows of what is left of the log may lack samples; the history has them whole.
        partition.kept_ms = {s["site"]: s["end_ms"] for s in parts["newest"]["latest"]}
        _begin_at(partition, begin)
    else:  # the events that made these rules come again, too
        partition = _empty(settings, partition.spec, partition.number, _initial(settings, parts))
    partition.alerts.load(parts.get("alerts", {}))  # what was told is not told again
    return partition


def _continued(partition: Partition, spec: ForecastSpec, found: Snapshot, issued: IssuedForecasts) -> Restored:
    """It goes on where the snapshot was taken."""
    missing = partition.load(found.offset, found.parts)
    missing |= {name: why for name, why in found.unreadable.items() if name in LEARNED}
    damage = found.damage
    if "alerts" in missing:  # no history has them, but the journal has those that were told
        damage += (
            f"alerts of partition {partition.number} go on from their journal; its rules are the defaults until they "
            f"are given again, and chances are learned anew ({missing.pop('alerts')})",
        )
    if not missing:
        for forecasts in issued_lately(partition, spec, issued):
            partition.learner.expect(forecasts)
    return Restored(partition, found.parts.get("waiting", []), missing, damage)


def _refuse_another_log(log: Log, number: int, offset: int, of_before: str) -> None:
    """Raises ``SnapshotError`` where the log ends before the snapshot's ``offset``, or has another name: what comes to
    it would never be read, or be taken for what was told already.
    """
    if (end := log.end_offset(number)) < offset:
        why = f"ends at {end}, before the snapshot's offset {offset}"
    elif offset and of_before and log.id and log.id != of_before:
        why = f"has the name {log.id}, that of the snapshot {of_before}"
    else:
        return
    raise SnapshotError(
        f"the log of partition {number} {why}: it is another log",
        "Bring the earlier log back, or let this one begin on a data folder and storage of its own.",
    )


def issued_lately(partition: Partition, spec: ForecastSpec, issued: IssuedForecasts) -> list[list[IssuedForecast]]:
    """By site, the forecasts that may have been issued after the snapshot; ``PartitionLearner.expect`` takes them."""
    cells, newest = (spec.horizons_min, spec.targets), partition.learner.latest.items()
    return [issued.read(site, step.end_ms - MAX_ORIGINS * spec.step_ms, *cells) for site, step in newest]


def _empty(settings: Settings, spec: ForecastSpec, number: int, initial: RowSettings) -> Partition:
    """``initial`` is what rows were made by before the log's first event changed it."""
    primary = {site.name: site.primary for site in settings.sites if site.primary}
    step_ms, lateness_ms, idle_ms = (1000 * seconds for seconds in initial)
    windows = PartitionWindows(step_ms, lateness_ms, idle_ms, VOCABULARY, primary)
    places = {site.name: place_of(settings, site.name) for site in settings.sites}
    elsewhere = place_of(settings, "")
    ring_steps = settings.stream.ring_hours * HOUR_MS // spec.step_ms
    return Partition(
        number, spec, windows, ring_steps, lambda site: places.get(site, elsewhere),
        fine_tunes=settings.learn.tuned_every_days > 0,
    )  # fmt: skip


def _initial(settings: Settings, parts: Mapping[str, Any]) -> RowSettings:
    """What a snapshot's rows were made by at first."""
    rows_by = parts["made_by"]["rows_by"]
    return RowSettings(*(rows_by[name] for name in _named(RowSettings.of(settings))))


def _begin_at(partition: Partition, begin: int) -> None:
    if begin > 0:
        _log.warning(
            "the log of partition %d was truncated: it is read from offset %d, its first rows may lack samples",
            partition.number, begin,
        )  # fmt: skip
    partition.offset = begin


def _rows_by(settings: Settings, sites: Sequence[str]) -> dict[str, Any]:
    """The settings by which the rows of ``sites`` are made; a site that has none yet binds nobody."""
    return {
        **_named(RowSettings.of(settings)),
        "vocabulary": _vocabulary_hash(), "sites": {name: dict(settings.site(name).primary) for name in sites},
    }  # fmt: skip


def _learned_by(settings: Settings, spec: ForecastSpec, sites: Sequence[str]) -> dict[str, Any]:
    """The settings by which learners have learned; under others they learn anew from the log."""
    places = {name: list(asdict(place_of(settings, name)).values()) for name in sites}
    return {"spec": spec.hash, "ring_hours": settings.stream.ring_hours, "places": places}


def _named(of: RowSettings) -> dict[str, int]:
    return {f"stream.{name}": seconds for name, seconds in of._asdict().items()}


def _refuse_other_rows(before: Mapping[str, Any], now: Mapping[str, Any], in_force: Sequence[RowSettings]) -> None:
    """What an event of the log has changed may be followed by the settings; nothing else may change."""
    named = {name: (before.get(name), now[name]) for name in now if name != "sites"}
    named |= {f"sites.{name}.primary": (before["sites"][name], now["sites"][name]) for name in now["sites"]}
    followed = {name: {_named(of)[name] for of in in_force} for name in _named(RowSettings(0, 0, 0))}
    for name, (old, new) in named.items():
        if old != new and new not in followed.get(name, ()):
            raise ConfigError(
                f"{name} changed from {old!r} to {new!r}, but all rows of a data folder need one setting",
                "Set it back, change it by an event of the log (hothouse change --help), or use another data_dir."
                if name in followed else "Set it back, or use another data_dir.",
            )  # fmt: skip


@cache
def _vocabulary_hash() -> str:
    table = msgspec.json.encode({name: asdict(metric) for name, metric in VOCABULARY.items()})
    return hashlib.sha256(table).hexdigest()[:16]
