"""What ``benchmarks.live`` calls held, and how late it calls a forecast."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks._held import ForecastLag, Held
from benchmarks._load import SITES

HELD = Held(1000.0, 300.0, 999.0, 0.6, 1.4, 0.0, 50, 2.1, {"gateway": 0.2})


@pytest.mark.parametrize(
    "change",
    [
        {"published_per_s": 970.0}, {"lag_s": 1.01}, {"most_lag_s": 3.1}, {"forecast_lag_s": 3.1}, {"growth": 0.02},
    ],
)  # fmt: skip
def test_a_rate_is_held_where_nothing_is_late(change: dict[str, float]) -> None:
    """All is published, samples and forecasts come in time and the lag does not grow; else it is not held."""
    assert HELD.is_held
    assert not replace(HELD, **change).is_held  # type: ignore[arg-type]


def test_a_forecast_is_late_from_when_its_rows_may_close() -> None:
    """The end of the step and the lateness later it is due; what is not there yet is as late as it is by now."""
    origins = dict.fromkeys(SITES, 0.0)
    lag = ForecastLag(origins.__getitem__, from_s=975.0, step_s=60.0, lateness_s=30.0)
    lag.look(1049.5)  # of the step that ended at 960 there are no samples; that which ends at 1020 closes at 1050
    assert (lag.count, lag.newest_s) == (0, 0.0)
    lag.look(1051.0)
    assert (lag.count, lag.longest_s) == (0, 1.0)
    origins.update(dict.fromkeys(SITES[1:], 1020.0))
    lag.look(1051.5)
    assert (lag.count, lag.longest_s) == (len(SITES) - 1, 1.5)
    lag.look(1057.0)
    assert (lag.count, lag.longest_s) == (len(SITES) - 1, 7.0)
    origins[SITES[0]] = 1020.0
    lag.look(1057.5)
    assert (lag.count, lag.longest_s) == (len(SITES), 7.5)
    lag.look(1110.25)  # the next step's forecasts are due at 1110
    assert (lag.newest_s, lag.longest_s) == (0.25, 7.5)
