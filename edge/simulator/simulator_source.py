"""Step 1 of the way of a reading: devices of a simulated greenhouse, as one stream of samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from edge.recordings.sample_source import WEATHER, device_of, new_boot
from edge.wire.plan import PlanMessage
from edge.wire.reading import Sample
from edge.wire.topic import SITE_ZONE
from models.durations import MINUTE_MS

__all__ = ["PhysicalSite", "SimulatorSource"]

HEARTBEAT_MS = 900_000
"""A setpoint that does not change is sent this often."""


class PhysicalSite(Protocol):
    """What :class:`SimulatorSource` needs of the simulated greenhouse."""

    name: str
    zones: tuple[str, ...]
    timezone: str
    latitude: float
    longitude: float
    start_ms: int
    step_ms: int

    def instants(self, to_ms: int) -> Iterator[tuple[int, Mapping[str, Mapping[str, float]]]]:
        """``(ts_ms, {zone or "_site": {metric: value}})``, going on where it stopped."""

    def plans(self) -> list[PlanMessage]:
        """The plans that were issued since the last call, up to the newest instant given."""


class SimulatorSource:
    """The simulated greenhouse as devices.

    Each zone has two: ``climate`` sends its sensors every step; ``control`` sends its actuators every step, and its
    setpoints when they change and every 15 minutes. The weather station ``weather`` sends as zone ``_site``.
    """

    end_ms: int | None = None
    primary: Mapping[str, str] = {}  # every metric has one device

    def __init__(self, physical: PhysicalSite, boot_seed: int | None = None) -> None:
        self._physical = physical
        self.site = physical.name
        self.zones: Sequence[str] = tuple(physical.zones)
        self.timezone = physical.timezone
        self.latitude: float | None = physical.latitude
        self.longitude: float | None = physical.longitude
        self.start_ms = physical.start_ms
        self.interval_ms = physical.step_ms
        self._boot_seed = boot_seed
        self._boots: dict[tuple[str, str], str] = {}
        self._seqs: dict[tuple[str, str], int] = {}
        self._sent_setpoints: dict[tuple[str, str], tuple[int, float]] = {}  # (zone, metric) -> when, what

    def samples(self, to_ms: int) -> Iterator[tuple[int, list[Sample]]]:
        """See :meth:`~edge.recordings.sample_source.SampleSource.samples`."""
        for ts_ms, zones in self._physical.instants(to_ms):
            out: list[Sample] = []
            for zone, values in zones.items():
                by_device: dict[str, dict[str, float]] = {}
                for metric, value in values.items():
                    if value == value and not self._is_unchanged(zone, metric, ts_ms, value):
                        device = WEATHER if zone == SITE_ZONE else device_of(metric)
                        by_device.setdefault(device, {})[metric] = value
                out.extend(self._sample(zone, device, ts_ms, found) for device, found in by_device.items())
            yield ts_ms, out

    def plans(self) -> list[PlanMessage]:
        """See :meth:`~edge.recordings.sample_source.SampleSource.plans`."""
        return self._physical.plans()

    def report_every(self, interval_ms: int) -> None:
        """Let devices send at another interval from now on; raises ``ValueError`` unless it is whole minutes."""
        if interval_ms <= 0 or interval_ms % MINUTE_MS:
            raise ValueError(f"interval_ms {interval_ms} is not a positive multiple of a minute")
        self.interval_ms = self._physical.step_ms = interval_ms

    def skip(self, to_ms: int) -> None:
        """See :meth:`~edge.recordings.sample_source.SampleSource.skip`; the greenhouse has to be simulated all the
        same.
        """
        for _ in self._physical.instants(to_ms):
            pass

    def _is_unchanged(self, zone: str, metric: str, ts_ms: int, value: float) -> bool:
        if not metric.startswith("sp_"):
            return False
        sent = self._sent_setpoints.get((zone, metric))
        if sent is not None and sent[1] == value and ts_ms - sent[0] < HEARTBEAT_MS:
            return True
        self._sent_setpoints[zone, metric] = (ts_ms, value)
        return False

    def _sample(self, zone: str, device: str, ts_ms: int, values: dict[str, float]) -> Sample:
        key = (zone, device)
        if key not in self._boots:
            self._boots[key] = new_boot(self._boot_seed, self.site, zone, device)
        seq = self._seqs[key] = self._seqs.get(key, -1) + 1
        return Sample(self.site, zone, device, self._boots[key], seq, ts_ms, values)
