"""What the API reads of the storage itself: series, issued forecasts, dead letters and alerts.

Threads of its own read it and do nothing else: a storage that hangs must hold up no order and no other answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from models.durations import DAY_MS, HOUR_MS
from services.config import Settings
from services.errors import HistoryError
from services.forecast_spec import forecast_spec
from services.ingest.alerts.alert_journal import changes_in, changes_of
from services.messages import Resampled, SaidAhead, ShownAlert
from services.serve.problem_error import ProblemError
from services.store.deadletters import DeadLetterCount, count_dead_letters, read_dead_letters
from services.store.rows import DeadLetter
from services.store.storage import storage_of

if TYPE_CHECKING:
    from services.store.forecasts import IssuedForecast
    from services.store.history import History

__all__ = ["StoredReads", "in_thread"]

READ_S = 30.0
READERS = 8

T = TypeVar("T")


class StoredReads:
    """The part of :class:`services.serve.api.backend.Backend` that reads what is stored; for one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._kept_history: History | None = None
        self._readers = ThreadPoolExecutor(READERS, "readers")

    async def series(
        self, site: str, zone: str, metrics: Sequence[str], start_ms: int, end_ms: int, interval_ms: int
    ) -> Resampled:
        """See :class:`Backend`."""
        from services.store.zone_series import resampled

        return await self._read(lambda: resampled(self._history(), site, zone, metrics, start_ms, end_ms, interval_ms))

    async def oldest_ms(self, site: str) -> int:
        """See :class:`Backend`."""
        return await self._read(lambda: self._history().zones.oldest_ms(site, self._settings.stream.step_s))

    async def series_tag(self, site: str, start_ms: int, end_ms: int) -> str:
        """See :class:`Backend`."""
        from services.store.zone_series import fingerprint

        return await self._read(lambda: fingerprint(self._history(), site, start_ms, end_ms))

    async def issued(self, site: str, zone: str, at_ms: int) -> IssuedForecast | None:
        """See :class:`Backend`."""
        spec = forecast_spec(self._settings)

        def newest() -> IssuedForecast | None:
            from services.store.forecasts import IssuedForecasts

            kept = IssuedForecasts(storage_of(self._settings), 0)
            for span_ms in (HOUR_MS, DAY_MS):  # a day of forecasts of a thousand zones is gigabytes
                found = kept.read(site, at_ms - span_ms, spec.horizons_min, spec.targets, at_ms)
                of_zone = [one for one in found if zone in one.zones]  # it may have been away since
                if of_zone:
                    return of_zone[-1]
            return None

        return await self._read(newest)

    async def said_ahead(
        self, site: str, zone: str, target: str, horizon_min: int, start_ms: int, end_ms: int
    ) -> SaidAhead:
        """See :class:`Backend`."""

        def read() -> SaidAhead:
            from services.store.forecasts import IssuedForecasts

            kept = IssuedForecasts(storage_of(self._settings), 0)
            return kept.ahead(site, zone, target, horizon_min, start_ms, end_ms)

        return await self._read(read)

    async def dead_letters(self, reason: str | None, newest: int) -> tuple[list[DeadLetterCount], list[DeadLetter]]:
        """See :class:`Backend`."""
        root = storage_of(self._settings)

        def read() -> tuple[list[DeadLetterCount], list[DeadLetter]]:
            return count_dead_letters(root, reason), read_dead_letters(root, newest, reason) if newest else []

        return await self._read(read)

    async def alert_changes(self, id: str) -> list[ShownAlert]:
        """See :class:`Backend`."""
        return await self._read(changes_of, storage_of(self._settings), id)

    async def zone_alerts(self, site: str, zone: str) -> tuple[list[ShownAlert], int | None]:
        """See :class:`Backend`."""
        return await self._read(changes_in, storage_of(self._settings), site, zone)

    def _history(self) -> History:
        from services.store.history import History  # Parquet's library is loaded by who asks first

        if self._kept_history is None:  # it knows the tables' logs, and then asks for what is newer
            self._kept_history = History(storage_of(self._settings), (), self._settings.stream.step_s)
        return self._kept_history

    async def _read(self, read: Callable[..., T], *arguments: Any) -> T:
        """Read what is stored in a thread, as other requests go on; a 503 problem where it cannot be read in time."""
        try:
            async with asyncio.timeout(READ_S):
                return await in_thread(self._readers, read, *arguments)
        except HistoryError as error:
            raise ProblemError(503, f"the history cannot be read: {error.message}", {"Retry-After": "60"}) from error
        except TimeoutError as error:
            words = f"what was kept could not be read within {READ_S:g} s"
            raise ProblemError(503, words, {"Retry-After": "5"}) from error
        except OSError as error:
            raise ProblemError(503, f"what was kept cannot be read: {error}", {"Retry-After": "5"}) from error


async def in_thread(threads: ThreadPoolExecutor, call: Callable[..., T], *arguments: Any) -> T:
    """What a call returns or raises. It runs in the context of the request, so that its log lines name that."""
    return await asyncio.get_running_loop().run_in_executor(threads, copy_context().run, call, *arguments)
