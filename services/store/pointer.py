"""Step 16 of the way of a reading: which version serves, in one small file on the storage.

The part that decides moves it; the parts that serve read it. There is one for each place in the mixture that models
take turns in: ``slot.json`` is the network's, as before there were others, and ``slot-trees.json`` that of the trees.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from services.errors import ModelFilesError
from services.messages import ONLINE_VERSION
from services.store.files import write_atomically

__all__ = ["NOWHERE", "Pointed", "Pointer", "pointer_file"]


@dataclass(frozen=True, slots=True)
class Pointed:
    """What serves; ``generation`` rises with every move, and is 1 where nothing was ever pointed at."""

    generation: int
    version: str  # ONLINE_VERSION, or "v3", "trees-v1" and so on
    folder: str  # of its artefact; empty if no model serves


NOWHERE = Pointed(1, ONLINE_VERSION, "")


def pointer_file(storage: Path, expert: str) -> Path:
    """The file of a place in the mixture."""
    return storage.absolute() / ("slot.json" if expert == "network" else f"slot-{expert}.json")


class Pointer:
    """The pointer in one file; one process moves it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Pointed:
        """What serves now.

        Raises :class:`ModelFilesError` if the file cannot be understood. The operator must then say which
        model serves; there is no default.
        """
        try:
            found = json.loads(self.path.read_bytes())
            return Pointed(int(found["generation"]), str(found["version"]), str(found["folder"]))
        except FileNotFoundError:
            return NOWHERE
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelFilesError(
                f"the model pointer {self.path} cannot be read: {error}", "Remove it to serve without a model."
            ) from error

    def move(self, version: str, folder: str, least: int = 0) -> Pointed:
        """Point at a version; durable when this returns. Pointing where it points already changes nothing.

        The generation is ``least`` or more, because followers have seen the one before even if the file was lost.
        """
        now = self.read()
        if (now.version, now.folder) == (version, folder):
            return now
        moved = Pointed(max(now.generation + 1, least), version, folder)
        write_atomically(self.path, lambda beside: _fill(beside, moved))
        return moved


def _fill(path: Path, pointed: Pointed) -> None:
    path.write_text(json.dumps(asdict(pointed)))
