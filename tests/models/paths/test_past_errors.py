"""Past errors: kept together, in units of the forecast, and only when they are known."""

import numpy as np
import pytest

from models.paths.past_errors import DAYS, PastErrors
from models.spec import ForecastSpec

SPEC = ForecastSpec(channels=(), targets=("air_temp_c", "rh_pct"), step_ms=1_800_000, horizons_min=(60, 1440))
DAY = SPEC.steps_per_day


def run(made, days, truth=1.0, start=0, zones=2):
    """A path of 0 with p10 -1 and p90 2 from every due step; ``truth`` is what comes, of the second target half."""
    indices, path = np.arange(zones), np.tile(np.float32([-1, 0, 2]), (zones, len(made.steps), 2, 1))
    for step in range(start, start + round(days * DAY)):
        bins = np.full(zones, step % DAY)
        made.learn(indices, step, np.tile(np.float32([truth, truth / 2]), (zones, 1)), bins)
        if made.due(bins).all():
            made.issue(indices, step, bins, path)


def made_with(zones=2):
    """Errors of new zones."""
    made = PastErrors(SPEC, 1)
    made.add_zones(zones)
    return made


@pytest.mark.parametrize(("truth", "error"), [(1.0, 0.5), (-1.0, -1.0), (100.0, 127 / 32)])
def test_an_error_is_measured_in_distances_to_p10_or_p90(truth, error):
    """1 above the median is half the way to a p90 of 2; what is far out is cut."""
    made = made_with()
    run(made, 3, truth)
    newest = made.templates(np.arange(2), 3 * DAY - 1, (3 * DAY - 1) % DAY)[0]
    assert newest[:, :, 0] == pytest.approx(np.full((2, len(made.steps)), error))


def test_only_whole_days_that_are_over_are_templates():
    """Of paths that still wait for truths nothing is told, and of days before the zone was there neither."""
    made = made_with()
    run(made, 3)
    held = made.templates(np.arange(2), 3 * DAY - 1, (3 * DAY - 1) % DAY)
    assert len(held) == 2 * (DAYS - 1)
    whole = np.isfinite(held).all(axis=(1, 2, 3))
    assert whole[:4].all()
    assert not np.isfinite(held[5:]).any()


def test_a_row_is_one_origin_of_the_site():
    """A zone that came later lacks the older rows and shares the newer ones."""
    made = made_with(1)
    run(made, 4, zones=1)
    made.add_zones()
    run(made, 3, start=4 * DAY)
    step = 7 * DAY - 1
    both, alone = (made.templates(np.array(which), step, step % DAY) for which in ([0, 1], [0]))
    assert np.array_equal(both[:, :1], alone, equal_nan=True)
    assert np.isfinite(both[0]).all()
    assert np.isnan(both[8, 1]).all()
    assert np.isfinite(both[8, 0]).all()


def test_a_missing_truth_stays_unknown():
    """Where a sensor was silent the template has no error, and the others are kept."""
    made = made_with()
    run(made, 2)
    run(made, 1, np.nan, start=2 * DAY)
    run(made, 1, start=3 * DAY)
    held = made.templates(np.arange(2), 4 * DAY - 1, (4 * DAY - 1) % DAY)
    assert np.isnan(held[:3]).any()
    assert np.isfinite(held).any()


def test_a_change_of_the_clock_loses_no_days():
    """An hour more in the local day: the days before are still templates."""
    made = made_with()
    run(made, 5)
    step = 5 * DAY - 1
    moved = made.templates(np.arange(2), step, (step + 2) % DAY)
    assert np.isfinite(moved).any(axis=(1, 2, 3)).sum() >= 6


def test_errors_go_on_from_their_state():
    """A copy that took over the state learns the same, bit for bit."""
    made, other = made_with(), PastErrors(SPEC, 1)
    run(made, 3)
    other.load_state_dict(made.state_dict())
    for one in (made, other):
        run(one, 2, -0.5, start=3 * DAY)
    held = [one.templates(np.arange(2), 5 * DAY - 1, DAY - 1) for one in (made, other)]
    assert np.array_equal(*held, equal_nan=True)
