"""Step 9 of the way of a reading: the rules that a crop begins with.

The limits are starting points, as growers' handbooks give them, and no more: what is too warm depends on cultivar,
light and CO₂. Whoever grows something changes them (docs/alerts.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from models.alerts.alert_rule import AlertRule

__all__ = ["CROPS", "STAGES", "CropLimits", "rules_for"]

STAGES = ("young", "growing", "fruiting")
"""A young crop has few leaves and roots: it is given moister air. Vapour condenses on the fruit of a fruiting one."""


@dataclass(frozen=True, slots=True)
class CropLimits:
    """Where a crop's climate begins to harm it: temperatures in °C, VPD in kPa by day; and its fruit."""

    cold_c: float
    hot_c: float
    vpd_low_kpa: float
    vpd_high_kpa: float
    fruit_mm: float | None
    base_c: float


CROPS = {
    "tomato": CropLimits(10, 33, 0.2, 1.6, 60, 16.5),
    "cucumber": CropLimits(13, 35, 0.2, 1.4, 45, 18.0),
    "pepper": CropLimits(12, 33, 0.2, 1.5, 70, 17.5),
    "strawberry": CropLimits(3, 29, 0.15, 1.3, 30, 10.0),
    "lettuce": CropLimits(2, 28, 0.1, 1.3, None, 9.0),
    "other": CropLimits(4, 35, 0.15, 1.8, None, 14.0),
}

YOUNG = 0.7
"""A young crop bears this part of the VPD of a grown one."""

SOON_H = 4
"""What the day brings is known some hours ahead; a cold or wet night in the evening before."""

NIGHT = 0.8
"""At night, when stomata are nearly shut, this part of the day's highest VPD is much already."""


@cache  # asked for at each row of a site that has no rules of its own
def rules_for(crop: str = "other", stage: str = "growing") -> tuple[AlertRule, ...]:
    """The rules of a crop at a stage; raises ``ValueError`` for one that is not known.

    >>> [rule.name for rule in rules_for("tomato")][:3]
    ['frost', 'heat', 'condensation']
    >>> next(rule for rule in rules_for("tomato", "fruiting") if rule.kind == "condensation").fruit_mm
    60
    """
    if crop not in CROPS:
        raise ValueError(f"crop {crop!r} is not one of {', '.join(CROPS)}")
    if stage not in STAGES:
        raise ValueError(f"stage {stage!r} is not one of {', '.join(STAGES)}")
    of = CROPS[crop]
    fruit_mm = of.fruit_mm if stage == "fruiting" else None
    vpd_low, vpd_high = of.vpd_low_kpa, of.vpd_high_kpa * (YOUNG if stage == "young" else 1)

    def rule(kind: str, **said: object) -> AlertRule:
        return replace(AlertRule(name=kind, kind=kind), **said)  # type: ignore[arg-type]

    return (
        rule("frost", limit=of.cold_c, hysteresis=0.5, severity="critical"),
        rule("heat", limit=of.hot_c, hysteresis=0.5, for_min=15, lead_h=SOON_H),
        rule("condensation", limit=0.0, hysteresis=0.3, for_min=15, fruit_mm=fruit_mm),
        rule("vpd_low", limit=vpd_low, night_limit=vpd_low / 2, hysteresis=0.05, for_min=60, lead_h=SOON_H),
        rule("vpd_high", limit=vpd_high, night_limit=NIGHT * vpd_high, hysteresis=0.1, for_min=30, lead_h=SOON_H),
        rule("co2_low", limit=350, hysteresis=30, for_min=30, hours=(8 * 60, 17 * 60), severity="info", lead_h=SOON_H),
        rule("co2_high", limit=1500, hysteresis=100, for_min=15, lead_h=SOON_H),
        rule("botrytis", limit=8, hysteresis=1, fruit_mm=fruit_mm),
        rule("mean_low", limit=-2, hysteresis=0.3, base_c=of.base_c, severity="info"),
        rule("mean_high", limit=3, hysteresis=0.3, base_c=of.base_c, severity="info"),
        rule("sensor_fault", for_min=15),
        rule("silent_metric", for_min=15),
        rule("stale_zone", for_min=15, severity="critical"),
        rule("drift", severity="info", keep_min=24 * 60),
        rule("plan_not_followed", limit=1, for_min=60),
    )  # fmt: skip
