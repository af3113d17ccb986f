"""Changes are called where errors stay large, per zone and target, and are forgotten again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.online.change_points import (
    ALLOWED,
    DEAF_HOURS,
    HOLD_DAYS,
    REMEMBER_DAYS,
    RISE_DAYS,
    WARM_UP_DAYS,
    ChangePoints,
)

A_DAY = 96


def warmed(zones=1, targets=1):
    """A detector past its warm-up, and its zones."""
    change = ChangePoints(targets, A_DAY)
    indices = np.array([change.add_zones() for _ in range(zones)])
    feed(change, indices, np.ones((zones, targets)), round(WARM_UP_DAYS * A_DAY) + 1)
    assert (change.level(indices) == 0).all()
    return change, indices


def feed(change, indices, relative, times):
    """The same errors for so many examples."""
    for _ in range(times):
        change.update(indices, relative.astype(np.float32))


@pytest.mark.parametrize(("size", "hours"), [(2.0, 20), (3.0, 7.5), (9.0, 4.62)])
def test_errors_that_grow_call_after_the_hours_they_need(size, hours):
    """Twice the usual needs 20 hours, thrice 7.5; beyond fourfold a single wild error counts no more than that."""
    change, zone = warmed()
    feed(change, zone, np.full((1, 1), size), int(hours * A_DAY / 24) - 1)
    assert change.level(zone).item() == 0
    feed(change, zone, np.full((1, 1), size), 4)
    assert 0 < change.level(zone).item() < 4 / A_DAY / RISE_DAYS


@given(st.lists(st.floats(0, ALLOWED) | st.just(np.nan), max_size=300))
def test_usual_errors_never_call(sizes):
    """Whatever stays within what weather does, and what is unknown, calls nothing."""
    change, zone = warmed()
    for size in sizes:
        change.update(zone, np.array([[size]], np.float32))
    assert change.level(zone).item() == 0


def test_each_zone_and_target_has_its_own():
    """Only the one whose errors grew is called; another zone that is left out meanwhile keeps what it had."""
    change, zones = warmed(zones=3, targets=2)
    relative = np.ones((2, 2))
    relative[1, 0] = 4.0
    feed(change, zones[:2], relative, A_DAY // 4)
    assert (change.level(zones) > 0).tolist() == [[False, False], [True, False], [False, False]]


def test_nothing_is_called_before_there_is_a_usual_nor_soon_after_a_call():
    """A young zone is deaf for its warm-up, a called one for some hours; followed again it stays, then decays."""
    change = ChangePoints(1, A_DAY)
    zone = np.array([change.add_zones()])
    feed(change, zone, np.full((1, 1), 4.0), round(WARM_UP_DAYS * A_DAY))
    assert change.level(zone).item() == 0
    called = []
    for example in range(2 * A_DAY):
        before = change.state_dict()["days"].item()
        change.update(zone, np.full((1, 1), 4.0, np.float32))
        if change.state_dict()["days"].item() < before:
            called.append(example)
    assert np.diff(called).min() > DEAF_HOURS * A_DAY / 24
    feed(change, zone, np.zeros((1, 1)), round((HOLD_DAYS + REMEMBER_DAYS) * A_DAY))
    assert 0.05 < change.level(zone).item() < 0.8


def test_a_called_zone_is_followed_by_and_by_and_for_some_days():
    """The level rises for half a day, also of the next call much later, stays, and decays."""
    change, zone = warmed()
    for _ in range(2):
        feed(change, zone, np.full((1, 1), 4.0), A_DAY // 4)
        levels = []
        for _ in range(20 * A_DAY):
            change.update(zone, np.ones((1, 1), np.float32))
            levels.append(change.level(zone).item())
        highest = np.flatnonzero(np.array(levels) > 0.999)
        assert 0.4 * A_DAY < highest[0] < RISE_DAYS * A_DAY
        assert 1.3 * A_DAY < highest[-1] < HOLD_DAYS * A_DAY
        assert levels[-1] < 1e-6


def test_state_goes_on_bit_for_bit():
    """Half of the examples before and half after a restore are the same as all in one."""
    rng = np.random.default_rng(0)
    one, zone = warmed()
    sizes = rng.exponential(2.0, (A_DAY, 1, 1)).astype(np.float32)
    other = ChangePoints(1, A_DAY)
    for example, size in enumerate(sizes):
        if example == A_DAY // 2:
            other.load_state_dict(one.state_dict())
        one.update(zone, size)
        if example >= A_DAY // 2:
            other.update(zone, size)
    for name, held in one.state_dict().items():
        np.testing.assert_array_equal(held, other.state_dict()[name])
