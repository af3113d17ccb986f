"""A network that is fine-tuned to a site takes over from the first days', and the forecaster learns nothing of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.online.basis import EXPERTS
from models.online.corrections.pretrained_correction import Pretrained
from models.online.corrections.tuned_correction import EVERY, Shown
from models.online.online_forecaster import OnlineForecaster
from tests.models.online.corrections.made_networks import forecaster, made
from tests.models.online.online_worlds import DAY, SPEC, STEPS, rows, run, same, sun


def tuning(zones: int, package: Pretrained) -> OnlineForecaster:
    """A forecaster of new zones that fine-tunes."""
    built = OnlineForecaster(SPEC, 1, package, fine_tunes=True)
    built.add_zones(zones)
    return built


def along(
    values: np.ndarray, package: Pretrained, tuned: Pretrained | None = None, at: int = 0, old: float = 1.0
) -> tuple[OnlineForecaster, list[Shown], np.ndarray]:
    """The forecaster, what the network was shown, and the forecasts ``[Z, T, H, M, Q]``.

    From step ``at`` on it is ``tuned``; then ``old`` is the share of the first days that is over.
    """
    learner, zones = tuning(len(values), package), np.arange(len(values))
    assert learner.corrections.tuned is not None
    added, shown, out = learner.corrections.tuned.added, [], []
    learner.corrections.tuned.added = lambda z, before, young: added(z, before, np.full_like(young, 1 - old))
    for t in range(values.shape[1]):
        if tuned and t == at:
            learner.tune(tuned.arrays)
        learned = learner.learn(zones, t, values[:, t], np.full(len(zones), t % DAY), sun(t, len(zones)))
        out.append(learner.predict(learned))
        shown += [learner.corrections.tuned.shown] if learner.corrections.tuned.shown else []
    return learner, shown, np.stack(out, axis=1)


def test_until_it_is_tuned_forecasts_are_those_without_it() -> None:
    """Bit for bit, at any age: it only looks on, and keeps examples."""
    values = rows(1)
    _, shown, out = along(values, made(0.5))
    np.testing.assert_array_equal(out, run(forecaster(2, made(0.5)), values))
    assert shown


@pytest.mark.thorough
def test_a_tuned_network_takes_over_as_the_first_days_end() -> None:
    """In them that of the package is followed, bit for bit; after them what this one says instead; quantiles move
    together, and stay in order and within what is possible.
    """
    values, at = rows(1), DAY // 2
    plain, other = (run(forecaster(2, one), values) for one in (made(0.5), None))
    young = along(values, made(0.5), made(1.0), at=at, old=0.0)[2]
    np.testing.assert_array_equal(young, plain)
    late = slice(at + 1, None)
    silent, loud = (along(values, made(0.5), made(bias), at=at)[2][:, late] for bias in (0.0, 1.0))
    np.testing.assert_allclose(silent[..., 1], other[:, late, ..., 1], rtol=1e-3, atol=2e-2)
    known = np.isfinite(loud)
    assert (np.diff(loud, axis=-1)[known[..., 1:]] >= 0).all()
    assert np.nanmean(loud[..., 0, 1] - silent[..., 0, 1]) > 0
    for m, (low, high) in enumerate(SPEC.limits):
        assert (loud[..., m, :][known[..., m, :]] >= low).all()
        assert (loud[..., m, :][known[..., m, :]] <= high).all()


@pytest.mark.thorough
def test_one_that_is_wrong_is_hardly_followed() -> None:
    """A network that moves every forecast by two widths is followed less and less."""
    values = rows(3)
    plain = run(forecaster(2, None), values)
    _, _, out = along(values, made(0.0), made(2.0), at=DAY)
    off, usual = np.abs(out[..., 1] - plain[..., 1])[:, :, :-1], (plain[..., 2] - plain[..., 0])[:, :, :-1]
    share = [np.nanmean(off[:, day * DAY : (day + 1) * DAY]) / np.nanmean(usual) for day in (1, 2)]
    assert share[1] < min(0.4, share[0])


@pytest.mark.thorough
def test_the_forecaster_learns_nothing_of_it() -> None:
    """Whatever it adds, all that was learned below stays the same, to the last bit."""
    values = rows(2)
    learner, _, _ = along(values, made(0.0), made(0.5), at=DAY)
    other = forecaster(2, made(0.0))
    run(other, values)
    state = learner.state_dict()
    del state["tuned"]
    assert same(state, other.state_dict())


@pytest.mark.parametrize("far", [1e4, -1e4])
def test_intervals_stay_open_at_the_limits(far: float) -> None:
    """However far it moves a forecast: within what is possible, in order, and never without a width."""
    learner, zones, values = tuning(2, made(0.0)), np.arange(2), rows(1)
    learner.tune(made(1.0).arrays)
    for t in range(30):
        learned = learner.learn(zones, t, values[:, t], np.full(2, t % DAY), sun(t, 2))
    experts = learned.experts.copy()
    experts[..., -1] = far
    out = learner.quantiles(replace(learned, experts=experts))
    known = np.isfinite(out).all(axis=-1)
    assert known.any()
    assert (np.diff(out, axis=-1)[known] >= 0).all()
    assert (out[..., 2] > out[..., 0])[known].all()
    for m, (low, high) in enumerate(SPEC.limits):
        assert low <= np.nanmin(out[..., m, :]) <= np.nanmax(out[..., m, :]) <= high


def test_examples_are_what_is_forecast_without_it() -> None:
    """Each second example of each zone, with the forecast before anything was added."""
    values = rows(1)
    _, shown, _ = along(values, made(0.5))
    plain = run(forecaster(2, None), values)
    assert [one.step for one in shown] == list(range(0, DAY, EVERY * max(DAY // 96, 1)))
    one = shown[20]
    assert (len(one.zones), len(one.origin), one.ahead.shape[:2]) == (2, 2, (2, len(STEPS) - 1))
    np.testing.assert_allclose(one.base[..., 1], plain[:, one.step, ..., 1], rtol=1e-3, atol=2e-2)


@pytest.mark.thorough
def test_its_state_goes_on_with_the_network_in_it() -> None:
    """Kept and loaded in the middle, it gives the same forecasts and learns the same, to the last bit; zones that come
    later are new to both.
    """
    values, half = rows(2), DAY + 7
    steady, stopped = tuning(2, made(0.5)), tuning(2, made(0.5))
    for one in (steady, stopped):
        run(one, values, stop=half - 20)
        one.tune(made(1.0).arrays)
        run(one, values, half - 20, half)
    again = OnlineForecaster(SPEC, 1, made(0.5), fine_tunes=True)
    again.load_state_dict(stopped.state_dict())
    for one in (steady, again):
        one.add_zones()
    np.testing.assert_array_equal(run(again, values, half), run(steady, values, half))
    assert same(again.state_dict(), steady.state_dict())


def test_a_state_without_it_begins_to_learn_it() -> None:
    """That of an earlier release, or of a time when it was off: nothing else differs, and zones have their place."""
    values = rows(1)
    plain = forecaster(2, made(0.5))
    run(plain, values, stop=40)
    again = OnlineForecaster(SPEC, 1, made(0.5), fine_tunes=True)
    again.load_state_dict(plain.state_dict())
    np.testing.assert_array_equal(run(again, values, 40), run(plain, values, 40))
    state = again.state_dict()
    assert len(state.pop("tuned")["zones"]["added"]) == 2
    assert same(state, plain.state_dict())


@pytest.mark.thorough
def test_what_was_issued_is_remembered_without_what_it_added() -> None:
    """A forecast that a replay brings again, with the answer of a network in it, leaves the state that it left when it
    was issued.
    """
    values, zones = rows(2), np.arange(2)
    once, again = tuning(2, made(0.5)), tuning(2, made(0.5))
    for one in (once, again):
        one.tune(made(1.0).arrays)
        tuned = one.corrections.tuned
        tuned.added = lambda z, before, young, added=tuned.added: added(z, before, np.zeros_like(young))
        for t in range(values.shape[1]):
            learned = one.learn(zones, t, values[:, t], np.full(2, t % DAY), sun(t, 2))
            network = learned.baseline + np.float32(1.5)
            given = one.predict(learned, network)
            if one is again:
                one.remember(zones, t, given[..., 1], network)
    assert learned.experts.shape[-1] == len(EXPERTS) + 3
    assert np.abs(learned.experts[..., -1]).max() > 0
    assert same(once.state_dict(), again.state_dict())
