"""Chances that come true as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from models.alerts.chance_calibration import PRIOR, ChanceCalibration

LEAD = 4


def run(
    days: int, zones: int, bias: float, seed: int = 0
) -> tuple[ChanceCalibration, np.ndarray, np.ndarray, np.ndarray]:
    """A made-up world in which scenarios' log-odds are off by ``bias``: the calibration, its chances, the shares they
    were made from, and what came.
    """
    rng = np.random.default_rng(seed)
    learner = ChanceCalibration(LEAD)
    indices = learner.add_zones(zones) + np.arange(zones)
    odds = rng.normal(-1.0, 1.5, (days * 48, zones))
    truth = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    share = (1 / (1 + np.exp(-(odds + bias)))).astype(np.float32)
    said = np.empty_like(share)
    for n in range(days * 48):
        came = truth[n - LEAD].astype(np.float32) if n >= LEAD else np.full(zones, np.nan, dtype=np.float32)
        said[n], _ = learner.step(indices, n, n // 2 % 24, share[n], came)
    return learner, said, share, truth


def test_a_bias_of_the_scenarios_is_taken_out() -> None:
    """They say much too much; after ten days chances are right in the mean, and better than the shares."""
    _, said, share, truth = run(days=20, zones=6, bias=2.0)
    late = slice(480, None)
    assert abs(share[late].mean() - truth[late].mean()) > 0.2
    assert abs(said[late].mean() - truth[late].mean()) < 0.03
    assert ((said - truth)[late] ** 2).mean() < 0.8 * ((share - truth)[late] ** 2).mean()


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("truth", [0.1, 0.3, 0.7])
def test_scenarios_that_are_sure_and_wrong_are_not_believed(share: float, truth: float) -> None:
    """All say no, or all say yes, day after day: the chance is how often it came, and neither 0 nor 1."""
    rng = np.random.default_rng(0)
    learner = ChanceCalibration(LEAD)
    zones = learner.add_zones(6) + np.arange(6)
    unknown = np.full(6, np.nan, dtype=np.float32)
    for n in range(20 * 48):
        came = (rng.random(6) < truth).astype(np.float32) if n >= LEAD else unknown
        said, _ = learner.step(zones, n, n // 2 % 24, np.full(6, share, dtype=np.float32), came)
    assert abs(said.mean() - truth) < 0.1


def test_scenarios_that_are_right_stay_nearly_as_they_are() -> None:
    """Nothing is lost by much."""
    _, said, share, truth = run(days=20, zones=6, bias=0.0)
    assert ((said - truth)[480:] ** 2).mean() < 1.03 * ((share - truth)[480:] ** 2).mean()


def test_half_hours_that_wait_for_the_same_event_count_once() -> None:
    """As many cases of twelve hours are fewer nights than of one: they move the weights less."""
    moved = []
    for lead in (2, 24):
        learner = ChanceCalibration(lead)
        zone = np.array([learner.add_zones()])
        share, none = np.array([0.6], dtype=np.float32), np.zeros(1, dtype=np.float32)
        for n in range(48 + lead):
            learner.step(zone, n, n // 2 % 24, share, none if n >= lead else np.full(1, np.nan, dtype=np.float32))
        moved.append(float(np.abs(learner.weights - PRIOR).sum()))
    assert 0 < moved[1] < moved[0] / 2


def test_nothing_is_learned_from_what_was_never_said() -> None:
    """A truth without a chance a lead before it, or one that is not known, changes no weight."""
    learner = ChanceCalibration(LEAD)
    zone = np.array([learner.add_zones()])
    share, unknown = np.array([0.3], dtype=np.float32), np.array([np.nan], dtype=np.float32)
    for n in range(100):
        learner.step(zone, 3 * n, 5, share, np.ones(1, dtype=np.float32))  # every third half hour, with a lead of 4
        learner.step(zone, 3 * n + 1, 5, share, unknown)
    assert learner.weights.tolist() == PRIOR.tolist()


def test_where_there_are_no_scenarios_there_is_no_chance() -> None:
    """NaN, and the other zones' chances are theirs."""
    learner = ChanceCalibration(LEAD)
    zones = learner.add_zones(2) + np.arange(2)
    shares, unknown = np.array([np.nan, 0.5], dtype=np.float32), np.full(2, np.nan, dtype=np.float32)
    said, usual = learner.step(zones, 0, 0, shares, unknown)
    assert np.isnan(said[0])
    assert 0 < said[1] < 1
    assert np.isfinite(usual).all()


def test_a_state_goes_on_bit_for_bit() -> None:
    """Through bytes; also in the middle of what waits for its truth."""
    learner, *_ = run(days=3, zones=2, bias=1.0)
    again = ChanceCalibration(LEAD)
    again.load_state_dict(learner.state_dict())
    rng, zones = np.random.default_rng(1), np.arange(2)
    for n in range(144, 200):
        share, came = rng.random(2, dtype=np.float32), rng.integers(0, 2, 2).astype(np.float32)
        one, other = (each.step(zones, n, n // 2 % 24, share, came) for each in (learner, again))
        assert one[0].tobytes() == other[0].tobytes()
        assert one[1].tobytes() == other[1].tobytes()


def test_a_lead_of_more_than_a_day_is_refused() -> None:
    """Scenarios end there."""
    with pytest.raises(ValueError, match="it must be 1 to 48"):
        ChanceCalibration(49)
