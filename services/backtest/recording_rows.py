"""A recording's zone rows, made by the code that makes rows of a stream's samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge.recordings.recording import DeviceTable, Recording
from edge.recordings.sample_source import CLIMATE, CONTROL, WEATHER
from edge.wire.vocabulary import VOCABULARY, base_metric
from services.ingest.windows.open_rows import Names, OpenSamples
from services.ingest.windows.sensors import Sensors
from services.ingest.windows.site_rules import SiteRules
from services.ingest.windows.units import Units

__all__ = ["heard_rows", "zone_rows"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

LONGEST_HOLD_MS = max(metric.hold_s or 0 for metric in VOCABULARY.values()) * 1000
_MAIN = (CLIMATE, CONTROL, WEATHER)


def zone_rows(recording: Recording, start_ms: int, step_ms: int, length: int) -> F32:
    """``[Z, T, C]`` for the zones of ``recording``; row ``t`` is that of the step which ends at
    ``start_ms + t * step_ms``, channels are in vocabulary order.

    If a zone has several sensors of a metric, only the main one counts: its column is forecast.
    """
    tables = [table for table in recording.tables if table.metrics]
    said = _said(tables)
    metric_sets: dict[tuple[str, ...], int] = {}
    metric_set = np.concatenate(
        [_metric_sets(table, np.isfinite(each), metric_sets) for table, each in zip(tables, said, strict=True)]
    )
    times_ms = np.concatenate([table.times_ms for table in tables])
    device = np.repeat(np.arange(len(tables), dtype=np.int32), [len(table.times_ms) for table in tables])
    seq = np.concatenate([np.arange(len(table.times_ms)) for table in tables])
    widest = max(each.shape[1] for each in said)
    values = np.concatenate(
        [np.pad(each, ((0, 0), (0, widest - each.shape[1])), constant_values=np.nan) for each in said]
    )

    row = -(-(times_ms - start_ms) // step_ms)
    order = np.argsort(row, kind="stable")
    known = np.isfinite(values[order])
    samples = OpenSamples(device[order], metric_set[order], seq[order], times_ms[order], values[order][known])
    first = np.searchsorted(row[order], np.arange(length + 1))
    first_value = np.concatenate([[0], np.cumsum(known.sum(axis=1))])[first]

    names = Names([(table.zone, table.device, "", 0) for table in tables], metric_sets)
    sensors = Sensors(VOCABULARY, {}, SiteRules(step_ms, 0, 0))
    sensors.units = _AsRead()
    place = {zone: z for z, zone in enumerate(recording.zones)}
    rows = np.full((len(place), length, len(VOCABULARY)), np.nan, np.float32)
    spoken_t = 0  # the newest row with samples
    for t in range(length):
        if first[t] < first[t + 1]:
            spoken_t = t
        elif (t - spoken_t) * step_ms > LONGEST_HOLD_MS:
            continue  # a gap of days, or of years where a date is mistyped
        part, of_values = slice(*first[t : t + 2]), slice(*first_value[t : t + 2])
        step = OpenSamples(
            samples.device[part], samples.metric_set[part], samples.seq[part], samples.ts_ms[part],
            samples.values[of_values],
        )  # fmt: skip
        end_ms = start_ms + t * step_ms
        if len(step.device):
            zones, found, _, _ = sensors.close(step, names, end_ms)
        else:
            held = sensors.close_silent(end_ms)
            zones, (found, _) = held.zones, held.silent_rows(end_ms)
        rows[[place[zone] for zone in zones], t] = found
    return rows


def heard_rows(recording: Recording, start_ms: int, step_ms: int) -> I64:
    """The rows, as :func:`zone_rows` counts them, in which a device said anything; sorted."""
    tables = [table for table in recording.tables if table.metrics]
    times_ms = [t.times_ms[np.isfinite(each).any(axis=1)] for t, each in zip(tables, _said(tables), strict=True)]
    return np.unique(-(-(np.concatenate(times_ms) - start_ms) // step_ms))


class _AsRead(Units):
    """Leaves all sensors in: whoever read the recording has judged units by a day, or was told them, and tells of what
    is left out. The first hour, by which live sensors are judged without anybody being told here, may be hot.
    """

    def learn(self, count: I64, low: F64, high: F64, end_ms: int) -> None:
        """Find nothing."""


def _said(tables: list[DeviceTable]) -> list[F64]:
    """What each device said that is plausible, and that no main sensor of its zone says, too; NaN elsewhere."""
    main = {(t.zone, metric) for t in tables if t.device in _MAIN for metric in t.metrics}
    found = []
    for table in tables:
        values = np.full(table.values.shape, np.nan)
        for k, name in enumerate(table.metrics):
            metric = base_metric(name)
            if name != metric or (table.device not in _MAIN and (table.zone, metric) in main):
                continue
            meaning, column = VOCABULARY[metric], table.values[:, k]
            good = (column >= meaning.low) & (column <= (meaning.clip_from or meaning.high))
            values[good, k] = np.minimum(column[good], meaning.high)
        found.append(values)
    return found


def _metric_sets(
    table: DeviceTable, known: npt.NDArray[np.bool_], numbers: dict[tuple[str, ...], int]
) -> npt.NDArray[np.int32]:
    """The number of the names that each of a device's samples has values of; new ones are added to ``numbers``."""
    patterns, which = np.unique(known, axis=0, return_inverse=True)
    sets = [
        tuple(name for name, has in zip(table.metrics, pattern, strict=True) if has) for pattern in patterns.tolist()
    ]
    return np.array([numbers.setdefault(names, len(numbers)) for names in sets], np.int32)[which.reshape(-1)]
