"""Server-sent events: what changes reaches every stream once, also after a cut, and costs requests little."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from typing import Any

import pytest

from services.messages import LiveEvent
from services.serve.api import event_stream
from services.serve.api.assets import page_version
from services.serve.api.auth import Keys
from services.serve.api.event_stream import EventStream
from services.serve.health import Readiness
from services.serve.live_state import LiveStateChanges
from tests.patience import core_slowness, patience_s
from tests.services.serve.fakes import zone_forecast
from tests.services.serve.system import OPERATOR, System, assert_problem

HEALTH = Readiness(ready=True, reasons=[], degraded=[], zones=1, zones_usable=1, codes={})


def parsed(text: bytes) -> list[tuple[str, Any, str]]:
    """Name, data and id of each event."""
    found = []
    for message in text.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in message.splitlines() if not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
    return found


class Listener:
    """Collects a stream in the background."""

    def __init__(self, stream: EventStream, after: str | None = None) -> None:
        self.text = b""
        self.task = asyncio.create_task(self._listen(stream, after))

    async def _listen(self, stream: EventStream, after: str | None) -> None:
        async for part in stream.stream(after, HEALTH):
            self.text += part

    @property
    def events(self) -> list[tuple[str, Any, str]]:
        """What came, without the greeting."""
        return [one for one in parsed(self.text) if one[0] != "hello"]

    async def has(self, count: int) -> None:
        """Wait until so many events came."""
        while len(self.events) < count:
            await asyncio.sleep(0)


def started() -> EventStream:
    """A stream of a replica that has taken everything that there was at version 10."""
    stream = EventStream(time.monotonic)
    stream.take(
        {"version": 10, "forecasts": [zone_forecast()], "events": [LiveEvent(kind="swap", version="v1")]}, HEALTH
    )
    return stream


def test_each_change_is_told_to_each_stream_once() -> None:
    """Forecasts in short, new events of the loop without the old ones, models and health; figures tell nothing."""

    async def run() -> None:
        stream = started()
        listeners = [Listener(stream) for _ in range(40)]
        await asyncio.sleep(0)
        aged = zone_forecast(degraded=["weak"], now_age_s={"rh_pct": 900, "rain": 1200})
        stream.take({"version": 11, "forecasts": [aged]}, HEALTH)
        old, new = LiveEvent(kind="swap", version="v1"), LiveEvent(kind="swap", version="v2")
        stream.take({"version": 12, "events": [old, new], "models": []}, HEALTH)
        stream.take({"version": 13, "stats": {}}, HEALTH)
        stream.take({"version": 14}, Readiness(**{**HEALTH, "ready": False, "reasons": ["silent"]}))
        for listener in listeners:
            await listener.has(3)
            (forecasts, said, _), (models, told, _), (health, state, number) = listener.events
            assert (forecasts, models, health, number) == ("forecasts", "models", "health", "14")
            assert said["zones"][0]["degraded"] == 1
            assert set(said["zones"][0]["now"]) == {"air_temp_c", "rh_pct"}
            assert said["zones"][0]["now_age_s"] == {"air_temp_c": 0, "rh_pct": 900}
            assert told["events"] == [new]
            assert state["ready"] is False
        stream.close()
        await asyncio.gather(*(listener.task for listener in listeners))
        assert stream.open == 0

    asyncio.run(run())


def test_health_that_changes_without_other_news_is_told_with_the_next() -> None:
    """A live state that is quiet, as one whose shard has died, has no new version; what has none reaches no stream."""

    async def run() -> None:
        stream = EventStream(time.monotonic, live_states=2)
        for index in range(2):
            stream.take({"version": 10, "live_state": index}, HEALTH)
        said = stream.stream(None, HEALTH)
        await anext(said)
        waits = Readiness(**{**HEALTH, "ready": False, "reasons": ["silent"]})
        stream.take({"version": 10, "live_state": 1}, waits)  # it answers, and nothing has come
        stream.take({"version": 11, "live_state": 0, "stats": {}}, waits)
        async with asyncio.timeout(patience_s(5)):
            assert b"event: health" in await anext(said)
        await said.aclose()

    asyncio.run(run())


def test_what_was_known_before_the_first_stream_came_hides_no_change() -> None:
    """A system that was ready for the last page, and is not when the next one comes, is told to be ready again."""

    async def run() -> None:
        stream = started()  # ready, when somebody last looked
        waits = Readiness(**{**HEALTH, "ready": False, "reasons": ["silent"]})
        said = stream.stream(None, waits)
        assert b'"ready":false' in await anext(said)
        stream.take({"version": 11}, HEALTH)
        assert b"event: health" in await anext(said)
        await said.aclose()

    asyncio.run(run())


def test_a_live_state_whose_clock_was_set_back_is_heard() -> None:
    """It counts on from an earlier time than the one before it: open streams begin again, and those that were cut."""

    async def run() -> None:
        stream = EventStream(time.monotonic)
        stream.take({"version": 9_000_000}, HEALTH)
        cut = Listener(stream)
        await asyncio.sleep(0)
        stream.take({"version": 9_000_001, "forecasts": [zone_forecast()]}, HEALTH)
        await cut.has(1)
        stream.take({"version": 5, "forecasts": [zone_forecast()]}, HEALTH)
        async with asyncio.timeout(patience_s(10)):
            await cut.task
        again = Listener(stream, cut.events[-1][2])
        await asyncio.sleep(0)
        ((_, hello, number),) = parsed(again.text)
        assert (hello["anew"], number) == (True, "5")
        stream.take({"version": 6, "forecasts": [zone_forecast()]}, HEALTH)
        async with asyncio.timeout(patience_s(10)):
            await again.has(1)
        assert again.events[0][2] == "6"
        stream.close()
        await again.task

    asyncio.run(run())


def test_each_alert_is_told_by_itself() -> None:
    """An alert that is new, changed or renewed is an event of its own, as ``/alerts`` has it."""

    async def run() -> None:
        stream = started()
        listener = Listener(stream)
        await asyncio.sleep(0)
        alerts = [{"id": "a", "state": "firing"}, {"id": "b", "state": "resolved"}]
        stream.take({"version": 11, "alerts": alerts}, HEALTH)  # type: ignore[typeddict-unknown-key]
        await listener.has(2)
        assert [(kind, said) for kind, said, _ in listener.events] == [("alert", alerts[0]), ("alert", alerts[1])]
        stream.close()

    asyncio.run(run())


def test_a_stream_that_was_cut_goes_on_where_it_was() -> None:
    """With the id of the last event nothing comes twice and nothing is missed; an id of long ago, or none, is told to
    begin anew.
    """

    async def run() -> None:
        stream = started()
        first = Listener(stream)
        await asyncio.sleep(0)
        stream.take({"version": 11, "forecasts": [zone_forecast()]}, HEALTH)
        await first.has(1)
        first.task.cancel()
        stream.take({"version": 12, "forecasts": [zone_forecast("north-2")]}, HEALTH)
        again = Listener(stream, first.events[-1][2])
        await again.has(1)
        assert [one[1]["zones"][0]["zone"] for one in again.events] == ["north-2"]
        assert parsed(again.text)[0][1]["anew"] is False
        for version in range(13, 13 + event_stream.KEPT):
            stream.take({"version": version, "forecasts": [zone_forecast()]}, HEALTH)
        for after in ("11", None):
            late = Listener(stream, after)
            await asyncio.sleep(0.01)
            assert parsed(late.text)[0][:2] == ("hello", {"anew": True, "health": dict(HEALTH), "page": page_version()})
            assert late.events == []
        stream.close()

    asyncio.run(run())


def test_with_two_live_states_a_cut_stream_goes_on_in_another_replica() -> None:
    """Replicas hear of the two in different order; the stream is told of each change once, whichever it asks."""

    async def run() -> None:
        replicas = [EventStream(time.monotonic, 2) for _ in range(2)]
        said: list[LiveStateChanges] = [
            {"live_state": index, "version": version, "forecasts": [zone_forecast(f"z{index}-{version}")]}
            for index, version in [(0, 10), (1, 500), (0, 11), (1, 501), (0, 12), (1, 502)]
        ]  # fmt: skip
        for replica in replicas:
            for changes in said[:2]:  # what was there before
                replica.take(changes, HEALTH)
        first = Listener(replicas[0])
        await asyncio.sleep(0)
        replicas[0].take(said[2], HEALTH)
        replicas[0].take(said[3], HEALTH)
        await first.has(2)
        assert first.events[-1][2] == "11.501"
        first.task.cancel()
        for changes in (said[5], said[2], said[4]):  # what 501 says came with 502
            replicas[1].take(changes, HEALTH)
        again = Listener(replicas[1], "11.501")
        await again.has(2)
        assert [one[1]["zones"][0]["zone"] for one in again.events] == ["z1-502", "z0-12"]
        assert again.events[-1][2] == "12.502"
        ahead = Listener(replicas[1], "12.600")  # of a replica that has heard more of the second
        await asyncio.sleep(0)
        for index, version in ((0, 13), (1, 600), (1, 601)):
            changes = {"live_state": index, "version": version, "forecasts": [zone_forecast(f"z{index}-{version}")]}
            replicas[1].take(changes, HEALTH)
            await again.has(len(again.events) + 1)
        await ahead.has(2)
        assert [one[1]["zones"][0]["zone"] for one in ahead.events] == ["z0-13", "z1-601"]
        assert [one[2] for one in ahead.events] == ["13.600", "13.601"]
        for after, anew in (("12.502", False), ("12", True), ("12.499", True), ("9.502", True)):
            late = Listener(replicas[1], after)
            await asyncio.sleep(0.01)
            assert (after, parsed(late.text)[0][1]["anew"]) == (after, anew)
        for replica in replicas:
            replica.close()

    asyncio.run(run())


def test_a_stream_says_that_it_is_there_and_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without news a comment comes, so that a silent connection is known to be broken; after its time it ends."""
    monkeypatch.setattr(event_stream, "BEAT_S", 0.01)

    async def run() -> bytes:
        stream = started()
        stream.longest_s = 0.2
        return b"".join([part async for part in stream.stream(None, HEALTH)])

    assert asyncio.run(run()).count(b": beat\n\n") >= 2


def test_two_thousand_streams_hold_nobody_up() -> None:
    """While 2,000 streams are told of 100 zones, the event loop is never away for as long as a request may take."""

    async def run() -> tuple[float, int]:
        stream = EventStream(time.monotonic)
        stream.take({"version": 10}, HEALTH)
        listeners = [Listener(stream) for _ in range(2000)]
        await asyncio.sleep(0)
        stream.take({"version": 11, "forecasts": [zone_forecast(f"z{n}") for n in range(100)]}, HEALTH)
        longest, before = 0.0, time.thread_time()
        while not all(listener.text.count(b"\n") > 5 for listener in listeners[::100]):
            await asyncio.sleep(0)
            longest, before = max(longest, time.thread_time() - before), time.thread_time()
        while not all(listener.text.count(b"\n") > 5 for listener in listeners):
            await asyncio.sleep(0.01)
        stream.close()
        await asyncio.gather(*(listener.task for listener in listeners))
        return longest, sum(len(listener.events) == 1 for listener in listeners)

    slow = min(core_slowness(), 3)
    gc.collect()
    gc.freeze()  # as a replica does: what other tests left is not looked through meanwhile
    try:
        longest_s, told = asyncio.run(run())
    finally:
        gc.unfreeze()
    assert told == 2000
    assert longest_s < 0.025 * slow  # of the core; with all of them woken at once it is twenty times so long


def test_the_route_streams_and_wants_the_readers_key() -> None:
    """``/events`` is an event stream that no cache keeps; where reading needs a key, it does, too."""
    answer = System(Keys("op-key")).client.get("/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert parsed(answer.content)[0][0] == "hello"
    closed = System(Keys("op-key", "read-key"))
    assert_problem(closed.client.get("/events"), 401, "needs a key")
    assert closed.client.get("/events", headers=OPERATOR).status_code == 200


def test_a_full_replica_says_so() -> None:
    """More streams than a replica takes are refused with a 503, and told when to ask again."""
    system = System(Keys("op-key"))
    system.state.events.open = event_stream.MOST
    answer = system.client.get("/events")
    assert_problem(answer, 503, "as many streams as it takes")
    assert answer.headers["retry-after"] == "5"
