"""Step 3 of the way of a reading: why connections to Kafka ended, which the errors of its client do not tell.

kafka-python tries again whatever a connection ended with, a refused login and a wrong certificate too, and in the end
says that the time is over. The reason is in its own log alone. What a server says of a login before it ends the
connection is mostly not even read: then only the time at which it ended tells.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from kafka import errors as kafka_errors

__all__ = ["began_login", "hear_losses", "words_of"]

_HEARD_S = 30.0
"""A reason that is older says nothing of an error now."""

_OURS = (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError)
"""We ended the connection, as the time was over: that is known."""


class _Losses(logging.Filter):
    """Keeps the newest reason. Lines are written as far as Kafka's other lines are."""

    def __init__(self) -> None:
        super().__init__()
        self.login: Any = None  # the newest since the newest loss
        self._reason, self._heard_s = "", float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.args[-1] if isinstance(record.args, tuple) and record.args else None
        if isinstance(error, Exception) and not isinstance(error, _OURS):
            refused = self.login is not None and not self.login.is_authenticated()
            asked = " while it logged in: are user name, password and mechanism right?" if refused else ""
            self._reason, self._heard_s, self.login = _named(error) + asked, time.monotonic(), None
        return logging.getLogger("kafka").isEnabledFor(record.levelno)

    @property
    def reason(self) -> str:
        return self._reason if time.monotonic() - self._heard_s < _HEARD_S else ""


_losses = _Losses()


def hear_losses() -> None:
    """From now on :func:`words_of` knows why connections of this process' clients end."""
    connections = logging.getLogger("kafka.net.connection")
    connections.addFilter(_losses)  # the same one is there once
    connections.setLevel(logging.ERROR)  # whatever the level of Kafka's other lines


def began_login(mechanism: Any) -> None:
    """A connection logs in now, by one of the client's mechanisms."""
    _losses.login = mechanism


def words_of(error: Exception) -> str:
    """What one of Kafka's errors says; of a time that is over also why the newest connection ended."""
    words = _named(error)
    if isinstance(error, kafka_errors.KafkaTimeoutError) and _losses.reason:
        return f"{words}; the newest connection ended with {_losses.reason}"
    return words


def _named(error: Exception) -> str:
    """With the error's name, which Kafka's client writes before most of its words itself."""
    name, words = type(error).__name__, str(error)
    return words if words.startswith(name) else f"{name}: {words}"
