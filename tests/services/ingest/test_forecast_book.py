"""What was issued before a crash counts again, once, after the row after which it was issued."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from services.ingest.forecast_book import ForecastBook
from services.ingest.forecasting import MAX_ORIGINS

STEP_MS = 300_000


def origin(end_ms: int, *zones: str) -> Any:
    """As much of an origin as is looked at."""
    return SimpleNamespace(site="s", end_ms=end_ms, zones=zones or ("a",))


def forecast(origin_ms: int, version: str = "v1", age_steps: int = 0, zones: tuple[str, ...] = ("a",)) -> Any:
    """As much of a forecast as is looked at."""
    return SimpleNamespace(site="s", origin_ms=origin_ms, version=version, age_steps=age_steps, zones=zones)


def test_the_newest_forecast_of_the_newest_origin_is_told() -> None:
    """One of an earlier origin, whose network answered late, does not take its place; one of the same does."""
    issued, late, again = ForecastBook(STEP_MS), forecast(STEP_MS), forecast(2 * STEP_MS, "v2")
    issued.put(origin(2 * STEP_MS), forecast(2 * STEP_MS))
    issued.put(origin(STEP_MS), late)
    issued.put(origin(2 * STEP_MS), again)
    assert issued.origins_ms() == {"s": 2 * STEP_MS}
    found = issued.of_zone("s", "a")
    assert found is not None
    assert found.forecast is again
    assert issued.of_zone("s", "b") is issued.of_zone("t", "a") is None


def test_a_forecast_of_before_a_crash_counts_after_its_row() -> None:
    """At once where that row is the newest; never where the snapshot has a newer one."""
    issued = ForecastBook(STEP_MS)
    assert issued.expect(forecast(5 * STEP_MS), 5 * STEP_MS)
    assert not issued.expect(forecast(4 * STEP_MS), 5 * STEP_MS)
    slow = forecast(5 * STEP_MS, age_steps=2)
    assert not issued.expect(slow, 5 * STEP_MS)
    assert issued.take_waiting("s", 6 * STEP_MS) == []
    assert issued.take_waiting("s", 7 * STEP_MS) == [slow]
    assert issued.take_waiting("s", 7 * STEP_MS) == []


def test_it_stays_as_it_was_for_the_same_version_and_zones() -> None:
    """Another version, or a zone more, is forecast anew; and what nobody waits for any more is thrown away."""
    issued, kept = ForecastBook(STEP_MS), forecast(STEP_MS)
    issued.expect(kept, STEP_MS)
    assert issued.of_before(origin(STEP_MS), "v1") is kept
    assert issued.of_before(origin(STEP_MS), "v2") is None
    assert issued.of_before(origin(STEP_MS, "a", "b"), "v1") is None
    issued.begin_row("s", (1 + MAX_ORIGINS) * STEP_MS)
    assert issued.has_before("s", STEP_MS)
    issued.begin_row("s", (2 + MAX_ORIGINS) * STEP_MS)
    assert not issued.has_before("s", STEP_MS)
