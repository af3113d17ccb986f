"""Trees: the plain arrays answer as the library does, history is bounded, equal examples give equal trees."""

import numpy as np
import pytest

from models.online.forecaster import Example
from models.trees.forest import Forest
from models.trees.grower import HISTORY_DAYS, Grower, _fit, _forest
from tests.models.worlds import SPEC

H, M = len(SPEC.horizons_min), len(SPEC.targets)


def example(step, seed=None):
    """Three zones; the truth at a horizon follows from a regressor at its origin."""
    rng = np.random.default_rng(step if seed is None else seed)
    common = rng.normal(size=(3, 4)).astype(np.float32)
    common[rng.random(common.shape) < 0.1] = np.nan
    ahead = rng.normal(size=(3, H, 2)).astype(np.float32)
    y = rng.normal(size=(3, M)).astype(np.float32)
    return Example(step, np.arange(3), common, ahead, np.zeros((3, H, M), np.float32), y)


def test_the_arrays_answer_as_the_library_does():
    """Every cell's answer is that of scikit-learn's own prediction, missing values included."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 6)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    wanted = np.nan_to_num(x[:, 0]) * np.where(x[:, 1] > 0, 1, -1) + rng.normal(0, 0.1, 3000)
    fitted = _fit(x.copy(), wanted)
    assert fitted is not None
    forest = _forest(2, 1, [[fitted], [None]])
    common, ahead = x[:50, :4], np.repeat(x[:50, None, 4:], 2, axis=1)
    answer = forest.predict(common, ahead)
    assert np.allclose(answer[:, 0, 0], fitted.predict(x[:50]), atol=1e-5)
    assert (answer[:, 1, 0] == 0).all()


def test_an_empty_forest_answers_nothing():
    """Before the first trees there is no answer, which the mixture understands."""
    assert np.isnan(Forest(H, M).predict(np.zeros((2, 4), np.float32), np.zeros((2, H, 2), np.float32))).all()


def test_history_is_bounded_and_growing_is_repeatable():
    """Examples older than four weeks go, and the same ones give the same trees."""
    one, other = Grower(SPEC), Grower(SPEC)
    for step in range(0, (HISTORY_DAYS + 5) * SPEC.steps_per_day):
        for grower in (one, other):
            grower.add(example(step))
    assert len(one._examples) <= HISTORY_DAYS * 96 + 1
    first, second = one.grow(np.ones((H, M))), other.grow(np.ones((H, M)))
    assert first is not None
    assert second is not None
    a, b = first.state_dict(), second.state_dict()
    assert all(np.array_equal(a[name], b[name]) for name in a)


def test_too_little_history_gives_no_trees():
    """A day is not enough."""
    grower = Grower(SPEC)
    assert grower.grow(np.ones((H, M))) is None
    for step in range(SPEC.steps_per_day):
        grower.add(example(step))
    assert grower.grow(np.ones((H, M))) is None


def test_a_forest_of_another_shape_is_refused():
    """A state that does not fit is named."""
    fitted = _fit(np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32), np.arange(600.0))
    state = _forest(1, 1, [[fitted]]).state_dict()
    with pytest.raises(ValueError, match="wanted"):
        Forest(2, 1).load_state_dict(state)
