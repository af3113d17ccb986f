"""What `make e2e` prints: a timeline while it runs, a table in the end. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.ci.record import Record

__all__ = ["Report", "clock", "stretches"]

SHOWN = 5


@dataclass
class Report:
    """Collects; prints each line of the timeline at once."""

    ledger: dict[str, int] = field(default_factory=dict)
    harms: list[tuple[str, float, float]] = field(default_factory=list)  # what, recovery s, longest gap s
    balancing: bool = False  # from here on what fails may be a loss, and is no race
    _races: set[str] = field(default_factory=set)
    _checks: list[tuple[str, bool, str]] = field(default_factory=list)
    _began_s: float = field(default_factory=time.monotonic)

    @property
    def failed(self) -> bool:
        """Whether something did not hold."""
        return not all(holds for _, holds, _ in self._checks)

    def say(self, words: str) -> None:
        """A line of the timeline."""
        print(f"{time.monotonic() - self._began_s:7.1f} s  {words}", flush=True)

    def check(self, what: str, holds: bool, seen: str = "", may_race: bool = False) -> None:
        """Something that must hold; ``may_race`` where a machine that is held up can break it."""
        if may_race and not self.balancing:
            self._races.add(what)
        self._checks.append((what, holds, seen))
        self.say(f"{'✓' if holds else '✗'} {what}{f' ({seen})' if seen else ''}")

    def checks(self, found: Iterable[tuple[str, bool, str]]) -> None:
        """Several of them."""
        for what, holds, seen in found:
            self.check(what, holds, seen)

    def record(self, again: tuple[str, ...]) -> Record:
        """What failed, for `.ci/run`; ``again`` runs everything once more."""
        failed = [what for what, holds, _ in self._checks if not holds]
        races = tuple(what for what in failed if what in self._races)
        faults = tuple(what for what in failed if what not in self._races)
        return Record(1 if failed else 0, races, faults, again=again, parts=1)

    def print(self) -> None:
        """The table."""
        if self.harms:
            print(f"\n{'what was done':36} {'recovered after':>16} {'longest without /predict':>26}")
            for what, took_s, gap_s in self.harms:
                print(f"{what:36} {took_s:14.0f} s {gap_s:24.1f} s")
        if self.ledger:
            print("\nThe ledger, in messages")
            for name, count in self.ledger.items():
                print(f"  {name.replace('_', ' '):14} {count:>9,}")
        wrong = [f"✗ {what}: {seen[-300:]}" for what, holds, seen in self._checks if not holds]
        took_s = time.monotonic() - self._began_s
        print(f"\n{len(self._checks) - len(wrong)} of {len(self._checks)} checks held, in {took_s / 60:.1f} minutes")
        print("\n".join(wrong))


def clock(ms: int) -> str:
    """A time of the greenhouse.

    >>> clock(1_646_136_000_000)
    '01 Mar 12:00'
    """
    return time.strftime("%d %b %H:%M", time.gmtime(ms / 1000))


def stretches(found: Sequence[tuple[int, int, int]]) -> str:
    """Stretches of time as words, each with how many messages it is about; nothing for none.

    >>> stretches([(1_646_136_000_000, 1_646_139_600_000, 12)])
    '; missing: 12 from 01 Mar 12:00 to 01 Mar 13:00'
    """
    words = [f"{count:,} from {clock(first_ms)} to {clock(last_ms)}" for first_ms, last_ms, count in found[:SHOWN]]
    words += [f"{len(found) - SHOWN} more stretches"] if len(found) > SHOWN else []
    return f"; missing: {', '.join(words)}" if words else ""
