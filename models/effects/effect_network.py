"""The network of effects: what a change moves the climate by, with the interval that holds four in five.

It answers the difference of two of its answers: with what is moved, and with nothing moved. So a change that moves
nothing does nothing, and its interval is as narrow. Several networks, which began otherwise, answer together: where
they have seen little they differ, and their mean is less wrong. They learned from pairs of simulated runs; NumPy
answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.effects.effect_inputs import MEMORIES_MIN, MOVED, STATE
from models.effects.plan_change import CHANGEABLE
from models.effects.situation import EFFECT_TARGETS

__all__ = ["KINDS_CHANGED", "SIZES_FORESEEN", "STATE_MOST", "TARGET_SCALES", "EffectNetwork", "kind_changed"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

TARGET_SCALES = np.array([1.0, 4.0, 100.0, 0.15], np.float32)
"""Usual sizes of effects, in the order of ``EFFECT_TARGETS``."""

STATE_MOST = 6.0
"""No part of the state counts as further than so many spreads from its mean."""

WIDTH_SHIFT = 2.0

KINDS_CHANGED = (*CHANGEABLE, "several")
"""What intervals are stretched by: the metric that is changed, or that there are several."""
SIZES_FORESEEN = np.array([0.01, 0.05, 0.15, 0.4, 0.8, 2.0], np.float32)
"""Sizes of the median, in usual ones, that intervals are also stretched by; between them on a line."""

_SHAPES = ("state_mean", "state_spread", "state_low", "state_high", "stretch", "stretch_by_size")


def kind_changed(moved: F32) -> I64:
    """Which of :data:`KINDS_CHANGED` has been moved until then; ``moved [..., MOVED]``."""
    by_memory = moved.reshape(*moved.shape[:-1], len(MEMORIES_MIN), -1)[..., : len(CHANGEABLE)]
    any_moved = (by_memory != 0).any(axis=-2)
    return np.where(any_moved.sum(axis=-1) > 1, len(CHANGEABLE), any_moved.argmax(axis=-1)).astype(np.int64)


class EffectNetwork:
    """``arrays`` are weights of any number of layers (``weight0 [members, inputs, outputs]``, ``bias0`` ...), mean and
    spread of the state, the range in which it was learned from, and how far intervals are stretched, by what is
    changed, so that they hold what they should.

    Raises ``ValueError`` where shapes do not fit.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        count = sum(name.startswith("weight") for name in arrays)
        named = {f"{kind}{n}" for kind in ("weight", "bias") for n in range(count)}
        if not count or set(arrays) != named | set(_SHAPES):
            raise ValueError(f"this is no network of effects: it has {', '.join(sorted(arrays))}")
        self.arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        self._layers = [(self.arrays[f"weight{n}"], self.arrays[f"bias{n}"]) for n in range(count)]
        members, sizes = len(self._layers[0][1]), [len(MOVED) + len(STATE), *(b.shape[-1] for _, b in self._layers)]
        fits = all(
            weight.shape == (members, sizes[n], sizes[n + 1]) and bias.shape == (members, sizes[n + 1])
            for n, (weight, bias) in enumerate(self._layers)
        )
        targets = len(EFFECT_TARGETS)
        expected = {**dict.fromkeys(_SHAPES[:4], (len(STATE),)), "stretch": (len(KINDS_CHANGED), targets, 2)}
        expected["stretch_by_size"] = (len(SIZES_FORESEEN), targets, 2)
        if not fits or sizes[-1] != 3 * targets or any(self.arrays[n].shape != s for n, s in expected.items()):
            raise ValueError("this network of effects is of another release: its shapes do not fit")

    def standard(self, state: F32) -> F32:
        """The state ``[..., STATE]`` in spreads (standard deviations) from its mean, 0 where unknown."""
        off = (state - self.arrays["state_mean"]) / self.arrays["state_spread"]
        return np.asarray(np.nan_to_num(np.clip(off, -STATE_MOST, STATE_MOST)), np.float32)

    def effect(self, moved: F32, state: F32) -> F32:
        """p10, p50 and p90 of the effects, ``[..., EFFECT_TARGETS, 3]``, in their units; 0 where nothing is moved."""
        known = self.standard(state)
        with_it = self._answer(np.concatenate([moved, known], axis=-1))
        without = self._answer(np.concatenate([np.zeros_like(moved), known], axis=-1))
        count = len(EFFECT_TARGETS)
        median = with_it[..., :count] - without[..., :count]
        much = np.tanh(np.sqrt((moved * moved).sum(axis=-1, keepdims=True)))
        down, up = (
            np.logaddexp(0, with_it[..., count * k : count * (k + 1)] - WIDTH_SHIFT) * much for k in (1, 2)
        )  # fmt: skip
        stretch = self.arrays["stretch"][kind_changed(moved)] * self._stretch_by_size(median)
        said = np.stack([median - down * stretch[..., 0], median, median + up * stretch[..., 1]], axis=-1)
        none = ~(moved != 0).any(axis=-1)
        said[none] = 0
        return np.asarray(said * TARGET_SCALES[:, None], np.float32)

    def _stretch_by_size(self, median: F32) -> F32:
        """Of both sides, ``[..., EFFECT_TARGETS, 2]``."""
        by_size, size = self.arrays["stretch_by_size"], np.abs(median)
        found = np.empty((*median.shape, 2), np.float32)
        for m in range(len(EFFECT_TARGETS)):
            for side in (0, 1):
                found[..., m, side] = np.interp(size[..., m], SIZES_FORESEEN, by_size[:, m, side])
        return found

    def _answer(self, inputs: F32) -> F32:
        """The members' mean."""
        last, total = len(self._layers) - 1, np.zeros(1, np.float32)
        for member in range(len(self._layers[0][1])):
            held = inputs
            for n, (weight, bias) in enumerate(self._layers):
                held = held @ weight[member] + bias[member]
                if n < last:
                    held = held / (1 + np.exp(-held))
            total = total + held
        return np.asarray(total / np.float32(len(self._layers[0][1])), np.float32)
