"""What each expert weighs: the shares that a forecast is mixed from, as it is mixed."""

from __future__ import annotations

import numpy as np
import pytest

from models.online.basis import EXPERTS, Basis
from models.online.online_forecaster import LIMIT, OnlineForecaster
from tests.models.online.online_worlds import DAY, SPEC, forecaster, rows, sun


def learned(days: int, zones: int = 2) -> tuple[OnlineForecaster, Basis]:
    """A forecaster after so many days, and the newest rows."""
    made, values, index = forecaster(zones), rows(days, zones=zones, missing=0), np.arange(zones)
    for step in range(values.shape[1]):
        basis = made.learn(index, step, values[:, step], np.full(zones, step % DAY), sun(step, zones))
        made.predict(basis, basis.baseline + np.float32(0.3))
    return made, basis


@pytest.mark.parametrize("days", [4, 8, 14])
@pytest.mark.thorough
def test_a_forecast_is_its_experts_weighed(days: int) -> None:
    """Weights sum to one, and what the experts say, weighed by them, is the median: in first days and later."""
    made, basis = learned(days)
    network = basis.baseline + np.float32(0.3)
    weights, median = made.weights(basis, network), made.predict(basis, network)[..., 1]
    experts = basis.experts.copy()
    experts[..., -1] = network
    assert weights.shape == experts.shape
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert (weights >= -1e-6).all()
    mixed = (weights * np.nan_to_num(experts)).sum(axis=-1)
    far = np.abs(experts - experts[..., :1]).max(axis=-1) > LIMIT * 10_000
    low, high = (np.array(ends) for ends in zip(*SPEC.limits, strict=True))
    inside = np.isfinite(median) & (mixed > low) & (mixed < high) & ~far
    assert inside.mean() > 0.5
    np.testing.assert_allclose(mixed[inside], median[inside], rtol=1e-4, atol=1e-3)
    assert weights[..., EXPERTS.index("first days")].any() == (days < 9)


@pytest.mark.thorough
def test_an_expert_without_an_answer_weighs_nothing() -> None:
    """Its share is the climatology's; so it is while no network serves, and while there are no trees."""
    made, basis = learned(14)
    with_network, without = made.weights(basis, basis.baseline), made.weights(basis)
    assert (without[..., EXPERTS.index("network")] == 0).all()
    assert (without[..., EXPERTS.index("trees")] == 0).all()
    assert with_network[..., EXPERTS.index("network")].max() > 0
    np.testing.assert_allclose(
        without[..., 0], with_network[..., 0] + with_network[..., EXPERTS.index("network")], atol=1e-6
    )


@pytest.mark.thorough
def test_trees_and_networks_are_followed_as_before_by_a_forecaster_that_was_grown_again() -> None:
    """Of what it learned itself, the mixture is the one that has met them: its weights are those of before."""
    (before, basis), (grown, _) = learned(14), learned(5)
    young = np.zeros((2, len(SPEC.targets)), np.float32)

    def network_of(made: OnlineForecaster) -> np.ndarray:
        return made.mix.weights(basis, basis.baseline, young)[..., EXPERTS.index("network")]

    assert not np.array_equal(network_of(grown), network_of(before))
    grown.take_trained(before)
    assert grown.forest is before.forest
    np.testing.assert_array_equal(network_of(grown), network_of(before))
