"""Step 4 of the way of a reading: where a shard keeps rows, plans, issued forecasts and examples, beside snapshots."""

from __future__ import annotations

from typing import NamedTuple

from models.spec import ForecastSpec
from services.store.examples.shown_examples import ShownExamples
from services.store.forecasts import IssuedForecasts
from services.store.history import History
from services.store.plan_history import PlanHistory
from services.store.storage import Storage

__all__ = ["Stores"]


class Stores(NamedTuple):
    """Those of one shard, all in one storage."""

    history: History
    plans: PlanHistory
    issued: IssuedForecasts
    examples: ShownExamples

    @classmethod
    def of(cls, storage: Storage, spec: ForecastSpec, step_s: int, writer: int) -> Stores:
        """``step_s`` is the length of rows in the settings, ``writer`` a number that no other shard has."""
        history = History(storage, spec.channels, step_s)
        return cls(history, PlanHistory(storage), IssuedForecasts(storage, writer), ShownExamples(storage, spec))
