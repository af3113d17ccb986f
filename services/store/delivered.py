"""Step 6 of the way of a reading: what InfluxDB is known to have, so that a restart sends the rest.

Points wait in memory; the rows that they are made of are in the history. A note a partition,
``storage/series/p{partition}.json``, says for each site up to which row all were taken. A note that is behind makes a
restart send points again, which changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from edge.log import partition_of
from services.store.files import write_atomically
from services.store.history import History
from services.store.rows import SiteStep

__all__ = ["Delivered"]


class Delivered:
    """The notes of ``partitions``, of ``of_partitions`` in the log. One process writes those of a partition."""

    def __init__(self, root: Path, partitions: Sequence[int], of_partitions: int) -> None:
        self._folder, self._of_partitions = root / "series", of_partitions
        self._notes = {number: self._load(number) for number in partitions}

    def note(self, newest: Mapping[str, int]) -> None:
        """Everything up to these rows' ends (site -> end_ms) was taken. Raises ``OSError``."""
        changed = set()
        for site, end_ms in newest.items():
            number = partition_of(site, self._of_partitions)
            note = self._notes[number] or {}
            if end_ms > note.get(site, 0):
                self._notes[number] = {**note, site: end_ms}
                changed.add(number)
        for number in changed:
            self._save(number)

    def missing(self, history: History) -> Iterator[list[SiteStep]]:
        """The rows of the history that may not have been taken, site by site; to be sent at the start.

        Where there is no note yet, points are wanted from now on only: what the history has is noted as taken.
        """
        sites: dict[int, list[str]] = {number: [] for number in self._notes}
        for site in history.sites():
            sites.get(partition_of(site, self._of_partitions), []).append(site)
        for number, note in self._notes.items():
            if note is None:
                self._notes[number] = {site: history.newest_ms(site) for site in sites[number]}
                self._save(number)
                continue
            for site in sites[number]:
                yield _steps(history, number, site, note.get(site, 0))

    def _load(self, number: int) -> dict[str, int] | None:
        try:
            note: dict[str, int] = json.loads(self._path(number).read_text())
        except FileNotFoundError:
            return None
        return note

    def _save(self, number: int) -> None:
        text = json.dumps(self._notes[number])

        def write(tmp: Path) -> None:
            tmp.write_text(text)

        write_atomically(self._path(number), write)

    def _path(self, number: int) -> Path:
        return self._folder / f"p{number}.json"


def _steps(history: History, partition: int, site: str, after_ms: int) -> list[SiteStep]:
    """A site's zone rows after ``after_ms`` in the order of time; ages and device rows are left out."""
    table = history.read(start_ms=after_ms, sites=[site]).sort_by([("end_ms", "ascending"), ("zone", "ascending")])
    zones, ends = table["zone"].to_pylist(), table["end_ms"].to_numpy()
    values = np.full((len(table), len(history.channels)), np.nan, np.float32)
    for index, channel in enumerate(history.channels):
        if channel in table.column_names:  # an older version may not have known it
            values[:, index] = table[channel].to_numpy()
    steps = []
    for end_ms in np.unique(ends).tolist():
        first, last = np.searchsorted(ends, [end_ms, end_ms + 1]).tolist()
        rows = values[first:last]
        steps.append(SiteStep(partition, site, end_ms, tuple(zones[first:last]), rows, np.full_like(rows, np.nan)))
    return steps
