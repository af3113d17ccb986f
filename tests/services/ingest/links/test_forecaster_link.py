"""The shard's way to the Forecaster, where Serve's controller may be away with the head. Serve is faked here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from ray import serve

from services.ingest.links import forecaster_link
from services.ingest.links.forecaster_link import ForecasterLink
from services.messages import FORECASTER_DEPLOYMENT


class Controller:
    """Gives out handles, numbered; while it is ``away`` who asks waits."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.there.set()
        self.running, self.handles = 1, 0
        self.broken = set[int]()

    def status(self) -> SimpleNamespace:
        forecaster = SimpleNamespace(status="UPDATING", replica_states={"RUNNING": self.running, "STARTING": 1})
        return SimpleNamespace(applications={"ours": SimpleNamespace(deployments={FORECASTER_DEPLOYMENT: forecaster})})

    def handle(self, deployment: str, application: str) -> SimpleNamespace:
        assert self.there.wait(60)
        self.handles += 1
        number = self.handles

        async def remote(request: str) -> str:
            if number in self.broken:
                raise ConnectionError("its replica died")
            return f"{request} by {number}"

        return SimpleNamespace(forecast=SimpleNamespace(remote=remote))


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Iterator[Controller]:
    """One that answers."""
    found = Controller()
    monkeypatch.setattr(serve, "status", found.status)
    monkeypatch.setattr(serve, "get_deployment_handle", found.handle)
    monkeypatch.setattr(forecaster_link, "FORECAST_TIMEOUT_S", 0.2)
    yield found
    found.there.set()


def ask(link: ForecasterLink, request: Any) -> object:
    """What the Forecaster answers."""
    return link.forecast(request)


def test_one_replica_is_enough_for_a_first_request(controller: Controller) -> None:
    """After a node is lost the other replica waits for another node, and a shard that starts must not."""
    assert ask(ForecasterLink("ours"), "a") == "a by 1"


def test_a_handle_is_found_anew_after_an_error(controller: Controller) -> None:
    """The application may be another one now."""
    link = ForecasterLink("ours")
    assert ask(link, "a") == "a by 1"
    controller.broken = {1}
    with pytest.raises(ConnectionError):
        ask(link, "b")
    assert [ask(link, "c"), ask(link, "d")] == ["c by 2", "d by 2"]


def test_a_handle_goes_on_while_the_controller_is_away(controller: Controller) -> None:
    """A replica may have died in the meantime, and another one answers."""
    link = ForecasterLink("ours")
    assert ask(link, "a") == "a by 1"
    controller.there.clear()
    controller.broken = {1}
    with pytest.raises(ConnectionError):
        ask(link, "b")
    controller.broken = set()
    assert ask(link, "c") == "c by 1"
