"""A network goes on from what it has learned elsewhere: it learns the site's own, and nothing it was not told."""

from __future__ import annotations

import numpy as np
import pytest

from models.network.plain_network import PlainNetwork
from models.pretraining.fine_tuner import FineTuning, TuningExamples, fine_tune
from models.pretraining.shipped_arrays import pretrained
from tests.models.pretraining.tuning_examples import SPEC, examples

START = pretrained().arrays
QUICK = FineTuning(epochs=4, batch_size=64, learning_rate=3e-3)


def error(arrays: dict, shown: TuningExamples) -> float:
    """The mean absolute error of the network's median."""
    network = PlainNetwork(SPEC, arrays)
    shift = network.shift_of(shown.origin.astype(np.float32), shown.ahead.astype(np.float32), shown.baseline)
    return float(np.abs(shown.baseline[..., 1] + shift - shown.truth).mean())


def test_it_learns_what_the_forecast_leaves_over() -> None:
    """On examples that it was not trained on it is better than before, and than the forecast itself."""
    tuned = fine_tune(START, SPEC, examples(2000), QUICK)
    unseen = examples(seed=2)
    assert error(tuned, unseen) < min(0.95, error(START, unseen))


def test_equal_examples_give_equal_bytes() -> None:
    """And the weights that it goes on from are not changed."""
    before = {name: array.tobytes() for name, array in START.items()}
    one, other = (fine_tune(START, SPEC, examples(), QUICK) for _ in range(2))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)
    assert before == {name: array.tobytes() for name, array in START.items()}
    assert any(one[name].tobytes() != before[name] for name in one)


def test_what_did_not_come_yet_teaches_nothing() -> None:
    """With few truths known, or none, it stays as it was; unknown ones among known ones are left out."""
    shown = examples()
    assert fine_tune(START, SPEC, TuningExamples(shown.origin, shown.ahead, shown.baseline,
                                                 np.full_like(shown.truth, np.nan)), QUICK) is START  # fmt: skip
    half = shown.truth.copy()
    half[:, 1] = np.nan
    tuned = fine_tune(START, SPEC, TuningExamples(shown.origin, shown.ahead, shown.baseline, half), QUICK)
    assert all(np.isfinite(array).all() for array in tuned.values())


def test_one_that_diverges_is_refused() -> None:
    """Weights that are not finite are no network."""
    shown = examples()
    wild = TuningExamples(shown.origin, shown.ahead, shown.baseline, shown.truth)
    broken = {name: array * np.float32(np.nan) if name == "head.bias" else array for name, array in START.items()}
    with pytest.raises(ValueError, match=r"diverged: weights are not finite"):
        fine_tune(broken, SPEC, wild, QUICK)
