"""Events of the learning loop in words, for terminals: what drifted, what was trained because of it, what serves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.markup import escape

__all__ = ["event_line"]

COLOURS = {
    "drift": "magenta", "retrain": "cyan", "shadow": "cyan", "serving": "bold green", "watched": "green",
    "refused": "yellow", "rollback": "bold yellow", "error": "red",
}  # fmt: skip


def event_line(event: Mapping[str, Any], *, dated: bool = False) -> str:
    """One event of the live state as a line of rich markup, in local time; ``dated``: with the day.

    >>> line = event_line({"time_ms": 0, "kind": "swap", "version": "v2", "before": "v1", "reason": "0.91 of v1"})
    >>> line.split("] ", 1)[1]
    '[white]swap[/] v1 to v2 [dim]0.91 of v1[/]'
    """
    at = (
        datetime.fromtimestamp(event.get("time_ms", 0) / 1000)
        .astimezone()
        .strftime("%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S")
    )
    kind, version = event.get("kind", "event"), escape(str(event.get("version", "")))
    said = [str(event.get("reason") or event.get("message") or "")]
    if kind == "retrain":
        said.append(f"Trained in {event.get('seconds')} s because of: {event.get('trigger')}.")
    moved = f"{escape(str(event['before']))} to {version}" if event.get("before") else version
    words = escape(" ".join(said))
    return f"[dim]{at}[/] [{COLOURS.get(kind, 'white')}]{kind}[/] {moved} [dim]{words}[/]"
