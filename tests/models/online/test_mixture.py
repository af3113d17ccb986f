"""The mixture: weights are shares, the better expert gets more, and absence is no answer."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.online.mixture import Mixture

FIRST = np.array([0])


def stream(mixture, steps, sizes, start=0, seed=0):
    """Experts whose errors have these sizes; the first is the base."""
    rng = np.random.default_rng(seed)
    for step in range(start, start + steps):
        truth = rng.normal(size=(3, 1))
        experts = truth[..., None] + rng.normal(size=(3, 1, len(sizes))) * sizes
        deviation = (experts[..., 1:] - experts[..., :1]).astype(np.float32)
        mixture.learn(FIRST, step, deviation[:, None], (truth - experts[..., 0])[:, None].astype(np.float32))
        if step % 24 == 0:
            mixture.refit()
    mixture.refit()
    return mixture.weights[0, 0]


def test_the_better_expert_gets_the_larger_share():
    """Shares follow how good the experts are."""
    weights = stream(Mixture(1, 1, 3, 96), 1000, [1.0, 0.2, 2.0])
    assert weights[1] > 0.8
    assert weights.sum() == 1


def test_shares_follow_a_change():
    """Two weeks after the good expert turned bad, another leads."""
    mixture = Mixture(1, 1, 3, 96)
    stream(mixture, 1000, [1.0, 0.2, 2.0])
    assert np.argmax(stream(mixture, 14 * 96, [1.0, 2.0, 0.2], start=1000)) == 2


def test_an_expert_without_answers_has_no_share():
    """A network that is not there yet takes nothing from the others, and a NaN counts as the base's answer."""
    mixture = Mixture(1, 1, 3, 96)
    rng = np.random.default_rng(0)
    for step in range(500):
        truth = rng.normal(size=(2, 1)).astype(np.float32)
        deviation = np.stack([truth, np.full_like(truth, np.nan)], axis=-1)[:, None]
        mixture.learn(FIRST, step, deviation, truth[:, None])
    mixture.refit()
    assert mixture.weights[0, 0, 2] == 0
    assert np.isfinite(mixture.predict(deviation)).all()


def test_unknown_truths_teach_nothing():
    """Examples without a truth leave the weights as they are."""
    mixture = Mixture(1, 1, 2, 96)
    before = mixture.weights.copy()
    for step in range(100):
        mixture.learn(FIRST, step, np.ones((2, 1, 1, 1), np.float32), np.full((2, 1, 1), np.nan, np.float32))
    assert np.array_equal(mixture.weights, before)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=4), min_size=1, max_size=30))
def test_weights_are_shares_whatever_comes(examples):
    """They are never negative and sum to one."""
    mixture = Mixture(1, 1, 4, 96)
    for step, (truth, *experts) in enumerate(examples):
        mixture.learn(FIRST, step, np.array([[[experts]]], np.float32), np.array([[[truth]]], np.float32))
        mixture.refit()
        weights = mixture.weights[0, 0]
        assert (weights >= -1e-9).all()
        assert abs(weights.sum() - 1) < 1e-9
