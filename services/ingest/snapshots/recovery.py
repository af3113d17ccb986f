"""Step 4 of the way of a reading: a shard's partitions after a restart, and what their snapshots have lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from edge.log import Log
from models.spec import ForecastSpec
from services.config import Settings
from services.ingest.partition import Partition
from services.ingest.questions import FairLock
from services.ingest.queue import ForecastQueue
from services.ingest.snapshots.parts import LEARNED
from services.ingest.snapshots.regrow import ROUND_S, Regrowth
from services.ingest.snapshots.restore import issued_lately, restore
from services.ingest.snapshots.snapshot import Snapshots
from services.ingest.snapshots.stores import Stores

__all__ = ["Recovery"]

LIVE = {"plans", "alerts", "scores"}
"""What no history makes better: it goes on as it is when the other parts are exchanged."""

BESIDE_ROUND_S = 0.2
"""What grows beside a partition holds up its samples for so long at a time."""


class Recovery:
    """Restores each partition, and puts what waited for its forecast back into ``queue``. What a snapshot has lost is
    grown again from the history, a stretch a round; until then its partition reads nothing, and is not saved.

    Raises as :func:`~services.ingest.snapshots.restore.restore` does. ``changing`` is held while a partition changes.
    """

    def __init__(
        self, settings: Settings, spec: ForecastSpec, log: Log, snapshots: Mapping[int, Snapshots], stores: Stores,
        queue: ForecastQueue, changing: FairLock, clock_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._spec, self._issued, self._queue, self._changing = spec, stores.issued, queue, changing
        self.snapshots = snapshots
        self.partitions: dict[int, Partition] = {}
        self._growing: dict[int, Regrowth] = {}
        self._beside: dict[int, Regrowth] = {}
        self._waiting: dict[int, Sequence[Mapping[str, Any]]] = {}  # for their forecast, until a partition is grown
        self._repaired: list[str] = []

        def regrowth(partition: Partition, missing: Mapping[str, str], round_s: float) -> Regrowth:
            return Regrowth(partition, missing, stores, settings.stream.ring_hours, clock_s, round_s)

        self._regrowth = regrowth
        for number, of_partition in snapshots.items():
            partition, waiting, missing, damage = restore(settings, spec, log, of_partition, stores.issued)
            self.partitions[number] = partition
            self._repaired += damage
            if missing:
                self._growing[number] = regrowth(partition, missing, ROUND_S)
                self._waiting[number] = waiting
            else:
                self._queue_again(partition, waiting)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to grow."""
        return not self._growing

    def is_growing(self, number: int) -> bool:
        """Whether a partition is still without something."""
        return number in self._growing

    @property
    def repaired(self) -> str:
        """What was wrong with snapshots, and what becomes of it, for operators; empty if nothing was."""
        return "; ".join([*self._repaired, *(growing.words for growing in self._growing.values())])

    def grow(self) -> Iterator[int]:
        """Grow for a while what is lost; gives each partition that is whole again.

        Raises ``HistoryError`` where something cannot be read, and goes on when it is called again.
        """
        for number, growing in list(self._growing.items()):
            if not growing.grow():
                continue
            partition = self.partitions[number]
            lately = issued_lately(partition, self._spec, self._issued)
            with self._changing:
                growing.finish()
                for forecasts in lately:
                    partition.learner.expect(forecasts)
            del self._growing[number]
            self._repaired.append(growing.words)
            self._queue_again(partition, self._waiting.pop(number))
            yield number

    def begin_beside(self, number: int, why: str) -> None:
        """Begin to grow a partition again from the history, while it goes on with what it has learned."""
        missing = dict.fromkeys(sorted(LEARNED - LIVE), why)
        self._beside[number] = self._regrowth(self.partitions[number], missing, BESIDE_ROUND_S)

    def beside(self, number: int) -> Regrowth | None:
        """What grows beside a partition."""
        return self._beside.get(number)

    def exchange(self, number: int) -> None:
        """Let a partition have what has grown beside it, up to its newest row: nothing may be closed meanwhile, and the
        history must have all.

        Raises ``HistoryError``: then the partition goes on as before, and it can be called again.
        """
        growing = self._beside[number]
        growing.follow()
        while not growing.grow():
            pass
        with self._changing:
            growing.finish()
        del self._beside[number]

    def _queue_again(self, partition: Partition, waiting: Sequence[Mapping[str, Any]]) -> None:
        """What waited for its forecast, and the newest rows."""
        self._queue.load(waiting)
        waits = {(origin["site"], origin["end_ms"]) for origin in waiting}
        newest = partition.learner.newest_origins()
        self._queue.add([origin for origin in newest if (origin.site, origin.end_ms) not in waits])
