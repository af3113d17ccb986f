"""The publisher's ledger: what was published, as counts in a status file that is replaced whole each second."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TypedDict

from edge.status_file import write_status_file
from edge.timing import Periodic
from edge.wire.reading import Sample

__all__ = ["Ledger", "PublisherStatus"]

SAVE_EVERY_S = 1.0
_BESIDES = ("clock", "plan")  # messages that hold no sample


class PublisherStatus(TypedDict):
    """What a publisher did so far."""

    published: int  # samples given to the broker, copies and disturbances included
    acked: int
    refused: int  # by the broker
    resent: int  # of the published, on another connection than at first
    connections: int
    clock_messages: int
    plans: int
    instants: int
    disturbances: dict[str, int]
    first_ms: int | None
    now_ms: int | None
    protocol: str
    last_error: str
    done: bool
    complete: bool  # at the end, all of the source was published and acknowledged


class Ledger:
    """Counts, safe to use from several threads. Without files it only counts; see :attr:`status` for what.

    ``status_file`` is written at once, each second and in the end, always complete. ``ids_file`` gets a line
    ``zone device boot seq ts_ms`` for each true sample before it is sent, ``messages_file`` a line
    ``kind<TAB>topic<TAB>payload`` for each message, true or not, before it is sent for the first time. ``tell`` is told
    what goes wrong, the same once until it goes well again.
    """

    def __init__(
        self, status_file: Path | None = None, ids_file: Path | None = None, messages_file: Path | None = None,
        tell: Callable[[str], object] = len,
    ) -> None:  # fmt: skip
        self._path = status_file
        self._ids: IO[str] | None = ids_file.open("w", encoding="utf-8") if ids_file else None
        self._messages: IO[bytes] | None = messages_file.open("wb") if messages_file else None
        self._lock = threading.Lock()
        self._save_times = Periodic(SAVE_EVERY_S)
        self._counts: Counter[str] = Counter()
        self._disturbances: Counter[str] = Counter()
        self._first_ms: int | None = None
        self._now_ms: int | None = None
        self._protocol = ""
        self._last_error = ""
        self._tell, self._told = tell, ""
        self._is_done = False
        self._is_complete = False
        self.save_if_due()

    @property
    def status(self) -> PublisherStatus:
        """What the status file holds.

        While no connection is lost, downstream receives exactly ``published``; else at least ``published - resent``.
        """
        with self._lock:
            return PublisherStatus(
                published=self._counts["published"], acked=self._counts["acked"], refused=self._counts["refused"],
                resent=self._counts["resent"], connections=self._counts["connections"],
                clock_messages=self._counts["clock"], plans=self._counts["plan"], instants=self._counts["instants"],
                disturbances=dict(self._disturbances), first_ms=self._first_ms, now_ms=self._now_ms,
                protocol=self._protocol, last_error=self._last_error, done=self._is_done, complete=self._is_complete,
            )  # fmt: skip

    @property
    def summary(self) -> str:
        """What was published, and what the broker said to it, in one sentence for a person."""
        found = self.status
        if found["first_ms"] is None or found["now_ms"] is None:
            return f"published nothing: {found['last_error'] or 'there was no sample in that time'}"
        first, last = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (found["first_ms"], found["now_ms"]))
        until = f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"
        samples = self._counts["samples"]
        what = f"{samples:,} samples of {found['instants']:,} instants"
        disturbances = found["published"] - found["resent"] - samples
        some = {"disturbances": disturbances, "messages sent again": found["resent"]}
        extra = ", ".join(f"{count:,} {name}" for name, count in some.items() if count)
        if found["refused"]:
            end = f"{found['refused']:,} refused, last error: {found['last_error']}"
        else:
            end = "the broker acknowledged all" if found["complete"] else "stopped before the end"
        return f"published {what}, {first:%Y-%m-%d %H:%M} to {until} UTC{extra and f' (besides: {extra})'}; {end}"

    def identify(self, sample: Sample) -> None:
        """A true sample is about to be sent for the first time."""
        if self._ids is not None:
            with _named(self._ids.name):
                self._ids.write(f"{sample.zone} {sample.device} {sample.boot} {sample.seq} {sample.ts_ms}\n")

    def message(self, kind: str, topic: str, payload: bytes) -> None:
        """A message is about to be sent for the first time: a ``sample``, or a disturbance of that kind."""
        if self._messages is not None:
            with _named(self._messages.name):
                self._messages.write(b"%s\t%s\t%s\n" % (kind.encode(), topic.encode(), payload))

    def instant(self, ts_ms: int) -> None:
        """The samples of an instant are about to be sent."""
        with self._lock:
            self._counts["instants"] += 1
            self._first_ms = ts_ms if self._first_ms is None else self._first_ms
            self._now_ms = ts_ms

    def sent(self, kind: str, again: bool) -> None:
        """A message goes to the broker: a ``sample``, ``plan`` or ``clock`` message, or a disturbance of that kind."""
        with self._lock:
            if kind in _BESIDES:
                self._counts[kind] += 1
                return
            self._counts["published"] += 1
            self._counts["resent"] += again
            self._counts["samples"] += kind == "sample" and not again
            if kind != "sample":
                self._disturbances[kind] += 1

    def acked(self, kind: str, error: str = "") -> None:
        """The broker answered for a message; ``error`` says why it was refused."""
        with self._lock:
            if kind not in _BESIDES:
                self._counts["refused" if error else "acked"] += 1
            if error:
                self._last_error = f"the broker refused a message: {error}"

    def connected(self, protocol: str) -> None:
        """A connection is up."""
        with self._lock:
            self._counts["connections"] += 1
            self._protocol = protocol
            self._told = ""

    def error(self, text: str) -> None:
        """Something went wrong; publishing may go on."""
        with self._lock:
            is_new, self._last_error, self._told = text != self._told, text, text
        if is_new:
            self._tell(text)
        self.save_if_due()

    def finish(self, complete: bool) -> None:
        """Nothing more will be published; writes the last status."""
        with self._lock:
            self._is_done, self._is_complete = True, complete
        self._save()
        for file in (self._ids, self._messages):
            if file is not None:
                file.close()
        self._ids = self._messages = None

    def save_if_due(self) -> None:
        """Write the files if the last time is a second ago."""
        if self._save_times.due(time.monotonic()):
            self._save()

    def _save(self) -> None:
        for file in (self._ids, self._messages):
            if file is not None:
                with _named(file.name):
                    file.flush()
        if self._path is not None:
            write_status_file(self._path, (json.dumps(self.status) + "\n").encode())


@contextmanager
def _named(path: str) -> Iterator[None]:
    """An error of the disk names the file as it was given."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
