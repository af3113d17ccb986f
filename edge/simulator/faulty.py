"""Step 1 of the way of a reading: a source, simulated or recorded, whose sensors fail on request."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from edge.recordings.sample_source import CLIMATE, CONTROL, WEATHER, SampleSource
from edge.simulator.faults import FAULT_KINDS, Fault, FaultySensors
from edge.wire.plan import PlanMessage
from edge.wire.reading import Sample
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from models.durations import MINUTE_MS

__all__ = ["FaultySource", "parse_fault"]

_MAIN_DEVICES = (CLIMATE, CONTROL, WEATHER)


def parse_fault(text: str, zones: Sequence[str], from_ms: int) -> Fault:
    """Read ``KIND:ZONE:METRIC:AFTER_MIN:MINUTES[:SIZE]``, minutes of event time, counted from ``from_ms``.

    Raises ``ValueError`` in one sentence.

    >>> parse_fault("offset:z1:air_temp_c:30:120:2.5", ["z1"], 0)
    Fault(kind='offset', zone='z1', metric='air_temp_c', start_ms=1800000, end_ms=9000000, size=2.5)
    """
    parts = text.split(":")
    kind, zone, metric = [*parts, "", ""][:3]
    numbers = parts[3:]
    known = next((name for name in FAULT_KINDS if name == kind), None)
    if known is None:
        raise ValueError(f"{text!r}: {kind!r} is not a fault; one of {', '.join(FAULT_KINDS)}")
    if zone not in (*zones, SITE_ZONE):
        raise ValueError(f"{text!r}: there is no zone {zone!r}; one of {', '.join(zones)}, {SITE_ZONE}")
    if metric not in VOCABULARY:
        raise ValueError(f"{text!r}: {metric!r} is not in the vocabulary")
    try:
        after_min, minutes, size = [*map(float, numbers), *([0.0] if len(numbers) == 2 else [])]
    except ValueError:
        after_min = minutes = size = math.nan
    if not (after_min >= 0 and minutes > 0 and math.isfinite(after_min + minutes + size)):
        raise ValueError(f"{text!r}: needs KIND:ZONE:METRIC:AFTER_MIN:MINUTES[:SIZE]")
    start_ms = from_ms + round(after_min * MINUTE_MS)
    return Fault(known, zone, metric, start_ms, start_ms + round(minutes * MINUTE_MS), size)


class FaultySource:
    """A :class:`~edge.recordings.sample_source.SampleSource` that is another one with ``faults``.

    They befall a zone's main sensors; its second sensors stay as they are, and may give a fault away.
    """

    def __init__(self, source: SampleSource, faults: Sequence[Fault], seed: int = 0) -> None:
        self._source = source
        self._sensors = FaultySensors(faults, seed)
        self.site = source.site
        self.zones: Sequence[str] = source.zones
        self.timezone = source.timezone
        self.latitude = source.latitude
        self.longitude = source.longitude
        self.start_ms = source.start_ms
        self.end_ms = source.end_ms
        self.interval_ms = source.interval_ms
        self.primary: Mapping[str, str] = source.primary

    def samples(self, to_ms: int) -> Iterator[tuple[int, list[Sample]]]:
        """See :meth:`~edge.recordings.sample_source.SampleSource.samples`."""
        for ts_ms, samples in self._source.samples(to_ms):
            faulty = [self._failing(sample) for sample in samples]
            yield ts_ms, [sample for sample in faulty if sample.values]

    def plans(self) -> list[PlanMessage]:
        """See :meth:`~edge.recordings.sample_source.SampleSource.plans`: no sensor says them."""
        return self._source.plans()

    def skip(self, to_ms: int) -> None:
        """See :meth:`~edge.recordings.sample_source.SampleSource.skip`; a sensor that stuck meanwhile sticks from
        now on.
        """
        self._source.skip(to_ms)

    def _failing(self, sample: Sample) -> Sample:
        if sample.device not in _MAIN_DEVICES:
            return sample
        values = self._sensors.apply(sample.ts_ms, {sample.zone: sample.values})[sample.zone]
        return sample if values == sample.values else msgspec.structs.replace(sample, values=values)
