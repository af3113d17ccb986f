"""The link to Home Assistant over several live states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ray

from edge.mqtt.connection import MqttAddress
from services.config import load_settings
from services.home_assistant.start import home_assistant_link


class LiveStateAway:
    """The handle of a live state that does not answer."""

    def __init__(self) -> None:
        self.wait = self

    def remote(self, seen: int, wait_s: float) -> Any:
        raise ConnectionError


class KnownTo(LiveStateAway):
    """The handle of one that answers with what it was asked."""

    def remote(self, seen: int, wait_s: float) -> Any:
        return {"asked": seen, "wait_s": wait_s}


def test_live_states_are_asked_in_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each for what came after the version of its own, within a second for all; one that is away stops none."""
    monkeypatch.setattr(ray, "get", lambda answer, timeout: answer)
    settings = load_settings(data_dir=tmp_path, home_assistant={"prefix": "homeassistant"})
    address = MqttAddress(host="127.0.0.1", port=1883)
    link = home_assistant_link(settings, address, [KnownTo(), LiveStateAway(), KnownTo(), KnownTo()], [])
    assert link is not None
    seen = {0: 10, 1: 20, 2: 30}
    assert link._changes(seen) == {"asked": 10, "wait_s": 0.25}
    with pytest.raises(ConnectionError):
        link._changes(seen)
    assert [link._changes(seen)["asked"] for _ in range(3)] == [30, 0, 10]
