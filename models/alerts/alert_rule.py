"""Step 9 of the way of a reading: what a grower wants to be warned of, as a rule.

A rule of a course watches one number of a zone, now and in scenarios: :data:`COURSES` says which, and on which side of
the limit it is bad. A rule of a state (:data:`STATES`) is about what is known now: a sensor that fails, a zone that is
silent. Both have the same alerts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["COURSES", "DAY_MIN", "SEVERITIES", "STATES", "AlertRule", "Course"]

SEVERITIES = ("info", "warning", "critical")
DAY_MIN = 24 * 60
AIR_C = (-20.0, 60.0)
"""What is taken as a temperature of the air in a greenhouse (edge.wire.vocabulary)."""


@dataclass(frozen=True, slots=True)
class Course:
    """What a kind of rule watches: ``sign`` 1 where too much of it is bad, -1 where too little is. Limits lie between
    ``low`` and ``high``: beyond, a greenhouse has no such number, and the rule would be silent for ever, or never.
    """

    what: str
    unit: str
    sign: int
    low: float
    high: float


COURSES = {
    "frost": Course("air temperature", "°C", -1, *AIR_C),
    "heat": Course("air temperature", "°C", 1, *AIR_C),
    "condensation": Course("distance of leaf or fruit to the dew point", "°C", -1, -5, 20),
    "vpd_low": Course("vapour pressure deficit", "kPa", -1, 0, 10),
    "vpd_high": Course("vapour pressure deficit", "kPa", 1, 0, 10),
    "co2_low": Course("CO₂", "ppm", -1, 0, 5000),
    "co2_high": Course("CO₂", "ppm", 1, 0, 5000),
    "botrytis": Course("wet hours of the last 24 within the temperature band", "h", 1, 0, 24),
    "mean_low": Course("24-hour mean temperature beside the one that the light asks for", "°C", -1, -20, 20),
    "mean_high": Course("24-hour mean temperature beside the one that the light asks for", "°C", 1, -20, 20),
}  # fmt: skip

STATES = {
    "sensor_fault": "a sensor is stuck, spikes or is off",
    "silent_metric": "a metric is not heard any more",
    "stale_zone": "a zone has no new rows",
    "drift": "inputs or errors are not what they were",
    "plan_not_followed": "a setpoint is not what was planned",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertRule:
    """One rule. Raises ``ValueError`` with one sentence where it makes no sense.

    ``limit`` is in the unit of its kind, ``night_limit`` holds instead while the sun is down. An event begins when the
    limit is crossed for ``for_min`` minutes, and is over when the value was on the other side, by ``hysteresis`` at
    least, for ``keep_min``. Hours are minutes of the zone's day, from and to, and may go over midnight; where both are
    the same they are the whole day. An alert fires from a chance of ``chance`` that an event begins within ``lead_h``
    hours, or as far as forecasts go, and at once when one has begun.

    >>> AlertRule(name="cold", kind="frost", limit=4.0).lead_h
    12.0
    >>> AlertRule(name="cold", kind="frost", limit=4.0, chance=60)
    Traceback (most recent call last):
        ...
    ValueError: cold: chance is 60; it must be between 0.01 and 0.99
    """

    name: str
    kind: str
    limit: float = 0.0
    night_limit: float | None = None
    hysteresis: float = 0.0
    for_min: float = 0.0
    keep_min: float = 60.0
    hours: tuple[int, int] | None = None
    severity: str = "warning"
    lead_h: float = 12.0
    chance: float = 0.25
    fruit_mm: float | None = None  # condensation and botrytis: fruit of this diameter, too
    band_c: tuple[float, float] = (15.0, 25.0)  # botrytis
    wet_rh_pct: float = 90.0  # botrytis
    base_c: float = 16.0  # mean_low, mean_high: what a day without light asks for ...
    per_100_j_cm2: float = 0.2  # ... and what each 100 J/cm² of radiation adds

    def __post_init__(self) -> None:
        for sentence in self._wrong():
            raise ValueError(f"{self.name}: {sentence}")

    @property
    def is_course(self) -> bool:
        """Whether it watches a number, which scenarios foresee."""
        return self.kind in COURSES

    @property
    def sign(self) -> int:
        """1 where too much is bad, -1 where too little is."""
        return COURSES[self.kind].sign

    def limit_at(self, is_night: bool) -> float:
        """The limit that holds then."""
        return self.limit if self.night_limit is None or not is_night else self.night_limit

    def beyond(self) -> list[str]:
        """Each number that makes no sense in a greenhouse, as a sentence. Such a rule works, and warns always or never.

        So who writes one is told. Those of a snapshot or a log were taken by an earlier release, and hold.

        >>> AlertRule(name="hot", kind="heat", limit=335.0).beyond()
        ['limit is 335; it must be between -20 and 60 °C']
        """
        course = COURSES.get(self.kind)
        checked: list[tuple[str, float | None, tuple[float, float], str]] = []
        if course is not None:
            limits, unit = (course.low, course.high), f" {course.unit}"
            checked += [("limit", self.limit, limits, unit), ("night_limit", self.night_limit, limits, unit)]
            checked.append(("hysteresis", self.hysteresis, (0, course.high - course.low), unit))
        elif self.kind == "plan_not_followed":
            checked.append(("limit", self.limit, (0, 100), ""))
        checked += [("band_c", value, AIR_C, " °C") for value in self.band_c]
        checked += [("base_c", self.base_c, AIR_C, " °C"), ("per_100_j_cm2", self.per_100_j_cm2, (0, 5), " °C")]
        return [
            f"{name} is {value:g}; it must be {_between(low, high)}{unit}"
            for name, value, (low, high), unit in checked if value is not None and not low <= value <= high
        ]  # fmt: skip

    def _wrong(self) -> list[str]:
        found = []
        if self.kind not in COURSES and self.kind not in STATES:
            found.append(f"kind {self.kind!r} is not one of {', '.join([*COURSES, *STATES])}")
        if self.severity not in SEVERITIES:
            found.append(f"severity {self.severity!r} is not one of {', '.join(SEVERITIES)}")
        for name, low, high in (
            ("chance", 0.01, 0.99), ("lead_h", 0.5, 24), ("hysteresis", 0, math.inf), ("for_min", 0, DAY_MIN),
            ("keep_min", 0, DAY_MIN), ("wet_rh_pct", 1, 100),
        ):  # fmt: skip
            value = getattr(self, name)
            if not low <= value <= high:
                found.append(f"{name} is {value:g}; it must be " + _between(low, high))
        if self.fruit_mm is not None and not 5 <= self.fruit_mm <= 200:
            found.append(f"fruit_mm is {self.fruit_mm:g}; it must be between 5 and 200")
        if not self.band_c[0] < self.band_c[1]:
            found.append(f"band_c goes from {self.band_c[0]:g} to {self.band_c[1]:g}; it must go up")
        if self.hours is not None and not all(0 <= at <= DAY_MIN for at in self.hours):
            found.append("hours must be two times of a day, such as 18:00 and 07:00")
        limits = [self.limit, *([] if self.night_limit is None else [self.night_limit])]
        if not all(math.isfinite(limit) for limit in limits):
            found.append("limits must be numbers")
        return found


def _between(low: float, high: float) -> str:
    return f"between {low:g} and {high:g}" if math.isfinite(high) else f"{low:g} or more"
