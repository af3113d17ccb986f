"""Step 1 of the way of a reading: replays a recording's samples, in event-time order."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from edge.recordings.recording import DeviceTable, load_recording
from edge.recordings.sample_source import CLIMATE, CONTROL, new_boot
from edge.wire.plan import PlanMessage
from edge.wire.reading import Sample
from edge.wire.vocabulary import base_metric

__all__ = ["RecordingSource"]

_LOG = logging.getLogger(__name__)


class RecordingSource:
    """A :class:`~edge.recordings.sample_source.SampleSource` of a folder of recordings; its arguments are those of
    :func:`~edge.recordings.recording.load_recording`, which says what may be in the folder and what it raises.

    ``unmapped`` lists the columns that have no metric, ``notes`` says what was left out, guessed or cut, each with what
    mends it; notes are logged once as warnings, unless ``log_notes`` is false.
    ``seq`` is the row of a device's table, so skipping what was imported before keeps ids rising.
    ``foreseen`` are plans for the recording's site; each is given when it was issued.
    """

    def __init__(
        self, folder: Path, mapping: Path | None = None, site: str | None = None, timezone: str | None = None,
        latitude: float | None = None, longitude: float | None = None, *, boot_seed: int | None = None,
        foreseen: Sequence[PlanMessage] = (), log_notes: bool = True,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:  # fmt: skip
        self.recording = recording = load_recording(
            folder, mapping, site=site, timezone=timezone, latitude=latitude, longitude=longitude, progress=progress
        )
        self.site = recording.site
        self.zones: Sequence[str] = recording.zones
        self.timezone = recording.timezone
        self.latitude = recording.latitude
        self.longitude = recording.longitude
        self.interval_ms = recording.interval_ms
        self.unmapped = recording.unmapped
        self.notes = recording.notes
        self.primary: Mapping[str, str] = _primary(recording.tables)
        for note in self.notes if log_notes else ():
            _LOG.warning("%s", note)
        self._instants: list[int] = np.unique(np.concatenate([t.times_ms for t in recording.tables])).tolist()
        self._next = 0
        self._foreseen = deque(sorted(foreseen, key=lambda plan: plan.issued_ms))
        self._reached_ms = 0
        self._devices = [_Device(self.site, table, boot_seed) for table in recording.tables]
        self.start_ms = self._instants[0]
        self.end_ms: int | None = self._instants[-1]

    def samples(self, to_ms: int) -> Iterator[tuple[int, list[Sample]]]:
        """See :meth:`~edge.recordings.sample_source.SampleSource.samples`."""
        while self._next < len(self._instants) and self._instants[self._next] <= to_ms:
            ts_ms = self._instants[self._next]
            self._next += 1
            self._reached_ms = ts_ms
            yield ts_ms, [sample for device in self._devices if (sample := device.at(ts_ms)) is not None]

    def plans(self) -> list[PlanMessage]:
        """See :meth:`~edge.recordings.sample_source.SampleSource.plans`."""
        issued = []
        while self._foreseen and self._foreseen[0].issued_ms <= self._reached_ms:
            issued.append(self._foreseen.popleft())
        return issued

    def skip(self, to_ms: int) -> None:
        """See :meth:`~edge.recordings.sample_source.SampleSource.skip`; costs no reading."""
        self._next = max(self._next, int(np.searchsorted(self._instants, to_ms, side="right")))
        while self._foreseen and self._foreseen[0].issued_ms <= to_ms:
            self._foreseen.popleft()
        for device in self._devices:
            device.skip(to_ms)


class _Device:
    """One device's table with the place reached in it."""

    def __init__(self, site: str, table: DeviceTable, boot_seed: int | None) -> None:
        self._site, self._zone, self._device = site, table.zone, table.device
        self._boot = new_boot(boot_seed, site, table.zone, table.device)
        self._metrics = table.metrics
        self._times: list[int] = table.times_ms.tolist()
        self._values = table.values
        self._row = 0

    def at(self, ts_ms: int) -> Sample | None:
        row = self._row
        if row >= len(self._times) or self._times[row] != ts_ms:
            return None
        self._row += 1
        found = self._values[row].tolist()
        values = {metric: value for metric, value in zip(self._metrics, found, strict=True) if value == value}
        return Sample(self._site, self._zone, self._device, self._boot, row, ts_ms, values)

    def skip(self, to_ms: int) -> None:
        self._row = max(self._row, int(np.searchsorted(self._times, to_ms, side="right")))


def _primary(tables: Sequence[DeviceTable]) -> dict[str, str]:
    """``climate`` or ``control`` for each metric that some zone has on several devices."""
    count = Counter((table.zone, base_metric(metric)) for table in tables for metric in table.metrics)
    twice = {metric for (_, metric), times in count.items() if times > 1}
    main = [table for table in tables if table.device in (CLIMATE, CONTROL)]
    return {metric: table.device for table in main for metric in table.metrics if metric in twice}
