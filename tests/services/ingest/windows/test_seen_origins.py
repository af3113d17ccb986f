"""A record that comes twice through an uplink counts once."""

from __future__ import annotations

import itertools
import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from edge.log import Origin, Record
from edge.wire.reading import Refusal
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows import seen_origins as module
from services.ingest.windows.partition_windows import Closed, PartitionWindows
from services.ingest.windows.seen_origins import Ranges, SeenOrigins
from tests.services.ingest.samples import STEP, T0, record, sample, tick

LOG = "9f3c62d1a07be845"

arrivals = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 30)), max_size=80)


@given(arrivals, st.lists(st.integers(0, 80), max_size=3))
def test_each_origin_is_new_once_in_whatever_order(seen: list[tuple[str, int]], restarts: list[int]) -> None:
    """New is what a plain set does not hold yet, also when the state goes through a snapshot in between."""
    origins, known = SeenOrigins(), set[tuple[str, int]]()
    for at, origin in enumerate(seen):
        if at in restarts:
            stored = msgspec.msgpack.encode(origins.state())
            origins = SeenOrigins(msgspec.msgpack.decode(stored, type=dict[str, Ranges]))
        assert origins.is_new(Origin(*origin)) == (origin not in known)
        known.add(origin)
    for log, ranges in origins.state().items():
        assert [n for a, b in ranges for n in range(a, b)] == sorted(n for name, n in known if name == log)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))


def test_a_million_in_order_are_one_range() -> None:
    """The state does not grow with what has passed, wherever it began."""
    origins = SeenOrigins()
    assert all(origins.is_new(Origin(LOG, number)) for number in range(500, 1_000_000))
    assert origins.state() == {LOG: [(500, 1_000_000)]}


def test_the_state_is_bounded_and_forgets_rather_than_loses() -> None:
    """With more gaps than are kept, no record that is new is taken for a copy."""
    origins = SeenOrigins()
    numbers = list(range(0, 6 * module.MAX_RANGES, 3))
    assert all(origins.is_new(Origin(LOG, number)) for number in numbers)
    assert len(origins.state()[LOG]) == module.MAX_RANGES
    assert all(origins.is_new(Origin(LOG, number + 1)) for number in numbers)


def test_logs_without_end_do_not_grow_the_state() -> None:
    """A site keeps its newest logs; one that was forgotten begins anew, and none of its records is lost."""
    origins = SeenOrigins()
    assert all(origins.is_new(Origin(f"log-{n}", 0)) for n in range(10 * module.MAX_LOGS))
    assert len(origins.state()) == module.MAX_LOGS
    assert not origins.is_new(Origin(f"log-{10 * module.MAX_LOGS - 1}", 0))
    assert origins.is_new(Origin("log-0", 0))


def _records() -> list[Record]:
    """Two steps of samples, one late, one refused, a plan, and ticks that close them; numbered as a buffer does."""
    refused = Record(0, 0, "demo", "refused", T0, msgspec.msgpack.encode([Refusal("malformed", "t", "d")]), "")
    made = [
        record(0, [sample(T0 + 1000, 1), sample(T0 + 2000, 2)]),
        refused,
        record(0, [sample(T0 + STEP + 1000, 3)]),
        record(0, [sample(T0 + STEP + 40_000, 4)]),
        record(0, [sample(T0 + 3000, 5)], T0 + STEP + 40_000),
        Record(0, 0, "demo", "plan", T0 + STEP + 41_000, b"{}", "t"),
        *(tick(0, T0 + 2 * STEP + at) for at in (0, 50_000, 100_000, 150_000)),
    ]
    return [r._replace(offset=n, origin=Origin(LOG, n)) for n, r in enumerate(made)]


def _fed(records: list[Record], batches: int = 1, through_state: bool = False) -> tuple[list[bytes], Closed]:
    windows = PartitionWindows(STEP, 30_000, 60_000, VOCABULARY)
    total, rows = Closed(), []
    for at in range(0, len(records), batches):
        closed = windows.feed(records[at : at + batches])
        rows += [step.values.tobytes() + step.ages_s.tobytes() for step in closed.steps]
        for name in ("accepted", "duplicates", "late"):
            setattr(total, name, getattr(total, name) + getattr(closed, name))
        total.dead_letters += closed.dead_letters
        for reason, count in closed.rejected.items():
            total.rejected[reason] = total.rejected.get(reason, 0) + count
        for kind, count in closed.other_records.items():
            total.other_records[kind] = total.other_records.get(kind, 0) + count
        if through_state:
            fresh = PartitionWindows(STEP, 30_000, 60_000, VOCABULARY)
            fresh.load(windows.state())
            windows = fresh
    return rows, total


@given(st.integers(0, 2**32 - 1))
def test_copies_of_records_change_no_row_no_letter_and_no_count(seed: int) -> None:
    """An uplink that begins again where it likes, as often as it likes: the same rows, letters and counts, and no
    copy counted as a duplicate or as late. With a snapshot after every record, too.
    """
    rng, records = random.Random(seed), _records()
    sent: list[Record] = []
    at = 0
    while at < len(records):
        upto = rng.randrange(at + 1, len(records) + 1)
        sent += records[at:upto]
        at = upto if rng.random() < 0.6 else rng.randrange(upto)
        if upto == len(records):
            break
    sent = [r._replace(offset=n) for n, r in enumerate(sent)]
    rows, plain = _fed(records)
    again, counted = _fed(sent, rng.randrange(1, 5), through_state=rng.random() < 0.5)
    assert again == rows
    assert rows
    copies = counted.other_records.pop("copied", 0)
    assert copies == len(sent) - len(records)
    # A letter's offset (the second field) moves with the copies before it.
    assert [letter[2:] for letter in counted.dead_letters] == [letter[2:] for letter in plain.dead_letters]
    for name in ("accepted", "duplicates", "late", "rejected", "other_records"):
        assert getattr(counted, name) == getattr(plain, name)
    assert (plain.accepted, plain.late, plain.duplicates) == (4, 1, 0)
