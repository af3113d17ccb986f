"""Keys for reading: asked for, refused, forgotten, replaced by others."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.access_keys import AccessKeys
from services.serve.api.auth import HashedKey, Keys
from tests.browser.driver import Page
from tests.browser.serving import House, opened
from tests.services.alert.told import change

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
STATE = "document.getElementById('state').textContent"
ASKED = "document.getElementById('key-form').checkVisibility()"
SAID = "document.getElementById('key-said').textContent"
KEPT = """(async () => [localStorage.length, sessionStorage.length, document.cookie, location.hash,
    (await indexedDB.databases()).length, (await caches.keys()).length, document.getElementById('key').value])()"""


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
