"""A made-up zone, its rules and its half-hours."""

from __future__ import annotations

import numpy as np

from models.alerts.alert_rule import AlertRule
from models.alerts.rule_watch import RuleWatch, Said, SiteAhead
from models.spec import ForecastSpec

CHANNELS = ("air_temp_c", "rh_pct", "co2_ppm", "leaf_temp_c", "out_radiation_w_m2")
SPEC = ForecastSpec(CHANNELS, ("air_temp_c", "rh_pct"), step_ms=600_000)
DAY = SPEC.steps_per_day
RULES = [
    AlertRule(name="cold", kind="frost", limit=5.0, for_min=20, keep_min=60, lead_h=4),
    AlertRule(name="faults", kind="sensor_fault"),
    AlertRule(name="wet", kind="condensation", fruit_mm=60.0, lead_h=12),
]


class World:
    """Two zones whose nights are cold every other day; scenarios know the truth but for some noise."""

    def __init__(self, days: int) -> None:
        at = np.arange((days + 2) * DAY)
        night = np.cos(2 * np.pi * at / DAY) > 0.7
        air = np.where(night & (at // DAY % 2 == 0), 3.0, 12.0)
        self.rows = np.full((2, len(at), len(CHANNELS)), np.nan, dtype=np.float32)
        self.rows[0, :, 0], self.rows[1, :, 0] = air, air + 1
        self.rows[..., 1], self.rows[..., 4] = 80.0, 100.0
        self.minute = at * 10 % 1440
        self.night = night
        self.rng = np.random.default_rng(0)

    def ahead(self, t: int) -> SiteAhead:
        """From row ``t``, which ends at a half hour."""
        later = t + 3 * np.arange(1, 49)
        air = self.rows[:, later, 0] + self.rng.normal(0, 0.5, (20, 2, 48)).astype(np.float32)
        day = slice(t + 1 - DAY, t + 1)
        return SiteAhead(
            (t + 1) // 3, {"air_temp_c": air.astype(np.float32), "rh_pct": np.full_like(air, 80)},
            (self.night[day], self.night[later]), (self.minute[day], self.minute[later]),
        )  # fmt: skip

    def see(self, watch: RuleWatch, t: int) -> list[list[Said]]:
        """One half hour."""
        return watch.see(np.arange(2), self.rows[:, t + 1 - DAY : t + 1], self.ahead(t))


def half_hours(days: int) -> range:
    """Rows that end at half hours, after a day."""
    return range(DAY - 1, days * DAY, 3)
