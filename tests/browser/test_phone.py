"""On a phone in the greenhouse: a finger instead of a mouse, and answers that take long."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from tests.browser.driver import Page
from tests.browser.held import hold, let_go
from tests.browser.rows import new_row
from tests.browser.serving import STEP_MS, House, opened
from tests.patience import patience_s, until
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
CHARTS = "document.querySelectorAll('.uplot canvas').length === 3"
OVER = """(() => { const box = document.querySelector('#chart-climate .u-over').getBoundingClientRect();
    return [box.left, box.top, box.width, box.height]; })()"""
SLOW_MS = 500


def draw(page: Page, right: float, down: float) -> None:
    """Draw a finger over the chart of the climate, from its middle, by shares of its size."""
    page.ask("document.getElementById('chart-climate').scrollIntoView({block: 'center'})")
    left, top, width, height = page.ask(OVER)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = {"x": left + width * (0.5 + right * share), "y": top + height * (0.5 + down * share)}
        page.call("Input.dispatchTouchEvent", type="touchMove" if share else "touchStart", touchPoints=[at])
        page.ask("new Promise((drawn) => requestAnimationFrame(() => drawn(1)))")  # no faster than the screen
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


def slow(page: Page) -> None:
    """Each answer takes longer."""
    page.call("Network.enable")
    conditions = {"offline": False, "latency": SLOW_MS, "downloadThroughput": -1, "uploadThroughput": -1}
    page.call("Network.emulateNetworkConditions", **conditions)


def test_a_finger_draws_over_a_chart_to_zoom(browser: Page, tmp_path: Path) -> None:
    """As a mouse does. Up and down it scrolls the page, and the chart stays as it is."""
    house = House(tmp_path)
    house.fill()
    browser.renew(390, 780)
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
    with opened(house) as address:
        browser.open(f"{address}/#/zone/demo/north-1")
        browser.until(CHARTS)
        pressed = "document.querySelector('[data-key=span-two]').ariaPressed"
        draw(browser, 0.25, -0.9)
        assert browser.ask(pressed) == "true"
        draw(browser, -0.3, 0.05)
        browser.until(f"{pressed} === 'false'")
    assert browser.complaints == []


@pytest.mark.parametrize(
    ("view", "words"), [("zone", "Tonight the air falls"), ("whatif", "colder ("), ("quality", "What each part weighs")]
)
def test_what_takes_long_is_asked_for_once(page: Page, tmp_path: Path, view: str, words: str) -> None:
    """What else the page hears meanwhile does not make it ask again: a slow line would only become slower."""
    house = House(tmp_path)
    house.fill()
    asked, answered = list[str](), threading.Event()

    @house.app.middleware("http")
    async def take_long(request: Request, call_next: RequestResponseEndpoint) -> Response:
        if request.url.path in ("/predict", "/quality") and list(request.query_params) == ["zone"]:
            asked.append(str(request.url))
            await asyncio.to_thread(answered.wait, patience_s(60))
        return await call_next(request)

    with opened(house) as address:
        page.open(f"{address}/#/{view}/demo/north-1")
        until(lambda: asked, "the view asks")
        for _ in range(2):
            page.ask("import('/page/store.js').then((found) => found.loadAll())")
        answered.set()
        page.until(f"{VIEW}.includes({words!r})")
        assert len(asked) == 1
    assert page.complaints == []


def test_rows_that_come_faster_than_answers_are_shown_in_the_end(page: Page, tmp_path: Path) -> None:
    """A first answer is shown though newer rows came meanwhile; what is shown at last is the newest."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        slow(page)
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until("document.readyState === 'complete'")
        for step in range(1, 150):
            house.do(house.live_state.publish([house.forecast("north-1", ORIGIN_MS + step % 12 * STEP_MS)]))
            if page.ask(f"{VIEW}.includes('colder (')"):
                break
            time.sleep(0.2)
        else:
            pytest.fail("no answer was shown while rows came")
        page.ask("location.hash = '#/zone/demo/north-1'")
        for step in range(13, 16):
            new_row(page, house, ORIGIN_MS + step * STEP_MS)
        page.until(f"{VIEW}.includes('Measured up to 02:15')")
    assert page.complaints == []


@pytest.mark.parametrize(
    ("view", "press", "words"),
    [
        ("whatif", "[data-key=cooler]", "the air would be"),
        ("quality", "[data-key=target-rh_pct]", "of what came lay inside the band"),
    ],
)
def test_what_was_asked_without_a_connection_is_answered_when_it_is_back(
    page: Page, tmp_path: Path, view: str, press: str, words: str
) -> None:
    """Nobody has to ask again."""
    house = House(tmp_path)
    house.fill()
    page.open(f"{house.open()}/#/{view}/demo/north-1")
    page.until(f"{VIEW}.includes({words!r})")
    house.close()
    page.ask(f"document.querySelector({press!r}).click()")
    page.until(f"{VIEW}.includes('Hothouse does not answer') && !{VIEW}.includes({words!r})")
    house.open()
    page.until(f"{VIEW}.includes({words!r}) && !{VIEW}.includes('Hothouse does not answer')")
    house.close()


def test_the_span_that_is_chosen_last_is_drawn(page: Page, tmp_path: Path) -> None:
    """A year that takes long to be read is not drawn over the two days that were chosen after it."""
    house = House(tmp_path)
    house.fill()
    label = "document.querySelector('#chart-climate .plot')?.getAttribute('aria-label') ?? ''"
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/north-1")
        page.until(f"({label}).includes('from Sun 27 Feb, 01:00 to Wed 2 Mar, 01:00')")
        hold(page, "zones/north-1/series")
        page.ask("document.querySelector('[data-key=span-year]').click()")
        page.until("window.release")
        page.ask("document.querySelector('[data-key=span-two]').click()")
        page.ask("new Promise((go) => setTimeout(() => go(1), 50))")  # past the pause before it is drawn
        let_go(page)
        assert "from Sun 27 Feb, 01:00 to Wed 2 Mar, 01:00" in page.ask(label)
        page.ask("document.querySelector('[data-key=span-year]').click()")
        page.until(f"({label}).includes('from Mon 1 Mar, 01:00')")
    assert page.complaints == []


def test_of_two_nights_the_newer_is_told(page: Page, tmp_path: Path) -> None:
    """The answer about a row of before, which comes after that about the newest, is not shown."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(address)
        page.until(f"{VIEW}.split('Tonight 14.0').length === 3")
        hold(page, "predict?")
        new_row(page, house, ORIGIN_MS + STEP_MS)
        page.until("window.release")
        night = house.backend.extremes["night"]
        house.backend.extremes["night"] = {**night, "values": night["values"] + 3}
        new_row(page, house, ORIGIN_MS + 2 * STEP_MS)
        page.until(f"{VIEW}.split('Tonight 17.0').length === 3")
        let_go(page)
        assert "Tonight 14.0" not in page.ask(VIEW)


def test_an_answer_that_is_older_than_a_row_does_not_take_it_back(page: Page, tmp_path: Path) -> None:
    """The page was told of the row while the list of zones was on its way."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(address)
        page.until(
            f"{VIEW}.includes('Measured up to 01:00') && document.getElementById('state').textContent === 'live'"
        )
        hold(page, "zones")
        page.ask("void (window.all = import('/page/store.js').then((found) => found.loadAll()))")
        page.until("window.release")
        new_row(page, house, ORIGIN_MS + STEP_MS)
        let_go(page)
        page.ask("window.all.then(() => 1)")
        assert page.ask("window.store.zones.map((zone) => zone.origin_ms)") == [ORIGIN_MS + STEP_MS] * 2
        assert "Measured up to 01:00" not in page.ask(VIEW)


def test_an_answer_that_breaks_off_is_none(page: Page, tmp_path: Path) -> None:
    """The page says that nobody answers, in its own words, and asks again."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(address)
        page.until(f"{VIEW}.includes('Tonight 14.0')")
        page.ask("""{ const real = window.fetch; let times = 2;
            window.fetch = (path, ...more) => {
                if (!String(path).startsWith('predict?') || !times) return real(path, ...more);
                times -= 1;
                return Promise.resolve(new Response(new ReadableStream({ pull(to) {
                    to.enqueue(new TextEncoder().encode('{"zone": '));
                    to.error(new TypeError('network error'));
                } })));
            }; }""")
        page.ask("location.hash = '#/zone/demo/north-1'")
        page.until(f"{VIEW} === 'Hothouse does not answer'")
        new_row(page, house, ORIGIN_MS + STEP_MS)
        page.until(f"{VIEW}.includes('Tonight the air falls')")
