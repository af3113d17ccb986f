"""The quantile network's contract."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.features.inputs import Inputs
from models.network.quantile import QuantileNetwork, to_tensors
from tests.models.worlds import SPEC, window_set


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    """A few dozen real inputs."""
    windows = window_set(3)
    return windows.inputs(windows.origins(SPEC.steps_per_day)[::5])


def trained(seed=0, size=0.3):
    """A network with random weights everywhere, the head's included."""
    torch.manual_seed(seed)
    network = QuantileNetwork(SPEC)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0, size)
    return network.eval()


def test_an_untrained_network_is_the_climatology(inputs):
    """With its head at zero, the network answers the baseline's quantiles."""
    np.testing.assert_allclose(QuantileNetwork(SPEC).eval().predict(inputs), inputs.baseline, rtol=1e-5, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.01, 3.0))
def test_quantiles_never_cross_whatever_the_weights(inputs, seed, size):
    """For any weights p10 <= p50 <= p90, finite, and within what is physically possible."""
    forecast = trained(seed, size).predict(inputs)
    assert np.isfinite(forecast).all()
    assert (np.diff(forecast, axis=-1) >= 0).all()
    for m, (low, high) in enumerate(SPEC.limits):
        assert (forecast[:, :, m] >= low).all()
        assert (forecast[:, :, m] <= high).all()


def test_a_batch_equals_its_examples(inputs):
    """A zone's forecast does not depend on how many zones are asked together."""
    network = trained()
    batch = network.predict(inputs)
    for i in (0, len(inputs) // 2, len(inputs) - 1):
        np.testing.assert_allclose(network.predict(inputs.take([i]))[0], batch[i], rtol=1e-4, atol=1e-4)


def test_a_zone_without_any_value_gets_the_climatology_or_nan(inputs):
    """All-missing rows give a finite forecast where the baseline is finite and NaN where it is not; neighbours stay."""
    parts = {name: getattr(inputs, name).copy() for name in Inputs.__slots__}
    parts["window"][0], parts["now"][0], parts["yesterday"][0], parts["sun"][0] = (np.nan,) * 4
    parts["baseline"][1, :, 2] = np.nan
    network = trained()
    forecast = network.predict(Inputs(**parts))
    assert np.isfinite(forecast[0]).all()
    assert np.isnan(forecast[1, :, 2]).all()
    assert np.isfinite(forecast[1, :, :2]).all()
    np.testing.assert_allclose(forecast[2:], network.predict(inputs)[2:], rtol=1e-4, atol=1e-4)


def test_no_examples_give_no_forecasts(inputs):
    """An empty batch is answered with an empty batch."""
    assert trained().predict(inputs.take(slice(0, 0))).shape == (0, 4, 3, 3)


def test_threads_get_the_same_answer(inputs):
    """Several threads may ask one network at once."""
    network = trained()
    expected, answers = network.predict(inputs), []
    threads = [threading.Thread(target=lambda: answers.append(network.predict(inputs))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert all(np.array_equal(answer, expected) for answer in answers)


def test_arrays_go_round(inputs):
    """A network with another's arrays answers alike; arrays that do not fit are refused."""
    network, other = trained(1), QuantileNetwork(SPEC).eval()
    other.load_arrays(network.arrays())
    assert np.array_equal(other.predict(inputs), network.predict(inputs))
    with pytest.raises(RuntimeError, match="trust"):
        other.load_arrays({name: array for name, array in network.arrays().items() if name != "trust"})


def test_gradients_stay_finite_with_missing_inputs(inputs):
    """Missing values do not poison training."""
    network = trained().train()
    network(*to_tensors(inputs)).nansum().backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
