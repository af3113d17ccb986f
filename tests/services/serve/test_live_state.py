"""The live state: newest forecast of each zone, followers that miss nothing."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from services.messages.alert_messages import MOST_RESOLVED
from services.serve.live_state import PAST_HOURS, LiveState
from tests.patience import patience_s
from tests.services.alert.told import change
from tests.services.serve.fakes import ORIGIN_MS, zone_forecast

STEP_MS = 300_000


def live_state(first_version: int = 1000) -> LiveState:
    """A live state at a fixed time."""
    return LiveState(first_version, lambda: ORIGIN_MS)


def test_a_follower_gets_only_what_changed() -> None:
    """After version N a follower hears of what came after N, and of nothing else."""

    async def run() -> None:
        shown = live_state()
        await shown.publish([zone_forecast("a"), zone_forecast("b")])
        seen = (await shown.wait(0, 0))["version"]
        await shown.publish([zone_forecast("b", origin_ms=ORIGIN_MS + STEP_MS)])
        changes = await shown.wait(seen, 0)
        assert [forecast["zone"] for forecast in changes["forecasts"]] == ["b"]
        assert "stats" not in changes
        assert await shown.wait(changes["version"], 0) == {
            "version": changes["version"], "identity": 1000, "live_state": 0
        }  # fmt: skip

    asyncio.run(run())


def test_the_same_table_of_models_again_is_no_news() -> None:
    """Retrainers show it every few seconds; another table, and one that went back to what it was, are news."""

    async def run() -> None:
        shown, seen = live_state(), 0
        one, two = {"version": "v1"}, {"version": "v2"}
        for told, models in ((True, [one]), (False, [dict(one)]), (True, [two, one]), (True, [one]), (True, [])):
            await shown.set_models(models)
            changes = await shown.wait(seen, 0)
            assert ("models" in changes) == told
            seen = changes["version"]

    asyncio.run(run())


def test_a_waiting_follower_hears_at_once() -> None:
    """``wait`` returns with the next change."""

    async def run() -> None:
        shown = live_state()
        waiting = asyncio.create_task(shown.wait(1000, patience_s(60)))
        await asyncio.sleep(0)
        await shown.put_stats("shard-0", {"late": 3})
        assert (await asyncio.wait_for(waiting, patience_s(10)))["stats"] == {"shard-0": {"late": 3}}

    asyncio.run(run())


def test_after_a_restart_a_follower_gets_everything() -> None:
    """A live state made later has higher versions, so a follower of the earlier one hears of all that it holds."""

    async def run() -> None:
        seen = (await live_state(1000).wait(0, 0))["version"]
        later = live_state(2000)
        await later.publish([zone_forecast("a")])
        assert len((await later.wait(seen, 0))["forecasts"]) == 1
        from_the_future = later.wait(9999, 0)
        assert len((await from_the_future)["forecasts"]) == 1

    asyncio.run(run())


def test_what_followers_know_is_given_back_where_nothing_is_known() -> None:
    """A restarted live state takes it, but not in the place of what a shard sends, nor of a zone that has left."""

    async def run() -> None:
        later = live_state(2000)
        await later.publish([zone_forecast("a", version="v2")])
        await later.put_stats("shard-0", {"left": [{"site": "demo", "zone": "c", "left_ms": ORIGIN_MS}]})
        await later.restore([zone_forecast(zone, version="v1") for zone in "abc"])
        known = {one["zone"]: one["model_version"] for one in (await later.wait(0, 0))["forecasts"]}
        assert known == {"a": "v2", "b": "v1"}
        assert await later.publish([zone_forecast("b")]) == [("demo", "b")]

    asyncio.run(run())


def test_an_older_forecast_does_not_replace_a_newer_one() -> None:
    """A forecast that comes late is not shown; one of the same origin is: it was computed anew after a swap."""

    async def run() -> None:
        shown = live_state()
        await shown.publish([zone_forecast(version="v1")])
        await shown.publish([zone_forecast(version="v0", origin_ms=ORIGIN_MS - STEP_MS)])
        assert (await shown.wait(0, 0))["forecasts"][0]["model_version"] == "v1"
        await shown.publish([zone_forecast(version="v2")])
        assert (await shown.wait(0, 0))["forecasts"][0]["model_version"] == "v2"

    asyncio.run(run())


def test_publish_asks_for_the_past_until_it_is_given() -> None:
    """``publish`` names the zones whose past the live state lacks, as it does after a restart."""

    async def run() -> None:
        shown = live_state()
        assert await shown.publish([zone_forecast("a"), zone_forecast("b")]) == [("demo", "a"), ("demo", "b")]
        await shown.put_past("demo", "a", [ORIGIN_MS - STEP_MS], {"air_temp_c": [18.0]})
        assert await shown.publish([zone_forecast("a"), zone_forecast("b")]) == [("demo", "b")]
        past = await shown.past("demo", "a")
        assert past["end_ms"] == [ORIGIN_MS - STEP_MS, ORIGIN_MS]
        assert past["values"]["air_temp_c"] == [18.0, 20.0]

    asyncio.run(run())


def test_the_past_has_what_was_read_in_each_row() -> None:
    """Not what ``now`` has from a row before: it stands there already, or is unknown."""

    async def run() -> None:
        shown = live_state()
        await shown.publish([zone_forecast(now={"air_temp_c": 18.0, "rh_pct": 80.0}, now_age_s={"rh_pct": 900})])
        assert (await shown.past("demo", "north-1"))["values"] == {"air_temp_c": [18.0], "rh_pct": [None]}

    asyncio.run(run())


@given(st.lists(st.integers(0, 1500), max_size=60))
def test_the_past_rises_and_stays_within_its_hours(steps: list[int]) -> None:
    """Whatever order steps come in, a zone's past rises strictly and never spans more than 48 h."""

    async def run() -> None:
        shown = live_state()
        for step in steps:
            await shown.publish([zone_forecast(origin_ms=ORIGIN_MS + step * STEP_MS)])
        times = (await shown.past("demo", "north-1"))["end_ms"]
        assert times == sorted(set(times))
        if times:
            assert times[-1] - times[0] <= PAST_HOURS * 3_600_000
            assert times[-1] == ORIGIN_MS + max(steps) * STEP_MS

    asyncio.run(run())


def test_a_target_that_appears_later_is_unknown_before() -> None:
    """The rows that were there stay as they were, also of a past that is given afterwards."""

    async def run() -> None:
        shown = live_state()
        one = zone_forecast("a")["forecasts"]
        await shown.publish([zone_forecast("a", forecasts={"air_temp_c": one["air_temp_c"]})])
        later = zone_forecast("a", origin_ms=ORIGIN_MS + STEP_MS, now={"air_temp_c": 21.0, "rh_pct": 80.0})
        await shown.publish([later])
        past = await shown.past("demo", "a")
        assert past["values"] == {"air_temp_c": [20.0, 21.0], "rh_pct": [None, 80.0]}
        await shown.put_past("demo", "a", [ORIGIN_MS - STEP_MS], {"air_temp_c": [19.0]})
        past = await shown.past("demo", "a")
        assert past["end_ms"] == [ORIGIN_MS - STEP_MS, ORIGIN_MS, ORIGIN_MS + STEP_MS]
        assert past["values"] == {"air_temp_c": [19.0, 20.0, 21.0], "rh_pct": [None, None, 80.0]}

    asyncio.run(run())


def test_events_are_stamped_and_bounded() -> None:
    """An event without a time gets the live state's; the newest 200 are kept."""

    async def run() -> None:
        shown = live_state()
        for number in range(205):
            await shown.put_event({"kind": "swap", "n": number})
        events = (await shown.wait(0, 0))["events"]
        assert [event["n"] for event in events] == list(range(5, 205))
        assert events[0]["time_ms"] == ORIGIN_MS

    asyncio.run(run())


def test_a_zone_that_left_is_taken_off_until_a_newer_forecast() -> None:
    """Also where its last forecast comes, or comes again, after the news; a zone that is back stays."""

    async def run() -> None:
        shown = live_state()
        left = {"left": [{"site": "demo", "zone": "a", "left_ms": ORIGIN_MS}]}
        await shown.publish([zone_forecast("a"), zone_forecast("b")])
        await shown.put_stats("shard-0", left)
        assert [forecast["zone"] for forecast in (await shown.wait(0, 0))["forecasts"]] == ["b"]
        assert (await shown.past("demo", "a"))["end_ms"] == []
        assert await shown.publish([zone_forecast("a")]) == []
        assert [forecast["zone"] for forecast in (await shown.wait(0, 0))["forecasts"]] == ["b"]
        assert await shown.publish([zone_forecast("a", origin_ms=ORIGIN_MS + STEP_MS)]) == [("demo", "a")]
        await shown.put_stats("shard-0", left)
        assert len((await shown.wait(0, 0))["forecasts"]) == 2
        assert (await shown.past("demo", "a"))["end_ms"] == [ORIGIN_MS + STEP_MS]

    asyncio.run(run())


def test_alerts_that_are_not_shown_any_more_are_forgotten() -> None:
    """Nothing is kept of them; who follows hears of those that are shown, and of each change."""

    async def run() -> None:
        shown = live_state()
        await shown.put_alerts([change("on", 1)])
        for n in range(2 * MOST_RESOLVED):
            await shown.put_alerts([change(f"over-{n}", 2, "resolved", changed_ms=n)])
        seen = await shown.wait(0, 0)
        assert len(seen["alerts"]) == MOST_RESOLVED + 1
        assert shown._alert_versions.keys() == {alert["id"] for alert in seen["alerts"]}
        await shown.put_alerts([change("on", 2)])
        assert [alert["id"] for alert in (await shown.wait(seen["version"], 0))["alerts"]] == ["on"]

    asyncio.run(run())
