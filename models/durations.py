"""Lengths of time in milliseconds, the unit of all times on the wire, in the log and in the models."""

from __future__ import annotations

__all__ = ["DAY_MS", "HOUR_MS", "MINUTE_MS", "WEEK_MS"]

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
