"""A replay's network: retrained in event time, and asked for many origins at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from models.spec import ForecastSpec, Place
from services.backtest.table import Table

if TYPE_CHECKING:
    from services.backtest.retraining import Trainer

__all__ = ["NetworkAlong"]

F32 = npt.NDArray[np.float32]


class NetworkAlong:
    """What the champion says along a recording, and what the network says that the first training gave."""

    def __init__(
        self, table: Table, spec: ForecastSpec, place: Place, first: int, asked: list[int], train: Trainer | None
    ) -> None:
        """``first`` is the row after which it is trained for the first time, ``asked`` are the rows that forecasts are
        wanted from.
        """
        from services.backtest.retraining import RETRAIN_DAYS, Networks, train_here  # they import torch

        self._networks = Networks(table, spec, place, train or train_here)
        self._first = first
        self._every = RETRAIN_DAYS * spec.steps_per_day
        self._length, self._stride = len(table.end_ms), spec.example_steps
        self._asked = np.array(asked, dtype=np.int64)
        self._offset = table.start_ms // spec.step_ms
        self._answers: dict[int, tuple[F32 | None, F32 | None]] = {}

    @property
    def version(self) -> str:
        """Of the champion; empty before the first."""
        return self._networks.version

    def after(self, t: int) -> None:
        """Train where it is time to, and ask for all origins up to the next time."""
        if t < self._first or (t - self._first) % self._every:
            return
        self._networks.retrain(t)
        steps = np.arange(t + 1, min(t + 1 + self._every, self._length))
        wanted = steps[((self._offset + steps) % self._stride == 0) | np.isin(steps, self._asked)]
        champion, frozen = self._networks.answer(wanted)
        self._answers = {
            int(step): (None if champion is None else champion[i], None if frozen is None else frozen[i])
            for i, step in enumerate(wanted)
        }

    def answer(self, t: int) -> tuple[F32 | None, F32 | None]:
        """Medians of the champion and of the frozen network, ``[Z, H, M]``."""
        return self._answers.get(t, (None, None))
