"""The exchange network of many zones at once: the same step as :class:`ExchangeNetwork`, entry by entry over all zones.

A matrix product and :func:`numpy.linalg.solve` for each zone are most of what many zones cost. All zones have the same
few links, so the matrix is put together and eliminated entry by entry, each an array over the zones. No pivots need to
be looked for: what leaves a node arrives at another, so each column is dominated by its diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.simulator.physics.exchange_network import ExchangeNetwork

__all__ = ["WideNetwork"]

_Array = NDArray[np.float64]


class WideNetwork(ExchangeNetwork):
    """See :class:`ExchangeNetwork`. The result of a zone does not depend on which others there are, if two at least."""

    def __init__(
        self, nodes: int, free: int, links: Sequence[tuple[int, int]], evaporations: Sequence[tuple[int, int]]
    ) -> None:
        super().__init__(nodes, free, links, evaporations)
        wet = len(links), len(links) + len(evaporations)  # where coefficients of surfaces and of vapour begin
        entries = [entry for n, (i, j) in enumerate(links) for entry in _entries(n, i, j, i, j)]
        for n, (surface, vapour) in enumerate(evaporations):
            entries += _entries(wet[0] + n, surface, vapour, surface, None)
            entries += _entries(wet[1] + n, surface, vapour, None, vapour)
        entries = [entry for entry in entries if entry[0] < free and entry[1] < free]
        self._order = order = _by_fewest_neighbours(free, {(i, j) for i, j, _, _ in entries if i != j})
        self._place = place = np.argsort(order)
        placed = [(int(place[i]), int(place[j]), sign, n) for i, j, sign, n in entries]
        self._more = [(i * free + j, n) for i, j, sign, n in placed if sign > 0]
        self._less = [(i * free + j, n) for i, j, sign, n in placed if sign < 0]
        self._diagonals = np.arange(free) * (free + 1)
        flows = [(*flow, n) for n, flow in enumerate([*links, *evaporations])]
        self._leaves = [(int(place[i]), n) for i, _, n in flows if i < free]
        self._arrives = [(int(place[j]), n) for _, j, n in flows if j < free]
        self._pivots = _pivots(free, {(i, j) for i, j, _, _ in placed})
        self._work = np.zeros((free * free, 0))

    def step(
        self, x: _Array, difference: _Array, conductance: _Array, evaporation: _Array, saturation: _Array,
        slope: _Array, gains: _Array, capacity_per_s: _Array,
    ) -> _Array:  # fmt: skip
        """See :meth:`ExchangeNetwork.step`."""
        free, zones = gains.shape
        if self._work.shape[1] != zones:  # kept: the system takes its time to give so much memory
            self._work = np.zeros((free * free, zones))
        flat = self._work
        b = gains[self._order]
        flow = np.concatenate((conductance * difference, evaporation * (saturation - x[self._vapour])))
        for node, n in self._leaves:
            b[node] -= flow[n]
        for node, n in self._arrives:
            b[node] += flow[n]
        coefficients = np.concatenate((conductance, evaporation * slope, evaporation))
        flat.fill(0.0)
        flat[self._diagonals] = capacity_per_s[self._order]
        for entry, n in self._more:
            flat[entry] += coefficients[n]
        for entry, n in self._less:
            flat[entry] -= coefficients[n]
        return np.asarray(self._solved(flat.reshape(free, free, zones), b)[self._place])

    def _solved(self, a: _Array, b: _Array) -> _Array:
        for k, below, runs in self._pivots:
            inverse = 1.0 / a[k, k]
            for i in below:
                factor = a[i, k] * inverse
                for run in runs:
                    a[i, run] -= factor * a[k, run]
                b[i] -= factor * b[k]
        for k, _, runs in reversed(self._pivots):
            for run in runs:
                b[k] -= (a[k, run] * b[run]).sum(axis=0)
            b[k] /= a[k, k]
        return b


def _entries(n: int, i: int, j: int, *by: int | None) -> list[tuple[int, int, float, int]]:
    """What a flow from node i to j adds to the matrix: (row, column, sign, coefficient) for each node it depends on."""
    signs = {i: 1.0, j: -1.0}
    return [(row, node, signs[row] * signs[node], n) for node in by if node is not None for row in (i, j)]


def _by_fewest_neighbours(free: int, pairs: set[tuple[int, int]]) -> NDArray[np.int64]:
    """The nodes in an order of elimination that fills few entries: always the one with the fewest neighbours left."""
    near: dict[int, set[int]] = {node: set() for node in range(free)}
    for i, j in pairs:
        near[i].add(j)
        near[j].add(i)
    order = []
    while near:
        node = min(near, key=lambda one: (len(near[one]), one))
        order.append(node)
        others = near.pop(node)
        for other in others:
            near[other] = (near[other] | others) - {node, other}
    return np.array(order)


def _pivots(free: int, pattern: set[tuple[int, int]]) -> list[tuple[int, list[int], list[slice]]]:
    """For each place: the rows below it that it is taken out of, and its own columns as runs."""
    filled, pivots = set(pattern), []
    for k in range(free):
        below = [i for i in range(k + 1, free) if (i, k) in filled]
        right = [j for j in range(k + 1, free) if (k, j) in filled]
        filled |= {(i, j) for i in below for j in right}
        runs: list[slice] = []
        for j in right:
            if runs and runs[-1].stop == j:
                runs[-1] = slice(runs[-1].start, j + 1)
            else:
                runs.append(slice(j, j + 1))
        pivots.append((k, below, runs))
    return pivots
