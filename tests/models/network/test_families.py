"""The other families of ``benchmarks.families`` keep the kept network's contract."""

from functools import partial

import numpy as np
import pytest
import torch

from benchmarks._families import Candidate, average, planned_channels
from benchmarks._network_cores import CORES, Kept
from benchmarks._ridge import ridge
from benchmarks.families import Planned
from models.network.quantile import QuantileNetwork
from models.network.training import TrainingConfig
from tests.models.worlds import PLACE, SPEC, START_MS, rows

CONFIG = TrainingConfig()
MAKES = {name: partial(Candidate, SPEC, CONFIG, core) for name, core in CORES.items()}
MAKES["plans"] = partial(Candidate, SPEC, CONFIG, Kept, plans=True)


@pytest.fixture(scope="module")
def windows() -> Planned:
    """Three days of two zones."""
    return Planned(["a", "b"], START_MS, rows(3), [PLACE] * 2, SPEC)


@pytest.fixture(scope="module")
def origins(windows):
    """A few dozen."""
    return windows.origins(SPEC.steps_per_day)[::5]


def checked(forecast, inputs):
    """Shape, order and bounds of quantiles."""
    assert forecast.shape == inputs.baseline.shape
    assert np.isfinite(forecast).all()
    assert (np.diff(forecast, axis=-1) >= 0).all()
    for m, (low, high) in enumerate(SPEC.limits):
        assert (forecast[:, :, m] >= low).all()
        assert (forecast[:, :, m] <= high).all()
    return forecast


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_a_candidate_begins_as_the_climatology_and_never_crosses(windows, origins, make):
    """New it answers the baseline, with any weights quantiles in their order, and those are others."""
    inputs = windows.inputs(origins)
    torch.manual_seed(0)
    network = make().eval()
    np.testing.assert_allclose(checked(network.predict(inputs), inputs), inputs.baseline, rtol=1e-5, atol=1e-5)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    assert not np.allclose(checked(network.predict(inputs), inputs), inputs.baseline, rtol=1e-2)


def test_the_kept_core_is_the_kept_network(windows, origins):
    """With the same weights the benchmark's frame gives what the product's network gives."""
    inputs = windows.inputs(origins)
    torch.manual_seed(0)
    network, candidate = QuantileNetwork(SPEC).eval(), Candidate(SPEC, CONFIG, Kept).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    network.set_scaling(inputs, windows.truth(origins))
    state = network.arrays()
    kept = ("spread", "residual", "trust")
    candidate.load_arrays({name if name in kept else f"core.{name}": array for name, array in state.items()})
    np.testing.assert_array_equal(candidate.predict(inputs), network.predict(inputs))


def test_ridge_and_average_do_not_cross_either(windows, origins):
    """The ridge moves the median and what lies around it; where it was fitted it is closer than the climatology."""
    inputs, truth = windows.inputs(origins), windows.truth(origins)
    older = np.arange(len(origins)) < len(origins) * 0.75
    found = ridge(SPEC, CONFIG, inputs, truth, older, 20)
    forecast = checked(found.predict(inputs), inputs)
    errors = [np.nanmean(np.abs(median[..., 1] - truth)) for median in (forecast, inputs.baseline)]
    assert errors[0] < errors[1]
    middle = average([found.predict, lambda given: given.baseline])(inputs)
    np.testing.assert_allclose(checked(middle, inputs), (forecast + inputs.baseline) / 2, rtol=1e-5)


def test_plans_are_what_was_set_a_day_before_each_horizon(windows, origins):
    """Of lamps, the one channel here that is set; at 24 h it is the newest row."""
    assert [SPEC.channels[i] for i in planned_channels(SPEC)] == ["lamp_pct"]
    future, (zone, t) = windows.inputs(origins).future, np.divmod(origins, windows.length)
    lamps = windows.rows[..., SPEC.channels.index("lamp_pct")]
    for h, steps in enumerate(SPEC.horizon_steps):
        np.testing.assert_array_equal(future[:, h, 0], lamps[zone, t - SPEC.steps_per_day + steps])
