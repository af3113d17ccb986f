"""Step 6 of the way of a reading: the files of a history from before it was tables.

``history/zones/{site}/{day}-p{partition}-{step}s.parquet`` held a day's rows, and a name with two days the rows of all
days between; so did ``history/devices``, and ``history/plans`` with names that end in ``-plans``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from services.errors import HistoryError
from services.store.storage import Storage

__all__ = ["OLD_FOLDERS", "OldFile", "old_files", "refuse_old_files"]

OLD_FOLDERS = ("history/zones", "history/devices", "history/plans")
_NAME = re.compile(r"(\d{4}-\d\d-\d\d)(?:-to-(\d{4}-\d\d-\d\d))?-p(\d+)-(?:(\d+)s|plans)\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class OldFile:
    """An old file, and the days of a partition's rows of one step (0: plans) that it holds."""

    partition: int
    step_s: int
    first: str
    last: str
    key: str

    @classmethod
    def of(cls, folder: str, name: str) -> OldFile | None:
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(int(found[3]), int(found[4] or 0), found[1], found[2] or found[1], f"{folder}/{name}")

    def holds(self, other: OldFile) -> bool:
        """Whether the other's days lie in this one's, which has more: then it was retired."""
        same = (self.partition, self.step_s) == (other.partition, other.step_s)
        return same and self != other and self.first <= other.first and other.last <= self.last


def old_files(storage: Storage, folder: str) -> list[OldFile]:
    """Those in a site's folder, sorted."""
    named = (OldFile.of(folder, name) for name in storage.list_folder(folder).names)
    return sorted(file for file in named if file is not None)


def refuse_old_files(storage: Storage) -> None:
    """Raises :class:`HistoryError` where old files wait to be brought over: nobody is to miss their rows."""
    for folder in OLD_FOLDERS:
        sites = storage.list_folder(folder).folders
        if any(old_files(storage, f"{folder}/{site}") for site in sites):
            raise HistoryError(
                f"{storage.address(folder)} has rows of a version before, which are not in the table yet",
                "hothouse migrate brings them over; hothouse up does so, too, before it starts.",
            )
