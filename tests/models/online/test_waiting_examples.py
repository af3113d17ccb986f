"""Examples wait in rings until their truth comes, each horizon for as long as it needs."""

from __future__ import annotations

import numpy as np

from models.online.waiting_examples import WaitingExamples
from models.spec import ForecastSpec

ZONES = np.arange(2)
SPEC = ForecastSpec(("air_temp_c", "rh_pct", "co2_ppm"), targets=("air_temp_c",), horizons_min=(15, 60))
STRIDE, QUARTER, HOUR = 3, 3, 12  # steps of five minutes
FIRST = 300


def waiting() -> WaitingExamples:
    """Room for two zones, five regressors of an origin, two of a horizon, three experts."""
    found = WaitingExamples(SPEC, (5, 2), 3, 2)
    found.add(2)
    return found


def keep(held: WaitingExamples, step: int, base: float) -> None:
    """An example of both zones."""
    of_horizons = np.full((2, 2, 1), base, np.float32)
    held.keep_base(ZONES, step, of_horizons)
    regressors = np.ones((2, 5), np.float32), np.ones((2, 2, 2), np.float32)
    held.keep(ZONES, step, regressors, np.full((2, 2, 1, 3), 1.5, np.float32), of_horizons + 1)


def test_each_horizon_matures_at_its_time() -> None:
    """With what was said then, and with a truth only for zones that had an example there."""
    held = waiting()
    keep(held, FIRST, 20.0)
    assert held.matured(ZONES, FIRST + QUARTER - 1) is None
    for horizon, after in enumerate((QUARTER, HOUR)):
        came = held.matured(ZONES, FIRST + after)
        assert came is not None
        assert came.h[came.due[0]].tolist() == [horizon]
        truth = np.array([[22.0], [np.nan]], np.float32)
        at = came.h.tolist().index(horizon)
        assert held.off("base", ZONES, came, truth)[0, at] == 2.0
        assert held.off("median", ZONES, came, truth)[0, at] == 1.0
        assert np.isnan(held.off("base", ZONES, came, truth)[1, at])
        assert held.regressors(ZONES, came).shape == (2, len(came.h), 7)
        np.testing.assert_allclose(held.deviations(ZONES, came)[:, at], 1.5, atol=0.03)


def test_a_newer_origin_takes_the_place() -> None:
    """A forecast that comes late is kept where its place is still its own: that of the long horizon."""
    held = waiting()
    for step in range(FIRST, FIRST + 3 * STRIDE, STRIDE):
        keep(held, step, 20.0)
    z, h, at = held.kept(ZONES, FIRST)
    assert set(h.tolist()) == {1}
    assert sorted(z.tolist()) == [0, 1]
    held.amend(ZONES[z], at, np.full((2, 1), 5.0, np.float32), np.full((2, 1), 1e9))
    came = held.matured(ZONES, FIRST + HOUR)
    assert came is not None
    truth = np.full((2, 1), 6.0, np.float32)
    at_hour = came.h.tolist().index(1)
    assert held.off("median", ZONES, came, truth)[0, at_hour] == 1.0


def test_what_does_not_fit_half_precision_is_cut() -> None:
    """Nothing that is kept is infinite."""
    held = waiting()
    keep(held, FIRST, 1e9)
    assert np.isfinite(held["base"][:, held.at(FIRST)]).all()
    assert np.isfinite(held["median"][:, held.at(FIRST)]).all()
