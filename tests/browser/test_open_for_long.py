"""A page that stays open: what somebody uses stays, what is shown follows rows, zones and alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.driver import Page
from tests.browser.rows import new_row
from tests.browser.serving import HOUR_MS, STEP_MS, House, opened
from tests.services.alert.told import change
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
STATE = "document.getElementById('state').textContent"
READY = {
    "zone": "Tonight the air falls", "whatif": "colder (", "quality": "What each part weighs",
}  # fmt: skip
"""View of a zone -> what it says once everything is there."""


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


def test_rows_that_closed_while_the_device_slept_are_in_the_charts_at_once(page: Page, tmp_path: Path) -> None:
    """The history has them: they need not wait for the row that comes next."""
    house = House(tmp_path)
    house.fill()
    plot = "uPlot.sync('zone demo/north-1').plots[0]"
    known = f"{plot}.data[0].filter((s, at) => s > {ORIGIN_MS / 1000} && Number.isFinite({plot}.data[1][at])).length"
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/north-1")
        page.until(f"{VIEW}.includes('Measured up to 01:00') && {STATE} === 'live'")
        page.until("document.querySelectorAll('.uplot canvas').length === 3")
        assert page.ask(known) == 0
        ends = [ORIGIN_MS + n * STEP_MS for n in range(1, 7)]
        house.keep(ends)
        new_row(page, house, ends[-1])
        page.until(f"{VIEW}.includes('Measured up to 01:30')")
        page.until(f"{known} === 6")
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
