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
from edge.reading import VOCABULARY
from models.spec import ForecastSpec
from services.config import Settings
from services.errors import ConfigError
from services.forecast_spec import place_of
from services.ingest.partition import Partition
from services.ingest.snapshot import SnapshotError, Snapshots
from services.ingest.windows import PartitionWindows
from services.store.forecasts import IssuedForecasts

__all__ = ["Restored", "restore", "snapshot_state"]

_log = logging.getLogger(__name__)


class Restored(NamedTuple):
    """A partition, and the state of what waited for its forecast."""

    partition: Partition
    waiting: Sequence[Mapping[str, Any]]


def snapshot_state(
    settings: Settings, spec: ForecastSpec, partition: Partition, waiting: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What a snapshot holds; inverse of :func:`restore`."""
    sites = partition.windows.sites
    return {
        "rows_by": _rows_by(settings, sites), "learned_by": _learned_by(settings, spec, sites),
        "waiting": waiting, **partition.state(),
    }  # fmt: skip


def restore(
    settings: Settings, spec: ForecastSpec, log: Log, snapshots: Snapshots, issued: IssuedForecasts
) -> Restored:
    """Continue from the newest snapshot, or begin where the log begins.

    Raises ``ConfigError`` where rows would be made in another way than those that are there, and ``SnapshotError``
    where no snapshot can be read or the log has lost what comes after it.
    """
    number = snapshots.partition
    partition = _empty(settings, spec, number)
    begin = log.begin_offset(number)
    found = snapshots.load()
    if found is None:
        _begin_at(partition, begin)
        return Restored(partition, [])
    offset, state = found
    sites = list(state["rows_by"]["sites"])
    _refuse_other_rows(state["rows_by"], _rows_by(settings, sites))
    if state["learned_by"] != _learned_by(settings, spec, sites):
        _log.warning("what is forecast, or a site's clock, has changed: partition %d is replayed from the log", number)
        if begin > 0:
            # The first rows of what is left of the log may lack samples; the history has them whole.
            partition.kept_ms = {s["site"]: s["end_ms"] for s in state["latest"]}
            _begin_at(partition, begin)
        return Restored(partition, [])
    if begin > offset:
        raise SnapshotError(
            f"the log of partition {number} was truncated behind the snapshot's offset {offset}; it begins at {begin}",
            "Remove the snapshots to go on with what the log still holds.",
        )
    partition.load(offset, state)
    for site, step in partition.latest.items():
        partition.expect(issued.read(site, step.end_ms, len(spec.horizons_min), len(spec.targets)))
    return Restored(partition, state["waiting"])


def _empty(settings: Settings, spec: ForecastSpec, number: int) -> Partition:
    stream = settings.stream
    primary = {site.name: site.primary for site in settings.sites if site.primary}
    windows = PartitionWindows(spec.step_ms, stream.lateness_s * 1000, stream.idle_s * 1000, VOCABULARY, primary)
    places = {site.name: place_of(settings, site.name) for site in settings.sites}
    elsewhere = place_of(settings, "")
    ring_steps = stream.ring_hours * 3_600_000 // spec.step_ms
    return Partition(number, spec, windows, ring_steps, lambda site: places.get(site, elsewhere))


def _begin_at(partition: Partition, begin: int) -> None:
    if begin > 0:
        _log.warning(
            "the log of partition %d was truncated: it is read from offset %d, its first rows may lack samples",
            partition.number, begin,
        )  # fmt: skip
    partition.offset = begin


def _rows_by(settings: Settings, sites: Sequence[str]) -> dict[str, Any]:
    """The settings by which the rows of ``sites`` are made; a site that has none yet binds nobody."""
    stream = settings.stream
    return {
        "stream.step_s": stream.step_s, "stream.lateness_s": stream.lateness_s, "stream.idle_s": stream.idle_s,
        "vocabulary": _vocabulary_hash(), "sites": {name: dict(settings.site(name).primary) for name in sites},
    }  # fmt: skip


def _learned_by(settings: Settings, spec: ForecastSpec, sites: Sequence[str]) -> dict[str, Any]:
    """The settings by which learners have learned; under others they learn anew from the log."""
    clocks = {name: [settings.site(name).timezone, settings.site(name).clock] for name in sites}
    return {"spec": spec.hash, "ring_hours": settings.stream.ring_hours, "clocks": clocks}


def _refuse_other_rows(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    named = {name: (before.get(name), now[name]) for name in now if name != "sites"}
    named |= {f"sites.{name}.primary": (before["sites"][name], now["sites"][name]) for name in now["sites"]}
    for name, (old, new) in named.items():
        if old != new:
            raise ConfigError(
                f"{name} changed from {old!r} to {new!r}, but rows of one data folder are made in one way",
                "Set it back, or use another data_dir.",
            )


@cache
def _vocabulary_hash() -> str:
    table = msgspec.json.encode({name: asdict(metric) for name, metric in VOCABULARY.items()})
    return hashlib.sha256(table).hexdigest()[:16]
