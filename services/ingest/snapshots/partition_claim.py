"""Step 4 of the way of a reading: who may write what a partition keeps. The writer that came last may, no other.

``p{partition}.epoch`` holds the number of the newest writer and a random word of that writer. A writer that finds
another's word there stops: perhaps it hung, and Ray started a new one in its place.
"""

from __future__ import annotations

import secrets

from services.errors import AlreadyStoredError, ChangedError, HothouseError, NotStoredError, SnapshotError, StorageError
from services.store.storage import Storage

__all__ = ["FencedError", "PartitionClaim"]

CLAIM_TRIES = 16


class FencedError(HothouseError):
    """Another writer has taken over this partition; the caller must stop."""


class PartitionClaim:
    """One writer's claim to a partition, kept at ``key`` of the storage. Constructing it takes the partition over.

    The ``epoch`` rises with each claim. Of two writers that claim a partition at once the second one has it.
    """

    def __init__(self, storage: Storage, key: str, partition: int) -> None:
        self._storage, self._key, self._partition = storage, key, partition
        self.epoch, self._claim = self._claimed()

    def check(self) -> None:
        """Raises :class:`FencedError` when a newer writer has claimed the partition, ``OSError`` where nobody can say:
        a disk that is not mounted has no claim at all.
        """
        try:
            content = self._storage.read(self._key).content
        except NotStoredError as error:
            where = self._storage.address(self._key)
            raise StorageError(f"{where} is gone, so that nothing is written", "Bring the storage back.") from error
        if content != self._claim:
            newest = self._epoch_in(content)
            raise FencedError(f"partition {self._partition} was taken over by another writer (epoch {newest})")

    def _claimed(self) -> tuple[int, bytes]:
        """Take the partition over: the new epoch, and how it is written down, which no other writer writes."""
        for left in range(CLAIM_TRIES, 0, -1):
            try:
                found = self._storage.read(self._key)
            except NotStoredError:
                found = None
            epoch = 1 if found is None else self._epoch_in(found.content) + 1
            claim = f"{epoch} {secrets.token_hex(8)}".encode()
            try:
                if found is None:
                    self._storage.put_new(self._key, claim)
                else:
                    self._storage.swap(self._key, claim, found.version)
            except (AlreadyStoredError, ChangedError):
                if left == 1:
                    raise
                continue  # another writer was faster: what it has claimed is taken over
            return epoch, claim
        raise AssertionError("the last try has returned or raised")

    def _epoch_in(self, content: bytes) -> int:
        """Releases before 0.1.0 wrote the number alone."""
        try:
            return int(content.split()[0])
        except (ValueError, IndexError) as error:
            raise SnapshotError(
                f"{self._storage.address(self._key)} does not hold a number",
                "Write a number that is larger than every earlier one.",
            ) from error
