"""How good alerts were, on the page."""

from __future__ import annotations

import pytest

from models.alerts.alert_book import RULE_GONE
from tests.browser.driver import Page
from tests.browser.ruled import VIEW, Ruled
from tests.browser.serving import HOUR_MS, opened
from tests.services.serve.fakes import ORIGIN_MS, alert

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_how_good_alerts_were(page: Page, house: Ruled) -> None:
    """Each past alert with what became of it; by rule what came, what was false, and where that is not enough yet. The
    chance is that of an event which had not come.
    """
    fired = ORIGIN_MS - 30 * HOUR_MS
    base = {"fired_ms": fired, "began_ms": fired, "changed_ms": fired, "seen_ms": fired, "change": 1}
    over = {**base, "change": 2, "changed_ms": fired + 6 * HOUR_MS, "seen_ms": fired + 6 * HOUR_MS}
    came = {**over, "came_ms": fired + 2 * HOUR_MS, "from_ms": fired + 2 * HOUR_MS, "came_true": True}
    house.backend.alert_log = {
        "a": [alert("a", **base), alert("a", "resolved", **came)],
        "b": [alert("b", kind="heat", rule="heat", **base), alert("b", "resolved", kind="heat", rule="heat", **over)],
        "c": [alert("c", "resolved", kind="co2_low", rule="co2_low", **{**over, "came_ms": fired, "from_ms": fired})],
        "d": [alert("d", "resolved", kind="vpd_low", rule="vpd_low", text=RULE_GONE, **over)],
    }
    with opened(house) as address:
        page.open(f"{address}/#/quality/demo/north-1")
        page.until("document.querySelectorAll('#alert-scores tbody tr').length === 4")
        # The page may show it anew at any moment; what was opened stays open.
        page.ask("document.querySelector('#past-alerts').closest('details').open = true")
        box = "document.querySelector('#past-alerts').closest('details').parentElement"
        page.ask(
            "import('/page/views/alert_scores.js').then((module) => "
            f"module.showAlertScores({box}, 'demo/north-1', 'Europe/Amsterdam'))"
        )
        said = page.ask(VIEW)
        assert "Cold 1 1 0 0 2 h not yet: 1 of 5 events not yet: 1.2 of 7 days" in said
        assert "Heat 1 0 1 0 – not yet: 0 of 5 events" in said
        assert "Sun 27 Feb, 19:00 Cold 72 % it came 2 h" in said
        assert "Sun 27 Feb, 19:00 Heat 72 % it did not come –" in said
        assert "Sun 27 Feb, 19:00 CO₂ too low – it came 0 min" in said  # it was there when it was told: no chance
        assert "its rule was changed, or nothing more was read" in said
        assert page.barriers() == []
        assert page.complaints == []


def test_all_alerts_are_counted_where_only_the_newest_are_listed(page: Page, house: Ruled) -> None:
    """Beside what came and what did not, which are counts of all."""
    log = {}
    for n in range(205):
        fired = ORIGIN_MS - (10 + n) * HOUR_MS
        base = {"fired_ms": fired, "began_ms": fired, "changed_ms": fired, "seen_ms": fired, "change": 1}
        over = {**base, "change": 2, "changed_ms": fired + HOUR_MS, "seen_ms": fired + HOUR_MS}
        log[f"a{n}"] = [alert(f"a{n}", **base), alert(f"a{n}", "resolved", **over)]
    house.backend.alert_log = {**log, "open": [alert("open", fired_ms=ORIGIN_MS - HOUR_MS, change=1)]}
    with opened(house) as address:
        page.open(f"{address}/#/quality/demo/north-1")
        page.until("document.querySelectorAll('#past-alerts tbody tr').length === 200")
        cells = "[...document.querySelectorAll('#alert-scores tbody td')].map((one) => one.textContent)"
        fired_, *became = page.ask(cells)[:4]
        assert fired_ == "206"
        assert sum(map(int, became)) == 205
