"""Starts the system's own broker again when it has died: no device is heard without it, and nobody else does."""

from __future__ import annotations

import logging

from edge.mqtt.broker import BrokerError, LocalBroker

__all__ = ["EVERY_S", "BrokerWatch"]

EVERY_S = 1.0
"""How often it is looked at."""

_log = logging.getLogger(__name__)


class BrokerWatch:
    """Looks at ``broker``, which was started and is meant to run. ``error`` is why it cannot be started now."""

    def __init__(self, broker: LocalBroker) -> None:
        self.error = ""
        self._broker = broker

    def look(self) -> None:
        """Start it again, at the same port and with the same data, if it does not run; for one thread."""
        if self._broker.running:
            return
        if not self.error:
            _log.warning("the local MQTT broker has ended; it is started again")
        try:
            self._broker.restart()
        except (BrokerError, OSError) as error:
            if str(error) != self.error:
                _log.warning("devices are not heard: %s; trying again", error)
            self.error = str(error)
        else:
            self.error = ""
            _log.warning("the local MQTT broker runs again")
