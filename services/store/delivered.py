"""Step 6 of the way of a reading: what InfluxDB is known to have, so that a restart sends the rest.

Points wait in memory; the rows and forecasts that they are made of are in the history. A note a partition,
``series/p{partition}.json`` of the storage, says for each site up to which row and which forecast all were taken. A
note that is behind makes a restart send points again, which changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from edge.log import partition_of
from models.durations import DAY_MS
from services.errors import HistoryError, NotStoredError
from services.store.influx.gaps import KINDS, Gap, Gaps, Stream, StreamKind
from services.store.storage import Storage, stored_in
from services.store.tables.table_reader import TableReader

__all__ = ["Delivered"]


_Note = dict[StreamKind, dict[str, int]]


class Delivered:
    """The notes of ``partitions``, of ``of_partitions`` in the log. One process writes those of a partition.

    Raises :class:`HistoryError` where one is damaged.
    """

    def __init__(self, storage: Storage | Path, partitions: Sequence[int], of_partitions: int) -> None:
        self._storage, self._of_partitions = stored_in(storage), of_partitions
        self._notes = {number: self._load(number) for number in partitions}

    def note(self, newest: Mapping[Stream, int]) -> None:
        """Everything up to these rows' ends, or origins, was taken. Raises ``OSError``."""
        changed = set()
        for stream, until_ms in newest.items():
            number = partition_of(stream.site, self._of_partitions)
            note = self._notes[number] = self._notes[number] or _empty()
            if until_ms > note[stream.kind].get(stream.site, 0):
                note[stream.kind][stream.site] = until_ms
                changed.add(number)
        for number in changed:
            self._save(number)

    def gaps(self, rows: TableReader) -> Gaps:
        """The spans of the history's zone rows that may not have been taken, to be sent from the start on.

        Where there is no note yet, points are wanted from now on only: what the history has is noted as taken.
        """
        gaps = Gaps()
        sites: dict[int, list[str]] = {number: [] for number in self._notes}
        for site in rows.sites():
            sites.get(partition_of(site, self._of_partitions), []).append(site)
        for number, note in self._notes.items():
            newest = {site: rows.newest_ms(site) for site in sites[number]}
            if note is None:
                self._notes[number] = {"rows": newest, "forecasts": dict(newest)}
                self._save(number)
                continue
            for site, newest_ms in newest.items():
                first_ms = max(rows.oldest_ms(site) - 1, 0) // DAY_MS * DAY_MS - 1
                rows_ms, forecasts_ms = (max(note[kind].get(site, 0), first_ms) for kind in KINDS)
                if rows_ms < newest_ms:
                    gaps.add(Stream("rows", site), Gap(rows_ms, newest_ms))
                # A forecast may have been kept before its row was.
                gaps.add(Stream("forecasts", site), Gap(forecasts_ms, newest_ms + DAY_MS))
        return gaps

    def _load(self, number: int) -> _Note | None:
        try:
            said = json.loads(self._storage.read(_key(number)).content)
            if all(isinstance(held, dict) for held in said.values()) and said:
                return _empty() | msgspec.convert(said, _Note)
            rows = msgspec.convert(said, dict[str, int])  # of a version that noted rows alone
            return {"rows": rows, "forecasts": dict(rows)}
        except NotStoredError:
            return None
        except (ValueError, AttributeError) as error:
            raise HistoryError(
                f"{self._storage.address(_key(number))} is damaged: {error}",
                "Bring it back from a backup, or remove it: what InfluxDB lacks until now is not sent then.",
            ) from error

    def _save(self, number: int) -> None:
        self._storage.put(_key(number), json.dumps(self._notes[number]).encode())


def _key(number: int) -> str:
    return f"series/p{number}.json"


def _empty() -> _Note:
    return {"rows": {}, "forecasts": {}}
