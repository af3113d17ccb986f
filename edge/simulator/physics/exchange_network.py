"""The greenhouse as a network: nodes that store heat, vapour and CO₂, and links that carry them.

One linearly implicit Euler step solves all nodes of a zone together: conductances are taken at the old state, so that
the tiny capacities of screens and lamps cannot make it unstable however long the step is, and whatever leaves a
node arrives at another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["ExchangeNetwork"]

_Array = NDArray[np.float64]


class ExchangeNetwork:
    """Fixed topology; everything that changes is an argument of :meth:`step`.

    ``links`` carry ``conductance · (x_i - x_j)`` from node i to node j. ``evaporations`` (surface, vapour) carry
    ``conductance · (saturation(surface) - vapour)`` as latent heat out of the surface and as vapour into the air.
    Nodes numbered from ``free`` on are boundaries: their values are given.
    """

    def __init__(
        self, nodes: int, free: int, links: Sequence[tuple[int, int]], evaporations: Sequence[tuple[int, int]]
    ) -> None:
        self._from = np.array([i for i, _ in links])
        self._to = np.array([j for _, j in links])
        incidence = np.zeros((len(links) + len(evaporations), nodes))
        for row, (i, j) in enumerate([*links, *evaporations]):
            incidence[row, i], incidence[row, j] = 1.0, -1.0
        self._incidence = np.ascontiguousarray(incidence[:, :free].T)  # what a flow takes from each free node
        self._surface = np.array([i for i, _ in evaporations])
        self._vapour = np.array([j for _, j in evaporations])
        # Each coefficient's share of the Jacobian: links, then d/d(surface), then d/d(vapour).
        shares = []
        for row in range(len(links)):
            shares.append(np.outer(incidence[row, :free], incidence[row, :free]))
        for column, sign in ((self._surface, 1.0), (self._vapour, -1.0)):
            for row, node in enumerate(column, start=len(links)):
                share = np.zeros((free, free))
                share[:, node] = sign * incidence[row, :free]
                shares.append(share)
        self._shares = np.array(shares).reshape(len(shares), free * free)

    def differences(self, x: _Array) -> _Array:
        """``x_i - x_j`` of each link; ``x`` has shape (nodes, zones)."""
        return np.asarray(x[self._from] - x[self._to])

    def step(
        self, x: _Array, difference: _Array, conductance: _Array, evaporation: _Array, saturation: _Array,
        slope: _Array, gains: _Array, capacity_per_s: _Array,
    ) -> _Array:  # fmt: skip
        """The free nodes' change over one step, shape (free, zones).

        ``difference`` and ``conductance`` (links, zones); ``evaporation``, ``saturation`` and its ``slope``
        (evaporations, zones); ``gains`` and ``capacity_per_s`` (capacity over step length; free, zones).
        """
        wet = evaporation * (saturation - x[self._vapour])
        flow = np.concatenate((conductance * difference, wet))
        rest = gains - self._incidence @ flow
        coefficients = np.concatenate((conductance, evaporation * slope, evaporation))
        free, zones = gains.shape
        jacobian = (coefficients.T @ self._shares).reshape(zones, free, free)
        jacobian[:, np.arange(free), np.arange(free)] += capacity_per_s.T
        return np.asarray(np.linalg.solve(jacobian, rest.T[:, :, None])[:, :, 0].T)
