"""Intervals: the nominal share lies inside, by hour of day, after a change, for every zone."""

import numpy as np
import pytest

from models.online.intervals import Intervals

A_DAY = 96
FIRST = np.array([0])


def covered(errors, delay=0, start=0.5):
    """Share inside p10 ... p90 of ``errors [T, Z]``, learned ``delay`` steps late, after the first ``start``."""
    intervals = Intervals(1, 1, 4)
    zones = np.arange(errors.shape[1])
    for _ in zones.tolist():
        intervals.add_zones()
    inside = np.full(errors.shape, np.nan)
    for t in range(len(errors)):
        if t >= delay:
            hour = np.full(len(zones), (t - delay) % A_DAY // 4)
            intervals.learn(zones, FIRST, hour, errors[t - delay][:, None, None].astype(np.float32))
        below, above = (side[:, 0, 0] for side in intervals.predict(zones, np.full((len(zones), 1), t % A_DAY // 4)))
        assert (below >= 0).all()
        assert (above >= 0).all()
        inside[t] = (errors[t] >= -below) & (errors[t] <= above)
    return inside[round(len(errors) * start) :]


def test_four_fifths_lie_inside_by_zone_and_quarter_of_the_day():
    """Errors that are three times as large by day, and skewed: each quarter of the day of each zone is covered."""
    rng = np.random.default_rng(0)
    hour = np.arange(60 * A_DAY) % A_DAY // 4
    size = np.where((hour > 7) & (hour < 19), 3.0, 1.0)[:, None] * np.array([1.0, 5.0])
    inside = covered(rng.exponential(size) - size, delay=A_DAY)
    for block in range(4):
        at = (np.arange(len(inside)) % A_DAY) // (A_DAY // 4) == block
        assert (np.abs(inside[at].mean(axis=0) - 0.8) < 0.07).all()
    assert abs(inside.mean() - 0.8) < 0.03


def test_coverage_returns_after_a_change():
    """Errors become four times as large; within three weeks the share is back."""
    rng = np.random.default_rng(1)
    errors = rng.normal(size=(60 * A_DAY, 2))
    errors[30 * A_DAY :] *= 4
    inside = covered(errors, start=0)
    assert abs(inside[51 * A_DAY :].mean() - 0.8) < 0.06


def test_a_side_that_was_never_missed_is_found_again():
    """However long all truths lay above their median: as many below it until the interval holds them."""

    def found_again(after):
        intervals, zone, hour, one = Intervals(1, 1, 4), np.array([0]), np.array([3]), np.ones((1, 1, 1), np.float32)
        intervals.add_zones()
        for _ in range(after):
            intervals.learn(zone, FIRST, hour, one)
        for count in range(5000):
            if intervals.predict(zone, hour[:, None])[0] >= 1:
                return count
            intervals.learn(zone, FIRST, hour, -one)
        return None

    assert found_again(9_000) == found_again(18_000) < 300


def test_a_new_zone_starts_from_what_the_others_know():
    """Nothing known gives no width; the first error gives one."""
    intervals = Intervals(2, 1, 4)
    intervals.add_zones()
    zone, hours = np.array([0]), np.array([[3, 15]])
    assert (intervals.predict(zone, hours)[0] == 0).all()
    intervals.learn(zone, FIRST, np.array([3]), np.array([[[2.0]]], np.float32))
    assert (intervals.predict(zone, hours)[1][0, 0] > 0).all()


def test_missing_truths_teach_nothing():
    """NaN leaves the state as it was."""
    intervals = Intervals(1, 1, 4)
    intervals.add_zones()
    zone = np.array([0])
    intervals.learn(zone, FIRST, np.array([3]), np.array([[[2.0]]], np.float32))
    before = intervals.state_dict()
    intervals.learn(zone, FIRST, np.array([4]), np.array([[[np.nan]]], np.float32))
    assert all(np.array_equal(before[k], v, equal_nan=True) for k, v in intervals.state_dict().items())


def test_size_is_as_steady_after_months_as_before():
    """One wild error moves the usual size by its share, also when the count of examples is at its limit."""
    intervals = Intervals(1, 1, 4)
    zone = np.array([0])
    intervals.add_zones()
    hour, usual = np.zeros(1, np.int64), np.ones((1, 1, 1), np.float32)
    for examples in range(1, 600):
        intervals.learn(zone, FIRST, hour, usual)
        if examples > 30:
            state = intervals.state_dict()
            assert intervals.learn(zone, FIRST, hour, 11 * usual).item() == pytest.approx(11)
            assert intervals.learn(zone, FIRST, hour, usual).item() == pytest.approx(1 / 1.5), examples
            intervals.load_state_dict(state)


def test_intervals_begin_where_others_are():
    """A zone that is taken over has the widths of the other; a zone beside it keeps its own."""
    one, other = (Intervals(1, 1, 4) for _ in range(2))
    for made in (one, other):
        made.add_zones(2)
    zones, hour = np.arange(2), np.array([3, 3])
    for size in (1.0, 3.0):
        other.learn(zones, FIRST, hour, np.full((2, 1, 1), size, np.float32))
    one.learn(zones, FIRST, hour, np.full((2, 1, 1), 9.0, np.float32))
    before = one.predict(zones, hour[:, None])[1]
    one.take(zones[:1], other, pooled=True)
    after, wanted = one.predict(zones, hour[:, None])[1], other.predict(zones, hour[:, None])[1]
    assert after[0] == wanted[0]
    assert after[1] == pytest.approx(before[1], rel=0.01)
    assert after[1] > 2 * wanted[1]
