"""Step 6 of the way of a reading: the storage in an object store, whose answers may be late, lost, or come twice.

A request that got no answer is asked again, with pauses that grow. Since it may have been done all the same, each write
is conditional: one that arrives twice, or long after a newer one, changes nothing. A condition that is refused is
looked into: where the object holds what was to be written, an earlier try was done and its answer lost.
"""

from __future__ import annotations

import io
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TypeVar

from services.errors import ChangedError, NotStoredError, StorageAwayError, StorageError, StorageRefusedError
from services.store.storage.object_server import ABSENT, Body, Objects, ObjectServer
from services.store.storage.storage import Content, Entry, FolderListing, Stored, always

__all__ = ["ObjectStorage", "Pauses"]

Answer = TypeVar("Answer")

LAG_S = 60.0
"""What this process wrote or deleted so lately is put right in lists: a server's may lag behind."""
POLL_S = 10.0
MOST_KNOWN = 10_000
PART_BYTES = 8_000_000
PUT_TRIES = 8
"""How often an object is looked at anew before it is replaced, while others change it meanwhile."""

LONGEST_REST_S = 30.0
STOPPED_S = 12.0
"""No request waits so long for its server: the process was stopped meanwhile, which says nothing of the server."""


@dataclass(frozen=True)
class Pauses:
    """How long a request that gets no answer is asked again: pauses grow from ``first_s`` to ``last_s``, half of each
    by chance, for ``total_s`` in all. After that requests are asked once each, and not for the next ``rest_s``, nor for
    twice as long as the last one took, up to :data:`LONGEST_REST_S`, until one is answered.
    """

    total_s: float = 10.0
    first_s: float = 0.1
    last_s: float = 2.0
    rest_s: float = 0.0
    sleep: Callable[[float], None] = time.sleep
    clock_s: Callable[[], float] = time.monotonic


class ObjectStorage:
    """The storage (:class:`services.store.storage.storage.Storage`) behind a ``server``."""

    def __init__(self, server: ObjectServer, pauses: Pauses | None = None) -> None:
        self._server, self._pauses = server, pauses or Pauses()
        self.url, self.poll_s = server.url, POLL_S
        self._known: dict[str, str] = {}  # the version of what was read or written last
        self._lately: dict[str, tuple[float, Entry | None]] = {}  # what this process wrote, or deleted, and when
        self._noting = Lock()
        self._away: StorageAwayError | None = None  # what was said when it did not answer for as long as it is asked
        self._again_s = 0.0  # the clock when it is asked again then

    def read(self, key: str) -> Stored:
        """As the contract says."""
        found = self._ask(lambda: self._server.get(key))
        self._note(key, found.version)
        return found

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """As the contract says."""
        return self._ask(lambda: self._server.get(key, start, length)).content

    def mapped(self, key: str) -> memoryview:
        """As the contract says; here it is in memory."""
        return memoryview(self.read(key).content)

    def entry(self, key: str) -> Entry | None:
        """As the contract says."""
        return self._ask(lambda: self._server.head(key))

    def put(self, key: str, content: Content, check: Callable[[], None] = always) -> str:
        """As the contract says. It replaces the version that is there and no other, so that it cannot undo a newer
        one should it arrive twice.
        """
        with _body(content) as body:
            version = self._known.get(key)
            for left in range(PUT_TRIES, 0, -1):
                if version is None:
                    found = self.entry(key)
                    version = ABSENT if found is None else found.version
                try:
                    return self._write(key, body, version, check)
                except (ChangedError, FileExistsError):
                    if left == 1:
                        raise
                    version = None
        raise AssertionError("the last try has returned or raised")

    def put_new(self, key: str, content: Content, check: Callable[[], None] = always) -> str:
        """As the contract says."""
        with _body(content) as body:
            return self._write(key, body, ABSENT, check)

    def swap(self, key: str, content: Content, version: str, check: Callable[[], None] = always) -> str:
        """As the contract says."""
        with _body(content) as body:
            return self._write(key, body, version, check)

    def list_folder(self, folder: str) -> FolderListing:
        """As the contract says."""
        folders, objects = self._listed(folder)
        return FolderListing(folders, tuple(sorted(objects)))

    def entries(self, folder: str) -> Mapping[str, Entry]:
        """As the contract says."""
        return self._listed(folder)[1]

    def delete(self, key: str) -> None:
        """As the contract says."""
        self._ask(lambda: self._server.delete(key))
        self._note(key, None)
        self._remember(key, None)

    def tidy(self, folder: str, beginning: str = "", age_s: float = 0.0, now_s: float = 0.0) -> None:
        """Nothing is ever half written here, and there are no empty folders."""

    def address(self, key: str) -> str:
        """As the contract says."""
        return f"{self.url}/{key}"

    def delta_options(self) -> dict[str, str]:
        """As the contract says."""
        return self._server.delta_options()

    def local(self, key: str) -> Path | None:
        """It is no file."""
        return None

    def _write(self, key: str, body: Body, version: str, check: Callable[[], None]) -> str:
        """One conditional write, as often as it gets no answer."""

        def put() -> str:
            check()
            return self._server.put(key, body, version)

        try:
            made = self._ask(put)
        except (ChangedError, FileExistsError):
            self._note(key, None)
            found = self._ask(lambda: self._server.head(key))
            if found is None or not self._holds(key, found, body):
                raise
            made = found.version  # an earlier try was done, and its answer lost; or the same was there
        self._note(key, made)
        self._remember(key, Entry(_size(body), made, time.time()))
        return made

    def _holds(self, key: str, found: Entry, body: Body) -> bool:
        """Whether the object is ``body``, of which no more is in memory than a part."""
        if found.size != _size(body):
            return False
        with io.BytesIO(body) if isinstance(body, bytes) else body.open("rb") as file:
            for start in range(0, found.size, PART_BYTES):
                try:
                    part = self._ask(lambda start=start: self._server.get(key, start, PART_BYTES))  # type: ignore[misc]
                except NotStoredError:
                    return False
                if (part.version, part.content) != (found.version, file.read(PART_BYTES)):
                    return False
        return True

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer, asked for until there is one or the time is over; with new credentials where they expired."""
        pauses, is_away = self._pauses, self._is_away()
        until_s, pause_s, renewed = pauses.clock_s() + (0 if is_away else pauses.total_s), pauses.first_s, False
        stopped = False
        while True:
            asked_s = pauses.clock_s()
            try:
                answer = question()
            except StorageAwayError as error:
                wait_s = max(error.pause_s, pause_s * random.uniform(0.5, 1))  # noqa: S311 - spreads requests
                now_s = pauses.clock_s()
                took_s = now_s - asked_s
                if took_s > STOPPED_S and not stopped:
                    until_s, stopped = now_s + pauses.total_s, True
                if now_s + wait_s > until_s:
                    if pauses.rest_s:
                        self._rest(error, now_s + min(max(pauses.rest_s, 2 * took_s), LONGEST_REST_S))
                    raise
                pauses.sleep(wait_s)
                pause_s, renewed = min(2 * pause_s, pauses.last_s), False
            except StorageRefusedError:
                self._away = None
                if renewed:
                    raise
                renewed = True
                self._server.renew()
            except StorageError:
                self._away = None
                raise
            else:
                self._away = None
                return answer

    def _is_away(self) -> bool:
        """Whether it did not answer lately. Raises that at once while it rests: its caller may have other work."""
        with self._noting:
            away, now_s = self._away, self._pauses.clock_s()
            if away is None:
                return False
            if now_s < self._again_s:
                raise StorageAwayError(away.message, away.hint)
            self._again_s = now_s + self._pauses.rest_s  # one thread asks
            return True

    def _rest(self, error: StorageAwayError, again_s: float) -> None:
        with self._noting:
            self._away, self._again_s = error, max(self._again_s, again_s)

    def _listed(self, folder: str) -> Objects:
        folders, objects = self._ask(lambda: self._server.list_folder(folder))
        begin = f"{folder}/" if folder else ""
        objects, shown = dict(objects), set(folders)
        for key, entry in self._recent():
            if not key.startswith(begin):
                continue
            name, _, deeper = key[len(begin) :].partition("/")
            if deeper:
                shown |= {name} if entry is not None else set()
            elif entry is None:
                objects.pop(name, None)
            else:
                objects[name] = entry
        visible = {name: objects[name] for name in sorted(objects) if not name.startswith(".")}
        return tuple(sorted(name for name in shown if not name.startswith("."))), visible

    def _recent(self) -> list[tuple[str, Entry | None]]:
        since_s = self._pauses.clock_s() - LAG_S
        with self._noting:
            self._lately = {key: one for key, one in self._lately.items() if one[0] >= since_s}
            return [(key, entry) for key, (_, entry) in self._lately.items()]

    def _remember(self, key: str, entry: Entry | None) -> None:
        with self._noting:
            self._lately[key] = (self._pauses.clock_s(), entry)

    def _note(self, key: str, version: str | None) -> None:
        with self._noting:
            self._known.pop(key, None)
            if version is not None:
                self._known[key] = version
            while len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]


def _size(body: Body) -> int:
    return len(body) if isinstance(body, bytes) else body.stat().st_size


@contextmanager
def _body(content: Content) -> Iterator[Body]:
    """What is sent, made once: a try that is repeated sends the same."""
    if isinstance(content, bytes):
        yield content
        return
    with tempfile.TemporaryDirectory(prefix="hothouse-object-") as folder:
        path = Path(folder, "content")
        content(path)
        yield path
