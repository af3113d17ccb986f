"""The ledger of a chaos experiment: every message that was published against rows and dead letters.

From the log come the receive times and the order in which messages arrived, nothing else: what each message then must
become is the judge's word (judge.py, which knows nothing of Hothouse), and what became of it stands in the history,
the dead letters and InfluxDB. The two must be equal, row for row and letter for letter.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
from deltalake import DeltaTable
from rich.table import Table

from edge.log import Log, Record
from edge.wire.reading import Refusal, Sample
from edge.wire.samples import decode_samples
from services.config import Settings
from services.store.deadletters import DeadLetters
from services.store.history import DEVICE_ROWS
from tests.chaos.judge import Judge, Key, Reading, Row, differences
from tests.chaos.traffic import read_messages

__all__ = ["Account", "account"]

Message = tuple[str, bytes]  # topic, payload
_REFUSALS = msgspec.msgpack.Decoder(list[Refusal])
_COLUMNS = ("published", "in rows", "late", "rejected", "lost", "twice", "copies", "duplicates", "late copies")


class _Judge(Judge):
    """The judge, taking notes: what became of each arrival of a sample."""

    def __init__(self, settings: Settings) -> None:
        stream = settings.stream
        super().__init__(stream.step_s * 1000, stream.lateness_s * 1000, stream.idle_s * 1000)
        self.fates: dict[tuple[str, str, int], list[str]] = defaultdict(list)  # topic, boot, seq

    def _add(self, name: str, reading: Reading) -> None:
        before = self.accepted, self.duplicates
        super()._add(name, reading)
        fate = "in rows" if self.accepted > before[0] else "duplicates" if self.duplicates > before[1] else "late"
        self.fates[reading.topic, reading.boot, reading.seq].append(fate)


@dataclass
class Account:
    """What was published, what became of it, and every difference to what had to become of it."""

    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    rows: int = 0
    dead_letters: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def total(self) -> Counter[str]:
        """All kinds together."""
        return sum(self.kinds.values(), Counter[str]())

    def table(self) -> Table:
        """The ledger, a line a kind of message."""
        table = Table(title="The ledger", title_justify="left")
        table.add_column("messages")
        for column in _COLUMNS:
            table.add_column(column, justify="right")
        for kind, counts in [*sorted(self.kinds.items()), ("all", self.total)]:
            table.add_row(kind, *(str(counts[column]) for column in _COLUMNS))
        return table


def account(folder: Path, settings: Settings, log: Log, offsets: Mapping[int, int]) -> Account:
    """Settle the account of an experiment whose messages are in ``folder`` and whose shards stand at ``offsets``.

    A message that was ``published`` is ``in rows``, ``late``, ``rejected`` or ``lost``: in neither rows nor letters;
    ``twice`` are those in rows more than once. ``copies`` are further arrivals, of devices that sent again and gateways
    that died before they acknowledged: ``duplicates`` in an open row, ``late copies`` after it closed, or rejected.
    """
    published = _Published(folder)
    found = Account()
    rows: dict[Key, Row] = {}
    dead_letters: Counter[tuple[str, str]] = Counter()
    fates: dict[Message, list[str]] = defaultdict(list)
    for partition in range(log.partitions):
        saved = offsets.get(partition, 0)
        by_site: dict[str, list[Record]] = defaultdict(list)
        for record in _records(log, partition, 0, saved):
            by_site[record.site].append(record)
        for records in by_site.values():
            judge, rejected = _Judge(settings), list[Message]()
            for receive_ms, together in itertools.groupby(records, lambda record: record.receive_ms):
                judge.take(receive_ms, [m for record in together for m in published.messages_of(record, rejected)])
            judge.finish()
            rows.update(judge.rows)
            dead_letters.update(judge.dead_letters)
            for (topic, boot, seq), seen in judge.fates.items():
                fates[topic, published.payloads[topic, boot, seq]] += seen
            for message in rejected:
                fates[message].append("rejected")
        left = {record.kind for record in _records(log, partition, saved, log.end_offset(partition))} - {"tick"}
        found.wrong += [f"partition {partition}: records of {left} were not read"] if left else []
    expected = {key: _float32(row) for key, row in rows.items()}
    in_history = _history(settings)
    found.rows, found.dead_letters = len(expected), dead_letters.total()
    found.wrong += published.strangers
    found.wrong += differences(expected, in_history)
    found.wrong += _letter_differences(dead_letters, _dead_letters(settings, log.partitions))
    _count(found, published, fates)
    samples = found.kinds["sample"]
    for key in expected.keys() | in_history.keys():
        surplus = int(in_history.get(key, (0,))[0]) - int(expected.get(key, (0,))[0])
        samples.update(lost=max(-surplus, 0), twice=max(surplus, 0))
    return found


class _Published:
    """Everything that was published, found by what the log holds of it."""

    def __init__(self, folder: Path) -> None:
        self.kinds: dict[Message, str] = {}
        self.payloads: dict[tuple[str, str, int], bytes] = {}  # topic, boot, seq
        self.strangers: list[str] = []
        for kind, topic, payload in read_messages(folder):
            self.kinds.setdefault((topic, payload), "sample" if kind == "duplicates" else kind)
            if kind != "malformed":
                body = json.loads(payload)
                self.payloads[topic, body["boot"], body["seq"]] = payload

    def messages_of(self, record: Record, rejected: list[Message]) -> Iterator[Message]:
        """The messages that a record was made of; a message carries one sample."""
        if record.kind == "samples":
            for sample in decode_samples(record.payload):
                topic = _topic(sample)
                payload = self.payloads.get((topic, sample.boot, sample.seq))
                if payload is None:
                    self.strangers.append(f"nobody published {sample}")
                else:
                    yield topic, payload
        elif record.kind == "refused":
            for refusal in _REFUSALS.decode(record.payload):
                message = refusal.topic, refusal.payload
                if message not in self.kinds:
                    self.strangers.append(f"nobody published {refusal}")
                rejected.append(message)
                yield message


def _topic(sample: Sample) -> str:
    return f"hothouse/v1/{sample.site}/{sample.zone}/{sample.device}/sample"


def _records(log: Log, partition: int, begin: int, end: int) -> Iterator[Record]:
    while begin < end:
        for record in log.read(partition, begin, min(1000, end - begin)):
            begin = record.offset + 1
            yield record


def _history(settings: Settings) -> dict[Key, Row]:
    """What another program reads; a row that is there twice counts for what it is."""
    where = settings.storage_folder / DEVICE_ROWS.folder
    if not DeltaTable.is_deltatable(str(where)):
        return {}
    found: dict[Key, Row] = {}
    for r in pl.read_delta(str(where)).filter(step_s=settings.stream.step_s).iter_rows(named=True):
        key = f"{r['site']}/{r['zone']}", r["device"], r["end_ms"], r["metric"]
        twice = found[key][0] if key in found else 0
        found[key] = r["count"] + twice, r["mean"], r["min"], r["max"], r["last"]
    return found


def _dead_letters(settings: Settings, partitions: int) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for number in range(partitions):
        dead_letters = DeadLetters(settings.storage_folder, number)
        found.update((letter.reason, letter.topic) for letter in dead_letters.newest(100_000))
    return found


def _letter_differences(expected: Counter[tuple[str, str]], found: Counter[tuple[str, str]]) -> Iterable[str]:
    for key in sorted(expected.keys() | found.keys()):
        if expected[key] != found[key]:
            yield f"dead letters {key}: {found[key]} instead of {expected[key]}"


def _count(into: Account, published: _Published, fates: Mapping[Message, list[str]]) -> None:
    for message, kind in published.kinds.items():
        seen = Counter(fates.get(message, ()))
        counts = into.kinds.setdefault(kind, Counter())
        late = bool(seen["late"]) and not seen["in rows"]
        counts.update({
            "published": 1, "in rows": min(seen["in rows"], 1), "late": int(late),
            "rejected": min(seen["rejected"], 1), "lost": int(not seen), "twice": max(seen["in rows"] - 1, 0),
            "copies": max(seen.total() - 1, 0), "duplicates": seen["duplicates"], "late copies": seen["late"] - late,
        })  # fmt: skip


def _float32(row: Row) -> Row:
    return (row[0], *(float(np.float32(number)) for number in row[1:]))  # type: ignore[return-value]
