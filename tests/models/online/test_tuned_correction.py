"""A network that is fine-tuned to a site takes over from the first days', and the forecaster learns nothing of it."""

from __future__ import annotations

import numpy as np
import pytest

from models.online.online_forecaster import OnlineForecaster
from models.online.pretrained_correction import Pretrained
from models.online.tuned_correction import EVERY, TunedCorrection
from tests.models.online.online_worlds import DAY, SPEC, STEPS, rows, run, same, sun
from tests.models.online.test_pretrained_correction import forecaster, made


def along(
    values: np.ndarray, package: Pretrained | None, tuned: Pretrained | None = None, at: int = 0, old: float = 1.0
) -> tuple[OnlineForecaster, TunedCorrection, np.ndarray]:
    """The forecaster, the correction, and the forecasts ``[Z, T, H, M, Q]``.

    From step ``at`` on it is ``tuned``; then ``old`` is the share of the first days that is over.
    """
    zones = len(values)
    learner, correction = forecaster(zones, package), TunedCorrection(SPEC, package or made(0.0), zones)
    everyone, out = np.arange(zones), []
    for t in range(values.shape[1]):
        if tuned and t == at:
            correction.tune(tuned.arrays)
        light = sun(t, zones)
        learned = learner.learn(everyone, t, values[:, t], np.full(zones, t % DAY), light)
        young = np.full((zones, len(SPEC.targets)), 1 - old * (t >= at), np.float32)
        out.append(correction.correct(learned, values[:, t], light, None, learner.predict(learned), young))
    return learner, correction, np.stack(out, axis=1)


def test_until_it_is_tuned_forecasts_are_those_without_it() -> None:
    """Bit for bit, at any age: it only looks on, and keeps examples."""
    values = rows(1)
    _, correction, out = along(values, made(0.5))
    np.testing.assert_array_equal(out, run(forecaster(2, made(0.5)), values))
    assert correction.examples


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
    _, _, out = along(values, None, made(2.0), at=DAY)
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
    assert same(learner.state_dict(), other.state_dict())


def test_examples_are_what_was_issued_without_it() -> None:
    """Each second example of each zone, with the forecast before anything was added."""
    values = rows(1)
    _, correction, _ = along(values, made(0.5))
    plain = run(forecaster(2, None), values)
    assert [step for step, *_ in correction.examples] == list(range(0, DAY, EVERY * max(DAY // 96, 1)))
    step, zones, origin, ahead, base = correction.examples[20]
    assert (len(zones), len(origin), ahead.shape[:2]) == (2, 2, (2, len(STEPS) - 1))
    np.testing.assert_allclose(base[..., 1], plain[:, step, ..., 1], rtol=1e-3, atol=2e-2)
