"""The page and its server: away and back, upgraded, never there, a device that slept; what keeps the stream whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from services.serve.api import event_stream
from services.serve.api.assets import page_version
from tests.browser.driver import Page
from tests.browser.serving import HOUR_MS, STEP_MS, House, opened
from tests.patience import until
from tests.services.alert.told import change
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
STATE = "document.getElementById('state').textContent"
BANNER = "document.getElementById('banner').innerText"


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


def test_a_zone_that_is_open_is_shown_as_it_is_when_the_server_is_back(page: Page, tmp_path: Path) -> None:
    """What was told meanwhile is lost: its view asks for all of it, and does not wait for the row that comes next."""
    house = House(tmp_path)
    house.fill()
    page.open(f"{house.open()}/#/zone/demo/north-1")
    page.until(f"{STATE} === 'live' && {VIEW}.includes('Measured up to 01:00')")
    house.close()
    page.until(f"{STATE} === 'no connection'")
    house.do(house.live_state.publish([house.forecast("north-1", ORIGIN_MS + HOUR_MS)]))
    house.open()
    page.until(f"{STATE} === 'live'")
    page.until(f"{VIEW}.includes('Measured up to 02:00')")
    house.close()


def test_a_page_that_is_open_over_an_upgrade_says_so(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on with the files of before; that there are others it says in a line, and does not load them itself: it
    would forget its key. While an upgrade goes on servers of both versions answer in turn, so it says so once the
    version has been another one for ten minutes.
    """
    house = House(tmp_path)
    house.fill()
    page.hurry(30_000)  # so often the page looks at its clock
    address = house.open()
    house.state.events.longest_s = 1  # a stream is asked for again soon
    page.open(address)
    page.until(f"{STATE} === 'live'")
    page.ask("{ const at = Date.now(); window.passed_ms = 0; Date.now = () => at + window.passed_ms; }")
    page.ask("import('/page/store.js').then((found) => { window.store = found.store; })")

    def told(version: str, negated: str) -> None:
        monkeypatch.setattr(event_stream, "page_version", lambda: version)
        page.until(f"{negated}window.store.otherSince")

    newer = "There is a newer version of this page: load it again."
    own = page_version()
    for version, passed_ms, said in ((own, 0, ""), ("newer", 0, ""), (own, 590_000, ""), ("newer", 620_000, "")):
        page.ask(f"window.passed_ms = {passed_ms}")
        told(version, "!" if version == own else "")
        page.ask("new Promise((go) => setTimeout(go, 3100))")
        assert page.ask(BANNER) == said
    page.ask("window.passed_ms = 1_230_000")
    page.until(f"{BANNER} === '{newer}'")
    told(own, "!")
    page.until(f"{BANNER} === ''")
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


def test_a_page_that_nobody_looks_at_holds_no_connection(page: Page, tmp_path: Path) -> None:
    """Six tabs would hold all that a browser has for a server. Who looks again sees what is new."""
    house = House(tmp_path)
    house.fill()
    page.hurry(60_000)  # after so long nobody looks any more

    def look(state: str) -> None:
        page.ask(f"""{{ Object.defineProperty(document, 'visibilityState', {{ value: '{state}', configurable: true }});
            document.dispatchEvent(new Event('visibilitychange')); }}""")

    with opened(house) as address:
        house.state.events.longest_s = 3600
        page.open(f"{address}/#/zone/demo/north-1")
        page.until(f"{STATE} === 'live' && {VIEW}.includes('Measured up to 01:00')")
        page.ask("""{ const seen = new MutationObserver(() => { window.changed = true; });
            seen.observe(document.getElementById('state'), {childList: true}); }""")
        look("hidden")
        until(lambda: house.state.events.open == 0, "its stream ends")
        house.do(house.live_state.publish([house.forecast("north-1", ORIGIN_MS + STEP_MS)]))
        look("visible")
        page.until(f"{VIEW}.includes('Measured up to 01:05')")
        assert house.state.events.open == 1
        assert page.ask("[window.changed, document.getElementById('banner').innerText]") == [None, ""]


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


def test_words_that_do_not_come_at_first_are_asked_for_again(page: Page, tmp_path: Path) -> None:
    """As over a poor network: without them the page stayed empty until somebody loaded it again."""
    house = House(tmp_path)
    house.fill()
    page.call("Network.enable")
    page.call("Network.setBlockedURLs", urls=["*/words/en.json"])
    with opened(house) as address:
        page.open(address)
        page.until("performance.getEntriesByType('resource').some((one) => one.name.endsWith('/words/en.json'))")
        page.until("window.uPlot")
        assert page.ask(STATE) == ""
        page.call("Network.setBlockedURLs", urls=[])
        page.until(f"{STATE} === 'live' && {VIEW}.includes('Measured up to 01:00')")


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
