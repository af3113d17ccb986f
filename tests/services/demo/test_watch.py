"""What the demo sees of tonight and tomorrow, through the API alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.demo import watch as watch_module
from services.demo.outlook_line import outlook_line
from services.demo.watch import DemoWatch, Seen
from services.serve.api.auth import Keys
from tests.services.serve.system import System


@pytest.fixture
def system() -> Iterator[System]:
    """Two zones, reading open."""
    made = System(Keys("op-key"))
    yield made
    made.client.close()


@pytest.fixture
def watch(system: System) -> DemoWatch:
    """Looks at them, without a socket."""
    made = DemoWatch("http://nowhere")
    made.close()
    made._client = system.client
    return made


def test_a_look_sees_tonight_of_every_zone(watch: DemoWatch) -> None:
    """Each zone has its line, from scenarios of its newest forecast."""
    seen = watch.look()
    assert watch.problem == ""
    assert sorted(seen.outlooks) == [("demo", "north-1"), ("demo", "north-2")]
    line = outlook_line("north-1", seen.outlooks["demo", "north-1"])
    assert line.startswith("north-1 tonight 10.0 °C at 00:30 (9.2 to 10.8), below 9.5: ")
    assert line.endswith("; maximum not known: no day ends within the path")


def test_scenarios_are_not_drawn_at_every_look(system: System, watch: DemoWatch) -> None:
    """What was said stands until the next question is due, also when only the status is renewed."""
    before = watch.look().outlooks
    system.backend.shard_away = "the zone's shard does not answer"
    assert watch.look().outlooks == before


def test_a_shard_that_is_away_is_said(system: System, watch: DemoWatch) -> None:
    """The forecasts are seen all the same, and the line says why there is nothing of tonight."""
    system.backend.shard_away = "the zone's shard does not answer"
    seen = watch.look()
    assert len(seen.forecasts) == 2
    assert outlook_line("north-1", seen.outlooks["demo", "north-1"]) == (
        "north-1 tonight and tomorrow are not known: the zone's shard does not answer"
    )


class Clock:
    """Time that passes in sleep alone."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Reading(DemoWatch):
    """Sees one shard that reads so many samples of its backlog between two looks."""

    def __init__(self, backlog: int, a_look: int) -> None:
        super().__init__("http://nowhere")
        self.close()
        self.backlog, self.a_look = backlog, a_look

    def _look_at_status(self) -> bool:
        self.backlog = max(self.backlog - self.a_look, 0)
        shard = {"zones": ["demo/north-1"], "backlog": self.backlog}
        self.seen = Seen(components={"shard-0": shard, "gateway": {"connected": True}})
        return True

    def look(self) -> Seen:
        self._look_at_status()
        self.seen.forecasts = {("demo", "north-1"): {}}
        return self.seen


@pytest.mark.parametrize(("a_look", "ready", "after_s"), [(1, True, 249.75), (0, False, 120.0)])
def test_a_start_may_take_long_as_long_as_it_comes_nearer(
    monkeypatch: pytest.MonkeyPatch, a_look: int, ready: bool, after_s: float
) -> None:
    """A thousand looks at a backlog that shrinks are waited for; one that stands is waited for no longer than said."""
    clock = Clock()
    monkeypatch.setattr(watch_module, "time", clock)
    assert Reading(1000, a_look).wait_until_ready(120) is ready
    assert clock.now_s == pytest.approx(after_s)
