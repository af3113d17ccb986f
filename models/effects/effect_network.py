"""The network of effects: what a change moves the climate by, with the interval that holds four in five.

It answers the difference of two of its answers: with what is moved, and with nothing moved. So a change that moves
nothing does nothing, and its interval is as narrow. It learned from pairs of simulated runs; NumPy answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.effects.effect_inputs import MOVED, STATE
from models.effects.situation import EFFECT_TARGETS

__all__ = ["STATE_MOST", "TARGET_SCALES", "EffectNetwork"]

F32 = npt.NDArray[np.float32]

TARGET_SCALES = np.array([1.0, 4.0, 100.0, 0.15], np.float32)
"""Usual sizes of effects, in the order of ``EFFECT_TARGETS``."""

STATE_MOST = 6.0
"""No part of the state counts as further than so many spreads from its mean."""

WIDTH_SHIFT = 2.0
_SHAPES = ("state_mean", "state_spread", "state_low", "state_high", "stretch")


class EffectNetwork:
    """``arrays`` are weights of any number of layers (``weight0``, ``bias0`` ...), mean and spread of the state, the
    range in which it was learned from, and how far intervals are stretched so that they hold what they should.

    Raises ``ValueError`` where shapes do not fit.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        count = sum(name.startswith("weight") for name in arrays)
        named = {f"{kind}{n}" for kind in ("weight", "bias") for n in range(count)}
        if not count or set(arrays) != named | set(_SHAPES):
            raise ValueError(f"this is no network of effects: it has {', '.join(sorted(arrays))}")
        self.arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        self._layers = [(self.arrays[f"weight{n}"], self.arrays[f"bias{n}"]) for n in range(count)]
        sizes = [len(MOVED) + len(STATE), *(len(bias) for _, bias in self._layers)]
        fits = all(weight.shape == (sizes[n], sizes[n + 1]) for n, (weight, _) in enumerate(self._layers))
        targets = len(EFFECT_TARGETS)
        expected = {**dict.fromkeys(_SHAPES[:4], (len(STATE),)), "stretch": (targets, 2)}
        if not fits or sizes[-1] != 3 * targets or any(self.arrays[n].shape != s for n, s in expected.items()):
            raise ValueError("this network of effects is of another release: its shapes do not fit")

    def standard(self, state: F32) -> F32:
        """The state in spreads from its mean, 0 where unknown."""
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
        stretch = self.arrays["stretch"]
        said = np.stack([median - down * stretch[:, 0], median, median + up * stretch[:, 1]], axis=-1)
        none = ~(moved != 0).any(axis=-1)
        said[none] = 0
        return np.asarray(said * TARGET_SCALES[:, None], np.float32)

    def _answer(self, inputs: F32) -> F32:
        last = len(self._layers) - 1
        for n, (weight, bias) in enumerate(self._layers):
            inputs = inputs @ weight + bias
            if n < last:
                inputs = inputs / (1 + np.exp(-inputs))
        return inputs
