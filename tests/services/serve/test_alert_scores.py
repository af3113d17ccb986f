"""``/alerts/scores``: how good a zone's alerts were."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.features.inputs import local_ms
from models.spec import Place
from services.messages import ShownAlert
from services.serve.api.answers.alert_score_answers import SETPOINTS, alert_scores
from services.serve.api.auth import Keys
from services.store.history import History
from services.store.rows import SiteStep
from tests.services.serve.fakes import HOUR_MS, ORIGIN_MS, alert
from tests.services.serve.system import System, assert_problem

STEP_MS = 300_000
DAYS = 16
WARMER_MS = ORIGIN_MS - 30 * HOUR_MS
"""From then on the heating setpoint is 3 °C higher than it was."""

TO_SUMMER_MS = 1_648_342_800_000
"""2022-03-27 01:00 UTC: clocks of Europe go from 2 to 3."""


def changes(id: str, fired_ms: int, *, came_ms: int | None = None, over: bool = True, **more: Any) -> list[ShownAlert]:
    """An alert that fires with a chance of .72 and is over three hours later, or when its event came."""
    told = {
        "began_ms": fired_ms,
        "fired_ms": fired_ms,
        "from_ms": fired_ms + HOUR_MS,
        "until_ms": fired_ms + 3 * HOUR_MS,
    }
    first = alert(id, "firing", **{**told, "change": 1, "changed_ms": fired_ms, "seen_ms": fired_ms, **more})
    if not over:
        return [first]
    end_ms = fired_ms + 4 * HOUR_MS
    last = {"change": 2, "changed_ms": end_ms, "seen_ms": end_ms, "chance": 0.02, "came_ms": came_ms}
    if came_ms is not None:
        last |= {"from_ms": came_ms, "until_ms": end_ms}
    return [first, alert(id, "resolved", **{**told, **last, "came_true": came_ms is not None, **more})]


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """Two zones with sixteen days of rows of a heating setpoint."""
    made = System(Keys("op-key"))
    made.backend.history = history = History(tmp_path, ("air_temp_c", "sp_heat_c"))
    ends = range(ORIGIN_MS - DAYS * 24 * HOUR_MS + STEP_MS, ORIGIN_MS + 1, STEP_MS)
    rows = ((end, np.array([[18, 19.0 if end > WARMER_MS else 16.0]] * 2, np.float32)) for end in ends)
    history.add(SiteStep(0, "demo", end, ("north-1", "north-2"), row, row * 0, []) for end, row in rows)
    history.flush()
    yield made
    made.client.close()


def told(system: System, *alerts: list[ShownAlert], query: str = "zone=north-1") -> dict[str, Any]:
    """The answer once these are kept."""
    system.backend.alert_log = {one[0]["id"]: one for one in alerts}
    answer = system.client.get(f"/alerts/scores?{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_what_became_of_each_alert(system: System) -> None:
    """One came, two hours after it fired; one did not; of one the setpoint was raised meanwhile; one is not over; one
    ended with its rule. Newest first, with the chance of when they fired.
    """
    days = [ORIGIN_MS - n * 24 * HOUR_MS for n in range(12)]
    found = told(
        system, changes("came", days[5], came_ms=days[5] + 2 * HOUR_MS), changes("false", days[4]),
        changes("helped", WARMER_MS - HOUR_MS), changes("open", days[0] - HOUR_MS, over=False),
        changes("cut", days[7], text="its rule was changed"),
    )  # fmt: skip
    outcomes = {one["id"]: one["outcome"] for one in found["alerts"]}
    assert outcomes == {"open": "open", "helped": "set_aside", "false": "false", "came": "came", "cut": "ended"}
    assert list(outcomes) == ["open", "helped", "false", "came", "cut"]
    came = found["alerts"][3]
    assert (came["chance"], came["lead_h"], came["event_ms"]) == (0.72, 2.0, days[5] + 2 * HOUR_MS)
    assert (came["over_ms"], found["alerts"][0]["over_ms"]) == (days[5] + 4 * HOUR_MS, None)
    [score] = found["rules"]
    assert {name: score[name] for name in ("rule", "alerts", "events", "told", "false", "set_aside", "lead_h")} == {
        "rule": "frost", "alerts": 4, "events": 1, "told": 1, "false": 1, "set_aside": 1, "lead_h": 2.0,
    }  # fmt: skip


def test_few_events_and_little_time_are_not_enough(system: System) -> None:
    """Then the share is null, and the answer says what is missing; with enough of both there are numbers."""
    few = told(system, changes("a", ORIGIN_MS - 48 * HOUR_MS))
    [score] = few["rules"]
    assert (score["hit_rate"], score["false_a_week"]) == (None, None)
    assert score["not_enough"] == ["0 of 5 events", "2.0 of 7 days"]
    fired = [ORIGIN_MS - (14 - 2 * n) * 24 * HOUR_MS for n in range(6)]
    many = [changes(f"a{n}", at, came_ms=at + (2 * HOUR_MS if n < 4 else 60_000)) for n, at in enumerate(fired[:5])]
    found = told(system, *many, changes("f", fired[5]))
    [score] = found["rules"]
    assert (score["events"], score["told"], score["hit_rate"]) == (5, 4, 0.8)
    assert found["weeks"] == pytest.approx(2.0, abs=0.01)
    assert score["false_a_week"] == pytest.approx(0.5, abs=0.01)
    assert score["not_enough"] == []


def test_what_is_left_out(system: System) -> None:
    """Alerts of a state, of other zones, of before the span, and those that nobody was told of because they were muted
    throughout; one that was muted after it fired counts.
    """
    at = ORIGIN_MS - 72 * HOUR_MS
    quiet = [
        alert("quiet", state, fired_ms=at, change=n, changed_ms=at) for n, state in ((1, "muted"), (2, "resolved"))
    ]
    found = told(
        system, changes("sensor", at, kind="sensor_fault", rule="sensor_fault"), changes("other", at, zone="north-2"),
        changes("old", ORIGIN_MS - 8 * 24 * HOUR_MS), quiet, query="zone=demo/north-1&days=7",
    )  # fmt: skip
    assert (found["alerts"], found["rules"]) == ([], [])
    heard = changes("heard", at)
    heard.insert(1, alert("heard", "muted", fired_ms=at, change=1, changed_ms=at + 1, seen_ms=at + 1))
    assert [one["id"] for one in told(system, heard)["alerts"]] == ["heard"]


def test_what_came_meanwhile_is_known_before_the_alert_is_over(system: System) -> None:
    """The journal has changes of state only; that an open alert came true is in what is shown now."""
    fired_ms = ORIGIN_MS - 5 * HOUR_MS
    [first] = changes("a", fired_ms, over=False)
    now = {**first, "came_ms": ORIGIN_MS - HOUR_MS, "seen_ms": ORIGIN_MS, "from_ms": ORIGIN_MS - 2 * HOUR_MS}
    asyncio.run(system.live_state.put_alerts([now]))  # type: ignore[list-item]
    system.state.view.take(asyncio.run(system.live_state.wait(system.state.view.versions[0], 0)))
    [shown] = told(system, [first])["alerts"]
    assert (shown["outcome"], shown["lead_h"], shown["over_ms"]) == ("came", 3.0, None)


def test_wrong_questions_are_told(system: System) -> None:
    """No zone, an unknown one, too many days; and what cannot be read is a 503."""
    assert_problem(system.client.get("/alerts/scores"), 422, "zone")
    assert_problem(system.client.get("/alerts/scores?zone=attic"), 404, "attic")
    assert_problem(system.client.get("/alerts/scores?zone=north-1&days=91"), 422, "days")
    system.backend.history = None
    assert_problem(system.client.get("/alerts/scores?zone=north-1"), 503, "the history cannot be read")


def test_a_program_that_goes_by_the_clock_is_no_action() -> None:
    """The morning after the clock was put forward its setpoint rises an hour earlier than the day before, in UTC."""
    ends = np.arange(TO_SUMMER_MS - 4 * 24 * HOUR_MS, TO_SUMMER_MS + 2 * 24 * HOUR_MS, STEP_MS)
    amsterdam = Place("Europe/Amsterdam")
    hour = local_ms(amsterdam, ends) // HOUR_MS % 24
    heat = np.where((hour >= 6) & (hour < 20), 19, 16).astype(np.float32)
    rows: Any = {"end_ms": ends, "mean": dict.fromkeys(SETPOINTS, heat)}
    fired_ms = TO_SUMMER_MS + 2 * HOUR_MS  # at 5 in the morning
    one = changes("a", fired_ms, kind="mean_low")
    first_ms, until_ms = int(ends[0]), int(ends[-1])
    found = alert_scores(("demo", "north-1"), one, None, rows, first_ms + 24 * HOUR_MS, until_ms, STEP_MS, amsterdam)
    assert [alert["outcome"] for alert in found["alerts"]] == ["false"]
