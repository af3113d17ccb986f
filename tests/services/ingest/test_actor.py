"""The shard's link to the board loses nothing that counts."""

from __future__ import annotations

from typing import Any

import pytest

from services.ingest import actor
from services.ingest.actor import BoardLink
from services.messages import ZoneForecast


def forecast(zone: str, origin_ms: int) -> ZoneForecast:
    return ZoneForecast(
        site="demo", zone=zone, origin_ms=origin_ms, origin="", step_s=300, model_version="v", now={}, degraded=[],
        freshness_s={}, forecasts={},
    )  # fmt: skip


def test_what_cannot_be_sent_is_bounded_but_each_zone_keeps_its_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of more zones than the bound, and older ones before it: the newest of every zone is sent."""
    monkeypatch.setattr(actor, "MAX_UNSENT", 10)
    link, sent = BoardLink("shard-0"), list[Any]()
    zones = [f"z{n}" for n in range(25)]
    for origin_ms in (1, 2):
        link.publish([forecast(zone, origin_ms) for zone in zones])
    link.publish([forecast("z0", 3)])
    away = True

    def send(forecasts: list[ZoneForecast], past: Any, stats: Any) -> None:
        nonlocal away
        if away:
            away = False
            raise ConnectionError
        sent.extend(forecasts)
        link._closing = True

    monkeypatch.setattr(link, "_send", send)
    monkeypatch.setattr(actor, "BOARD_RETRY_S", 0)
    link._run()
    assert [(f["zone"], f["origin_ms"]) for f in sent] == [*((zone, 2) for zone in zones[1:]), ("z0", 3)]
