"""The global network along a recording: trained after the warm-up, again every few days, and judged by the gate.

It is what the live system does with the same code: a challenger starts from the champion's weights, is trained on all
but the newest rows, and serves from then on if the gate says that it beats champion and baselines on those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from models.evaluation.gate import judge
from models.features.inputs import Inputs
from models.network.quantile import QuantileNetwork
from models.network.training import TrainingConfig, WindowSet, evaluate, fit
from models.spec import ForecastSpec, Place
from services.backtest.table import Table

__all__ = ["Networks", "Trainer", "train_here"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
State = Mapping[str, npt.NDArray[Any]]
Trainer = Callable[[WindowSet, I64, int, State | None], State]
"""Windows, origins to train on, the end of what may be known (ms), weights to start from -> weights."""

RETRAIN_DAYS = 7
HELD_BACK = 0.15
"""The newest share of the rows so far is kept for the gate."""

LEAST_ORIGINS = 48
EXAMPLE_MS = 1_800_000
"""Origins of training and gate are this far apart: those between say nearly the same."""

CONFIG = TrainingConfig()
_BATCH = 2048


class Networks:
    """Champion and frozen network, and their answers to origins in steps of the table; no row after one is used."""

    def __init__(self, table: Table, spec: ForecastSpec, place: Place, train: Trainer) -> None:
        self._spec, self._train = spec, train
        first = table.start_ms - table.start_ms % table.step_ms
        self._windows = WindowSet(table.names, first, table.values, [place] * len(table.names), spec)
        self._apart = max(EXAMPLE_MS // spec.step_ms, 1)
        self._champion: QuantileNetwork | None = None
        self._frozen: QuantileNetwork | None = None
        self._trained = 0
        self.version = ""  # of the champion; empty before the first

    def retrain(self, step: int) -> None:
        """Train a challenger on the rows up to ``step``; it becomes the champion if it wins."""
        windows, now_ms = self._windows, int(self._windows.end_ms[step])
        cut_ms = now_ms - round((now_ms - windows.first_end_ms) * HELD_BACK)
        origins = windows.origins(self._spec.steps_per_day)
        times = windows.times(origins)
        apart = (times - windows.first_end_ms) // self._spec.step_ms % self._apart == 0
        past = self._known(origins[apart & (times < cut_ms)], cut_ms)
        held_back = self._known(origins[apart & (times >= cut_ms) & (times <= now_ms)], now_ms)
        if min(len(past), len(held_back)) < LEAST_ORIGINS:
            return
        champion = self._champion
        challenger = QuantileNetwork(self._spec, CONFIG.hidden, CONFIG.mixes, CONFIG.dropout, CONFIG.silence)
        with _one_thread():
            state = self._train(windows, past, cut_ms, None if champion is None else champion.arrays())
            challenger.load_arrays(state)
            challenger.eval()
            predict = _climatology if champion is None else champion.predict
            mine, theirs = (evaluate(p, windows, held_back, now_ms) for p in (challenger.predict, predict))
        self._trained += 1
        name = f"v{self._trained}"
        if self._frozen is None:
            self._frozen = challenger
        if judge(mine, theirs, self.version or "the climatology").promote:
            self._champion, self.version = challenger, name

    def answer(self, steps: I64) -> tuple[F32 | None, F32 | None]:
        """Medians of champion and frozen network for all zones, ``[T, Z, H, M]`` each, ``None`` if there is none.

        NaN before a target's first value.
        """
        networks = (self._champion, self._frozen)
        if not len(steps) or networks == (None, None):
            return None, None
        zones, length = len(self._windows.zone_ids), self._windows.length
        origins = (steps[:, None] + np.arange(zones) * length).ravel()
        parts: list[list[F32]] = [[], []]
        with _one_thread():
            for at in range(0, len(origins), _BATCH):
                inputs = self._windows.inputs(origins[at : at + _BATCH])
                for network, found in zip(networks, parts, strict=True):
                    if network is not None:
                        found.append(network.predict(inputs)[..., 1])
        shape = (len(steps), zones, len(self._spec.horizons_min), len(self._spec.targets))
        champion, frozen = (np.concatenate(found).reshape(shape) if found else None for found in parts)
        return champion, frozen

    def _known(self, origins: I64, until_ms: int) -> I64:
        """Those of which some truth was known by then."""
        return origins[np.isfinite(self._windows.truth(origins, until_ms)).any(axis=(1, 2))]


def train_here(windows: WindowSet, origins: I64, cut_ms: int, initial_state: State | None) -> State:
    """Train in this process."""
    return fit(windows, origins, CONFIG, cut_ms=cut_ms, initial_state=initial_state).state


def _climatology(inputs: Inputs) -> F32:
    return np.asarray(inputs.baseline)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The same sums in the same order on every machine, and no cores that others need."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
