"""Polls a forecast service for each site, keeps its answer, and publishes it as a plan.

What the service answers is kept on disk before it is published: a start asks nothing that was answered within the hour,
and a broker that was away gets the plan when it is back. Whatever the service answers, nothing else stops: the shard
names a forecast that has become old in ``degraded``.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from edge.timing import Backoff
from edge.wire.plan import PlanMessage, encode_plan, plan_topic
from edge.wire.reading import FUTURE_TOLERANCE_MS
from services.errors import HothouseError
from services.store.files import write_atomically
from services.weather.open_meteo import DEVICE, WeatherError, plan_of_answer, query

__all__ = ["PolledSite", "Poller", "Service"]

_log = logging.getLogger(__name__)

FIRST_RETRY_S, LONGEST_RETRY_S = 30.0, 1800.0


class PolledSite(NamedTuple):
    """A site, and where it is."""

    site: str
    latitude: float
    longitude: float


class Service(NamedTuple):
    """A forecast service, and what is asked of it."""

    url: str
    source: str
    variables: Mapping[str, str]
    days: int
    every_s: float
    key: str = ""


class _Answer(msgspec.Struct, frozen=True):
    fetched_ms: int
    content: str  # base64


@dataclass(slots=True)
class _Poll:
    """Of one site."""

    place: PolledSite
    file: Path
    backoff: Backoff
    due_ms: int = 0
    kept: PlanMessage | None = None
    is_published: bool = False
    said: str = ""  # what failed last
    skipped: tuple[str, ...] = field(default_factory=tuple)


class Poller:
    """``fetch`` asks a URL with parameters and raises :class:`WeatherError`; ``publish`` sends topic and payload, and
    raises :class:`HothouseError`. ``folder`` holds the answers. ``jitter`` gives numbers in 0 ... 1.
    """

    def __init__(
        self, service: Service, places: Sequence[PolledSite], folder: Path,
        fetch: Callable[[str, Mapping[str, str]], bytes],
        publish: Callable[[str, bytes], None], wall_ms: Callable[[], int], jitter: Callable[[], float],
    ) -> None:  # fmt: skip
        self._service, self._fetch, self._publish, self._wall_ms = service, fetch, publish, wall_ms
        self._polls = [
            _Poll(place, folder / f"{place.site}.json", Backoff(FIRST_RETRY_S, LONGEST_RETRY_S, jitter))
            for place in places
        ]
        for poll in self._polls:
            self._load(poll)

    @property
    def errors(self) -> dict[str, str]:
        """By site what fails now."""
        return {poll.place.site: poll.said for poll in self._polls if poll.said}

    def look(self, *, tries_again: bool = True) -> float:
        """Do what is due; seconds until something is due again. Never raises for what a service or broker does.

        Who looks once says himself what failed (:attr:`errors`).
        """
        for poll in self._polls:
            self._see_clock(poll)
            if self._wall_ms() >= poll.due_ms:
                self._try(poll, tries_again)
        return max(0.0, (min(poll.due_ms for poll in self._polls) - self._wall_ms()) / 1000)

    def _try(self, poll: _Poll, tries_again: bool) -> None:
        try:
            if poll.kept is None or poll.is_published or self._is_old(poll.kept):
                self._ask(poll)
            if poll.kept is not None and not poll.is_published:
                topic = plan_topic(poll.place.site, "_site", DEVICE)
                self._publish(topic, encode_plan(poll.kept))
                poll.is_published = True
                until = datetime.fromtimestamp(poll.kept.last_ms / 1000, UTC)
                _log.info("%s: published a forecast until %s", poll.place.site, f"{until:%Y-%m-%d %H:%M} UTC")
        except (WeatherError, HothouseError, OSError) as error:
            asked_s = error.pause_s if isinstance(error, WeatherError) else 0.0
            pause_s = max(poll.backoff.next_s(), min(asked_s, self._longest_s))
            if str(error) != poll.said and tries_again:
                _log.warning("%s: %s; tried again in %.0f s", poll.place.site, error, pause_s)
            poll.said, poll.due_ms = str(error), self._wall_ms() + round(1000 * pause_s)
            return
        poll.said = ""
        poll.backoff.reset()
        fetched_ms = self._wall_ms() if poll.kept is None else max(poll.kept.issued_ms, poll.due_ms)
        poll.due_ms = fetched_ms + round(1000 * self._service.every_s)

    def _see_clock(self, poll: _Poll) -> None:
        """Where the clock was ahead, and is right now, nothing waits until it is where it was. What was issued then is
        of the future, which gateways refuse.
        """
        now_ms = self._wall_ms()
        if poll.due_ms > now_ms + 1000 * self._longest_s:
            poll.due_ms = now_ms
        if poll.kept is not None and poll.kept.issued_ms > now_ms + FUTURE_TOLERANCE_MS:
            poll.kept, poll.is_published = None, False

    @property
    def _longest_s(self) -> float:
        """No pause is longer: what is due later was due by a clock that was ahead."""
        return max(self._service.every_s, LONGEST_RETRY_S)

    def _is_old(self, plan: PlanMessage) -> bool:
        """Whether a newer one is due before the broker has taken this one."""
        return self._wall_ms() - plan.issued_ms > 1000 * self._service.every_s

    def _ask(self, poll: _Poll) -> None:
        service, place = self._service, poll.place
        parameters = query(place.latitude, place.longitude, service.variables, service.days)
        if service.key:
            parameters["apikey"] = service.key
        content = self._fetch(service.url, parameters)
        now_ms = poll.due_ms = self._wall_ms()
        plan = self._read(poll, content, now_ms)
        if poll.kept is not None and plan.values == _still_ahead(poll.kept, plan):
            return  # no new run of the model: its forecast keeps the time at which it came, and gets old
        answer = msgspec.json.encode(_Answer(now_ms, base64.b64encode(content).decode()))
        write_atomically(poll.file, lambda tmp: _fill(tmp, answer))
        poll.kept, poll.is_published = plan, False

    def _read(self, poll: _Poll, content: bytes, fetched_ms: int) -> PlanMessage:
        service = self._service
        plan, skipped = plan_of_answer(content, poll.place.site, service.variables, service.source, fetched_ms)
        if tuple(skipped) != poll.skipped:
            poll.skipped = tuple(skipped)
            for words in skipped:
                _log.warning("%s: %s", poll.place.site, words)
        return plan

    def _load(self, poll: _Poll) -> None:
        """Go on from the answer that was kept: it is published again, which counts once, and not asked for."""
        try:
            answer = msgspec.json.decode(poll.file.read_bytes(), type=_Answer)
            content = base64.b64decode(answer.content)
            poll.kept = self._read(poll, content, answer.fetched_ms)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:  # msgspec's errors, WeatherError and base64's are ValueErrors
            _log.warning("%s: the answer in %s cannot be used: %s", poll.place.site, poll.file, error)
            return
        if poll.kept.last_ms <= self._wall_ms():
            poll.kept = None  # it is over: the broker would only refuse it


def _still_ahead(before: PlanMessage, now: PlanMessage) -> dict[str, list[tuple[int, float]]]:
    """What ``before`` says of the times that ``now`` is about."""
    kept = {}
    for metric, path in before.values.items():
        first_ms = now.values[metric][0][0] if metric in now.values else 0
        kept[metric] = [point for point in path if point[0] >= first_ms]
    return kept


def _fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)
