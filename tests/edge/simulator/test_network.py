"""The network solver, against a problem with a known answer."""

import numpy as np
import pytest

from edge.simulator.physics.exchange_network import ExchangeNetwork


def cool(step_s: float, steps: int, conductance: float) -> float:
    """Temperature of one body of 1,000 J/K that starts at 100 and cools to 0 over a conductance."""
    network = ExchangeNetwork(2, 1, [(0, 1)], [(0, 0)])
    x = np.array([[100.0], [0.0]])
    none = np.zeros((1, 1))
    for _ in range(steps):
        x[:1] += network.step(
            x, network.differences(x), np.array([[conductance]]), none, none, none, none, np.array([[1000.0 / step_s]])
        )
    return float(x[0, 0])


def test_a_body_cools_exponentially():
    """Small steps reproduce Newton's law of cooling."""
    assert cool(1.0, 600, 2.0) == pytest.approx(100.0 * np.exp(-1.2), rel=0.002)


def test_long_steps_are_stable():
    """A step of a thousand time constants ends at the boundary, without overshoot."""
    assert 0.0 <= cool(1e5, 1, 10.0) < 0.2


def test_what_leaves_a_node_arrives_at_another():
    """Between free nodes heat, and vapour with its latent heat, are conserved whatever the step."""
    network = ExchangeNetwork(3, 3, [(0, 1)], [(0, 2)])
    x, capacity = np.array([[50.0], [10.0], [500.0]]), np.array([[100.0], [300.0], [7.0]])
    change = network.step(
        x, network.differences(x), np.array([[25.0]]), np.array([[0.4]]), np.array([[2000.0]]), np.array([[110.0]]),
        np.zeros((3, 1)), capacity / 3600.0,
    )  # fmt: skip
    assert float((capacity * change).sum()) == pytest.approx(0.0, abs=1e-6)
