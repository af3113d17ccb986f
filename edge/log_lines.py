"""How a line of a log looks, as text or as JSON: the same for the gateway and for every process of the cluster part.

A line may have fields: ``logger.info(..., extra={"fields": {"trace_id": ...}})``; ``edge.wire.trace_id.in_step`` makes
those of a step.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Literal

__all__ = ["LinesOfAStep", "formatter"]

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MOST_LINES = 100
STEPS = 4
"""Steps that are remembered: sites do not all have the same receive time, and one may be far ahead for good."""


def formatter(form: Literal["text", "json"], component: str) -> logging.Formatter:
    """What makes lines of a process that is called ``component``."""
    return _JsonFormatter(component) if form == "json" else _TextFormatter(FORMAT)


class LinesOfAStep:
    """Which lines are worth writing: each once a step of the log's receive time, and at most ``MOST_LINES`` a step.

    A device that is wrong every second would fill the log otherwise; what is left out is counted and kept elsewhere.

    >>> lines = LinesOfAStep()
    >>> [lines.is_new(300_000, "z1", "malformed"), lines.is_new(300_000, "z1", "malformed")]
    [True, False]
    >>> lines.is_new(600_000, "z1", "malformed"), lines.is_new(300_000, "z2", "malformed")
    (True, True)
    """

    def __init__(self) -> None:
        self._told: dict[int, set[tuple[str, ...]]] = {}

    def is_new(self, end_ms: int, *what: str) -> bool:
        """Whether to write it; ``end_ms`` is the end of the step in which it was received."""
        told = self._told.setdefault(end_ms, set())
        if len(self._told) > STEPS:
            del self._told[next(iter(self._told))]  # that which is remembered longest
        if what in told or len(told) >= MOST_LINES:
            return False
        told.add(what)
        return True


class _TextFormatter(logging.Formatter):
    """A line that people read; its fields stand behind the message, so that ``grep`` finds a trace id here too."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        fields = _fields(record)
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        return super().formatMessage(record) + (f" [{told}]" if told else "")


class _JsonFormatter(logging.Formatter):
    """A JSON object a line: ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``component``, ``message``, the line's
    fields, ``error``.
    """

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, also where message or traceback have several."""
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname, "logger": record.name, "component": self._component,
            "message": record.getMessage(), **_fields(record),
        }  # fmt: skip
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields
