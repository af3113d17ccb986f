"""Fronts that pass over a simulated site, and the air masses that they bring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.durations import HOUR_MS

__all__ = ["FrontTrack", "FrontWeather"]


@dataclass(frozen=True, slots=True)
class FrontWeather:
    """Per minute: ``near`` 0...1 (1 in the front's cloud band), the air mass's departure from the season's mean, and
    where the wind comes from (degrees, not yet wrapped).
    """

    near: NDArray[np.float64]
    air_mass_c: NDArray[np.float64]
    direction_deg: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Front:
    passage_ms: float
    before: float
    after: float
    strength: float
    width_ms: float


class FrontTrack:
    """A random sequence of fronts; :meth:`over` may only be asked for times that do not go back by more than a day.

    Fronts follow each other after gamma-distributed times (Rossby waves arrive neither by the clock nor without
    memory); each brings an air mass that resembles the last one a little. Warm air comes from the south-west, cold
    air from the north-west or the east.
    """

    def __init__(self, seed: int, start_ms: int, hours_between: float, air_mass_sd: float) -> None:
        self._rng = np.random.default_rng([seed, 2])
        self._hours = hours_between
        self._sd = air_mass_sd
        first = float(self._rng.standard_normal())
        self._fronts = [_Front(start_ms - self._wait_ms(), first, first, 0.0, 3.0 * HOUR_MS)]
        self._add()

    def over(self, minutes_ms: NDArray[np.int64]) -> FrontWeather:
        """The fronts' share of the weather at ascending times, Unix ms."""
        while self._fronts[-1].passage_ms < minutes_ms[-1] + 24 * HOUR_MS:
            self._add()
        self._fronts = [
            front for i, front in enumerate(self._fronts)
            if i + 1 == len(self._fronts) or self._fronts[i + 1].passage_ms > minutes_ms[0] - 48 * HOUR_MS
        ]  # fmt: skip
        near = np.zeros(minutes_ms.size)
        mass = np.full(minutes_ms.size, self._fronts[0].before)
        for front in self._fronts:
            since = (minutes_ms - front.passage_ms) / front.width_ms
            mass = mass + (front.after - front.before) / (1 + np.exp(np.clip(-1.5 * since, -50, 50)))
            # The cloud band reaches further ahead of the front than behind it.
            near = np.maximum(near, front.strength * np.exp(-0.5 * (since / np.where(since < 0, 1.8, 0.9)) ** 2))
        return FrontWeather(near, self._sd * mass, 245.0 - 45.0 * mass)

    def _add(self) -> None:
        last = self._fronts[-1]
        after = 0.15 * last.after + float(np.sqrt(1 - 0.15**2) * self._rng.standard_normal())
        strength = float(self._rng.uniform(0.5, 1.0))
        width = float(self._rng.uniform(2.5, 6.0)) * HOUR_MS
        self._fronts.append(_Front(last.passage_ms + self._wait_ms(), last.after, after, strength, width))

    def _wait_ms(self) -> float:
        return float(self._rng.gamma(2.5, self._hours / 2.5)) * HOUR_MS
