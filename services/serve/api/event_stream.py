"""Step 9 of the way of a reading: what changes is told to every open page, as server-sent events.

Each message is made once a replica, whoever listens. Streams wait for the next one, and are woken a few at a time, so
that a request that comes meanwhile does not wait for two thousand of them.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from services.messages import LiveEvent, ZoneForecast
from services.serve.api.assets import page_version
from services.serve.api.problems import ProblemError
from services.serve.health import Readiness
from services.serve.live_state import LiveStateChanges

__all__ = ["BEAT_S", "MOST", "EventStream"]

KEPT = 256
"""Messages that a stream which was cut can still be given; one that was cut earlier begins again."""
BEAT_S = 15.0
"""A stream carries a comment after this long without a message: a connection that stays silent is broken."""
LONGEST_S = 50.0
"""Requests end after a minute, streams a little earlier; clients ask again with ``Last-Event-ID``."""
MOST_AHEAD = 1_000_000
"""Another replica may have heard a little more of a live state. Versions begin with the time in microseconds: what is
further ahead is of a live state whose clock was set back since.
"""
MOST = 3000
"""Streams of one replica."""
WOKEN = 8
"""Streams that are woken at once; others of the event loop come between."""
PAUSE_S, SPREAD_S = 0.004, 1.0
"""Between them, but all are told within about a second."""


class EventStream:
    """Takes what the live states say (:meth:`take`) and tells it to any number of streams (:meth:`stream`).

    Messages are numbered by the version of the live state that they are from, which is the same in all replicas. An id
    is what a stream has seen of each live state, so one that was cut may go on in another replica. ``clock_s`` is
    monotonic.
    """

    def __init__(self, clock_s: Callable[[], float], live_states: int = 1) -> None:
        self.longest_s = LONGEST_S
        self._clock_s = clock_s
        self._versions = [0] * live_states  # the newest of each
        self._floors = [0] * live_states  # from which on everything is kept
        self._kept: deque[tuple[int, int, bytes]] = deque()  # live state, version, messages
        self._waiting: set[asyncio.Future[None]] = set()
        self._waking: set[asyncio.Task[None]] = set()
        self._events: list[LiveEvent] = []
        self._health: Readiness | None = None
        self._closed = False
        self.open = 0  # streams

    def take(self, changes: LiveStateChanges, health: Readiness | None) -> None:
        """Tell what changed; ``health`` is what the replica knows of itself after it, None where nobody looked."""
        index, version = changes.get("live_state", 0), changes["version"]
        before, self._versions[index] = self._versions[index], version
        if version < before:  # a live state that took another's place after the clock was set back
            self._kept = deque(one for one in self._kept if one[0] != index)
            self._floors[index] = version
        told: list[tuple[str, Any]] = []
        if forecasts := changes.get("forecasts"):
            told.append(("forecasts", {"zones": [_short(forecast) for forecast in forecasts]}))
        news = self._news(changes.get("events"))
        if news or "models" in changes:
            told.append(("models", {"events": news}))
        told += [("alert", alert) for alert in cast(Mapping[str, Any], changes).get("alerts", ())]
        # What has the version of the message before would reach no stream: it is told with the next one.
        is_changed = health is not None and (self._health is None or _outline(health) != _outline(self._health))
        if is_changed and version != before:
            self._health = health
            told.append(("health", health))
        if not before:
            self._floors[index] = version
        elif told:
            self._keep(index, version, b"\n".join(_message(kind, said) for kind, said in told))

    async def stream(
        self, after: str | None, health: Readiness, sites: Collection[str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """What a client is sent: first ``hello`` with ``health``, then each message that comes after the id ``after``;
        of ``sites`` alone, where a key is limited to some.

        ``hello`` says whether messages may be missing (``anew``): then a client asks for everything once more; and of
        which version the page is, for one that has been open since before an upgrade. Instead of it comes a 503 problem
        where this replica has as many streams as it takes.
        """
        if self.open >= MOST:
            raise ProblemError(503, "this replica has as many streams as it takes", {"Retry-After": "5"})
        if not self.open:  # nobody looked meanwhile: what is told of it from now on differs from this
            self._health = health
        self.open += 1
        try:
            spread = random.uniform(0.9, 1)  # noqa: S311 - so that not all come back at once
            end_s = self._clock_s() + self.longest_s * spread
            seen = [int(part) for part in after.split(".")] if after else []
            anew = len(seen) != len(self._versions) or self._has_missed(seen)
            if anew:
                seen = list(self._versions)
            shown = health if sites is None else _unnamed(health)
            hello = {"anew": anew, "health": shown, "page": page_version()}
            yield b"retry: 1000\n" + _message("hello", hello) + _id(seen)
            while not self._closed and (left_s := end_s - self._clock_s()) > 0:
                if self._has_missed(seen):
                    return  # too slow: its client begins again
                news = [text for index, version, text in self._kept if version > seen[index]]
                if news:
                    seen = [max(pair) for pair in zip(seen, self._versions, strict=True)]
                    said = news if sites is None else [left for text in news if (left := _limited(text, sites))]
                    if said:
                        yield b"\n".join(said) + _id(seen)
                elif not await self._wait(min(left_s, BEAT_S)):
                    yield b": beat\n\n"
        finally:
            self.open -= 1

    def close(self) -> None:
        """End all streams: clients ask another replica."""
        self._closed = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait(self, limit_s: float) -> bool:
        """Until there is a message, or the time is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            async with asyncio.timeout(limit_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiter)
        return True

    def _has_missed(self, seen: Sequence[int]) -> bool:
        """Whether messages after ``seen`` are no longer kept, or it is what a live state said that is gone."""
        known = zip(seen, self._floors, self._versions, strict=True)
        return any(not floor <= version <= newest + MOST_AHEAD for version, floor, newest in known)

    def _keep(self, index: int, version: int, text: bytes) -> None:
        self._kept.append((index, version, text))
        if len(self._kept) > KEPT:
            index, version, _ = self._kept.popleft()
            self._floors[index] = version
        woken, self._waiting = self._waiting, set()
        task = asyncio.create_task(_wake(list(woken)), name="tell the open pages")
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    def _news(self, events: list[LiveEvent] | None) -> list[LiveEvent]:
        """Those that are new; the live state gives all it keeps, oldest first."""
        if events is None:
            return []
        before, self._events = self._events, events
        known = events.index(before[-1]) + 1 if before and before[-1] in events else 0
        return events[known:]


async def _wake(waiting: Sequence[asyncio.Future[None]]) -> None:
    pause_s = min(PAUSE_S, SPREAD_S * WOKEN / max(1, len(waiting)))
    for begin in range(0, len(waiting), WOKEN):
        for waiter in waiting[begin : begin + WOKEN]:
            if not waiter.done():
                waiter.set_result(None)
        await asyncio.sleep(pause_s)


def _short(forecast: ZoneForecast) -> dict[str, Any]:
    """What a list of zones shows; the whole forecast is asked for by who shows it."""
    return {
        "site": forecast["site"], "zone": forecast["zone"], "origin_ms": forecast["origin_ms"],
        "model_version": forecast["model_version"], "degraded": len(forecast["degraded"]),
        "now": {target: forecast["now"].get(target) for target in forecast["forecasts"]},
        "now_age_s": {target: forecast["now_age_s"].get(target, 0) for target in forecast["forecasts"]},
    }  # fmt: skip


def _outline(health: Readiness) -> tuple[object, ...]:
    """The part of it whose change is news: its words count minutes, and change all the time."""
    return health["ready"], health["zones"], health["zones_usable"], len(health["reasons"]), tuple(health["degraded"])


def _limited(text: bytes, sites: Collection[str]) -> bytes:
    """The messages of a text, limited to what is about these sites, or about none."""
    lines = text.splitlines()
    kinds = [line.removeprefix(b"event: ").decode() for line in lines if line.startswith(b"event: ")]
    data = [msgspec.json.decode(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]
    left = [(kind, _of_sites(kind, said, sites)) for kind, said in zip(kinds, data, strict=True)]
    return b"\n".join(_message(kind, said) for kind, said in left if said is not None)


def _of_sites(kind: str, said: Any, sites: Collection[str]) -> Any:
    """The part of a message that is about these sites; ``None`` where nothing is left."""
    if kind == "forecasts":
        zones = [zone for zone in said["zones"] if zone["site"] in sites]
        return {"zones": zones} if zones else None
    if kind == "alert":
        return said if said["site"] in sites else None
    if kind == "models":
        return {"events": []}  # what happens in trainings may name sites
    return _unnamed(said)


def _unnamed(health: Readiness) -> Readiness:
    """Without the words, which name zones."""
    return {**health, "reasons": [], "codes": {}}


def _id(seen: Sequence[int]) -> bytes:
    """The end of what is sent at once."""
    return b"id: %s\n\n" % ".".join(map(str, seen)).encode()


def _message(kind: str, said: Any) -> bytes:
    return b"event: %s\ndata: %s\n" % (kind.encode(), msgspec.json.encode(said))
