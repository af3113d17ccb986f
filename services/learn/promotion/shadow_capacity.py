"""Step 11 of the way of a reading: when a training may begin while challengers are in shadow. Pure.

Several challengers of one champion may be in shadow beside each other, each until its own rows have come: none is
judged sooner, later or more often for it. Trainings that start by themselves keep apart, so that verdicts do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from services.learn.experts import number_of
from services.messages import ONLINE_VERSION, ModelRow

__all__ = ["TrainingWait", "begun_ms", "gives_way", "wait_of"]


@dataclass(frozen=True, slots=True)
class TrainingWait:
    """What a training that starts by itself waits for; ``until_ms`` is the end of a row, so event time."""

    until_ms: int
    full: bool  # for a verdict, which comes after that row; also a drift waits for it
    why: str

    def is_over(self, newest_ms: int, *, urgent: bool) -> bool:
        """Whether a training may begin with the newest row at ``newest_ms``; ``urgent``: for a drift."""
        return not self.full and (urgent or newest_ms >= self.until_ms)


def wait_of(models: Sequence[ModelRow], places: int) -> TrainingWait | None:
    """What the next training waits for, if ``places`` challengers may be in shadow; ``None``: nothing.

    The next begins when the newest challenger has had its ``places``-th part of its time. A challenger that is compared
    with a champion that no longer serves holds no place: it gets no verdict.
    """
    champion = _champion(models)
    waiting = [row for row in models if _against(row) == champion]
    if not waiting:
        return None
    if len(waiting) >= places:
        first = min(waiting, key=_until_ms)
        names = " and ".join(row["version"] for row in sorted(waiting, key=_until_ms))
        are = "is" if len(waiting) == 1 else "are"
        words = f"after the verdict on {first['version']}, which comes with the rows of {_time(_until_ms(first))}"
        return TrainingWait(_until_ms(first), True, f"{words}: {names} {are} in shadow, and learn.shadows is {places}")
    newest = max(waiting, key=begun_ms)
    until_ms = begun_ms(newest) + (_until_ms(newest) - begun_ms(newest)) // places
    part = "half" if places == 2 else f"1/{places}"
    words = f"with the rows of {_time(until_ms)}, when {newest['version']} has been in shadow for {part} of its time"
    return TrainingWait(until_ms, False, f"{words}; a drift need not wait")


def gives_way(models: Sequence[ModelRow], version: str, places: int) -> list[ModelRow]:
    """The challengers that make room for ``version``, which has just come: first those whose champion no longer serves,
    then those that have waited least, so that verdicts go on coming.
    """
    champion = _champion(models)
    others = [row for row in models if row["stage"] == "shadow" and row["shadow"] and row["version"] != version]
    others.sort(key=lambda row: (_against(row) == champion, -number_of(row["version"])))
    return others[: max(len(others) - places + 1, 0)]


def _champion(models: Sequence[ModelRow]) -> str:
    return next((row["version"] for row in models if row["stage"] == "champion"), ONLINE_VERSION)


def _against(row: ModelRow) -> str:
    return row["shadow"]["against"] if row["stage"] == "shadow" and row["shadow"] else ""


def _until_ms(row: ModelRow) -> int:
    assert row["shadow"] is not None
    return row["shadow"]["until_ms"]


def begun_ms(row: ModelRow) -> int:
    """The newest row there was when its comparison began."""
    assert row["shadow"] is not None
    trained_on = row["trained_on"]
    return int(trained_on.get("known_to_ms") or trained_on.get("to_ms") or row["shadow"]["from_ms"])


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
