"""Step 1 of the way of a reading: a source of samples as a site's devices send them, in event-time order.

A :class:`SampleSource` is such a site. :class:`edge.simulator.simulator_source.SimulatorSource` makes one of the
simulated greenhouse; :class:`edge.recordings.replay.RecordingSource` makes one of a recording. The publisher sends a
source over MQTT, and :func:`edge.recordings.importing.import_samples` appends one to a log; neither knows which it has.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Protocol

from edge.wire.plan import PlanMessage
from edge.wire.reading import Sample
from edge.wire.vocabulary import is_weather

__all__ = ["CLIMATE", "CONTROL", "WEATHER", "SampleSource", "device_of", "new_boot"]

CLIMATE = "climate"
"""The device of a zone's main sensors."""

CONTROL = "control"
"""The device that reports a zone's actuators and setpoints."""

WEATHER = "weather"
"""The site's weather station; its zone is ``_site``."""

_ACTUATORS = ("vent_", "heat_pipe_", "lamp_", "screen_", "co2_dosing_", "fog_", "fan_", "irrigation_")


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
        """Degrees north; ``None`` if it is not known."""

    @property
    def longitude(self) -> float | None:
        """Degrees east; ``None`` if it is not known."""

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

    def plans(self) -> list[PlanMessage]:
        """The plans that were issued since the last call, up to the newest instant given; a recording has none by
        itself.
        """

    def skip(self, to_ms: int) -> None:
        """Go on to ``to_ms``: nothing up to and including it will be given any more."""


@cache
def device_of(metric: str) -> str:
    """The device that reports a metric, where nothing else is said.

    >>> device_of("air_temp_c"), device_of("sp_heat_c"), device_of("vent_lee_pct"), device_of("out_temp_c")
    ('climate', 'control', 'control', 'weather')
    """
    if is_weather(metric):
        return WEATHER
    return CONTROL if metric.startswith(("sp_", *_ACTUATORS)) else CLIMATE


def new_boot(seed: int | None, *device: str) -> str:
    """A boot id: 64 random bits in hex, or repeatable for tests where a seed is given."""
    if seed is None:
        return secrets.token_hex(8)
    return random.Random(f"{seed}/{'/'.join(device)}").randbytes(8).hex()  # noqa: S311 (an id, not a secret)
