"""Step 1 of the way of a reading: devices that are not there, as one stream of samples.

A :class:`SampleSource` is a site whose devices speak in event-time order. :class:`SimulatorSource` makes one of the
simulated greenhouse; :class:`edge.recordings.replay.RecordingSource` makes one of a recording. The publisher sends a
source over MQTT, and :func:`edge.recordings.warm.import_samples` appends one to a log; neither knows which it has.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Protocol

from edge.wire.reading import SITE_ZONE, Sample

__all__ = ["CLIMATE", "CONTROL", "WEATHER", "PhysicalSite", "SampleSource", "SimulatorSource", "device_of", "new_boot"]

CLIMATE = "climate"
"""The device of a zone's main sensors."""

CONTROL = "control"
"""The device that reports a zone's actuators and setpoints."""

WEATHER = "weather"
"""The site's weather station; its zone is ``_site``."""

HEARTBEAT_MS = 900_000
"""A setpoint that does not change is sent this often."""

_ACTUATORS = ("vent_", "heat_pipe_", "lamp_", "screen_", "co2_dosing_", "fog_", "fan_", "irrigation_")
_OUTSIDE = ("out_", "wind_", "rain")


class SampleSource(Protocol):
    """A site's devices, speaking in event-time order. Positions only move forward."""

    @property
    def site(self) -> str:
        """The site's name, as in the topic."""

    @property
    def zones(self) -> Sequence[str]:
        """The zones, without ``_site``."""

    @property
    def timezone(self) -> str:
        """IANA time zone."""

    @property
    def latitude(self) -> float | None:
        """Degrees north; ``None`` where it is not known."""

    @property
    def longitude(self) -> float | None:
        """Degrees east; ``None`` where it is not known."""

    @property
    def start_ms(self) -> int:
        """No sample is older than this."""

    @property
    def end_ms(self) -> int | None:
        """The event time of the last sample; ``None``: it never ends."""

    @property
    def interval_ms(self) -> int:
        """The usual distance of two instants."""

    @property
    def primary(self) -> Mapping[str, str]:
        """The device whose value is the zone's, by metric, for metrics that several devices measure."""

    def samples(self, to_ms: int) -> Iterator[tuple[int, list[Sample]]]:
        """The instants after the last one given up to and including ``to_ms``, each with the samples of all devices.

        Rises strictly in time. A consumer may stop anywhere: the next call goes on after the last instant that was
        yielded, whether of this iterator or of an earlier one.
        """

    def skip(self, to_ms: int) -> None:
        """Go on to ``to_ms``: nothing up to and including it will be given any more."""


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


@cache
def device_of(metric: str) -> str:
    """The device that reports a metric, where nothing else is said.

    >>> device_of("air_temp_c"), device_of("sp_heat_c"), device_of("vent_lee_pct"), device_of("out_temp_c")
    ('climate', 'control', 'control', 'weather')
    """
    if metric.startswith(_OUTSIDE):
        return WEATHER
    return CONTROL if metric.startswith(("sp_", *_ACTUATORS)) else CLIMATE


def new_boot(seed: int | None, *device: str) -> str:
    """A boot id: 64 random bits in hex, or repeatable for tests where a seed is given."""
    if seed is None:
        return secrets.token_hex(8)
    return random.Random(f"{seed}/{'/'.join(device)}").randbytes(8).hex()  # noqa: S311 (an id, not a secret)


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
        """See :meth:`SampleSource.samples`."""
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

    def report_every(self, interval_ms: int) -> None:
        """Let devices send at another interval from now on; raises ``ValueError`` unless it is whole minutes."""
        if interval_ms <= 0 or interval_ms % 60_000:
            raise ValueError(f"interval_ms {interval_ms} is not a positive multiple of a minute")
        self.interval_ms = self._physical.step_ms = interval_ms

    def skip(self, to_ms: int) -> None:
        """See :meth:`SampleSource.skip`; the greenhouse has to be simulated all the same."""
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
