"""Step 6 of the way of a reading: the names of files in tables of the history."""

from __future__ import annotations

import re
from dataclasses import dataclass

from services.errors import HistoryError

__all__ = ["FileName"]

_NAME = re.compile(r"p(\d+)/(\d{4}-\d\d(?:-\d\d)?)-(\d+)s-[0-9a-f]+\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class FileName:
    """What the name of a file says.

    >>> FileName.of("p0/2022-03-300s-1f.parquet")
    FileName(partition=0, step_s=300, period='2022-03')
    """

    partition: int
    step_s: int
    period: str

    @classmethod
    def of(cls, path: str) -> FileName:
        """Raises :class:`HistoryError` for another's file."""
        found = _NAME.fullmatch(path)
        if found is None:
            raise HistoryError(f"{path} is no file of ours in a table of the history")
        return cls(int(found[1]), int(found[3]), found[2])

    def path(self, word: str) -> str:
        """In the table; ``word`` is hexadecimal, and used once."""
        return f"p{self.partition}/{self.period}-{self.step_s}s-{word}.parquet"
