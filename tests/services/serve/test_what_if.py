"""``POST /predict`` with changes: what is asked, what is answered, and a real shard behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from fastapi.testclient import TestClient

from edge.log import NewRecord
from edge.wire.topic import SITE_ZONE
from models.spec import Place
from services.ingest.shard import Shard
from services.messages import ChangeAsked, ZoneWhatIf
from services.serve.api.answer_types import WhatIfAnswer
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.schemas import ChangeIn
from services.serve.api.state import ApiState
from services.serve.api.what_if import changes_asked
from services.serve.live_state import LiveState
from tests.services.ingest.planned import heating
from tests.services.ingest.rig import Rig, filled
from tests.services.ingest.samples import STEP, T0, new_records, sample
from tests.services.serve.fakes import ORIGIN_MS, FakeBackend
from tests.services.serve.system import System, assert_problem

HOUR = 3_600_000
STEPS = 300
COLDER = {"metric": "sp_heat_c", "add": -1.5, "from": "22:00", "to": "04:00"}


@pytest.fixture
def system() -> Iterator[System]:
    """Two zones, reading open, in Amsterdam."""
    made = System(Keys("op-key"))
    made.state.place_of = lambda site: Place("Europe/Amsterdam")
    yield made
    made.client.close()


def posted(client: TestClient, *changes: Any, zone: str = "north-1") -> dict[str, Any]:
    """The answer to changes."""
    answer = client.post("/predict", json={"zone": zone, "changes": changes})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    msgspec.convert(body, WhatIfAnswer)
    return body


def test_a_zone_may_leave_while_its_question_is_worked_out(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The answer is of the forecast that was there when it was asked."""
    work_out = system.backend.what_if

    async def slow(site: str, zone: str, changes: list[ChangeAsked]) -> ZoneWhatIf:
        left: Any = {"left": [{"site": site, "zone": zone, "left_ms": ORIGIN_MS}]}
        system.state.view.take({"version": 2000, "stats": {"shard-0": left}})
        return await work_out(site, zone, changes)

    monkeypatch.setattr(system.backend, "what_if", slow)
    assert posted(system.client, COLDER)["degraded"] == []
    assert_problem(system.client.post("/predict", json={"zone": "north-1", "changes": [COLDER]}), 404, "has left")


def test_both_paths_and_their_difference_are_answered(system: System) -> None:
    """Base, changed and effect have the same times; before the change begins nothing differs."""
    body = posted(system.client, COLDER)
    base, changed, effect = (body[name]["targets"]["air_temp_c"] for name in ("base", "changed", "effect"))
    assert body["base"]["horizon_min"] == body["changed"]["horizon_min"] == body["effect"]["horizon_min"] == [30, 90]
    assert base["p50"] == [5, 5]
    assert effect == {"p10": [0, -1], "p50": [0, -0.5], "p90": [0, 0.25]}
    assert changed["p50"] == [5, 4.5]
    assert (body["support"], body["model_version"], body["origin_ms"]) == ("simulated", "v1", ORIGIN_MS)
    assert body["says"].startswith("Such changes were seen in simulated houses only")


def test_without_evidence_there_is_no_number(system: System) -> None:
    """The forecast is there; changed path and effect are null, and the answer says why."""
    body = posted(system.client, {"metric": "fog_pct", "set": 50})
    assert body["changed"] is body["effect"] is None
    assert body["base"]["targets"]["air_temp_c"]["p50"] == [5, 5]
    assert body["support"] == "none"
    assert "not enough evidence" in body["says"]
    assert body["reasons"] == ["no house was tried with fog_pct"]


def asked_of(system: System, **times: Any) -> tuple[float, float]:
    """Hours after the origin from and to which a change was understood to hold; the origin is one o'clock."""
    posted(system.client, {"metric": "sp_heat_c", "add": 1, **times})
    (change,) = system.backend.asked[-1]
    return (change["begin_ms"] - ORIGIN_MS) / HOUR, (change["end_ms"] - ORIGIN_MS) / HOUR


@pytest.mark.parametrize(
    ("times", "hours"),
    [
        ({}, (0, 24)),
        ({"from": "22:00", "to": "04:00"}, (21, 27)),
        ({"from": "04:00"}, (3, 24)),
        ({"from": "01:00"}, (0, 24)),  # which it is now
        ({"to": "02:30"}, (0, 1.5)),
        ({"from": "2022-03-01T12:00", "to": "2022-03-01T13:30"}, (11, 12.5)),
        ({"from": "2022-03-01T12:00Z", "to": "2022-03-01T14:30+01:00"}, (12, 13.5)),
        ({"from": ORIGIN_MS + HOUR, "to": ORIGIN_MS + 2 * HOUR}, (1, 2)),
        ({"from": ORIGIN_MS - HOUR, "to": ORIGIN_MS + HOUR}, (0, 1)),
    ],
)
def test_times_are_those_of_the_sites_clock(
    system: System, times: dict[str, Any], hours: tuple[float, float]
) -> None:  # fmt: skip
    """Clock times are the next ones; ISO times without an offset are local; what has begun counts from now."""
    assert asked_of(system, **times) == hours


def utc_ms(said: str) -> int:
    return round(datetime.fromisoformat(said).timestamp() * 1000)


@pytest.mark.parametrize(
    ("zone", "origin", "asked", "found"),
    [
        # Clocks are put back: the hour from one (Amsterdam: two) o'clock comes twice.
        ("America/New_York", "2026-11-01T05:00Z", "01:30", "2026-11-01T05:30Z"),
        ("America/New_York", "2026-11-01T05:45Z", "01:30", "2026-11-01T06:30Z"),
        ("America/New_York", "2026-11-01T06:45Z", "01:30", "2026-11-02T06:30Z"),
        ("Europe/Amsterdam", "2026-10-24T22:00Z", "02:30", "2026-10-25T00:30Z"),
        ("Europe/Amsterdam", "2026-10-25T00:45Z", "02:30", "2026-10-25T01:30Z"),
        ("Europe/Amsterdam", "2026-10-24T22:00Z", "2026-10-25T02:30", "2026-10-25T00:30Z"),
        ("Europe/Amsterdam", "2026-10-25T00:45Z", "2026-10-25T02:30", "2026-10-25T01:30Z"),
        # They are put forward: half past two would have been half past three.
        ("America/New_York", "2026-03-08T05:00Z", "2:30", "2026-03-08T07:30Z"),
        ("Europe/Amsterdam", "2026-03-28T22:00Z", "02:30", "2026-03-29T01:30Z"),
        ("Europe/Amsterdam", "2026-03-28T22:00Z", "2026-03-29T02:30", "2026-03-29T01:30Z"),
        # Neither.
        ("Europe/Amsterdam", "2026-03-29T02:00Z", "02:30", "2026-03-30T00:30Z"),
        ("Asia/Kolkata", "2026-03-01T00:00Z", "05:30", "2026-03-01T00:00Z"),
    ],
)
def test_clock_times_hold_where_clocks_change(zone: str, origin: str, asked: str, found: str) -> None:
    """The first moment from the origin on at which the clock shows it."""
    (change,) = changes_asked(
        [ChangeIn.model_validate({"metric": "sp_heat_c", "add": 1, "from": asked})], utc_ms(origin), Place(zone)
    )
    assert change["begin_ms"] == utc_ms(found)


@pytest.mark.parametrize("zone", ["Europe/Amsterdam", "America/New_York", "Australia/Lord_Howe", "America/St_Johns"])
@pytest.mark.parametrize("clock", ["civil", "standard"])
def test_a_clock_time_is_the_next_at_which_the_clock_shows_it(zone: str, clock: str) -> None:
    """Of a year each quarter of an hour is tried around the days on which clocks change, and all times of a day."""
    place, quarter = Place(zone, clock), 900_000
    for first in ("2026-03-08T00:00Z", "2026-03-29T00:00Z", "2026-04-05T00:00Z", "2026-10-04T00:00Z",
                  "2026-10-25T00:00Z", "2026-11-01T00:00Z"):  # fmt: skip
        begin = utc_ms(first) - 12 * HOUR
        shown = {ms: place.local_ms(ms) % (24 * HOUR) for ms in range(begin, begin + 72 * HOUR, quarter)}
        for origin in range(begin, begin + 36 * HOUR, 2 * HOUR + quarter):
            for minute in range(0, 24 * 60, 45):
                change = ChangeIn.model_validate(
                    {"metric": "sp_heat_c", "add": 1, "from": f"{minute // 60}:{minute % 60:02}"}
                )
                next_ms = next(ms for ms in shown if ms >= origin and shown[ms] == minute * 60_000)
                if next_ms >= origin + 24 * HOUR:
                    continue  # the clock leaves it out, or it is more than a day ahead
                (found,) = changes_asked([change], origin, place)
                assert found["begin_ms"] == next_ms, (first, origin, minute)


def test_the_older_form_sets_values_for_a_day(system: System) -> None:
    """``{metric: value}`` was the newest row's; it is understood as this value from now on."""
    answer = system.client.post("/predict", json={"zone": "north-1", "changes": {"sp_heat_c": 18, "sp_vent_c": 20.5}})
    assert answer.status_code == 200, answer.text
    day = {"begin_ms": ORIGIN_MS, "end_ms": ORIGIN_MS + 24 * HOUR}
    assert system.backend.asked[-1] == [
        {"metric": "sp_heat_c", "how": "set", "value": 18.0, **day},
        {"metric": "sp_vent_c", "how": "set", "value": 20.5, **day},
    ]


def test_a_forecast_that_is_too_old_answers_no_what_if(system: System) -> None:
    """As ``GET`` refuses it."""
    system.state.view._streams.row("demo", ORIGIN_MS + 3 * HOUR, is_new=True)
    answer = system.client.post("/predict", json={"zone": "north-1", "changes": [COLDER]})
    assert_problem(answer, 503, "too old to be used")


class ShardBackend(FakeBackend):
    """Asks a shard in this process."""

    def __init__(self, live_state: LiveState, shard: Shard) -> None:
        super().__init__(live_state)
        self.shard = shard

    async def what_if(self, site: str, zone: str, changes: list[ChangeAsked]) -> ZoneWhatIf:
        found = self.shard.questions.what_if(site, zone, changes)
        assert found is not None
        return found


def heated(steps: int = STEPS) -> Iterator[NewRecord]:
    """A heated zone in winter: its air follows its heating setpoint by night, the sun lifts it by day; and a plan."""
    for n in range(steps):
        at, hour = T0 + n * STEP, n * STEP / HOUR % 24
        sun = max(np.sin((hour - 6) / 12 * np.pi), 0.0)
        level = 18.0 if 6 <= hour < 18 else 15.0
        air = max(level + 0.1, 16 + 8 * sun)
        inside = {
            "air_temp_c": air, "rh_pct": 82 - 10 * sun, "co2_ppm": 600.0, "sp_heat_c": level, "sp_vent_c": level + 3,
            "vent_lee_pct": 20 * sun, "heat_pipe_low_c": 45 - 15 * sun, "sp_rh_pct": 88.0,
        }  # fmt: skip
        outside = {
            "out_temp_c": 3 + 4 * sun, "out_rh_pct": 85.0, "out_radiation_w_m2": 300 * sun, "wind_m_s": 3.0,
        }  # fmt: skip
        batch = [sample(at, n, "z1", **inside), sample(at, n, SITE_ZONE, "ws", **outside)]
        yield from new_records([batch])
        if n == 200:
            yield heating(at, level=16.0)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Rig, Shard]]:
    """A shard that has read a day of a heated zone, and the API over what it published."""
    rig = Rig(tmp_path_factory.mktemp("shard"), filled(list(heated())))
    shard = rig.shard()
    rig.drain(shard)
    live_state = LiveState(1000, lambda: T0)
    state = ApiState(
        ShardBackend(live_state, shard), Keys("op-key"), shard.spec, 1800,
        place_of=lambda site: Place("Europe/Amsterdam", latitude=52.0, longitude=4.5),
    )  # fmt: skip

    async def fill() -> None:
        await live_state.publish(rig.live_state.published[-1:])
        await live_state.put_stats("shard-0", shard.stats())
        await state._take(await live_state.wait(0, 0))

    asyncio.run(fill())
    with TestClient(create_app(state)) as client:
        yield client, rig, shard
    shard.close()


def test_a_colder_night_is_foreseen_from_end_to_end(real: tuple[TestClient, Rig, Shard]) -> None:
    """A lower heating setpoint makes a heated zone colder in a winter night, while it lasts, and nothing before."""
    client, rig, _ = real
    body = posted(client, COLDER, zone="z1")
    assert body["support"] == "simulated"
    newest = rig.live_state.published[-1]
    assert body["base"]["horizon_min"] == newest["path"]["horizon_min"]
    assert body["base"]["targets"]["air_temp_c"] == newest["path"]["targets"]["air_temp_c"]
    (change,) = body["changes"]
    minutes, air = np.array(body["effect"]["horizon_min"]), body["effect"]["targets"]["air_temp_c"]
    at = body["origin_ms"] + minutes * 60_000
    before, late = at <= change["from_ms"], (at > change["from_ms"] + 2 * HOUR) & (at <= change["to_ms"])
    assert before.any()
    assert late.any()
    effect = {name: np.array(values) for name, values in air.items()}
    assert all((values[before] == 0).all() for values in effect.values())
    assert (effect["p50"][late] < -0.4).all()
    assert (effect["p10"][late] < effect["p50"][late]).all()
    assert (effect["p50"][late] < effect["p90"][late]).all()
    changed = np.array(body["changed"]["targets"]["air_temp_c"]["p50"])
    base = np.array(body["base"]["targets"]["air_temp_c"]["p50"])
    np.testing.assert_allclose(changed - base, effect["p50"], atol=2e-4)


def test_what_was_never_tried_has_no_number(real: tuple[TestClient, Rig, Shard]) -> None:
    """A foreign metric, a huge change, a setpoint that nobody says: each has its own reason."""
    client, _, _ = real
    reasons = {
        "no house was tried with heat_pipe_low_c": {"metric": "heat_pipe_low_c", "set": 60},
        "sp_heat_c would move by 15": {"metric": "sp_heat_c", "add": 15},
        "nobody says what sp_lamp_pct is": {"metric": "sp_lamp_pct", "set": 100},
        "houses were tried with vent_lee_pct only as: at_least": {"metric": "vent_lee_pct", "at_most": 5},
    }
    for words, change in reasons.items():
        body = posted(client, change, zone="z1")
        assert (body["support"], body["effect"], body["changed"]) == ("none", None, None)
        assert "not enough evidence" in body["says"]
        assert words in body["reasons"][0]


@pytest.mark.thorough
def test_the_same_question_has_the_same_answer_after_a_crash(
    real: tuple[TestClient, Rig, Shard], tmp_path: Path
) -> None:
    """A shard that reads the same log again answers byte for byte the same."""
    _, _, shard = real
    rig = Rig(tmp_path, filled(list(heated())))
    other = rig.shard()
    for n in range(400):
        other.step()
        if n == 2:
            other.flush()
    other = rig.shard()  # the one before was never closed
    rig.drain(other)
    asked = ChangeAsked(metric="sp_heat_c", how="add", value=-1.5, begin_ms=T0 + 30 * HOUR, end_ms=T0 + 36 * HOUR)
    said = [one.questions.what_if("demo", "z1", [asked]) for one in (shard, other)]
    assert said[0] is not None
    assert said[1] is not None
    as_bytes = [
        json.dumps({k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in one.items()}) for one in said
    ]  # fmt: skip
    assert as_bytes[0] == as_bytes[1]
    other.close()
