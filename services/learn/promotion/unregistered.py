"""Step 15 of the way of a reading: challengers that MLflow was asked to take, and did not answer for.

Of a registration without an answer nobody knows whether it was done. So the artefact's files stay for a while, and go
then if no version names them. Before MLflow is asked, a note on the storage names the artefact,
``unregistered/{expert}/{name}.json``: a process that is killed leaves no files that nobody looks after.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import msgspec

from services.errors import HothouseError, NotStoredError, RegistryRefusedError
from services.learn.promotion.pruning import GRACE_MS
from services.learn.promotion.registry import Registry

__all__ = ["Unregistered"]

_log = logging.getLogger(__name__)

_IS_ASKED = float("inf")


class _Note(TypedDict):
    folder: str


_DECODER = msgspec.json.Decoder(_Note)


class Unregistered:
    """The artefacts that may belong to no version. Any thread may call :meth:`asking`, one thread :meth:`tidy`.

    ``monotonic_s`` measures how long files stay; those of a process before this one stay as long from the start on.
    """

    def __init__(self, registry: Registry, monotonic_s: Callable[[], float]) -> None:
        self._registry, self._monotonic_s = registry, monotonic_s
        self._root = f"unregistered/{registry.expert.name}"
        self._since_s: dict[str, float] = {}  # name of the artefact -> when MLflow was asked in vain
        self._knows_earlier = False  # those of processes before this one

    @contextmanager
    def asking(self, folder: str) -> Iterator[None]:
        """Around the registration of the artefact in ``folder``, which may be copied there first. What MLflow refuses
        is removed at once: nobody can ask for it.
        """
        name = Path(folder).name
        self._since_s[name] = _IS_ASKED
        with _told_only():
            self._registry.storage.put(self._key(name), msgspec.json.encode(_Note(folder=folder)))
        try:
            yield
        except RegistryRefusedError:
            self._since_s[name] = self._monotonic_s()
            with _told_only():
                self._remove(name, folder)
            raise
        except BaseException:
            self._since_s[name] = self._monotonic_s()
            raise
        self._forget(name)

    def tidy(self) -> None:
        """Remove the files of what has had no answer for long enough, unless a version names them all the same.

        Raises :class:`RegistryError`, and ``OSError`` where the storage is away; then it is to be called again.
        """
        now_s, storage = self._monotonic_s(), self._registry.storage
        if not self._knows_earlier:
            for name in storage.list_folder(self._root).names:
                self._since_s.setdefault(name.removesuffix(".json"), now_s)
            self._knows_earlier = True
        for name, since_s in list(self._since_s.items()):
            if now_s - since_s < GRACE_MS / 1000:
                continue
            try:
                folder = _DECODER.decode(storage.read(self._key(name)).content)["folder"]
            except NotStoredError:
                del self._since_s[name]
            except ValueError:
                del self._since_s[name]
                _log.warning("%s is damaged: nobody knows which files it was about, they stay", self._key(name))
            else:
                self._remove(name, folder)

    def _remove(self, name: str, folder: str) -> None:
        self._registry.discard(folder)
        self._forget(name)

    def _forget(self, name: str) -> None:
        del self._since_s[name]
        with _told_only():
            self._registry.storage.delete(self._key(name))

    def _key(self, name: str) -> str:
        return f"{self._root}/{name}.json"


@contextmanager
def _told_only() -> Iterator[None]:
    """Where the storage or MLflow is away: files or a note stay, and the registration is as it is."""
    try:
        yield
    except (HothouseError, OSError):
        _log.warning("what was trained could not be noted or tidied up", exc_info=True)
