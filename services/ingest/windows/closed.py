"""Step 5 of the way of a reading: what the windows give of a read: closed steps, counts, dead letters."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

import msgspec

from edge.log import Record
from edge.wire.reading import Refusal, decode_refusals
from edge.wire.topic import parse_topic
from services.store.rows import ClosedStep, DeadLetter

__all__ = ["CamePlan", "Closed", "Feed", "Left", "Mark", "PlacedRecord"]

PlacedRecord = tuple[int, Record]
"""A record and its place among those that were fed with it."""

_PAYLOAD_BYTES = 1024


class CamePlan(NamedTuple):
    """A plan's record; when it came, its site's rows were closed up to ``closed_ms`` (``None`` before the first), and
    the time at the site was ``now_ms``.
    """

    record: Record
    closed_ms: int | None
    now_ms: int


class Left(NamedTuple):
    """A zone that has left, and the end of the last row that it was in."""

    zone: str
    end_ms: int


class Mark(NamedTuple):
    """A tick or an event. When it was taken, ``steps`` of this feed had closed, and the site's time was ``now_ms``; the
    zone ``left`` left with it.
    """

    record: Record
    steps: int
    now_ms: int
    left: Left | None = None


@dataclass(slots=True)
class Closed:
    """What a feed gave. ``accepted + duplicates + late + sum(rejected.values())`` is the number of samples in the
    records; ``values_refused`` counts single values of samples that were accepted otherwise. Plans that the gateway
    refused are no samples: they are in ``plans_refused``, single metrics of those it took in ``plan_metrics_refused``.
    """

    steps: list[ClosedStep] = field(default_factory=list)
    accepted: int = 0
    duplicates: int = 0
    late: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    values_refused: dict[str, int] = field(default_factory=dict)
    plans_refused: dict[str, int] = field(default_factory=dict)
    plan_metrics_refused: dict[str, int] = field(default_factory=dict)
    other_records: dict[str, int] = field(default_factory=dict)  # plan and event records, and copies of records
    dead_letters: list[DeadLetter] = field(default_factory=list)
    plans: list[CamePlan] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


class Feed:
    """Gathers a :class:`Closed` site by site; steps and dead letters come out in the order of their records."""

    def __init__(self) -> None:
        self.closed = Closed()
        self._steps: list[tuple[int, ClosedStep]] = []
        self._dead_letters: list[tuple[int, DeadLetter]] = []
        self._plans: list[tuple[int, CamePlan]] = []
        self._marks: list[tuple[PlacedRecord, int, Left | None]] = []

    def step(self, at: int, step: ClosedStep) -> None:
        """A step that the record at place ``at`` closed."""
        self._steps.append((at, step))

    def letter(self, place: PlacedRecord, item: int, topic: str, reason: str, detail: str, payload: bytes) -> None:
        """A dead letter; ``item`` tells those of a record apart."""
        at, record = place
        where = record.partition, record.offset, item, record.receive_ms
        self._dead_letters.append((at, DeadLetter(*where, topic, reason, detail, payload[:_PAYLOAD_BYTES])))

    def notice_item(self, place: PlacedRecord) -> int:
        """The item of the next letter that a record's closing brings: -1, -2 and so on."""
        return -1 - sum(at == place[0] and letter.item < 0 for at, letter in self._dead_letters)

    def corrupt(self, place: PlacedRecord, detail: str) -> None:
        """A record that cannot be decoded."""
        record = place[1]
        self.closed.rejected["corrupt_record"] = self.closed.rejected.get("corrupt_record", 0) + 1
        self.letter(place, 0, record.topic, "corrupt_record", detail, record.payload)

    def refused(self, place: PlacedRecord) -> None:
        """A record of what the gateway refused."""
        try:
            refusals = decode_refusals(place[1].payload)
        except msgspec.DecodeError as error:
            return self.corrupt(place, str(error))
        for item, refusal in enumerate(refusals):
            counts = self._counts_of(refusal)
            counts[refusal.reason] = counts.get(refusal.reason, 0) + (refusal.samples if refusal.whole else 1)
            self.letter(place, item, refusal.topic, refusal.reason, refusal.detail, refusal.payload)

    def _counts_of(self, refusal: Refusal) -> dict[str, int]:
        where = parse_topic(refusal.topic)
        if where is not None and where.kind == "plan":
            return self.closed.plans_refused if refusal.whole else self.closed.plan_metrics_refused
        return self.closed.rejected if refusal.whole else self.closed.values_refused

    def plan(self, place: PlacedRecord, closed_ms: int | None, now_ms: int) -> None:
        """A plan that came at the site's ``now_ms``, when its rows had closed up to ``closed_ms``."""
        self._plans.append((place[0], CamePlan(place[1], closed_ms, now_ms)))

    def mark(self, place: PlacedRecord, now_ms: int, left: Left | None = None) -> None:
        """A tick or an event, after it was taken at the site's ``now_ms``; ``left`` is the zone that left with it."""
        self._marks.append((place, now_ms, left))

    def other(self, kind: str, count: int = 1) -> None:
        """Records that are counted by their kind."""
        if count:
            self.closed.other_records[kind] = self.closed.other_records.get(kind, 0) + count

    def result(self) -> Closed:
        """All of it, in order."""
        self.closed.steps = [step for _, step in sorted(self._steps, key=itemgetter(0))]
        self.closed.dead_letters = [letter for _, letter in sorted(self._dead_letters, key=itemgetter(0))]
        self.closed.plans = [plan for _, plan in sorted(self._plans, key=itemgetter(0))]
        ends = sorted(at for at, _ in self._steps)
        marks = sorted(self._marks, key=lambda mark: mark[0][0])
        self.closed.marks = [Mark(record, bisect_right(ends, at), now_ms, left) for (at, record), now_ms, left in marks]
        return self.closed
