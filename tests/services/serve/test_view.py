"""The view: which zone is meant, and when a forecast is too old."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from services.serve.api.problems import ProblemError
from services.serve.live_state import LiveStateChanges
from services.serve.view import View
from tests.services.serve.fakes import ORIGIN_MS, zone_forecast

KEY = ("demo", "north-1")


class Clock:
    """Monotonic seconds that move when told."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def view_of(*forecasts: Any, wall_ms: Callable[[Clock], int] | None = None) -> tuple[View, Clock]:
    """A view that knows these forecasts."""
    clock = Clock()
    view = View(1800, 660, clock, None if wall_ms is None else lambda: wall_ms(clock))
    view.take(LiveStateChanges(version=1, forecasts=list(forecasts)))
    return view, clock


def stats(site_ms: int) -> LiveStateChanges:
    """A shard's figures that say how far the stream has got."""
    return LiveStateChanges(version=2, stats={"shard-0": {"stream_ms": {"demo": site_ms}}})


def test_a_part_that_has_died_is_seen_by_the_age_of_its_figures() -> None:
    """The live state keeps the last figures: their age rises until they are told again."""
    view, clock = view_of()
    view.take(stats(ORIGIN_MS))
    clock.now_s += 40
    view.take(LiveStateChanges(version=3, stats={"gateway": {"connected": True}}))
    clock.now_s += 2
    assert view.component_age_s() == {"shard-0": 42, "gateway": 2}
    view.take(stats(ORIGIN_MS))
    assert view.component_age_s()["shard-0"] == 0


def test_a_zone_is_absent_once_all_shards_have_said_which_there_are() -> None:
    """After a restart of everything the live state knows nothing, shards report one after another, and each has its
    zones before their forecasts: a client that asks then is told to come again, and not that there is no such zone.
    """

    def refused(view: View, zone: str) -> tuple[int, str]:
        with pytest.raises(ProblemError) as caught:
            view.find(zone)
        return caught.value.status, caught.value.detail

    view = View(1800, 660, Clock(), live_states=1, shards=2)
    assert refused(view, "north-1") == (503, "the live state does not answer now; try again in a few seconds")
    view.take(LiveStateChanges(version=1))
    assert refused(view, "north-1") == (503, "the shards have not reported yet")
    figures: Any = {"shard-1": {"zones": ["other/south-1"]}}
    view.take(LiveStateChanges(version=2, stats=figures))
    assert refused(view, "north-1") == (503, "the shards have not reported yet")
    figures = {"shard-0": {"zones": ["demo/north-1"]}}
    view.take(LiveStateChanges(version=3, stats=figures))
    waits = (503, "the zone north-1 has no forecast yet; try again in a few seconds")
    assert refused(view, "north-1") == waits
    assert refused(view, "demo/north-1")[0] == refused(view.of_sites(frozenset({"demo"})), "north-1")[0] == 503
    assert refused(view, "north")[0] == refused(view.of_sites(frozenset({"other"})), "north-1")[0] == 404
    view.take(LiveStateChanges(version=4, forecasts=[zone_forecast()]))
    assert view.find("north-1") == ("demo", "north-1")


def test_what_one_live_state_says_leaves_what_others_said() -> None:
    """Each has versions, zones, figures and alerts of its own; models and events are the first's."""
    view, _ = view_of(zone_forecast())
    model, event = {"version": "v1"}, {"kind": "swap", "version": "v1"}
    view.take(LiveStateChanges(version=7, live_state=0, models=[model], events=[event]))  # type: ignore[list-item]
    second = LiveStateChanges(version=3, live_state=1, forecasts=[zone_forecast("south-1", "other")])
    view.take({**second, "stats": {"shard-1": {"stream_ms": {"other": ORIGIN_MS}}}})  # type: ignore[typeddict-item]
    view.take(stats(ORIGIN_MS) | {"version": 8})
    assert dict(view.versions) == {0: 8, 1: 3}
    assert set(view.answers) == {KEY, ("other", "south-1")}
    assert set(view.stats) == {"shard-0", "shard-1"}
    assert (view.models, view.events) == ([model], [event])


def test_the_body_is_the_forecast_as_json() -> None:
    """A fresh forecast is answered exactly as the live state has it."""
    view, _ = view_of(zone_forecast())
    assert json.loads(view.body(KEY)) == json.loads(json.dumps(zone_forecast()))


@pytest.mark.parametrize(
    "asked", [("north-1", None), ("demo/north-1", None), ("north-1", "demo"), ("demo/north-1", "demo")]
)
def test_a_zone_is_found_by_name_or_path(asked: tuple[str, str | None]) -> None:
    """``zone``, ``site/zone`` and both parameters mean the same zone."""
    view, _ = view_of(zone_forecast())
    assert view.find(*asked) == KEY


def test_an_unknown_zone_names_those_there_are() -> None:
    """404, with the known zones in the sentence."""
    view, _ = view_of(zone_forecast())
    with pytest.raises(ProblemError) as caught:
        view.find("attic")
    assert caught.value.status == 404
    assert "demo/north-1" in caught.value.detail


def test_an_ambiguous_zone_names_the_choices() -> None:
    """422 when two sites have such a zone and none is named."""
    view, _ = view_of(zone_forecast(), zone_forecast(site="other"))
    with pytest.raises(ProblemError) as caught:
        view.find("north-1")
    assert caught.value.status == 422
    assert "demo/north-1, other/north-1" in caught.value.detail
    assert view.find("north-1", "other") == ("other", "north-1")


def test_a_forecast_that_the_stream_has_left_behind_is_refused() -> None:
    """503 with the reason once the stream is further than the limit beyond the newest reading."""
    view, _ = view_of(zone_forecast())
    view.take(stats(ORIGIN_MS + 1_700_000))
    assert view.body(KEY)
    view.take(stats(ORIGIN_MS + 1_795_000))
    with pytest.raises(ProblemError) as caught:
        view.body(KEY)
    assert caught.value.status == 503
    assert "30 min old" in caught.value.detail


def test_while_earlier_readings_are_read_an_old_forecast_says_so() -> None:
    """As after an import: how old its reading is says nothing then. A silent sensor is told as ever."""
    view, _ = view_of(zone_forecast())
    for behind, backlog, why in ((True, 90, "earlier readings are still being read"), (False, 90, "1 h old")):
        figures = {"stream_ms": {"demo": ORIGIN_MS + 3_590_000}, "behind": behind, "backlog": backlog}
        view.take(LiveStateChanges(version=2, stats={"shard-0": figures}))
        with pytest.raises(ProblemError, match=f"{why}$"):
            view.body(KEY)
    silent, _ = view_of(zone_forecast(freshness_s={"air_temp_c": 4000.0, "rh_pct": None}))
    figures = {"stream_ms": {"demo": ORIGIN_MS}, "behind": True, "backlog": 90}
    silent.take(LiveStateChanges(version=2, stats={"shard-0": figures}))
    with pytest.raises(ProblemError, match=r"1\.1 h old$"):
        silent.body(KEY)


def test_a_stream_that_is_refused_for_its_silence_is_said_to_be_silent() -> None:
    """Also where a forecast may be less old than two steps and a minute: it was an internal error."""
    clock = Clock()
    view = View(330, 660, clock)
    view.take(LiveStateChanges(version=1, forecasts=[zone_forecast()]))
    clock.now_s += 360
    with pytest.raises(ProblemError, match=r"nothing has come from this site for 6 min$"):
        view.body(KEY)


def test_silent_sensors_make_a_forecast_too_old() -> None:
    """503 when forecasts still come but no target was read for longer than the limit."""
    silent = zone_forecast(freshness_s={"air_temp_c": 4000.0, "rh_pct": None})
    view, _ = view_of(silent)
    with pytest.raises(ProblemError, match="too old"):
        view.body(KEY)
    view, _ = view_of(zone_forecast(freshness_s={"air_temp_c": 4000.0, "rh_pct": 5.0}))
    assert view.body(KEY)


def test_a_zone_that_reports_seldom_is_given_its_time() -> None:
    """Its newest reading may be two and a half of its usual gaps old; its forecast no older than any other's."""
    every_s, limit_s = 3600, 9000.0
    for age_s, is_stale in ((4000.0, False), (limit_s, False), (limit_s + 1, True)):
        view, _ = view_of(zone_forecast(freshness_s={"air_temp_c": age_s}, reports_every_s=every_s))
        assert view.is_stale(KEY) == is_stale
        assert (view.degraded(KEY) == []) == (not is_stale)
        assert view.goes_on(KEY) == (not is_stale)
    view, _ = view_of(zone_forecast(freshness_s={"air_temp_c": 1000.0}, reports_every_s=every_s))
    view.take(stats(ORIGIN_MS + 1_790_000))
    assert view.body(KEY)
    view.take(stats(ORIGIN_MS + 1_801_000))
    with pytest.raises(ProblemError, match="too old"):
        view.body(KEY)


def test_a_stream_that_stands_still_degrades_and_then_refuses() -> None:
    """Without news of the site the answer first says so, and beyond the limit is 503; news heals it."""
    view, clock = view_of(zone_forecast())
    clock.now_s += 700
    assert "nothing has come from this site for 12 min" in json.loads(view.body(KEY))["degraded"][-1]
    view.take(stats(ORIGIN_MS))  # the same point of the stream again is no news
    assert view.degraded(KEY)
    clock.now_s += 1200
    with pytest.raises(ProblemError):
        view.body(KEY)
    view.take(stats(ORIGIN_MS + 1000))
    assert not view.degraded(KEY)


@pytest.mark.parametrize("ahead_ms", [3_600_000, 80 * 365 * 86_400_000])
def test_a_clock_that_was_ahead_makes_no_forecast_old(ahead_ms: int) -> None:
    """The stream stands where the clock was, for an hour or for ever: rows go on, and silence is seen as ever."""
    view, clock = view_of(zone_forecast(), wall_ms=lambda clock: ORIGIN_MS + round((clock.now_s - 100) * 1000))
    for step in range(1, 13):
        clock.now_s += 300
        view.take(stats(ORIGIN_MS + ahead_ms))
        view.take(LiveStateChanges(version=3, forecasts=[zone_forecast(origin_ms=ORIGIN_MS + step * 300_000)]))
        assert not view.degraded(KEY)
        assert view.stream_ms("demo") == ORIGIN_MS + step * 300_000
    for silent_s in (700, 1200):
        clock.now_s += silent_s
        view.take(stats(ORIGIN_MS + ahead_ms))
        assert "nothing has come from this site" in view.degraded(KEY)[-1]
    assert view.is_stale(KEY)
    assert not view.goes_on(KEY)


def test_a_wall_clock_that_is_behind_hides_no_silence() -> None:
    """Before its time is set, as that of a computer without a battery: the stream is seen to stand still."""
    view, clock = view_of(zone_forecast(), wall_ms=lambda clock: 0)
    view.take(stats(ORIGIN_MS + 1000))
    assert view.body(KEY)
    clock.now_s += 1900
    view.take(stats(ORIGIN_MS + 1000))
    assert view.is_stale(KEY)
