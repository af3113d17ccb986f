"""The shard's link to the live state loses nothing that counts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from services.ingest.links import live_state_link
from services.ingest.links.live_state_link import LiveStateLink
from services.messages import ZoneForecast
from services.serve.live_state import LiveState
from tests.patience import until

ONE_AT_A_TIME = threading.Lock()


def answer(call: Coroutine[Any, Any, Any]) -> Any:
    """What a live state answers; it belongs to one event loop at a time."""
    with ONE_AT_A_TIME:
        return asyncio.run(call)


class LocalActor:
    """Calls the methods of an object at once, as an actor's handle does some time."""

    def __init__(self, behind: Callable[[], Any]) -> None:
        self.behind = behind

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Any:
            return answer(getattr(self.behind(), name)(*arguments))

        return SimpleNamespace(remote=remote)


def forecast(zone: str, origin_ms: int) -> ZoneForecast:
    return ZoneForecast(
        site="demo", zone=zone, origin_ms=origin_ms, origin="", step_s=300, model_version="v", now={}, degraded=[],
        now_age_s={}, reports_every_s=0, freshness_s={}, forecasts={},
    )  # fmt: skip


def test_what_cannot_be_sent_is_bounded_but_each_zone_keeps_its_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of more zones than the bound, and older ones before it: the newest of every zone is sent."""
    monkeypatch.setattr(live_state_link, "MAX_UNSENT", 10)
    link, sent = LiveStateLink("shard-0", "board-0", "hothouse-test"), list[Any]()
    zones = [f"z{n}" for n in range(25)]
    for origin_ms in (1, 2):
        link.publish([forecast(zone, origin_ms) for zone in zones])
    link.publish([forecast("z0", 3)])
    away = True

    def send(taken: Any) -> None:
        nonlocal away
        if away:
            away = False
            raise ConnectionError
        sent.extend(taken.forecasts)
        link._closing = True

    monkeypatch.setattr(link, "_send", send)
    monkeypatch.setattr(live_state_link, "RETRY_S", 0)
    link._run()
    assert [(f["zone"], f["origin_ms"]) for f in sent] == [*((zone, 2) for zone in zones[1:]), ("z0", 3)]


@pytest.mark.parametrize("figures", [True, False])
def test_a_live_state_that_was_restarted_between_two_calls_is_told_again(
    figures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was back before anything was sent, so no call failed; it hears of every zone all the same, and of its past,
    also where the one before it had not had the shard's figures yet.
    """
    now = LiveState(1, lambda: 0)
    monkeypatch.setattr(live_state_link.ray, "get_actor", lambda *_, **__: LocalActor(lambda: now))
    monkeypatch.setattr(live_state_link.ray, "get", lambda answers, **_: answers)
    monkeypatch.setattr(live_state_link, "RETRY_S", 0)
    questions: Any = SimpleNamespace(past=lambda *_: ([1], {"air_temp_c": [20.0]}))
    link = LiveStateLink("shard-0", "board-0", "hothouse-test")
    link.start(questions)

    def knows(live_state: LiveState) -> list[str]:
        shown = answer(live_state.wait(0, 0)).get("forecasts", [])
        return [f["zone"] for f in shown if answer(live_state.past("demo", f["zone"]))["end_ms"]]

    try:
        link.publish([forecast("z1", 1), forecast("z2", 1)])
        until(lambda: knows(now) == ["z1", "z2"], "the first live state has been told")
        if figures:
            link.put_stats({"late": 1})
            until(lambda: answer(now.wait(0, 0)).get("stats"), "the first live state has the figures")
        now = LiveState(2, lambda: 0)
        link.put_stats({"late": 1})
        until(lambda: sorted(knows(now)) == ["z1", "z2"], "the second live state has been told", 10)
    finally:
        link.close()
