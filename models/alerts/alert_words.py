"""Step 9 of the way of a reading: what an alert says to a person, in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from models.alerts.alert_rule import COURSES, AlertRule

__all__ = ["INPUTS", "event_words", "over_words"]

INPUTS = {
    "air": ("air", "°C", 1),
    "leaf": ("leaf", "°C", 1),
    "fruit": ("fruit", "°C", 1),
    "dew_point": ("dew point", "°C", 1),
    "humidity": ("humidity", "%", 0),
    "vpd": ("VPD", "kPa", 2),
    "co2": ("CO₂", "ppm", 0),
    "wet_hours": ("wet hours of the last 24", "h", 1),
    "beside_light": ("24-hour mean", "°C", 1),
}
"""What speaks for an event -> its name, unit and decimals."""

NAMES = {
    "frost": "cold", "heat": "heat", "condensation": "condensation", "vpd_low": "air too humid",
    "vpd_high": "air too dry", "co2_low": "CO₂ too low", "co2_high": "CO₂ too high", "botrytis": "botrytis risk",
    "mean_low": "24-hour mean too low for the light", "mean_high": "24-hour mean too high for the light",
    "sensor_fault": "sensor fault", "silent_metric": "no readings", "stale_zone": "no fresh readings",
    "drift": "readings have drifted", "plan_not_followed": "the plan is not followed",
}  # fmt: skip
"""What the kinds of rules are called, in mails as on the English page."""


LIMITS = {
    "condensation": "less than {} °C above the dew point", "botrytis": "more than {} wet hours in 24",
    "vpd_low": "VPD below {} kPa", "vpd_high": "VPD above {} kPa",
    "mean_low": "by more than {} °C", "mean_high": "by more than {} °C",
}  # fmt: skip
"""Limits that a name, a side and a unit do not tell."""


UNTIL = ", likely until"


def event_words(
    rule: AlertRule, chance: float, is_now: bool, since: str, until: str, inputs: Mapping[str, float],
    limit: float | None = None, read: str = "",
) -> str:  # fmt: skip
    """What, beyond which ``limit``, how sure, when and why; ``since`` and ``until`` are times as people at the site
    write them. So is ``read``: when something was read last, where that is some time ago.

    >>> event_words(AlertRule(name="x", kind="frost"), 0.37, False, "04:00", "06:30", {"air": 11.8}, 12.0)
    'cold (below 12 °C) 37 % between 04:00 and 06:30; air 11.8 °C'
    >>> rule = AlertRule(name="wet", kind="condensation", fruit_mm=60)
    >>> event_words(rule, 0.72, False, "04:00", "06:30", {"air": 11.8, "fruit": 10.9, "dew_point": 11.2}, 0)
    'condensation 72 % between 04:00 and 06:30; air 11.8 °C, fruit 10.9, dew point 11.2'
    >>> event_words(rule, 1.0, True, "04:10", "", {"air": 11.8})
    'condensation since 04:10; air 11.8 °C'
    >>> event_words(rule, 0.72, False, "04:00", "06:30", {"air": 11.8}, 0, read="23:00")
    'condensation 72 % between 04:00 and 06:30; air 11.8 °C; last readings 23:00'
    >>> event_words(AlertRule(name="x", kind="mean_low"), 1, True, "06:00", "", {"beside_light": -2.3})
    '24-hour mean too low for the light since 06:00; 24-hour mean 2.3 °C below what the light asks for'
    """
    what = NAMES[rule.kind] + ("" if limit is None else _limit_words(rule, limit))
    if is_now:
        said = f"{what} since {since}" + (f"{UNTIL} {until}" if until else "")
    else:
        said = f"{what} {round(100 * chance)} % between {since} and {until}"
    parts, unit_before = [], ""
    for name, value in inputs.items():
        label, unit, decimals = INPUTS[name]
        number = abs(value) if name == "beside_light" else value
        parts.append(f"{label} {number:.{decimals}f}" + (f" {unit}" if unit != unit_before else ""))
        if name == "beside_light":
            parts[-1] += f" {'above' if value > 0 else 'below'} what the light asks for"
        unit_before = unit
    return said + ("; " + ", ".join(parts) if parts else "") + (f"; last readings {read}" if read else "")


def over_words(said: str) -> str:
    """The same of an event that is over: until when it would last was foreseen, and may be still to come.

    >>> over_words("heat (above 33 °C) since 13:10, likely until 18:00; air 33.4 °C; last readings 15:00")
    'heat (above 33 °C) since 13:10; air 33.4 °C; last readings 15:00'
    """
    return re.sub(f"{UNTIL} [^;]*", "", said)


def _limit_words(rule: AlertRule, limit: float) -> str:
    """Vapour condenses at the dew point: no limit needs to be named there.

    >>> [_limit_words(AlertRule(name="x", kind=kind), 0.5) for kind in ("condensation", "vpd_low", "co2_high")]
    [' (less than 0.5 °C above the dew point)', ' (VPD below 0.5 kPa)', ' (above 0.5 ppm)']
    >>> _limit_words(AlertRule(name="x", kind="mean_low"), -2.0)
    ' (by more than 2 °C)'
    """
    if rule.kind == "condensation" and not limit:
        return ""
    course = COURSES[rule.kind]
    words = LIMITS.get(rule.kind, f"{'above' if course.sign > 0 else 'below'} {{}} {course.unit}")
    number = 0.0 - limit if rule.kind == "mean_low" else limit  # so far below what the light asks for
    return f" ({words.format(f'{number:g}')})"
