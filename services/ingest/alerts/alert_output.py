"""Step 9 of the way of a reading: changes of alerts become durable, then whoever looks is told.

A change is in the journal before a snapshot knows of it, and before anybody is told. So after a crash it is either in
both, or the log makes it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from services.ingest.alerts.alert_journal import AlertJournal
from services.ingest.alerts.journaled import Journaled
from services.ingest.partition import Partition
from services.ingest.sinks.live_state_sink import LiveStatePublisher
from services.messages import in_alert
from services.store.storage import Storage

__all__ = ["AlertOutput"]

_log = logging.getLogger(__name__)


class AlertOutput:
    """Of the partitions of a shard; one thread calls its methods. ``check`` raises for a partition that belongs to
    another writer by now.
    """

    def __init__(
        self, root: Storage | Path, partitions: Mapping[int, Partition], live_state: LiveStatePublisher,
        check: Callable[[int], None] = lambda number: None,
    ) -> None:  # fmt: skip
        self._partitions, self._live_state, self._check = partitions, live_state, check
        self._journals = {number: AlertJournal(root, number) for number in partitions}
        for number, partition in partitions.items():
            journal, alerts = self._journals[number], partition.alerts
            alerts.take_back(journal.standing(partition.offset), partition.offset - 1)
            alerts.expect(Journaled(journal.since(partition.offset)))

    def keep(self, partition: Partition) -> None:
        """Make a partition's changes durable; raises ``OSError``, and calling it again is safe."""
        if partition.alerts.told:
            self._journals[partition.number].put(partition.alerts.told, lambda: self._check(partition.number))
            for offset, alert in partition.alerts.told:
                extra = in_alert(alert, log=f"{partition.number}:{offset}")
                _log.info("%s is %s: %s", alert["rule"], alert["state"], alert["text"], extra=extra)
            partition.alerts.told = []

    def tell(self) -> None:
        """Keep what is new, and show it; raises as :meth:`keep`."""
        for partition in self._partitions.values():
            self.keep(partition)
            renewed, partition.alerts.renewed = partition.alerts.renewed, {}
            if renewed:
                self._live_state.put_alerts(list(renewed.values()))
