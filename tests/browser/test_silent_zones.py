"""Zones without fresh readings, or with some that are missing or old, and a shard that is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.messages import ZoneQuality
from tests.browser.driver import Page
from tests.browser.serving import HOUR_MS, STEP_MS, House, climate, opened
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
STATE = "document.getElementById('state').textContent"
OFFERED = "[...document.querySelectorAll('[data-key^=target-]')].map((one) => one.textContent)"
LINES = "[...document.querySelectorAll('#chart-climate .legend li')].map((one) => one.textContent)"


@pytest.mark.thorough
def test_a_stale_zone_says_so_and_shows_what_came_before(page: Page, tmp_path: Path) -> None:
    """While the stream goes on without readings of a zone, it is not shown as if it were live: no forecast and no
    "tonight", but its past, and since when nothing came.
    """
    house = House(tmp_path)
    house.fill()
    page.hurry(60_000)  # each minute the page asks which zones are stale
    with opened(house) as address:
        page.open(address)
        page.until(f"{VIEW}.includes('Measured up to 01:00')")
        house.do(house.live_state.publish([house.forecast("north-2", ORIGIN_MS + HOUR_MS)]))
        page.until(f"{VIEW}.includes('1 zone has no fresh readings.')")
        first = page.ask("document.querySelector('.zone').innerText.replace(/\\s+/g, ' ')")
        assert first.startswith("Tomatoes, north no fresh readings The newest reading is 1 h old")
        assert "Last readings: Tue 1 Mar, 00:59" in first
        page.ask("location.hash = '#/zone/demo/north-1'")
        page.until(f"{VIEW}.includes('This zone has no forecast now')")
        page.until(f"{VIEW}.includes('Without fresh readings there is no outlook for tonight.')")
        said = page.ask(VIEW)
        assert (
            "Demo house · Last readings: Tue 1 Mar, 00:59 This zone has no forecast now: the forecast of Tomatoes"
            in said
        )
        page.until("document.querySelectorAll('.uplot canvas').length === 3")
        assert "forecast, band" not in page.ask("document.querySelector('#chart-climate .legend').innerText")
        assert page.barriers() == []
        page.ask("location.hash = '#/whatif/demo/north-1'")
        page.until(f"{VIEW}.includes('is too old to be used')")


@pytest.mark.parametrize("begins", ["fresh", "stale"])
def test_the_past_of_a_silent_zone_stays_in_its_charts(page: Page, tmp_path: Path, begins: str) -> None:
    """Also once its newest row holds nothing of it any more, whether the page was open before or is opened then."""
    house = House(tmp_path)
    house.fill()
    page.hurry(60_000)  # each minute the page asks which zones are stale
    at_ms = ORIGIN_MS + 2 * HOUR_MS
    nothing = dict.fromkeys(climate(at_ms))
    with opened(house) as address:
        if begins == "fresh":
            page.open(f"{address}/#/zone/demo/north-1")
            page.until(f"{VIEW}.includes('Tonight the air falls') && {STATE} === 'live'")
        silent = house.forecast("north-1", at_ms, freshness_s={"air_temp_c": 7200.0})
        silent["now"], silent["degraded"] = nothing, ["air_temp_c: last reading 2 h before the origin"]
        house.do(house.live_state.publish([silent, house.forecast("north-2", at_ms)]))
        if begins == "stale":
            page.open(f"{address}/#/zone/demo/north-1")
        page.until(f"{VIEW}.includes('This zone has no forecast now')")
        page.until("document.querySelectorAll('.uplot canvas').length === 3")
        assert set(page.ask(LINES)) >= {"measured", "Heating setpoint", "Leaf temperature"}
        page.ask("document.querySelector('[data-key=target-rh_pct]').click()")  # that of each target
        page.until("document.querySelector('#chart-climate').previousElementSibling.textContent === 'Humidity, %'")
        assert page.complaints == [one for one in page.complaints if "503" in one]


def test_the_charts_of_a_zone_that_is_silent_for_days_begin_where_its_past_is(page: Page, tmp_path: Path) -> None:
    """Not with two empty days; from there one goes on to now."""
    house = House(tmp_path)
    house.fill()
    at_ms = ORIGIN_MS + 6 * 24 * HOUR_MS
    silent = house.forecast("north-1", at_ms, freshness_s={"air_temp_c": 6 * 86_400.0, "rh_pct": 6 * 86_400.0})
    silent["now"] = dict.fromkeys(climate(at_ms))
    house.do(house.live_state.publish([silent, house.forecast("north-2", at_ms)]))
    plot = "uPlot.sync('zone demo/north-1').plots[0]"
    seen = f"{plot}.data[1].filter((one, at) => one !== null && {plot}.data[0][at] >= {plot}.scales.x.min).length"
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/north-1")
        page.until(f"{VIEW}.includes('This zone has no forecast now')")
        page.until("document.querySelectorAll('.uplot canvas').length === 3")
        assert page.ask(seen) > 500
        assert page.ask(f"{plot}.scales.x.max") == (ORIGIN_MS + 24 * HOUR_MS) / 1000
        page.ask("location.hash = '#/quality/demo/north-1'")
        page.until(f"{VIEW}.includes('Since Sun 27 Feb')")
        assert "Last readings: Tue 1 Mar, 01:00" in page.ask(VIEW)
        assert "last night" not in page.ask(VIEW)
        page.ask("location.hash = '#/zone/demo/north-1'")
        page.until("document.querySelectorAll('.uplot canvas').length === 3")
        page.ask("document.querySelector('[data-key=span-week]').click()")
        page.until(f"{plot}.scales.x.min === {(ORIGIN_MS - 7 * 24 * HOUR_MS) / 1000}")
        page.until(f"{seen} > 100")
        assert page.complaints == [one for one in page.complaints if "503" in one]


def test_a_silent_zone_offers_charts_of_what_it_sent(page: Page, tmp_path: Path) -> None:
    """A metric that it never sent is named in its newest row, without a value, as one is that has fallen silent."""
    house = House(tmp_path, without=("co2_ppm",))
    house.fill()
    silent = house.forecast("north-1", freshness_s={"air_temp_c": 7200.0, "rh_pct": 7200.0, "co2_ppm": None})
    silent["now"] = dict.fromkeys(silent["now"])
    house.do(house.live_state.publish([silent]))
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/north-1")
        page.until(f"{VIEW}.includes('This zone has no forecast now')")
        page.until("document.querySelector('[data-key^=target-]')")
        assert page.ask(OFFERED) == ["Air temperature", "Humidity", "VPD"]


def test_how_good_judges_what_a_zone_measures(page: Page, tmp_path: Path) -> None:
    """Targets that it does not measure are not offered, and a handful of forecasts is no share of anything."""
    house = House(tmp_path)
    house.fill()
    said = house.forecast("north-1", ORIGIN_MS + STEP_MS)
    said["now"] = {metric: 80.0 if metric == "rh_pct" else None for metric in said["now"]}
    house.do(house.live_state.publish([said]))
    answer = house.backend.quality

    async def quality(asked: tuple[str, str] | None) -> list[ZoneQuality]:
        found = await answer(asked)
        for one in found:
            for target, scores in one["scores"].items():
                for score in scores.values():
                    score["n"] = 4 if target == "rh_pct" else 0
        return found

    house.backend.quality = quality  # type: ignore[method-assign]
    with opened(house) as address:
        page.open(f"{address}/#/quality/demo/north-1")
        page.until("document.querySelector('#scores tbody tr')")
        assert page.ask(OFFERED) == ["Humidity"]
        row = page.ask("document.querySelector('#scores tbody tr').innerText.replace(/\\s+/g, ' ')")
        assert row == "5 min 0.50 % 0.90 % 1.00 % – 82 % 4"
        assert page.complaints == []


def test_a_zone_without_readings_stays_so_while_its_rows_come(page: Page, tmp_path: Path) -> None:
    """A row of it closes at each step with those of the other zone. It is not shown as if it were live, and the time of
    its last reading stays; a reading brings it back.
    """
    house = House(tmp_path)
    house.fill()
    card = "document.querySelector('[data-key=\"demo/north-1\"]').innerText.replace(/\\s+/g, ' ')"

    def row(n: int, age_s: float, *degraded: str) -> None:
        at_ms = ORIGIN_MS + n * STEP_MS
        said = house.forecast("north-1", at_ms, freshness_s={"air_temp_c": age_s}, degraded=list(degraded))
        house.do(house.live_state.publish([said, house.forecast("north-2", at_ms)]))
        page.until(f"window.store.zones.every((zone) => zone.origin_ms === {at_ms})")

    with opened(house) as address:
        page.open(address)
        page.until(f"{VIEW}.split('Tonight').length === 3 && {STATE} === 'live'")  # both nights are told
        page.ask("import('/page/store.js').then((found) => { window.store = found.store; })")
        row(8, 8 * 300.0, "air_temp_c: last reading 40 min before the origin")
        page.until(f"{card}.includes('no fresh readings')")
        for n in (9, 10):
            row(n, n * 300.0, f"air_temp_c: last reading {5 * n} min before the origin")
            said = page.ask(card)
            assert "no fresh readings" in said
            assert said.endswith("Last readings: Tue 1 Mar, 01:00")
        row(11, 10.0)
        page.until(f"{card}.endsWith('Measured up to 01:55')")
        assert page.complaints == []


@pytest.mark.parametrize(
    ("language", "live", "old", "dew"),
    [
        ("en", "live", "68 % (20 minutes ago)", "Dew point 15.3 °C (20 minutes ago)"),
        ("nl", "live", "68 % (20 minuten geleden)", "Dauwpunt 15,3 °C (20 minuten geleden)"),
        ("es", "en directo", "68 % (hace 20 minutos)", "Punto de rocío 15,3 °C (hace 20 minutos)"),
    ],
)
def test_a_reading_of_some_time_ago_says_how_old_it_is(
    page: Page, tmp_path: Path, language: str, live: str, old: str, dew: str
) -> None:
    """From a quarter of an hour on, also what follows from it; not in the chart, and not when the next one came."""
    house = House(tmp_path)
    house.fill()
    card = "document.querySelector('[data-key=\"demo/north-1\"] .now').innerText.replace(/\\s+/g, ' ')"

    def row(n: int, **age_s: int) -> None:
        now = {"air_temp_c": 21.4, "rh_pct": 68.0, "co2_ppm": 612.0}
        said = house.forecast("north-1", ORIGIN_MS + n * STEP_MS)
        house.do(house.live_state.publish([{**said, "now": now, "now_age_s": age_s}]))

    with opened(house) as address:
        page.speak(language)
        page.open(address)
        page.until(f"{STATE} === '{live}'")
        row(1, rh_pct=1210, co2_ppm=890)
        page.until(f"{card}.includes('{old}')")
        assert page.ask(f"{card}.match(/\\(/g).length") == 1
        page.open(f"{address}/#/zone/demo/north-1")
        page.until(f"{VIEW}.includes('{dew}')")
        assert old in page.ask(VIEW)
        row(2)
        page.until(f"!{VIEW}.includes('{dew[-12:]}')")
        assert page.complaints == []


def test_a_shard_that_is_away_costs_no_more_than_it_must(page: Page, tmp_path: Path) -> None:
    """What a shard alone knows is missing with a sentence; the forecast and the charts are there."""
    house = House(tmp_path)
    house.fill()
    house.backend.shard_away = "the zone's shard does not answer"
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/north-1")
        page.until(f"{VIEW}.includes('There is no outlook for tonight and tomorrow now')")
        page.until("document.querySelectorAll('.uplot canvas').length === 3")
        page.until(f"{VIEW}.includes('Light today so far')")
