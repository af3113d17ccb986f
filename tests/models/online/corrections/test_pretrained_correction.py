"""A pre-trained network is followed as far as it is right, and its part of the state goes on."""

from __future__ import annotations

import numpy as np
import pytest

import models.online.corrections.pretrained_correction as module
from models.features.plans import PLANNED, bins_ahead
from models.online.basis import NETWORK
from tests.models.online.corrections.made_networks import forecaster, made
from tests.models.online.online_worlds import DAY, SPEC, STEPS, rows, run, same, sun


def errors(quantiles: np.ndarray, values: np.ndarray, first: int) -> np.ndarray:
    """Mean absolute errors of air temperature from step ``first`` on, ``[H]``."""
    found = []
    for h, ahead in enumerate(STEPS[1:].tolist()):
        off = quantiles[:, first:-ahead, h, 0, 1] - values[:, first + ahead :, 0]
        found.append(np.nanmean(np.abs(off)))
    return np.array(found)


def test_a_network_that_says_nothing_changes_nothing() -> None:
    """The forecasts of a forecaster without one, bit for bit, and the same of all else that was learned."""
    values = rows(1)
    without, with_one = forecaster(2, None), forecaster(2, made(0.0))
    np.testing.assert_array_equal(run(with_one, values), run(without, values))
    state = with_one.state_dict()
    del state["correction"]
    assert same(state, without.state_dict())


def test_it_counts_from_a_zones_first_hour() -> None:
    """Before anything has matured a network that promises something moves the forecast."""
    values = rows(1)
    out = run(forecaster(2, made(0.5)), values, stop=3) - run(forecaster(2, None), values, stop=3)
    assert (out[:, :, :, 0, 1] > 0).all()


@pytest.mark.thorough
def test_after_the_first_days_forecasts_are_those_without_it() -> None:
    """Bit for bit from the tenth day on, however right it was; in the first days they are not."""
    values = rows(11)
    without, with_one = (run(forecaster(2, one), values) for one in (None, made(0.5)))
    assert (without[:, 10 * DAY :] == with_one[:, 10 * DAY :]).all()
    assert not (without[:, : 3 * DAY] == with_one[:, : 3 * DAY]).all()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.thorough
def test_one_that_is_wrong_costs_little(seed: int) -> None:
    """Random shifts, of which a fifth less error was promised, are hardly followed after some days; a day ahead, where
    a mistake is known a day later, less and less.
    """
    values = rows(6)
    plain, spoilt = (run(forecaster(2, one), values) for one in (None, made(seed=seed, gain=0.8)))
    ratio = errors(spoilt, values, 4 * DAY) / errors(plain, values, 4 * DAY)
    assert (ratio[:-1] < 1.15).all()
    assert ratio[-1] < 1.4


@pytest.mark.thorough
def test_one_that_is_right_is_followed() -> None:
    """Where forecasts lie too low by the same amount, always, a network that says so takes most of that away."""
    values = rows(5, missing=0)
    climb = np.arange(values.shape[1]) / DAY * 6  # each day is warmer by six degrees: what was says too little
    values[..., 0] += climb.astype(np.float32)
    plain, helped = (run(forecaster(2, one), values) for one in (None, made(0.6)))
    ratio = errors(helped, values, DAY) / errors(plain, values, DAY)
    assert ratio[-1] < 0.8


def test_what_is_learned_below_is_not_changed() -> None:
    """All other parts learn from forecasts without it: whatever it says, they stay, to the last bit."""
    values = rows(2)
    one, other = forecaster(2, None), forecaster(2, made())
    run(one, values)
    run(other, values)
    state = other.state_dict()
    assert (state.pop("correction")["zones"]["followed"] != 0).any()
    assert same(state, one.state_dict())


def test_the_state_goes_on_as_if_nothing_had_happened() -> None:
    """Kept early on the second day and loaded, forecasts and state are the same, bit for bit."""
    values, network = rows(2), made()
    whole, half, loaded = (forecaster(2, network) for _ in range(3))
    expected = run(whole, values)
    run(half, values, stop=DAY + 7)
    loaded.load_state_dict(half.state_dict())
    np.testing.assert_array_equal(run(loaded, values, start=DAY + 7), expected[:, DAY + 7 :])
    assert same(loaded.state_dict(), whole.state_dict())


def test_a_state_of_before_goes_on() -> None:
    """What a release without a network has saved is taken over; the network begins to learn there."""
    values = rows(2)
    before, after = forecaster(2, None), forecaster(2, made())
    run(before, values, stop=DAY)
    after.load_state_dict(before.state_dict())
    out = run(after, values, start=DAY)
    assert np.isfinite(out).all()
    assert (np.diff(out, axis=-1) >= 0).all()
    assert (after.state_dict()["correction"]["zones"]["shift"] != 0).any()


def test_a_replay_of_what_was_issued_gives_the_same_state() -> None:
    """A shard that reads its log again passes what it had issued, with the champion's answer or without."""
    values, network = rows(1.5), made()
    live, again = forecaster(2, network), forecaster(2, network)
    zones = np.array([0, 1])
    for step in range(values.shape[1]):
        given = (zones, step, values[:, step], np.full(2, step % DAY), sun(step, 2))
        learned = live.learn(*given)
        champion = learned.baseline + 1 if step % 3 == 0 else None
        median = live.predict(learned, champion)[..., 1]
        again.learn(*given)
        none = np.full_like(median, np.nan)
        again.remember(zones, step, median, none if champion is None else champion)
    assert same(again.state_dict(), live.state_dict())
    assert np.isfinite(live.state_dict()["zones"]["experts"][..., -1]).any()
    assert np.isnan(learned.experts[..., NETWORK]).all()


def test_zones_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more zones than are asked at a time each is asked in its turn, and keeps the answer until the next."""
    monkeypatch.setattr(module, "MOST_ZONES", 2)
    values = np.repeat(rows(1, zones=1), 5, axis=0)
    built = forecaster(5, made())
    run(built, values, stop=2)
    asked = (built.state_dict()["correction"]["zones"]["shift"] != 0).any(axis=(1, 2))
    assert asked.tolist() == [True, True, False, True, True]
    run(built, values, start=2, stop=6)
    assert (built.state_dict()["correction"]["zones"]["shift"] != 0).any(axis=(1, 2)).all()


@pytest.mark.thorough
def test_it_is_told_what_plans_foresee() -> None:
    """With plans the network is asked of them: the same rows give another shift."""
    values, shifts = rows(2), []
    zones = np.array([0, 1])
    for warm in (None, 0.0, 30.0):
        built = forecaster(2, made())
        for step in range(DAY):
            foreseen = None if warm is None else np.full((2, bins_ahead(SPEC), len(PLANNED)), warm, np.float32)
            built.learn(zones, step, values[:, step], np.full(2, step % DAY), sun(step, 2), foreseen)
        shifts.append(built.state_dict()["correction"]["zones"]["shift"])
    assert not np.array_equal(shifts[0], shifts[1])
    assert not np.array_equal(shifts[1], shifts[2])
