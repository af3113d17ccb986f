"""The network solver of many zones, against that of a few."""

from __future__ import annotations

import numpy as np

from edge.simulator.physics.anatomy import EVAPORATIONS, FREE, LINKS, Node
from edge.simulator.physics.exchange_network import ExchangeNetwork
from edge.simulator.physics.wide_network import WideNetwork

NARROW = ExchangeNetwork(len(Node), FREE, LINKS, EVAPORATIONS)
WIDE = WideNetwork(len(Node), FREE, LINKS, EVAPORATIONS)


def state(zones: int) -> tuple[np.ndarray, ...]:
    """Arguments of a step, with conductances and capacities over many orders of magnitude."""
    rng = np.random.default_rng(3)
    x = rng.uniform(275.0, 305.0, (len(Node), zones))
    return (
        x, NARROW.differences(x), rng.lognormal(0.0, 2.0, (len(LINKS), zones)),
        rng.lognormal(-2.0, 1.0, (len(EVAPORATIONS), zones)), rng.uniform(900.0, 4000.0, (len(EVAPORATIONS), zones)),
        rng.uniform(50.0, 250.0, (len(EVAPORATIONS), zones)), rng.normal(0.0, 60.0, (FREE, zones)),
        rng.lognormal(3.0, 2.5, (FREE, zones)),
    )  # fmt: skip


def test_it_takes_the_same_step() -> None:
    """As the solver of a few zones, to the precision of the numbers."""
    asked = state(50)
    np.testing.assert_allclose(WIDE.step(*asked), NARROW.step(*asked), rtol=1e-9, atol=1e-9)


def test_a_zone_does_not_depend_on_the_others() -> None:
    """Bit for bit the same among 2, 7 and 50."""
    asked = state(50)
    among_many = WIDE.step(*asked)
    for zones in (2, 7):
        few = WIDE.step(*(np.ascontiguousarray(part[:, :zones]) for part in asked))
        np.testing.assert_array_equal(few, among_many[:, :zones])
