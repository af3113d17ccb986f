"""A recording's CSV file as text, also where it is packed: only as much is unpacked as a recording may be."""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, cast

from edge.recordings.columns import RecordingError

__all__ = ["ENDINGS", "MOST_BYTES", "MOST_TIMES", "open_text"]

MOST_BYTES, MOST_TIMES = 256_000_000, 100
"""A packed file may unpack to the first, or to so many times its own size: sensors pack to a tenth, rarely to a
fiftieth, what is made to fill a memory to a thousandth.
"""
_OPENERS: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".csv.xz": cast(Any, lzma.open),
    ".csv.gz": cast(Any, gzip.open),
}
ENDINGS = (".csv", *_OPENERS)


@contextmanager
def open_text(path: Path, ending: str) -> Iterator[tuple[TextIO, Callable[[], int]]]:
    """The text of a file with one of the :data:`ENDINGS`, and what says how many of its bytes were read.

    Reading raises :class:`RecordingError` where it unpacks to too much.
    """
    with path.open("rb") as file:
        unpacked: IO[bytes] = file
        if ending in _OPENERS:
            most = max(MOST_BYTES, MOST_TIMES * path.stat().st_size)
            unpacked = io.BufferedReader(_Bounded(_OPENERS[ending](file), path.name, most))
        with io.TextIOWrapper(unpacked, encoding="utf-8-sig", newline="") as text:
            yield text, file.tell


class _Bounded(io.RawIOBase):
    """The bytes of a file, at most ``most``."""

    def __init__(self, file: IO[bytes], name: str, most: int) -> None:
        self._file, self._name, self._left, self._most = file, name, most, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._file.read(len(buffer))
        self._left -= len(found)
        if self._left < 0:
            raise RecordingError(
                f"{self._name} unpacks to more than {self._most / 1e6:,.0f} MB: unpack it yourself if that is meant"
            )
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._file.close()
        super().close()
