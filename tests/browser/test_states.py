"""What the page shows when all is not well: no server, no key, no readings, nothing yet, a new zone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from services.access_keys import AccessKeys
from services.messages import ZoneQuality
from services.serve.api import event_stream
from services.serve.api.assets import page_version
from services.serve.api.auth import HashedKey, Keys
from tests.browser.driver import Page
from tests.browser.rows import new_row
from tests.browser.serving import HOUR_MS, STEP_MS, House, climate, opened
from tests.patience import until
from tests.services.alert.told import change
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"


STATE = "document.getElementById('state').textContent"


BANNER = "document.getElementById('banner').innerText"


ASKED = "document.getElementById('key-form').checkVisibility()"


SAID = "document.getElementById('key-said').textContent"


KEPT = """(async () => [localStorage.length, sessionStorage.length, document.cookie, location.hash,
    (await indexedDB.databases()).length, (await caches.keys()).length, document.getElementById('key').value])()"""


def test_the_server_stops_and_comes_back(page: Page, tmp_path: Path) -> None:
    """The page says since when there is no connection, with the day once that is over, and keeps what it shows. When
    the server is back it shows what is new, without being loaded again.
    """
    house = House(tmp_path)
    house.fill()
    page.hurry(30_000)  # so often the page looks at its clock
    page.open(house.open())
    page.until(f"{STATE} === 'live'")
    page.ask("window.loaded = 'once'")
    house.close()
    page.until(f"{STATE} === 'no connection'")
    assert re.search(r"No connection to Hothouse since \d\d:\d\d on your clock", page.ask(BANNER))
    page.ask("{ const now = Date.now; Date.now = () => now() + 2 * 86_400_000; }")
    page.until(rf"/since \w{{3}} \d+ \w+, \d\d:\d\d on your clock/.test({BANNER})")
    assert "Measured up to 01:00" in page.ask(VIEW)
    house.do(house.live_state.publish([house.forecast("north-1", ORIGIN_MS + STEP_MS)]))
    house.open()
    page.until(f"{STATE} === 'live' && {BANNER} === ''")
    page.until(f"{VIEW}.includes('Measured up to 01:05')")
    assert page.ask("window.loaded") == "once"
    house.close()


def test_a_page_that_is_open_over_an_upgrade_says_so(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on with the files of before; that there are newer ones it says in a line, and does not load them itself:
    it would forget its key.
    """
    house = House(tmp_path)
    house.fill()
    page.open(house.open())
    newer = "There is a newer version of this page: load it again."
    for version, said in ((page_version(), ""), ("newer", newer)):
        monkeypatch.setattr(event_stream, "page_version", lambda version=version: version)
        page.until(f"{STATE} === 'live'")
        house.close()
        page.until(f"{STATE} === 'no connection'")
        house.open()
        page.until(f"{STATE} === 'live'")
        assert page.ask(BANNER) == said
    house.close()


def test_a_device_that_slept_asks_again_at_once(page: Page, tmp_path: Path) -> None:
    """Its timers stood still, so that the connection of before seems to be young; its clock says how long it was."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(address)
        page.until(f"{STATE} === 'live'")
        page.ask("""{ const real = window.fetch; window.streams = 0;
            window.fetch = (path, ...more) => {
                if (path === 'events') window.streams += 1;
                return real(path, ...more);
            };
            const now = Date.now; Date.now = () => now() + 3_600_000; }""")
        page.ask("document.dispatchEvent(new Event('visibilitychange'))")
        page.until("window.streams > 0")
        page.until(f"{STATE} === 'live'")
        assert page.ask(BANNER) == ""


def test_a_page_that_is_left_keeps_no_connection(page: Page, tmp_path: Path) -> None:
    """The browser keeps it to go back to, and of six connections to a server its stream would be one; it is live again
    when somebody goes back.
    """
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        house.state.events.longest_s = 3600
        page.open(address)
        page.until(f"{STATE} === 'live'")
        page.ask("window.loaded = 'once'")
        page.open("about:blank")
        until(lambda: house.state.events.open == 0, "its stream ends")
        house.do(house.live_state.publish([house.forecast("north-1", ORIGIN_MS + STEP_MS)]))
        page.ask("void setTimeout(() => history.back())")  # its answer must come before the page has gone
        page.until(f"{STATE} === 'live' && {VIEW}.includes('Measured up to 01:05')")
        assert page.ask("window.loaded") == "once"


def test_a_server_that_was_never_there_is_told(page: Page, tmp_path: Path) -> None:
    """Where only the page came, and nothing after it, it says so and shows all once somebody answers."""
    house = House(tmp_path)
    house.fill()
    address = house.open()
    page.open(address)
    page.until(f"{STATE} === 'live'")
    house.close()
    page.ask("location.hash = '#/system'")
    page.until(f"{STATE} === 'no connection'")
    house.open()
    page.until(f"{VIEW}.includes('12.5 a second')")
    house.close()


def test_a_key_is_asked_for_and_forgotten(page: Page, tmp_path: Path) -> None:
    """Where reading needs a key the page asks for it, refuses a wrong one in words, and shows all with the right one,
    by the keyboard alone. The key is in no storage, cookie or address; a reload forgets it.
    """
    house = House(tmp_path, keys=Keys("op-key", "read-key"))
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/north-2")
        page.until(ASKED)
        page.until("document.activeElement.id === 'key'")
        page.until(f"{STATE} === 'a key is needed'")
        assert "north" not in page.ask("document.body.innerText")
        page.ask("window.loaded = 'once'")
        for wrong in ("not-it", "Schlüssel €"):
            page.type(wrong)
            page.press("Enter")
            page.until(f"{SAID} === 'This key is not accepted.'")
            page.until("document.getElementById('key').value === ''")
            assert page.ask("document.activeElement.id") == "key"
            page.type("x")
            page.until(f"{SAID} === ''")
            page.ask("document.getElementById('key').value = ''")
        assert page.barriers() == []
        page.type("read-key")
        page.press("Enter")
        page.until(f"!{ASKED}")
        page.until(f"{VIEW}.includes('Tonight the air falls')")
        page.until(f"{STATE} === 'live'")
        assert page.ask("window.loaded") == "once"
        assert page.ask(KEPT) == [0, 0, "", "#/zone/demo/north-2", 0, 0, ""]
        house.state.keys._reader = HashedKey.of("another")
        page.ask("location.hash = '#/system'")
        page.until(f"{ASKED} && {SAID} === 'This key is not accepted.'")
        assert "Tonight" not in page.ask("document.body.innerText")
        page.call("Page.reload")
        page.until(f"window.loaded === undefined && {ASKED}")


def test_a_key_that_is_not_taken_any_more_is_asked_for_by_a_what_if_question(page: Page, tmp_path: Path) -> None:
    """The question that met it is answered once the new one is given."""
    house = House(tmp_path, keys=Keys("op-key", "read-key"))
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until("document.activeElement.id === 'key'")
        page.type("read-key")
        page.press("Enter")
        page.until(f"{VIEW}.includes('colder (')")
        house.state.keys._reader = HashedKey.of("another")
        page.ask("document.querySelector('[data-key=vents]').click()")
        page.until(f"{ASKED} && {SAID} === 'This key is not accepted.'")
        page.type("another")
        page.press("Enter")
        page.until(f"!{ASKED} && {VIEW}.includes('colder (')")
        assert page.ask("document.getElementById('metric').value") == "vent_lee_pct"
        assert "does not allow" not in page.ask(VIEW)


def test_a_key_of_some_sites_is_not_taken_for_a_wrong_one(page: Page, tmp_path: Path) -> None:
    """What is about all sites is refused in its place, with the API's sentence; the page goes on with the key."""
    named = AccessKeys(tmp_path / "keys")
    key = named.add("grower", "read", 0, sites=["demo"])
    house = House(tmp_path, keys=Keys("op-key", named=named, read_needs_key=True))
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/now")
        page.until(f"{ASKED} && document.activeElement.id === 'key'")
        page.type(key)
        page.press("Enter")
        page.until(f"{VIEW}.includes('Measured up to 01:00')")
        for view in ("models", "system"):
            page.ask(f"location.hash = '#/{view}'")
            page.until(f"{VIEW}.includes('about all sites, and the key grower is limited to demo')")
        assert not page.ask(ASKED)
        page.ask("location.hash = '#/now'")
        page.until(f"{VIEW}.includes('Measured up to 01:00')")


def test_another_key_shows_what_it_may_read(page: Page, tmp_path: Path) -> None:
    """A key that is revoked while the page is open may be followed by one of other sites: all is asked for anew."""
    named = AccessKeys(tmp_path / "keys")
    before, after = (named.add(site, "read", 0, sites=[site]) for site in ("elsewhere", "demo"))
    house = House(tmp_path, keys=Keys("op-key", named=named, read_needs_key=True))
    house.fill()
    house.do(house.live_state.put_alerts([change(zone="north-1")]))
    with opened(house) as address:
        house.state.events.longest_s = 1  # a stream is asked for again soon
        page.open(f"{address}/#/now")
        page.until(f"{ASKED} && document.activeElement.id === 'key'")
        page.type(before)
        page.press("Enter")
        page.until(f"{STATE} === 'live' && {VIEW}.includes('No zone has a forecast yet')")
        named.revoke("elsewhere")
        page.until(f"{ASKED} && {SAID} === 'This key is not accepted.'")
        page.type(after)
        page.press("Enter")
        page.until("document.querySelector('[data-alert=a1]')")


def test_an_address_that_means_nothing_is_told(page: Page, tmp_path: Path) -> None:
    """A % by itself, and a word that is no view: neither leaves the page empty."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/100%")
        page.until(f"{VIEW}.includes('There is no such zone')")
        page.ask("location.hash = '#/constructor'")
        page.until(f"{VIEW}.includes('Measured up to 01:00')")
        assert page.complaints == []


def test_a_rule_with_a_line_separator_in_its_name_breaks_no_stream(page: Page, tmp_path: Path) -> None:
    """U+2028 ends a line for JavaScript, and none of an event."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/now")
        page.until(f"{STATE} === 'live'")
        house.do(house.live_state.put_alerts([change("odd", rule="cold\u2028night", zone="north-1")]))
        page.until("document.querySelector('[data-alert=odd]')")
        assert page.ask(STATE) == "live"


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


OFFERED = "[...document.querySelectorAll('[data-key^=target-]')].map((one) => one.textContent)"
LINES = "[...document.querySelectorAll('#chart-climate .legend li')].map((one) => one.textContent)"


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
        page.until(f"{VIEW}.includes('Measured up to 01:00') && {STATE} === 'live'")
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


def test_one_zone_is_counted_as_one(page: Page, tmp_path: Path) -> None:
    """In each language."""
    house = House(tmp_path, zones=("north-1",))
    house.fill()
    with opened(house) as address:
        for language, said in (("en-GB", "1 zone, 1,730 rows"), ("nl", "1 afdeling, 1.730 rijen")):
            page.renew()
            page.speak(language)
            page.open(f"{address}/#/system")
            page.until(f"{VIEW}.includes({said!r})")


def test_nothing_yet_and_the_first_forecast(page: Page, tmp_path: Path) -> None:
    """Before the first forecast the page says what is waited for; the first one appears by itself, as a zone that is
    learning. An address without a zone, and one of a zone that is not there, say so.
    """
    house = House(tmp_path)
    house.backend.days = 2.4
    with opened(house) as address:
        page.open(f"{address}/#/now")
        page.until(f"{VIEW}.includes('No zone has a forecast yet')")
        page.until(f"{VIEW}.includes('No zone has a forecast yet: the parts that calculate have not reported yet')")
        assert "docs/sensors.md" in page.ask(VIEW)
        assert page.barriers() == []
        page.ask("location.hash = '#/rules'")  # a bookmark: no site is known of which they could be
        page.until("document.title.startsWith('What you are warned of')")
        page.until(f"{VIEW}.includes('No zone has a forecast yet')")
        page.ask("location.hash = '#/now'")
        house.fill()
        page.until(f"{VIEW}.includes('Tomatoes, north')")
        page.until(f"{VIEW}.includes('learning, day 3 of 14')")
        page.ask("location.hash = '#/quality'")
        page.until(f"{VIEW}.includes('This zone is new: learning, day 3 of 14.')")
        page.ask("location.hash = '#/zone/demo/attic'")
        page.until(f"{VIEW}.includes('There is no such zone')")
        page.ask("location.hash = '#demo%2Fnorth-2'")  # an address as pages of before had it
        page.until(f"{VIEW}.startsWith('north-2')")


def test_a_page_that_stays_open_counts_the_days(page: Page, tmp_path: Path) -> None:
    """A zone that is learning is in its next day without a reload; one that is new says so at once."""
    house = House(tmp_path, zones=("north-1",))
    house.fill()
    house.backend.days = 2.4
    card = "(document.querySelector('[data-key=\"demo/{zone}\"]')?.innerText ?? '')"
    with opened(house) as address:
        page.open(f"{address}/#/now")
        page.until(f"{card.format(zone='north-1')}.includes('learning, day 3 of 14') && {STATE} === 'live'")
        page.ask("{ const at = Date.now(); window.passed_ms = 0; Date.now = () => at + window.passed_ms; }")
        house.backend.days = 0.2
        house.do(house.live_state.publish([house.forecast("north-2")]))
        page.until(f"{card.format(zone='north-2')}.includes('learning, day 1 of 14')")
        house.backend.days = 3.4
        page.ask("window.passed_ms = 3_600_000")
        weak = house.forecast(
            "north-1", ORIGIN_MS + STEP_MS, degraded=["co2_ppm: last reading 22 min before the origin"]
        )
        house.do(house.live_state.publish([weak]))  # the zones are asked for
        page.until(f"{card.format(zone='north-1')}.includes('learning, day 4 of 14')")
        assert page.complaints == []


@pytest.mark.parametrize("view", ["now", "zone/demo/north-1"])
def test_no_alert_of_a_new_zone_is_no_verdict(page: Page, tmp_path: Path, view: str) -> None:
    """While rules about the climate do not look at a zone yet, the page says so beside "no alert"."""
    house = House(tmp_path)
    house.fill()
    house.backend.days = 0.4
    says = f"{VIEW}.includes('rules about the climate begin after half a day')"
    page.call("Page.enable")
    no_minute = "window.setInterval = () => 0;"  # what comes late is shown when it comes
    page.call("Page.addScriptToEvaluateOnNewDocument", source=no_minute)
    with opened(house) as address:
        page.open(f"{address}/#/{view}")
        page.until(f"{VIEW}.includes('No alert') && {says}")
        house.backend.days = 0.6
        page.ask("{ window.before = true; location.reload(); }")
        page.until(f"!window.before && {VIEW}.includes('learning, day 1 of 14')")
        assert not page.ask(says)


def test_a_page_that_stays_open_forgets_alerts_that_are_long_over(page: Page, tmp_path: Path) -> None:
    """The newest of them stay, and what still warns."""
    house = House(tmp_path)
    house.fill()
    firing = change("firing", zone="north-1", changed_ms=1, seen_ms=1)
    over = [change(f"a{n}", state="resolved", zone="north-1", changed_ms=n, seen_ms=n) for n in range(2, 402)]
    with opened(house) as address:
        page.open(address)
        page.until(f"{VIEW}.includes('No alert.') && {STATE} === 'live'")
        page.ask("import('/page/store.js').then((found) => { window.store = found.store; })")
        house.do(house.live_state.put_alerts([firing, *over]))
        page.until("window.store.alerts.a401")
        kept = page.ask("Object.keys(window.store.alerts)")
        assert sorted(kept) == sorted(["firing", *(f"a{n}" for n in range(102, 402))])


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


def test_how_good_follows_new_rows(page: Page, tmp_path: Path) -> None:
    """Left open for a day it looks at the days before the newest row. It asks at most once a minute."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/quality/demo/north-1")
        page.until(f"{VIEW}.includes('Since Sun 27 Feb') && {VIEW}.includes('What each part weighs')")
        page.until(f"{STATE} === 'live'")
        page.ask("{ const at = Date.now(); window.passed_ms = 0; Date.now = () => at + window.passed_ms; }")
        new_row(page, house, ORIGIN_MS + 24 * HOUR_MS)
        assert "Since Sun 27 Feb" in page.ask(VIEW)
        page.ask("window.passed_ms = 61_000")
        new_row(page, house, ORIGIN_MS + 25 * HOUR_MS)
        page.until(f"{VIEW}.includes('Since Mon 28 Feb')")
        assert page.complaints == []


def test_the_list_of_zones_stays_while_rows_come(page: Page, tmp_path: Path) -> None:
    """One that is open would close: it is made anew for another zone only. What is said beside it follows the rows."""
    house = House(tmp_path)
    house.fill()
    badge = "document.querySelector('#zone-name .badge')?.textContent ?? ''"
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/north-1")
        page.until(f"{VIEW}.includes('Measured up to 01:00') && {STATE} === 'live'")
        page.ask("{ window.list = document.getElementById('zone-choice'); window.list.focus(); }")
        new_row(page, house, ORIGIN_MS + STEP_MS)
        page.until(f"{VIEW}.includes('Measured up to 01:05')")
        weak = house.forecast(
            "north-1", ORIGIN_MS + 2 * STEP_MS, degraded=["co2_ppm: last reading 22 min before the origin"]
        )
        house.do(house.live_state.publish([weak]))
        page.until(
            f"({badge}) === 'weaker forecast' && {VIEW}.includes('CO₂: last reading 22 min before the forecast')"
        )
        page.until(f"{VIEW}.includes('Measured up to 01:10')")
        assert page.ask("document.activeElement === window.list")
        house.do(house.live_state.publish([house.forecast("north-3")]))
        page.until("document.getElementById('zone-choice').options.length === 3")
        assert page.ask("document.activeElement.id") == "zone-choice"
        assert page.complaints == []


def test_what_somebody_uses_stays_while_rows_come(page: Page, tmp_path: Path) -> None:
    """A chart that is read with the keyboard keeps the focus; a link that is pressed is there when it is released."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/north-1")
        page.until(f"{VIEW}.includes('Measured up to 01:00') && {STATE} === 'live'")
        page.until("document.querySelectorAll('.uplot canvas').length === 3")
        page.ask("""{ window.plot = document.querySelector('#chart-climate .plot'); window.plot.focus();
            window.link = document.querySelector('.views [data-key=system]'); }""")
        new_row(page, house, ORIGIN_MS + STEP_MS)
        page.until(f"{VIEW}.includes('Measured up to 01:05')")
        assert page.ask("document.activeElement === window.plot")
        assert page.ask("window.link.isConnected")


def test_what_is_open_stays_when_the_device_becomes_dark(page: Page, tmp_path: Path) -> None:
    """Where light was chosen: nothing looks different, and what was typed is not lost."""
    house = House(tmp_path)
    house.fill()

    def scheme(value: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": value}]
        page.call("Emulation.setEmulatedMedia", features=features)

    with opened(house) as address:
        scheme("light")
        page.open(f"{address}/page/style.css")
        page.ask("localStorage.setItem('hothouse', JSON.stringify({theme: 'light'}))")
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(f"{VIEW}.includes('colder (')")
        page.ask("document.querySelector('[data-key=vents]').click()")
        page.ask("""void (window.turned = new Promise((go) =>
            matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => go(1))))""")
        scheme("dark")
        page.ask("window.turned")
        assert page.ask("document.getElementById('metric')?.value") == "vent_lee_pct"


READY = {
    "zone": "Tonight the air falls", "whatif": "colder (", "quality": "What each part weighs",
}  # fmt: skip
"""View of a zone -> what it says once everything is there."""


@pytest.mark.parametrize("view", READY)
def test_a_zone_that_leaves_is_told_where_it_is_open(page: Page, tmp_path: Path, view: str) -> None:
    """The view says so by itself, alerts of the zones that stay come on, and readings bring the zone back."""
    house = House(tmp_path)
    house.fill()
    left: dict[str, Any] = {"site": "demo", "zone": "north-1", "left_ms": ORIGIN_MS}
    page.hurry(60_000)  # each minute the page asks which zones there are
    with opened(house) as address:
        page.open(f"{address}/#/{view}/demo/north-1")
        page.until(f"{VIEW}.includes({READY[view]!r}) && {STATE} === 'live'")
        house.do(house.live_state.put_stats("shard-0", {**house.figures(), "left": [left]}))  # type: ignore[typeddict-item]
        page.until(f"{VIEW}.includes('There is no such zone')")
        assert page.ask("document.querySelector('#views [data-key=zone]').hash") == "#/zone"  # one that is there
        told = [change(id, zone="north-2", changed_ms=ORIGIN_MS, seen_ms=ORIGIN_MS) for id in ("a1", "a2", "a3")]
        house.do(house.live_state.put_alerts(told))
        page.ask("import('/page/store.js').then((found) => { window.store = found.store; })")
        page.until("Object.keys(window.store.alerts).length === 3")
        new_row(page, house, ORIGIN_MS + STEP_MS)
        page.until(f"{VIEW}.includes({READY[view]!r})")
        assert page.ask(STATE) == "live"
        on_their_way = [one for one in page.complaints if "404" in one]  # asked just before the zone left
        assert page.complaints == on_their_way


def test_a_fault_of_who_listens_does_not_cut_the_stream(page: Page, tmp_path: Path) -> None:
    """What is told at once comes whole, though a listener fails at each part of it, and is not asked for again."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        house.state.events.longest_s = 3600
        page.open(address)
        page.until(f"{VIEW}.includes('No alert.') && {STATE} === 'live'")
        page.ask("""{ const real = window.fetch; window.streams = 0;
            window.fetch = (path, ...more) => {
                if (path === 'events') window.streams += 1;
                return real(path, ...more);
            };
            void import('/page/store.js').then(({ listen }) => {
                listen(() => { throw new Error('a fault'); }); window.fails = true; }); }""")
        page.until("window.fails")
        told = [change(id, zone="north-2", changed_ms=ORIGIN_MS, seen_ms=ORIGIN_MS) for id in ("a1", "a2", "a3")]
        house.do(house.live_state.put_alerts(told))
        page.until("document.querySelectorAll('[data-alert]').length === 3")
        assert page.ask("window.streams") == 0
        assert page.ask(STATE) == "live"
