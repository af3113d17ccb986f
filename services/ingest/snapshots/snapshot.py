"""Step 4 of the way of a reading: a partition's state and log offset, written whole or not at all, and found again.

The newest two snapshots of a partition are kept, with the segments that their large arrays lie in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from services.errors import NotStoredError, SnapshotError
from services.ingest.snapshots.partition_claim import FencedError, PartitionClaim
from services.ingest.snapshots.parts import ESSENTIAL
from services.ingest.snapshots.pieces import Segment, SegmentReader, SegmentWriter, pieces_used, to_rewrite
from services.ingest.snapshots.snapshot_file import (
    LoadedSnapshot,
    PartBody,
    Snapshot,
    SnapshotHeader,
    encode_part,
    head_of,
    layouts_of,
    read_header,
    read_snapshot,
    snapshot_content,
)
from services.store.storage import Storage, stored_in

__all__ = ["FencedError", "Saved", "Snapshots"]

KEEP = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a snapshot cost."""

    written_bytes: int
    looked_at_bytes: int


class Snapshots:
    """Snapshots of one partition in a ``folder`` of the storage; the newest two are kept.

    Constructing it claims the partition: the writer epoch rises, and an older writer's next :meth:`check` or
    :meth:`save` raises. Of two that claim it at once the one that was second has it.
    """

    def __init__(self, storage: Storage | Path, partition: int, folder: str = "") -> None:
        self._storage, self.partition, self._folder = stored_in(storage), partition, folder
        self._claim = PartitionClaim(self._storage, self._key(f"p{partition}.epoch"), partition)
        self._bodies: dict[str, PartBody] = {}  # as they were saved last
        self._segments: dict[int, Segment] = {}  # that these lie in
        self._storage.tidy(folder, f"p{partition}-")  # of a writer that was killed
        self._useless: set[str] = set()  # snapshots that were passed over; they go with the next that is saved
        self._number = max((number for _, number in map(_epoch_and_number, self._segments_there())), default=0)

    def check(self) -> None:
        """See :meth:`PartitionClaim.check`."""
        self._claim.check()

    @property
    def epoch(self) -> int:
        """The number of this writer; it rises with each that claims the partition."""
        return self._claim.epoch

    def save(self, offset: int, parts: Mapping[str, Any]) -> Saved:
        """Make ``parts`` durable as what holds before the record at ``offset``; see :meth:`begin`."""
        return self.begin(offset, parts, not_copied=parts)()

    def begin(
        self, offset: int, parts: Mapping[str, Any], *, not_copied: Collection[str], unchanged: Collection[str] = ()
    ) -> Callable[[], Saved]:  # fmt: skip
        """Take in ``parts`` (see ``services.ingest.snapshots.parts``): maps, lists and arrays. What it returns
        makes them durable as what holds before the record at ``offset``, in whatever thread.

        Until that is done the arrays of the parts that are ``not_copied`` must not change, and nothing else may be
        saved; the others are copied at once. Parts that are ``unchanged`` are as they were saved the last time. What
        is returned raises :class:`FencedError` when a newer writer has claimed the partition, and what the disk
        raises; then nothing is saved.
        """
        self.check()
        copied = {name: encode_part(state) for name, state in parts.items() if name not in not_copied}
        return lambda: self._write(offset, parts, copied, frozenset(unchanged))

    def _write(
        self, offset: int, parts: Mapping[str, Any], copied: Mapping[str, PartBody], unchanged: frozenset[str]
    ) -> Saved:  # fmt: skip
        self.check()
        self._number += 1
        rewrite = to_rewrite(self._segments.values(), layouts_of(self._bodies))
        writer, bodies = SegmentWriter(self._number, rewrite), {}
        for name, state in parts.items():
            before = self._bodies.get(name, PartBody(b""))
            if name in copied:
                bodies[name] = copied[name]
            elif name in unchanged and name in self._bodies and not before.lies_in(rewrite):
                bodies[name] = before
            else:
                bodies[name] = encode_part(state, writer, before.layouts)
        segment = Segment(self._number, f"p{self.partition}-{self.epoch}-{self._number}.pieces", writer.pieces)
        written = writer.write(self._storage, self._key(segment.name), self.check)
        segments = self._segments | {segment.number: segment}
        used = pieces_used(layouts_of(bodies), max(segments))
        segments = {number: one for number, one in segments.items() if used[number]}
        content = snapshot_content(self.epoch, offset, list(segments.values()), bodies)
        name = self._name(offset)
        try:
            self._storage.put(self._key(name), lambda beside: _fill(beside, content), self.check)
        except BaseException:
            if not self._needs(name, segment):  # it may fail once it is in place, too
                with suppress(OSError):  # what it failed with says more
                    self._storage.delete(self._key(segment.name))  # on a full disk each new try would add one
            raise
        self._bodies, self._segments = bodies, segments
        self._remove_old(name)
        return Saved(written + sum(map(len, content)), writer.looked_at)

    def load(self, begin: int = 0) -> Snapshot | None:
        """The snapshot to go on from, for a log that begins at ``begin``; ``None`` when there is none at all.

        That is the newest that can be read whole, else the newest whose essential parts can be read. Raises
        :class:`SnapshotError` when there are snapshots and none can be used.
        """
        found: list[LoadedSnapshot] = []
        reasons = []
        for name in reversed(self._snapshots_there()):
            self._useless.add(name)
            try:
                found.append(self._read(name))
            except SnapshotError as error:
                reasons.append(str(error))
                continue
            where = self._storage.address(self._key(name))
            reasons += [
                f"{part} in {where} cannot be read: {why}" for part, why in found[-1].snapshot.unreadable.items()
            ]
            if found[-1].is_whole:
                break
        for reason in reasons:
            _log.error("%s", reason)
        usable = [one for one in found if not ESSENTIAL & set(one.snapshot.unreadable)]
        if usable:
            best = max(usable, key=lambda one: (one.snapshot.offset >= begin, one.is_whole, one.snapshot.offset))
            self._bodies, self._segments = best.bodies, best.segments
            self._number = max(self._number, *best.segments, 0)  # the list of the folder may have been an old one
            self._useless.discard(self._name(best.snapshot.offset))
            return replace(best.snapshot, damage=tuple(reasons))
        if reasons:
            raise SnapshotError(
                f"no snapshot of partition {self.partition} in {self._storage.address(self._folder)} can be read",
                "Remove them to go on with what the log still holds.",
            )
        return None

    @property
    def oldest_offset(self) -> int:
        """The offset of the oldest snapshot that is kept, from which the log may still be read; 0 without any."""
        names = self._snapshots_there()
        return int(names[0].removesuffix(".snapshot").split("-")[1]) if names else 0

    def _there(self, suffix: str = "") -> list[str]:
        names = self._storage.list_folder(self._folder).names
        return [name for name in names if name.startswith(f"p{self.partition}-") and name.endswith(suffix)]

    def _snapshots_there(self) -> list[str]:
        return self._there(".snapshot")

    def _segments_there(self) -> list[str]:
        return self._there(".pieces")

    def _name(self, offset: int) -> str:
        return f"p{self.partition}-{offset:020d}.snapshot"

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name

    def _remove_old(self, newest: str) -> None:
        """Keep ``newest`` and the usable one before it. Those with later offsets were written before a replay."""
        there = self._there()  # once: a bucket is paid by the list
        names = [name for name in there if name.endswith(".snapshot")]
        before = [name for name in names if name < newest and name not in self._useless]
        kept = {newest, *before[1 - KEEP :]}
        for name in set(names) - kept:
            self._storage.delete(self._key(name))
        self._useless = set()
        needed = {segment.name for segment in self._segments.values()}
        for name in kept - {newest}:
            try:
                needed |= {segment for _, segment, _ in self._header(name)[0].segments}
            except (SnapshotError, NotStoredError):
                continue  # of an earlier format, damaged, or removed by another writer: it cannot be gone back to
        for name in (name for name in there if name.endswith(".pieces")):
            # A writer that has just been taken over from must not remove what the newer one writes.
            if name not in needed and _epoch_and_number(name)[0] <= self.epoch:
                self._storage.delete(self._key(name))

    def _needs(self, name: str, segment: Segment) -> bool:
        """Whether there is a snapshot of that name that needs ``segment``; also where that cannot be known."""
        try:
            return segment.name in {used for _, used, _ in self._header(name)[0].segments}
        except (NotStoredError, SnapshotError):
            return False
        except OSError:
            return self._storage.local(self._key(name)) is None

    def _header(self, name: str) -> tuple[SnapshotHeader, int]:
        key = self._key(name)
        return read_header(self._storage.address(key), memoryview(head_of(self._storage, key)))

    def _read(self, name: str) -> LoadedSnapshot:
        key = self._key(name)
        return read_snapshot(
            self._storage.address(key), self._storage.mapped(key),
            lambda segments: SegmentReader(self._storage, self._folder, segments),
        )  # fmt: skip


def _epoch_and_number(name: str) -> tuple[int, int]:
    """Of a segment's name.

    >>> _epoch_and_number("p0-3-17.pieces")
    (3, 17)
    """
    _, epoch, number = name.removesuffix(".pieces").split("-")
    return int(epoch), int(number)


def _fill(path: Path, parts: Sequence[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(parts)
