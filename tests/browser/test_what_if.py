"""The view of what-ifs as people use it: a slider that is drawn, the plan in force, a page that is left open."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from models.spec import Place
from services.messages import ZoneForecast, ZonePlan
from tests.browser import serving
from tests.browser.driver import Page
from tests.browser.held import hold
from tests.browser.serving import HOUR_MS, STEP_MS, House, climate, opened
from tests.patience import until
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
ANSWERED = "document.querySelector('#effect')"


def test_the_slider_follows_the_mouse(page: Page, tmp_path: Path) -> None:
    """It is drawn in one go from the middle to near its end; beside it stands its value, and that is asked."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(ANSWERED)
        page.drag("#amount", page.ask("document.querySelector('#amount').clientWidth") * 0.4, 0)
        value = float(page.ask("document.querySelector('#amount').value"))
        assert value > 4
        assert page.ask("document.querySelector('output').textContent").startswith(f"+{value}")
        assert page.ask("document.querySelector('#amount').getAttribute('aria-valuetext')").startswith(f"+{value}")
        until(lambda: house.backend.asked[-1][0]["value"] == value, "its value is asked")
    assert page.complaints == []


def test_a_time_is_typed_in_one_go(page: Page, tmp_path: Path) -> None:
    """By the digits of a list of quarter hours: a field of the browser's own has AM and PM where its maker is used to
    them, beside a page of 24 hours. The time that holds is in the list, also between quarters.
    """
    house = House(tmp_path, origin_ms=ORIGIN_MS + 2 * STEP_MS)
    house.fill()
    offered = "document.querySelector('#from').options.length"
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(ANSWERED)
        assert page.ask(f"[document.querySelector('#from').value, {offered}]") == ["01:10", 97]
        page.ask("document.querySelector('#from').focus()")
        for key in "05:45":
            page.press(key)
        page.until("document.querySelector('#from').value === '05:45'")
        page.until(f"{VIEW}.includes('Tue 1 Mar, 05:45 to')")
        assert page.ask(offered) == 96
        assert page.complaints == []


def test_a_change_may_begin_now(page: Page, tmp_path: Path) -> None:
    """The time of the newest row is now, not a day later, where the change would have no length."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(ANSWERED)
        for clock in ("05:00", "01:00"):
            page.ask(f"""{{ const from = document.getElementById('from'); from.value = '{clock}';
                from.dispatchEvent(new Event('change')); }}""")
        page.until(f"{VIEW}.includes('Tue 1 Mar, 01:00 to Tue 1 Mar')")
        until(lambda: house.backend.asked[-1][0]["begin_ms"] == ORIGIN_MS, "the change is asked from now on")


def setpoints(house: House, zone: str, *values: tuple[int, float]) -> None:
    """A grower's plan of the heating setpoint: hours from now, and degrees."""
    said = [[house.origin_ms + hours * HOUR_MS, level] for hours, level in values]
    house.backend.plans["demo", zone] = [ZonePlan(
        source="grower", kind="setpoint", zone=zone, issued_ms=house.origin_ms - 6 * HOUR_MS,
        known_ms=house.origin_ms - 6 * HOUR_MS, values={"sp_heat_c": said},
    )]  # fmt: skip


def test_the_plan_of_now_is_the_setpoint_in_force(page: Page, tmp_path: Path) -> None:
    """A setpoint holds until the next one, for a day at most; before a plan begins, what was set a day before does."""
    house = House(tmp_path)
    house.fill()
    setpoints(house, "north-1", (-6, 19.5), (8, 17.0), (18, 19.5))
    setpoints(house, "north-2", (8, 17.0), (18, 19.5))
    with opened(house) as address:
        for zone, level in (("north-1", "19.5"), ("north-2", "16.0")):
            page.open(f"{address}/#/whatif/demo/{zone}")
            page.until(f"document.querySelector('#zone-choice').value === 'demo/{zone}' && {ANSWERED}")
            page.ask("document.querySelector('.plot').focus()")
            page.press("ArrowRight")
            page.until("document.querySelector('.plot').parentElement.querySelector('.sr').textContent !== ''")
            said = page.ask("document.querySelector('.plot').parentElement.querySelector('.sr').textContent")
            assert f"as planned {level} °C" in said
        assert page.complaints == []


def knowing(house: House, *metrics: str, origin_ms: int | None = None) -> ZoneForecast:
    """The forecast of a zone of which these metrics are read, and no other."""
    said = house.forecast("north-1", origin_ms)
    return {**said, "now": {metric: said["now"][metric] for metric in metrics}}


OFFERED = "[...document.querySelectorAll('#metric option')].map((one) => one.value).join()"
READY = "[...document.querySelectorAll('[role=group]:has(> [data-key=cold]) > button')].map((one) => one.dataset.key)"


def test_what_is_asked_is_what_is_shown_where_no_heating_setpoint_is_known(page: Page, tmp_path: Path) -> None:
    """Only what is read or planned is offered; its name stands in the field and over the plan, and it is asked."""
    house = House(tmp_path)
    house.fill()
    house.do(house.live_state.publish([knowing(house, "air_temp_c", "rh_pct", "vent_lee_pct")]))
    hours = [[house.origin_ms + hour * HOUR_MS, 8.0 - hour / 4] for hour in range(24)]
    house.backend.plans["demo", "north-1"] = [ZonePlan(
        source="weather", kind="weather", zone="_site", issued_ms=house.origin_ms, known_ms=house.origin_ms,
        values={"out_temp_c": hours},
    )]  # fmt: skip
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(ANSWERED)
        assert page.ask(OFFERED) == "vent_lee_pct,out_temp_c"
        assert page.ask(READY) == ["vents", "cold"]
        assert page.ask("document.querySelector('#metric').value") == "vent_lee_pct"
        assert page.ask("document.querySelector('#plan-title').textContent") == "Leeward vents, %"
        assert page.ask("document.querySelector('output').textContent").startswith("20")
        assert page.ask("uPlot.sync('what if demo/north-1').plots[0].scales.y.min") == 0, "no vent is less than shut"
        assert {asked[0]["metric"] for asked in house.backend.asked} == {"vent_lee_pct"}
        page.ask("document.querySelector('[data-key=cold]').focus()")
        page.press("Enter")
        page.until("document.querySelector('#plan-title').textContent === 'Outside temperature, °C'")
        assert page.ask("document.querySelector('#metric').value") == "out_temp_c"
        assert page.ask("document.activeElement.dataset.key") == "cold"
        until(lambda: house.backend.asked[-1][0]["metric"] == "out_temp_c", "the weather is asked about")
    assert page.complaints == []


def test_a_zone_with_two_sensors_says_that_nothing_can_be_asked_yet(page: Page, tmp_path: Path) -> None:
    """No plan is drawn at 0 and nothing is asked, until a setpoint is known; and again when it is not any more."""
    house = House(tmp_path)
    house.fill()
    sensors = ("air_temp_c", "rh_pct")
    house.do(house.live_state.publish([knowing(house, *sensors)]))
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(f"{VIEW}.includes('Nothing can be asked here yet')")
        assert not page.ask("document.querySelector('#view .plot, #view #metric')")
        assert page.barriers() == []
        assert house.backend.asked == []
        for hours, *setpoint in ((1, "sp_heat_c"), (26,), (51, "sp_heat_c")):
            page.until("document.getElementById('state').textContent === 'live'")
            later_ms = house.origin_ms + hours * HOUR_MS
            house.do(house.live_state.publish([knowing(house, *sensors, *setpoint, origin_ms=later_ms)]))
            page.until(f"{OFFERED} === 'sp_heat_c' && {ANSWERED}" if setpoint else "document.querySelector('#nothing')")
    assert page.complaints == []


def test_a_view_that_is_left_open_goes_on_to_the_night_to_come(page: Page, tmp_path: Path) -> None:
    """A day later the change of before is over: the next night is asked about, from the newest row. What people hold
    stays the same element.
    """
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(f"{ANSWERED} && {VIEW}.includes('Tue 1 Mar, 01:00 to')")
        page.ask("window.held = document.querySelector('#amount')")
        later_ms = house.origin_ms + 25 * HOUR_MS
        house.do(house.live_state.publish([house.forecast(zone, later_ms) for zone in house.zones]))
        page.until(f"{VIEW}.includes('Wed 2 Mar, 02:00 to')")
        until(lambda: house.backend.asked[-1][0]["begin_ms"] == later_ms, "the night to come is asked about")
        page.until(ANSWERED)
        assert page.ask("window.held === document.querySelector('#amount')")
        assert page.complaints == []


def test_a_zone_that_falls_silent_has_no_answer_until_it_is_read_again(page: Page, tmp_path: Path) -> None:
    """While the view is open: why stands in place of the answer, and no path of before is shown; both come back."""
    house = House(tmp_path)
    house.fill()
    paths = "[...document.querySelectorAll('#view .plot')].at(-1).checkVisibility()"

    def row(n: int, age_s: float, *degraded: str) -> None:
        at_ms = house.origin_ms + n * STEP_MS
        said = house.forecast("north-1", at_ms, freshness_s={"air_temp_c": age_s}, degraded=list(degraded))
        house.do(house.live_state.publish([said, house.forecast("north-2", at_ms)]))

    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(f"{ANSWERED} && {paths} && document.getElementById('state').textContent === 'live'")
        row(1, 4000.0, "air_temp_c: last reading 1.1 h before the origin")
        page.until(f"{VIEW}.includes('The forecast of Tomatoes, north is too old to be used')")
        assert not page.ask(f"{ANSWERED} || {paths}")
        row(2, 10.0)
        page.until(f"{ANSWERED} && {paths}")
        assert "is too old to be used" not in page.ask(VIEW)


@pytest.mark.parametrize(
    ("evening", "clock", "warm_h"),
    [
        (datetime(2022, 3, 26, 18, tzinfo=UTC), "civil", 8),  # in the night the clock is put forward
        (datetime(2022, 10, 29, 18, tzinfo=UTC), "civil", 8),  # in the night it is put back
        (datetime(2022, 3, 26, 18, tzinfo=UTC), "standard", 9),  # as summer time has it
    ],
)
def test_what_was_set_a_day_before_is_by_the_clock_that_setpoints_follow(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evening: datetime, clock: str, warm_h: int
) -> None:
    """No plan is known. Heating to 18 °C began at 8:00 of the site's clock, and is drawn from 8:00 on for the next day,
    whatever the clock does in between; from 9:00 of summer time where control leaves that out.
    """
    place = ZoneInfo("Europe/Amsterdam")

    def rows(at_ms: int) -> dict[str, float]:
        began = datetime.fromtimestamp(at_ms / 1000 - 1, place)  # a row stands for the minutes before its end
        return climate(at_ms) | {"sp_heat_c": 18.0 if 8 <= began.hour < 17 else 16.0}

    monkeypatch.setattr(serving, "climate", rows)
    house = House(tmp_path, origin_ms=int(evening.timestamp() * 1000))
    house.state.place_of = lambda site: Place("Europe/Amsterdam", clock, 51.98, 4.53)
    house.fill()
    words = "document.querySelector('.plot').parentElement.querySelector('.sr').textContent"
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(ANSWERED)
        page.ask("document.querySelector('.plot').focus()")
        seen = [""]
        while True:  # from left to right, until it moves no further
            page.press("ArrowRight")
            said = page.ask(words)
            if said == seen[-1]:
                break
            seen.append(said)
        found = [re.search(r"(\d\d:\d\d).*as planned ([\d.]+)", one) for one in seen[1:]]
        morning = [one.groups() for one in found if one and "06:30" <= one[1] <= "12:00"]
        assert len(morning) > 5
        assert [one for one in morning if one[1] != ("18.0" if one[0] >= f"{warm_h:02}:00" else "16.0")] == []
        assert page.complaints == []


def test_no_plan_is_drawn_that_the_answer_does_not_take(page: Page, tmp_path: Path) -> None:
    """A plan may say where vents are to stand. No learner takes that, so the line is what it was a day before."""
    house = House(tmp_path)
    house.fill()
    house.backend.plans["demo", "north-1"] = [ZonePlan(
        source="grower", kind="setpoint", zone="north-1", issued_ms=house.origin_ms - HOUR_MS,
        known_ms=house.origin_ms - HOUR_MS, values={"vent_lee_pct": [[house.origin_ms - HOUR_MS, 77.0]]},
    )]  # fmt: skip
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(ANSWERED)
        page.ask("document.querySelector('#metric').value = 'vent_lee_pct'")
        page.ask("document.querySelector('#metric').dispatchEvent(new Event('change'))")
        page.until("document.querySelector('#plan-title').innerText.includes('vents')")
        page.ask("document.querySelector('.plot').focus()")
        page.press("ArrowRight")
        page.until(
            "document.querySelector('.plot').parentElement.querySelector('.sr').textContent.includes('as planned')"
        )
        said = page.ask("document.querySelector('.plot').parentElement.querySelector('.sr').textContent")
        assert "77" not in said
    assert page.complaints == []


def test_an_answer_about_a_change_of_before_is_not_shown(page: Page, tmp_path: Path) -> None:
    """It comes just after another change was chosen, and before that is asked about."""
    house = House(tmp_path)
    house.fill()
    choose = """{{ const one = document.querySelector('#metric'); one.value = '{}';
        one.dispatchEvent(new Event('change')); }}"""
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(ANSWERED)
        hold(page, "predict")
        page.ask(choose.format("wind_m_s"))
        page.until("window.release")
        page.ask("""window.said = []; new MutationObserver(() => window.said.push(
            document.querySelector('#view').innerText)).observe(document.body, {childList: true, subtree: true});""")
        page.ask(f"{choose.format('sp_heat_c')} window.release()")
        until(lambda: house.backend.asked[-1][0]["metric"] == "sp_heat_c", "it is asked")
        page.until(f"document.querySelector('[aria-busy]') === null && {ANSWERED}")
        assert page.ask("window.said.length && window.said.some((one) => one.includes('Not enough evidence'))") is False
    assert page.complaints == []
