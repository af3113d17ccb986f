"""Step 5 of the way of a reading: what a closed step of a site holds, as windows make it and the history keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np
import numpy.typing as npt

__all__ = [
    "SCHEMA_VERSION", "ClosedStep", "DeadLetter", "DeviceRow", "DeviceRows", "SilentStep", "SiteStep", "UnitFault",
]  # fmt: skip

Column = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]

SCHEMA_VERSION = 1
"""The version of a site's rows as the settings make them. Each change of these (``edge.wire.events``) brings a greater
one, and every row carries the version that it was made under."""


class DeviceRow(NamedTuple):
    """One device, one metric, one step; only steps in which the device sent the metric have one.

    ``n`` samples carried it; ``metric`` keeps a second sensor's suffix. ``mean`` is, of an angle, the vector mean; of
    a counter, the increase within the step; of a state, the mean of its samples.
    """

    zone: str
    device: str
    metric: str
    n: int
    mean: float
    min: float
    max: float
    last: float


class DeviceRows(Sequence[DeviceRow]):
    """Device rows as columns, of equal length; read as a sequence it gives :class:`DeviceRow`."""

    __slots__ = DeviceRow._fields

    def __init__(
        self, zone: Column, device: Column, metric: Column, n: Column, mean: Column, min: Column, max: Column,
        last: Column,
    ) -> None:  # fmt: skip
        self.zone, self.device, self.metric, self.n = zone, device, metric, n
        self.mean, self.min, self.max, self.last = mean, min, max, last

    @classmethod
    def of(cls, rows: Sequence[DeviceRow]) -> DeviceRows:
        """The rows as columns."""
        if isinstance(rows, cls):
            return rows
        columns = list(zip(*rows, strict=True)) or [()] * 8
        zone, device, metric = (np.array([*column, None], object)[:-1] for column in columns[:3])
        mean, low, high, last = (np.array(column, np.float64) for column in columns[4:])
        return cls(zone, device, metric, np.array(columns[3], np.int64), mean, low, high, last)

    def __len__(self) -> int:
        return len(self.n)

    def __iter__(self) -> Iterator[DeviceRow]:
        columns = (getattr(self, name).tolist() for name in DeviceRow._fields)
        return map(DeviceRow._make, zip(*columns, strict=True))

    @overload
    def __getitem__(self, index: int) -> DeviceRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[DeviceRow]: ...

    def __getitem__(self, index: int | slice) -> DeviceRow | list[DeviceRow]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"DeviceRows({list(self)})"


class UnitFault(NamedTuple):
    """A sensor that sends another unit than its metric's, a share of 1 or °F, since the row that ends at ``since_ms``;
    ``low`` and ``high`` are what it said until then.
    """

    zone: str
    device: str
    metric: str
    is_share: bool
    low: float
    high: float
    since_ms: int

    def words(self) -> str:
        """One line for people.

        >>> UnitFault("z1", "climate", "rh_pct", True, 0.62, 0.71, 0).words()
        'z1/climate rh_pct looks like a share (0.62 to 0.71): send percent'
        """
        said, wanted = ("a share", "percent") if self.is_share else ("°F", "°C")
        return f"{self.sensor} looks like {said} ({self.low:.4g} to {self.high:.4g}): send {wanted}"

    @property
    def sensor(self) -> str:
        """Its zone, device and metric."""
        return f"{self.zone}/{self.device} {self.metric}"


@dataclass(frozen=True, slots=True)
class SiteStep:
    """All rows of a site that end at ``end_ms``; zones sorted by name, ``Z`` may be 0 (only a weather station)."""

    partition: int
    site: str
    end_ms: int
    zones: tuple[str, ...]
    values: F32  # [Z, C], NaN where missing
    ages_s: F32  # [Z, C], from the newest reading to the row's end, NaN where none ever came
    devices: Sequence[DeviceRow] = ()
    schema_version: int = SCHEMA_VERSION
    step_ms: int = 0  # how long the row is; 0 where nobody asks
    faults: Sequence[Sequence[str]] = ()  # [Z], what is wrong with a zone's sensors; () where nobody looked
    units: tuple[UnitFault, ...] = ()  # the site's sensors of another unit: their values are in no zone's row

    @property
    def rows(self) -> int:
        """How many rows, of zones and of devices, it has."""
        return len(self.zones) + len(self.devices)

    def made(self) -> SiteStep:
        """The step itself: its values are in memory."""
        return self


@dataclass(frozen=True, slots=True)
class SilentStep:
    """A step without a sample; ``make_rows`` gives values and ages of its end each time they are asked for. Of a large
    site that was silent for days thousands close together, which would be gigabytes.
    """

    partition: int
    site: str
    end_ms: int
    zones: tuple[str, ...]
    make_rows: Callable[[int], tuple[F32, F32]]
    schema_version: int
    step_ms: int
    units: tuple[UnitFault, ...]
    devices: ClassVar[Sequence[DeviceRow]] = ()

    @property
    def values(self) -> F32:
        """As of a :class:`SiteStep`, made anew."""
        return self.make_rows(self.end_ms)[0]

    @property
    def ages_s(self) -> F32:
        """As of a :class:`SiteStep`, made anew."""
        return self.make_rows(self.end_ms)[1]

    @property
    def rows(self) -> int:
        """How many rows it has, all of them of zones."""
        return len(self.zones)

    def made(self) -> SiteStep:
        """The step with its values in memory."""
        values, ages_s = self.make_rows(self.end_ms)
        return SiteStep(
            self.partition, self.site, self.end_ms, self.zones, values, ages_s,
            schema_version=self.schema_version, step_ms=self.step_ms, units=self.units,
        )  # fmt: skip


ClosedStep = SiteStep | SilentStep
"""What windows close, to be read only; :meth:`~SiteStep.made` gives what can be kept and changed."""


class DeadLetter(NamedTuple):
    """A sample, value or message that was kept out; ``(partition, offset, item)`` is its permanent name."""

    partition: int
    offset: int
    item: int
    receive_ms: int
    topic: str
    reason: str
    detail: str
    payload: bytes
