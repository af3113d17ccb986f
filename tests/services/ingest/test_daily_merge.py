"""Files of a day that is over are merged once; what fails is tried again within an hour, and keeps nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from services.errors import HistoryError
from services.ingest.daily_merge import DailyMerge
from services.ingest.figures import Failures
from services.ingest.snapshots.stores import Stores
from tests.services.ingest.data_folder import AtOnce

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
FIRST_MS = 19_000 * DAY_MS


class Store:
    """Counts its merges; those whose number is named fail."""

    def __init__(self, fails: set[int], error: type[Exception]) -> None:
        self.count, self._fails, self._error = 0, fails, error

    def merge_days(self, *_: Any) -> None:
        """Of forecasts."""
        self.count += 1
        if self.count in self._fails:
            raise self._error("a file is damaged")

    compact = merge_days


@pytest.mark.parametrize("error", [HistoryError, ConnectionError])
def test_what_fails_is_tried_again_and_keeps_nothing_else(error: type[Exception]) -> None:
    """Forecasts that cannot be merged keep neither rows nor plans from it; an hour later they are tried again."""
    issued, history, plans = Store({1}, error), Store(set(), error), Store(set(), error)
    failures = Failures()
    merge = DailyMerge(Stores(history, plans, issued, None), [0], lambda: None, AtOnce(), failures)  # type: ignore[arg-type]

    def round_at(at_ms: int) -> tuple[int, int, int]:
        merge.begin(at_ms)
        merge.finish()
        return issued.count, history.count, plans.count

    assert round_at(FIRST_MS) == (1, 1, 1)
    assert "damaged" in failures.last_error
    assert round_at(FIRST_MS + HOUR_MS - 1) == (1, 1, 1)
    assert round_at(FIRST_MS + HOUR_MS) == (2, 2, 2)
    assert failures.last_error == ""
    assert round_at(FIRST_MS + 3 * HOUR_MS) == (2, 2, 2)
    assert round_at(FIRST_MS + DAY_MS) == (3, 3, 3)


def test_a_site_whose_clock_was_ahead_keeps_no_day_of_the_others_from_being_merged() -> None:
    """It says next year once, and then nothing more: others go on day by day, and what failed is tried again."""
    issued, history, plans = Store({2, 3}, HistoryError), Store(set(), HistoryError), Store(set(), HistoryError)
    merge = DailyMerge(Stores(history, plans, issued, None), [0], lambda: None, AtOnce(), Failures())  # type: ignore[arg-type]

    def round_at(at_ms: int) -> int:
        merge.begin(at_ms)
        merge.finish()
        return issued.count

    assert round_at(FIRST_MS) == 1
    assert round_at(FIRST_MS + 365 * DAY_MS) == 2
    assert round_at(FIRST_MS + HOUR_MS) == 3
    assert round_at(FIRST_MS + HOUR_MS + 300_000) == 3
    assert round_at(FIRST_MS + 2 * HOUR_MS) == 4
    assert [round_at(FIRST_MS + hour * HOUR_MS) for hour in range(3, 72)] == [4] * 21 + [5] * 24 + [6] * 24
