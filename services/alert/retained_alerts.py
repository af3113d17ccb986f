"""Step 9 of the way of a reading: each alert as a retained message of its own topic.

Who connects gets what holds now; a topic is cleared some time after its alert was resolved. What was published is kept
in a file: a broker that has lost its messages gets them again when we start, and after every failure.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from edge.wire.topic import alert_topic
from services.alert.delivery import DeliveryError
from services.errors import HothouseError
from services.messages import ShownAlert

__all__ = ["Message", "RetainedAlerts"]

Message = tuple[str, bytes]


class RetainedAlerts:
    """``publish`` sends retained messages, in order, and raises :class:`HothouseError` where the broker does not take
    them. ``wall_s`` says when a topic is cleared; see :class:`services.alert.delivery.Channel`.
    """

    name = "mqtt"

    def __init__(
        self, root: Path, publish: Callable[[Sequence[Message]], None], clear_after_s: float,
        wall_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._publish, self._clear_after_s, self._wall_s = publish, clear_after_s, wall_s
        root.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(root / "alert-topics.sqlite", check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        with self._db:
            self._db.execute("CREATE TABLE IF NOT EXISTS topics (topic TEXT PRIMARY KEY, payload BLOB, clear_s REAL)")

    def begin(self) -> None:
        """Publish all that holds again."""
        held = self._db.execute("SELECT topic, payload FROM topics ORDER BY topic").fetchall()
        self._send([(topic, payload) for topic, payload in held])

    def deliver(self, alerts: Sequence[ShownAlert]) -> int:
        """See :class:`services.alert.delivery.Channel`."""
        newest = {alert_topic(alert["site"], alert["zone"], alert["id"]): alert for alert in alerts}
        now_s = self._wall_s()
        with self._db:
            for topic, alert in newest.items():
                clear_s = now_s + self._clear_after_s if alert["state"] == "resolved" else None
                row = (topic, msgspec.json.encode(alert), clear_s)
                self._db.execute("INSERT OR REPLACE INTO topics VALUES (?, ?, ?)", row)
        self._send([(topic, msgspec.json.encode(alert)) for topic, alert in newest.items()])
        self._clear(now_s)
        return len(alerts)

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def _clear(self, now_s: float) -> None:
        due = [topic for (topic,) in self._db.execute("SELECT topic FROM topics WHERE clear_s <= ?", (now_s,))]
        self._send([(topic, b"") for topic in due])
        with self._db:
            self._db.executemany("DELETE FROM topics WHERE topic = ?", [(topic,) for topic in due])

    def _send(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        try:
            self._publish(messages)
        except HothouseError as error:
            raise DeliveryError(error.message) from error
