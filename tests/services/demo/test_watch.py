"""What the demo sees of tonight and tomorrow, through the API alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.demo.outlook_line import outlook_line
from services.demo.watch import DemoWatch
from services.serve.api.auth import Keys
from tests.services.serve.test_api import System


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
