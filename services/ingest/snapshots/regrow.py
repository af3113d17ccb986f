"""Steps 7, 8 and 10 of the way of a reading: grows lost parts of a snapshot again, from the history.

The rows that the partition had closed are in the history, since it is written before every snapshot; so are the
forecasts that were issued. What grows is a learner beside the one that serves. It stops nothing: other partitions of
the shard go on, and questions are answered. Each round grows a stretch; after a crash it begins again.
"""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from edge.wire.plan import LONGEST_AHEAD_MS
from edge.wire.reading import FUTURE_TOLERANCE_MS
from models.durations import DAY_MS, HOUR_MS
from services.errors import HistoryError
from services.ingest.learned.learned_parts import PAST_HOURS
from services.ingest.partition import Partition
from services.ingest.snapshots.stores import Stores
from services.store.forecasts import IssuedForecast
from services.store.history import age_column
from services.store.parquet import day_of
from services.store.plan_history import KeptPlan
from services.store.rows import SiteStep

__all__ = ["REGROW_DAYS", "Regrowth"]

_log = logging.getLogger(__name__)

REGROW_DAYS = 60
"""Learners have mostly forgotten what is older."""
ROUND_S = 0.5
READ_TRIES = 3
_T = TypeVar("_T")
_ROWS_ONLY = frozenset({"rings", "past", "plans"})
_EVER_MS = 2**62


class Regrowth:
    """Grows the parts of ``partition`` that are ``missing`` (part -> why); ``words`` says how far it is."""

    def __init__(
        self, partition: Partition, missing: Mapping[str, str], stores: Stores, ring_hours: int,
        clock_s: Callable[[], float], round_s: float = ROUND_S,
    ) -> None:  # fmt: skip
        self._partition, self._missing, self._stores = partition, missing, stores
        self._clock_s, self._round_s = clock_s, round_s
        self._until_ms = {site: step.end_ms for site, step in partition.learner.latest.items()}
        hours = max(ring_hours, PAST_HOURS) if set(missing) <= _ROWS_ONLY else 24 * REGROW_DAYS
        # Of each site its own last days: others may have stopped months ago, or have a clock that is ahead.
        # Rows up to here are not wanted, or were learned before; see follow().
        self._learned_ms = {site: until_ms - hours * HOUR_MS for site, until_ms in self._until_ms.items()}
        self._from_ms = min(self._learned_ms.values(), default=0)
        self._to_ms = max(self._until_ms.values(), default=0)
        self._day_ms = self._grown_ms = self._from_ms  # the day that is read next; the newest row that was learned
        self.is_done = False
        self._failed_reads = 0  # in a row
        self._left_out: list[str] = []
        self._other = partition.learner.fresh()
        self._issued_after: dict[tuple[str, int], list[IssuedForecast]] | None = None
        self._day: Iterator[SiteStep] = iter(())
        self._plans_ms = self._from_ms - LONGEST_AHEAD_MS  # plans that were known until then are taken
        # Of each site, zone and source, the plans that were read: their offsets, and from when on they were used.
        self._plans_read: dict[tuple[str, str, str], list[tuple[int, int]]] = {}

    @property
    def share(self) -> float:
        """How much of the time that is grown again has been grown, 0 to 1."""
        return min((self._grown_ms - self._from_ms) / max(self._to_ms - self._from_ms, 1), 1.0)

    @property
    def words(self) -> str:
        """One line for people: which parts, why, how far it is, and what could not be read."""
        parts = "; ".join(f"{name}: {why}" for name, why in sorted(self._missing.items()))
        state = "done" if self.is_done else f"{100 * self.share:.0f} % done"
        without = "".join(f", without {words}" for words in self._left_out)
        return f"partition {self._partition.number} is grown again from the history, {state}{without} ({parts})"

    def grow(self) -> bool:
        """Grow for about ``round_s``; whether all is grown. The serving partition does not change.

        Raises ``HistoryError`` if something cannot be read; what fails again and again is left out and named.
        """
        until_s = self._clock_s() + self._round_s
        if self._issued_after is None:
            after = self._read("the forecasts that were issued", self._read_issued)
            self._issued_after = {} if after is None else after
        while self._clock_s() < until_s:
            step = next(self._day, None)
            if step is not None:
                self._other.replay(step, self._issued_after.get((step.site, step.end_ms), ()))
                self._grown_ms = step.end_ms
            elif self._day_ms >= self._to_ms:
                self._take_plans(_EVER_MS)
                return True
            elif not self._wanted(self._day_ms, self._day_ms + DAY_MS):
                self._skip_pause()
            else:
                to_ms = min(self._day_ms + DAY_MS, self._to_ms)
                self._take_plans(to_ms)
                rows = self._read(f"rows of {day_of(self._day_ms)}", partial(self._steps, self._day_ms, to_ms))
                self._day, self._day_ms = iter(rows or ()), to_ms
        return False

    def follow(self) -> None:
        """Grow what has closed since it began as well; the history must have all rows that the partition has closed.

        Call it, and :meth:`grow` until it is done, before the partition takes another row.
        """
        self._learned_ms = self._until_ms
        self._until_ms = {site: step.end_ms for site, step in self._partition.learner.latest.items()}
        self._to_ms = max(self._until_ms.values(), default=0)
        # One site may be behind the others: what is read from here on, others have learned already.
        new_ms = (self._learned_ms.get(site, self._from_ms) for site in self._until_ms)
        self._day_ms = min(new_ms, default=self._to_ms)
        self._issued_after = None
        self._plans_ms = self._grown_ms - DAY_MS  # those that came meanwhile; those that are there stay
        self._other.know(self._partition.learner.parts.rings.zones)

    def finish(self) -> None:
        """Let the partition have what was grown."""
        self._partition.learner.adopt(self._other, self._missing)
        self.is_done = True
        _log.warning("%s", self.words)

    def _take_plans(self, until_ms: int) -> None:
        """Those that came before the snapshot; the replay of the log brings the others."""
        number, after_ms = self._partition.number, self._plans_ms
        if until_ms <= after_ms:
            return  # rows that cannot be read are tried again, and their count of failures is theirs

        def read() -> list[KeptPlan]:
            sites = self._stores.plans.sites(number)
            found = [one for site in sites for one in self._stores.plans.read(site, after_ms, until_ms, number)]
            return [one for one in found if one.offset < self._partition.offset]

        plans = self._read(f"plans since {day_of(max(after_ms, 0))}", read) or ()
        self._other.plans.again([one for one in plans if not self._gave_way(one)], self._to_ms)
        self._plans_ms = until_ms

    def _gave_way(self, kept: KeptPlan) -> bool:
        """Whether a plan was issued by a clock that was ahead, and its source's next was not: that one was used from an
        earlier time on, so it was read before this one, which came before it.
        """
        plan = kept.plan
        before = self._plans_read.setdefault((kept.site, plan.zone, plan.source), [])
        came_later = before[bisect_right(before, (kept.offset, _EVER_MS)) :]
        insort(before, (kept.offset, plan.known_ms))
        return any(known_ms + FUTURE_TOLERANCE_MS < plan.issued_ms for _, known_ms in came_later)

    def _read(self, what: str, read: Callable[[], _T]) -> _T | None:
        try:
            found = read()
        except HistoryError as error:
            self._failed_reads += 1
            if self._failed_reads < READ_TRIES:
                raise
            _log.error("%s cannot be read and are left out: %s", what, error)
            self._left_out.append(what)
            found = None
        self._failed_reads = 0
        return found

    def _read_issued(self) -> dict[tuple[str, int], list[IssuedForecast]]:
        """By site and by the row after which they were issued. Earlier ones have all matured; what is grown learns
        from its own forecasts there, as a backtest does.
        """
        spec = self._partition.spec
        found: dict[tuple[str, int], list[IssuedForecast]] = {}
        for site, until_ms in self._until_ms.items():
            lately = self._stores.issued.read(site, until_ms - 2 * DAY_MS, spec.horizons_min, spec.targets, until_ms)
            for one in lately:
                after_ms = one.origin_ms + one.age_steps * self._stores.history.step_s * 1000
                found.setdefault((site, after_ms), []).append(one)
        return found

    def _wanted(self, after_ms: int, to_ms: int) -> list[str]:
        """The sites whose rows of this time are to be learned."""
        return [
            site
            for site, until_ms in self._until_ms.items()
            if self._learned_ms.get(site, 0) < min(to_ms, until_ms) and after_ms < until_ms
        ]

    def _skip_pause(self) -> None:
        """Go on where a site has rows to learn next: years may lie between one that stopped and the others."""
        begins = [ms for site, ms in self._learned_ms.items() if self._day_ms <= ms < self._until_ms.get(site, 0)]
        self._day_ms = min(begins, default=self._to_ms)
        self._plans_ms = max(self._plans_ms, self._day_ms - LONGEST_AHEAD_MS)

    def _steps(self, after_ms: int, to_ms: int) -> list[SiteStep]:
        """The rows of the partition's sites, by end, then in the order in which sites came."""
        order = {site: place for place, site in enumerate(self._until_ms)}
        table = self._stores.history.read(after_ms, to_ms, self._wanted(after_ms, to_ms))
        channels = self._stores.history.channels
        values = _columns(table, channels)
        ages = _columns(table, [age_column(name) for name in channels])
        keys = list(zip(table["end_ms"].to_pylist(), table["site"].to_pylist(), strict=True))
        zones = table["zone"].to_pylist()
        rows = sorted(range(len(keys)), key=lambda row: (keys[row][0], order[keys[row][1]], zones[row]))
        known = set(self._other.parts.rings.zones)
        steps = []
        for (end_ms, site), found in groupby(rows, key=lambda row: keys[row]):
            of_step = [row for row in found if (site, zones[row]) in known]
            if of_step and self._learned_ms.get(site, 0) < end_ms <= self._until_ms[site]:
                names = tuple(zones[row] for row in of_step)
                steps.append(SiteStep(self._partition.number, site, end_ms, names, values[of_step], ages[of_step]))
        return steps


def _columns(table: pa.Table, names: Sequence[str]) -> Any:
    """[rows, names], NaN where an older file lacks a column."""
    none = np.full(len(table), np.nan, np.float32)
    there = set(table.column_names)
    columns = [table[name].to_numpy().astype(np.float32) if name in there else none for name in names]
    return np.column_stack(columns) if columns else np.empty((len(table), 0), np.float32)
