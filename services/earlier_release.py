"""What earlier releases kept in SQLite files of the data folder is brought over to the storage, once.

Dead letters, journals of alerts, how far each channel had told them, and the topics that a broker holds. The files go
when all of it is on the storage; a start that was killed on the way begins anew, and what is there already stays.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from services.alert.delivery import places_key
from services.alert.retained_alerts import TOPICS
from services.errors import StartError
from services.ingest.alerts.alert_journal import AlertJournal, JournalReader, journal_name
from services.messages import ShownAlert
from services.store.deadletters import DeadLetters
from services.store.rows import DeadLetter
from services.store.storage import Storage

__all__ = ["bring_files_over"]


def bring_files_over(folder: Path, storage: Storage) -> None:
    """Take over the SQLite files in ``folder``, while nothing runs on the state.

    Raises :class:`StartError` for a file that cannot be read, ``OSError`` where the storage takes nothing.
    """
    letters, journals, channels = (
        sorted(folder.glob(f"{kind}*.sqlite")) for kind in ("deadletters-p", "alerts-p", "alert-delivery-")
    )
    topics = [path for path in (folder / "alert-topics.sqlite",) if path.exists()]
    for path in letters:
        _letters(path, storage)
    places = {path.name: _changes(path, storage) for path in journals}
    for path in channels:
        _channel(path, storage, places)
    for path in topics:
        _topics(path, storage)
    for path in [*letters, *journals, *channels, *topics]:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            path.with_name(name).unlink(missing_ok=True)


def _letters(path: Path, storage: Storage) -> None:
    rows = _ask(path, "SELECT * FROM dead_letters ORDER BY partition, offset, item")
    DeadLetters(storage, _partition(path)).put([DeadLetter(*row) for row in rows])


def _changes(path: Path, storage: Storage) -> Sequence[tuple[int, int]]:
    """The number of each change in the file, and its number on the storage."""
    partition, decode = _partition(path), msgspec.json.Decoder(ShownAlert).decode
    rows = [
        (row[0], row[1], decode(row[2])) for row in _ask(path, "SELECT number, offset, alert FROM changes ORDER BY 1")
    ]
    AlertJournal(storage, partition).put([(offset, alert) for _, offset, alert in rows])
    entries, _ = JournalReader(storage, journal_name(partition)).read(0, 2**31)
    numbers = {(one.alert["id"], one.alert["change"]): one.number for one in entries}
    return [(before, numbers[alert["id"], alert["change"]]) for before, _, alert in rows]


def _channel(path: Path, storage: Storage, numbers: dict[str, Sequence[tuple[int, int]]]) -> None:
    channel, places = path.stem.removeprefix("alert-delivery-"), dict[str, int]()
    for journal, told in _ask(path, "SELECT journal, number FROM places"):
        name = journal_name(_partition(Path(journal)))
        places[name] = max((now for before, now in numbers.get(journal, ()) if before <= told), default=0)
    storage.put(places_key(channel), json.dumps(places, sort_keys=True).encode())


def _topics(path: Path, storage: Storage) -> None:
    rows = _ask(path, "SELECT topic, payload, clear_s FROM topics")
    held = {topic: {"payload": bytes(payload).decode(), "clear_s": clear_s} for topic, payload, clear_s in rows}
    storage.put(TOPICS, msgspec.json.encode(held))


def _ask(path: Path, sql: str) -> list[tuple[Any, ...]]:
    try:
        with closing(sqlite3.connect(path)) as db:
            return db.execute(sql).fetchall()
    except sqlite3.Error as error:
        raise StartError(
            f"{path} cannot be brought over: {error}", "Restore it, or remove it: what it holds is then given up."
        ) from error


def _partition(path: Path) -> int:
    return int(path.stem.rpartition("-p")[2])
