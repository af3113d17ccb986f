"""The view of the system: what comes in, what was kept out, and which part fails."""

from __future__ import annotations

import pytest

from services.store.rows import DeadLetter
from tests.browser.driver import Page
from tests.browser.serving import House
from tests.browser.views import shows, text
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SYSTEM_MS = 5000
"""So often the view of the system asks."""


def test_system_says_what_comes_in_and_what_to_do(page: Page, two_zones: House, address: str) -> None:
    """Rates, what was kept out with what to do about it, and each part with its state."""
    two_zones.backend.letters = [letter(reason) for reason in ("malformed", "future_ts")]
    page.hurry(SYSTEM_MS)
    page.open(f"{address}/#/system")
    shows(page, "12.5 a second 1,200 taken so far.")
    said = text(page)
    assert "Too late 2 Their time was already processed." in said
    assert "Time in the future" in said
    assert "Set the device's clock, and send Unix time in milliseconds." in said
    assert "Refused 4 Could not be used; see below." in said
    assert "Learning (shard-0) works" in said
    two_zones.do(two_zones.live_state.put_stats("shard-0", {**two_zones.figures(), "last_error": "the disk is full"}))  # type: ignore[typeddict-item]
    shows(page, "the disk is full")
    refused = {
        "values_refused": {"out_of_range": 7},
        "plans_refused": {"malformed": 1},
        "plan_metrics_refused": {"unit": 2},
    }
    two_zones.do(two_zones.live_state.put_stats("shard-0", {**two_zones.figures(), **refused}))  # type: ignore[typeddict-item]
    shows(page, "Refused 14 Could not be used; see below.")
    two_zones.do(two_zones.live_state.put_stats("shard-0", two_zones.figures()))  # type: ignore[arg-type]


def test_what_to_do_is_in_sight_beside_long_topics(browser: Page, two_zones: House, address: str) -> None:
    """Names of sites and zones have no place to break at; the last column is not pushed out of the window."""
    topic = "hothouse/v1/demo/north-1/greenhouse_climate_computer_of_the_north_side/sample"
    two_zones.backend.letters = [letter("future_ts")._replace(topic=topic, detail=f"expected {topic}")]
    browser.renew(960, 900)
    browser.open(f"{address}/#/system")
    browser.until("document.querySelector('#letters tbody tr')")
    box = "document.querySelector('#view .scroll:has(#letters)')"
    assert browser.ask(f"{box}.scrollWidth - {box}.clientWidth") == 0


def test_a_part_that_has_died_does_not_work(page: Page, two_zones: House, address: str) -> None:
    """The live state keeps its last figures: the page says since when it tells nothing, and counts no samples of it."""
    page.hurry(SYSTEM_MS)
    page.open(f"{address}/#/system")
    shows(page, "12.5 a second")
    two_zones.state.view._told_s["shard-0"] -= 3600
    shows(page, "none just now 1,200 taken so far.")
    said = text(page)
    assert "something fails: shard-0: has reported nothing for 1 h" in said
    box = "document.querySelector('#ready{}').getBoundingClientRect()"
    assert page.ask(f"{box.format(' + .note')}.top - {box.format('')}.bottom") > 4
    assert "Learning (shard-0) fails" in said
    two_zones.do(two_zones.live_state.put_stats("shard-0", two_zones.figures()))  # type: ignore[arg-type]
    shows(page, "12.5 a second")
    assert "Learning (shard-0) works" in text(page)
    assert page.complaints == []


def test_system_stays_where_it_was_read(browser: Page, two_zones: House, address: str) -> None:
    """On a phone: new figures leave a table as far to the side as it was drawn, the focus, a fold that is open and a
    text that is selected. Where the table itself changes its place and the focus stay.
    """
    two_zones.backend.letters = [letter("malformed")]
    browser.renew(360, 780)
    browser.hurry(SYSTEM_MS)
    browser.open(f"{address}/#/system")
    shows(browser, "12.5 a second")
    table = "document.querySelector('#view .scroll:has(#letters)')"
    browser.ask(f"""{{ const table = {table}; table.scrollLeft = 150; table.focus();
        getSelection().selectAllChildren(table.querySelector('tbody code'));
        document.getElementById('raw').open = true; }}""")
    assert browser.ask(f"{table}.scrollLeft") == 150
    held = f"[{table}.scrollLeft, document.activeElement === {table}, document.getElementById('raw').open]"
    for rate in (20.5, 30.5, 40.5):
        two_zones.do(two_zones.live_state.put_stats("shard-0", two_zones.figures() | {"samples_per_s": rate}))  # type: ignore[arg-type]
        shows(browser, f"{rate} a second")
        assert browser.ask(held) == [150, True, True]
        assert browser.ask("getSelection().toString()") == "hothouse/v1/demo/north-1/a/sample"
    two_zones.backend.letters.append(letter("future_ts"))
    shows(browser, "Time in the future")
    assert browser.ask(held) == [150, True, True]
    browser.ask("document.querySelector('#raw a[href=metrics]').focus()")
    two_zones.do(two_zones.live_state.put_stats("shard-0", two_zones.figures()))  # type: ignore[arg-type]
    shows(browser, "12.5 a second")
    assert browser.ask("document.activeElement.textContent") == "/metrics"
    assert browser.complaints == []


def letter(reason: str) -> DeadLetter:
    """Something that was kept out."""
    return DeadLetter(0, 7, 0, ORIGIN_MS, "hothouse/v1/demo/north-1/a/sample", reason, f"{reason} it is", b"{}")
