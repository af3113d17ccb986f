"""Rows that come while the page is open."""

from __future__ import annotations

from tests.browser.driver import Page
from tests.browser.serving import House


def new_row(page: Page, house: House, origin_ms: int) -> None:
    """Publish a row of each zone, and wait until the page knows of it."""
    house.do(house.live_state.publish([house.forecast(zone, origin_ms) for zone in house.zones]))
    page.ask("import('/page/store.js').then((found) => { window.store = found.store; })")
    page.until(f"window.store.zones.every((zone) => zone.origin_ms === {origin_ms})")
