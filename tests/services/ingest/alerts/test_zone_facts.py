"""What is wrong in a zone of which nothing comes, whose sensors report seldom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from models.alerts.facts import Fact
from models.spec import ForecastSpec, Place
from services.ingest.alerts.zone_facts import facts_of_row
from services.ingest.alerts.zone_look import clock_of
from services.ingest.learned.rings import Rings
from services.store.rows import SiteStep
from tests.services.ingest.samples import STEP, T0

SPEC = ForecastSpec(("air_temp_c", "rh_pct"), ("air_temp_c",), (60,), STEP, lookback_steps=4)
EVERY, LAST = 3, 48
"""The zone reports in each third row, and for the last time in this one."""


@pytest.mark.parametrize(("row", "kinds"), [(LAST + 7, ["earlier"]), (LAST + 8, ["stale_zone"])])
def test_metrics_of_a_zone_that_is_silent_are_not_told_one_by_one(row: int, kinds: list[str]) -> None:
    """Nor before the zone itself is, though a metric is missed sooner. One that was missed before stays told."""
    rings = Rings(STEP, SPEC.steps_per_day, 2)
    index = np.array([rings.index("demo", "z1")])
    for n in range(row + 1):
        came = n <= LAST and n % EVERY == 0
        rings.write(index, T0 + n * STEP, np.full((1, 2), 20.0 if came else np.nan, np.float32))
    heard_ms = T0 + LAST * STEP
    missed = [Fact("silent_metric", heard_ms + STEP, "now"), Fact("silent_metric", heard_ms - STEP, "earlier")]
    watch = SimpleNamespace(facts=lambda _: {"z1": missed}, events=[])
    none = np.full((1, 2), np.nan, np.float32)
    step = SiteStep(0, "demo", T0 + row * STEP, ("z1",), none, none)
    view = cast(Any, SimpleNamespace(rings=rings, watch=watch))
    found = facts_of_row(step, view, SPEC, {"z1": heard_ms}, str)
    assert [fact.words if fact.kind == "silent_metric" else fact.kind for fact in found["z1"]] == kinds


def test_a_time_of_another_day_has_its_date() -> None:
    """An event that goes on for days, or a silence, began at no time of today; 24 hours ahead is the farthest."""
    clock = clock_of(Place("Europe/Amsterdam"), T0)
    day_ms = 24 * 3_600_000
    assert [clock(T0 + ms) for ms in (1 - day_ms, -day_ms, -3 * day_ms, 0, day_ms)] == [
        "01:00", "2022-02-28 01:00", "2022-02-26 01:00", "01:00", "01:00",
    ]  # fmt: skip
