"""Step 16 of the way of a reading: which version serves, in one small file on the storage.

The part that decides moves it; the parts that serve read it. There is one for each place in the mixture that models
take turns in: ``slot.json`` is the network's, and ``slot-trees.json`` that of the trees.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from services.errors import AlreadyStoredError, ChangedError, ModelFilesError, NotStoredError, StorageError
from services.messages import ONLINE_VERSION
from services.store.storage import Storage, Stored, stored_in

__all__ = ["NOWHERE", "Pointed", "Pointer", "pointer_key"]

MOVE_TRIES = 16


@dataclass(frozen=True, slots=True)
class Pointed:
    """What serves; ``generation`` rises with every move, and is 1 where nothing was ever pointed at."""

    generation: int
    version: str  # ONLINE_VERSION, or "v3", "trees-v1" and so on
    folder: str  # of its artefact; empty if no model serves


NOWHERE = Pointed(1, ONLINE_VERSION, "")


def pointer_key(expert: str) -> str:
    """The object of a place in the mixture."""
    return "slot.json" if expert == "network" else f"slot-{expert}.json"


class Pointer:
    """The pointer of an expert; one process moves it, and should there be two, neither undoes the other's move
    unseen.
    """

    def __init__(self, storage: Storage | Path, expert: str) -> None:
        self._storage, self._key = stored_in(storage), pointer_key(expert)

    def read(self) -> Pointed:
        """What serves now.

        Raises :class:`ModelFilesError` if it cannot be read or understood. The operator must then say which
        model serves; there is no default.
        """
        return self._read()[0]

    def _read(self) -> tuple[Pointed, Stored | None]:
        where = self._storage.address(self._key)
        try:
            stored = self._storage.read(self._key)
            found = json.loads(stored.content)
            return Pointed(int(found["generation"]), str(found["version"]), str(found["folder"])), stored
        except NotStoredError:
            return NOWHERE, None
        except StorageError as error:
            raise ModelFilesError(f"the model pointer {where} cannot be read: {error}", error.hint) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelFilesError(
                f"the model pointer {where} cannot be read: {error}", "Remove it to serve without a model."
            ) from error

    def bring_along(self, models: Path) -> None:
        """Point at the same model in ``models``, where that is another folder than the one that is pointed at: the data
        folder was moved, or brought back elsewhere. Raises as :meth:`read` does.
        """
        now = self.read()
        if now.folder and Path(now.folder).parent.resolve() != models.resolve():
            self.move(now.version, str(models / Path(now.folder).name))

    def move(self, version: str, folder: str, least: int = 0) -> Pointed:
        """Point at a version; durable when this returns. Pointing where it points already changes nothing.

        The generation is ``least`` or more, because followers have seen the one before even if the file was lost.
        """
        for left in range(MOVE_TRIES, 0, -1):
            now, stored = self._read()
            if (now.version, now.folder) == (version, folder):
                return now
            moved = Pointed(max(now.generation + 1, least), version, folder)
            content = json.dumps(asdict(moved)).encode()
            try:
                if stored is None:
                    self._storage.put_new(self._key, content)
                else:
                    self._storage.swap(self._key, content, stored.version)
            except (AlreadyStoredError, ChangedError):
                if left == 1:
                    raise
                continue  # somebody else moved it meanwhile: this move comes after that one
            return moved
        raise AssertionError("the last try has returned or raised")
