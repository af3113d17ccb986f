"""What a zone's scenarios say of tonight and tomorrow, as a line for people; times are those of the greenhouse."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypedDict
from zoneinfo import ZoneInfo

__all__ = ["QUESTION", "TARGET", "NextDay", "outlook_line"]

TARGET = "air_temp_c"
QUESTION = f"night,day,night_below:{TARGET}"
"""The events that ``/predict`` is asked for."""


class NextDay(TypedDict):
    """What ``/predict`` said to :data:`QUESTION`; ``problem`` is why it said nothing."""

    timezone: str
    origin: str  # ISO 8601, UTC
    events: list[dict[str, Any]]
    problem: str


def outlook_line(zone: str, said: NextDay) -> str:
    """Minimum and maximum with their times and p10 to p90, and the chance of an unusually cold night.

    >>> night = {"event": "night", "p10": 11.6, "p50": 12.4, "p90": 13.3, "time": "2024-03-16T04:30:00Z"}
    >>> below = {"event": "night_below", "limit": 11.2, "chance": 0.18, "nights": 14}
    >>> day = {"event": "day", "missing": "no day ends within the path"}
    >>> origin = "2024-03-15T12:00:00Z"
    >>> outlook_line("z1", NextDay(timezone="Europe/Amsterdam", origin=origin, events=[night, day, below], problem=""))
    'z1 tonight 12.4 °C at 05:30 (11.6 to 13.3), below 11.2: 18 %; maximum not known: no day ends within the path'
    """
    if said["problem"]:
        return f"{zone} tonight and tomorrow are not known: {said['problem']}"
    events = {event["event"]: event for event in said["events"]}
    night, day, below = (events.get(name, {"missing": "not said"}) for name in ("night", "day", "night_below"))
    return f"{zone} {_night(night, below, said['timezone'])}; {_day(day, said)}"


def _night(night: dict[str, Any], below: dict[str, Any], timezone: str) -> str:
    if "missing" in night:
        return f"minimum not known: {night['missing']}"
    words = f"tonight {_extreme(night, timezone)}"
    if "missing" in below:
        return f"{words}, no limit ({below['missing']})"
    return f"{words}, below {below['limit']:.1f}: {_percent(below['chance'])}"


def _day(day: dict[str, Any], said: NextDay) -> str:
    if "missing" in day:
        return f"maximum not known: {day['missing']}"
    is_today = _local(day["time"], said["timezone"]).date() == _local(said["origin"], said["timezone"]).date()
    return f"{'today' if is_today else 'tomorrow'} {_extreme(day, said['timezone'])}"


def _extreme(event: dict[str, Any], timezone: str) -> str:
    at = f"{_local(event['time'], timezone):%H:%M}"
    return f"{event['p50']:.1f} °C at {at} ({event['p10']:.1f} to {event['p90']:.1f})"


def _local(time: str, timezone: str) -> datetime:
    return datetime.fromisoformat(time).astimezone(UTC if timezone == "UTC" else ZoneInfo(timezone))


def _percent(chance: float) -> str:
    """A chance in words; no chance that is counted from scenarios is 0 or 1.

    >>> _percent(0.184), _percent(0.002), _percent(0.999)
    ('18 %', 'under 1 %', 'over 99 %')
    """
    if chance < 0.01:
        return "under 1 %"
    return "over 99 %" if chance > 0.99 else f"{chance:.0%}".replace("%", " %")
