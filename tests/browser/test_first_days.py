"""Where there is little to show: an address of nothing, no forecast yet, one zone, a new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.driver import Page
from tests.browser.serving import STEP_MS, House, opened
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
STATE = "document.getElementById('state').textContent"


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
