"""The rules of one zone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edge.wire.alert_orders import ChangeRules
from edge.wire.topic import SITE_ZONE
from tests.browser.driver import Page
from tests.browser.ruled import BAR, VIEW, Ruled, field, save, write
from tests.browser.serving import opened
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


BRIEF = """Object.fromEntries([...document.querySelectorAll('details.rule')].map((one) =>
    [one.dataset.rule, one.querySelector('summary').innerText.replaceAll('\\u00a0', ' ')]))"""
OF_ZONES = {"changes": {"frost": {"limit": 9}, "heat": {"off": True}, "cool evening": {"kind": "frost", "limit": 15}}}
"""Rules of a site: one is changed, one is off, one was added."""


@pytest.fixture
def zone_rules(page: Page, house: Ruled) -> Iterator[Page]:
    """The rules of a zone that has some of its own, reached from the zone."""
    own = {"changes": {"frost": {"limit": 14}, "heat": {"off": False}, "cool evening": {"off": True}}}
    house.documents.take("demo", SITE_ZONE, ChangeRules({**OF_ZONES, "crop": "tomato"}), ORIGIN_MS)
    house.documents.take("demo", "north-1", ChangeRules(own), ORIGIN_MS)
    with opened(house) as address:
        page.open(f"{address}/#/zone/demo/north-1")
        page.until("document.querySelector('[data-key=rules]')")
        page.ask("document.querySelector('[data-key=rules]').click()")
        page.until("location.hash === '#/rules/demo/north-1' && document.querySelector('[data-rule=frost]')")
        yield page


def test_a_zone_is_shown_the_rules_that_hold_in_it(zone_rules: Page) -> None:
    """What it has of its own is marked, what the site has is as well, and each leads to the other; the site names its
    zones with rules of their own.
    """
    assert "What you are warned of: Tomatoes, north" in zone_rules.ask(VIEW)
    said = zone_rules.ask(BRIEF)
    assert said["frost"].startswith("Cold this zone's own below 14.0 °C")
    assert said["heat"].startswith("Heat this zone's own above 33.0 °C")
    assert said["cool evening"].split() == ["Cool", "evening", "off", "this", "zone's", "own"]
    assert said["condensation"].startswith("Condensation from a chance of 25 %")
    assert (
        zone_rules.ask("document.querySelector('#rules-crop').selectedOptions[0].label") == "As the greenhouse: Tomato"
    )
    assert zone_rules.barriers() == []
    zone_rules.ask("document.querySelector('#rules a[href=\"#/rules/demo\"]').click()")
    zone_rules.until("location.hash === '#/rules/demo' && document.getElementById('zones-with-rules')")
    said = zone_rules.ask(BRIEF)
    assert said["frost"].startswith("Cold yours below 9.0 °C")
    assert said["heat"].split() == ["Heat", "off", "yours"]
    assert "A zone has rules of its own: Tomatoes, north" in zone_rules.ask(VIEW)
    assert zone_rules.barriers() == []
    zone_rules.ask("document.querySelector('#zones-with-rules a').click()")
    zone_rules.until("location.hash === '#/rules/demo/north-1' && document.getElementById('zone-choice')")
    zone_rules.ask("""{ const one = document.getElementById('zone-choice'); one.value = 'demo/north-2';
        one.dispatchEvent(new Event('change')); }""")
    zone_rules.until("location.hash === '#/rules/demo/north-2' && document.querySelector('[data-rule=frost]')")
    said = zone_rules.ask(BRIEF)
    assert said["frost"].startswith("Cold the greenhouse's below 9.0 °C")
    assert said["cool evening"].startswith("Cool evening the greenhouse's below 15.0 °C")
    assert zone_rules.complaints == []


def test_what_is_changed_of_a_zone_holds_in_it_alone(zone_rules: Page, house: Ruled) -> None:
    """Limits, crop, and what is off; a mistake is told beside its field; what it has of its own can be taken back."""
    before = house.changes
    zone_rules.ask("document.querySelector('[data-rule=frost]').open = true")
    write(zone_rules, "chance", "200")
    save(zone_rules, "op-key")
    zone_rules.until(f"{field('chance')}?.getAttribute('aria-invalid') === 'true'")
    assert "It must be between 1 % and 99 %." in zone_rules.ask(VIEW)
    write(zone_rules, "chance", "30")
    zone_rules.ask(f"{field('off', 'heat')}.click()")
    zone_rules.ask("document.querySelector('[data-rule=\"cool evening\"]').open = true")
    zone_rules.ask(f"{field('back', 'cool evening')}.click()")
    zone_rules.until(f"{VIEW}.includes('own values are taken back when you save')")
    zone_rules.ask("""{ const one = document.getElementById('rules-crop'); one.value = 'lettuce';
        one.dispatchEvent(new Event('change')); }""")
    zone_rules.ask("document.querySelector('[data-key=save]').click()")
    zone_rules.until(f"({BAR}).includes('Saved.')")
    assert house.zone_rules == {
        "north-1": {"crop": "lettuce", "changes": {"frost": {"limit": 14, "chance": 0.3}, "heat": {"off": True}}}
    }
    assert house.changes == before
    assert zone_rules.ask(BRIEF)["cool evening"].startswith("Cool evening the greenhouse's below 15.0 °C")
    zone_rules.ask("""{ const one = document.getElementById('rules-crop'); one.value = '';
        one.dispatchEvent(new Event('change')); }""")
    for rule in ("frost", "heat"):
        zone_rules.ask(f"document.querySelector('[data-rule={rule}]').open = true")
        zone_rules.ask(f"{field('back', rule)}.click()")
    zone_rules.until(f"({BAR}).includes('3 changes are not saved.')")
    zone_rules.ask("document.querySelector('[data-key=save]').click()")
    zone_rules.until(f"({BAR}).includes('Saved.') && !({BAR}).includes('not saved')")
    assert house.zone_rules == {}
    assert house.changes == before
    # Where the site warns of nothing the zone can be warned.
    zone_rules.ask("document.querySelector('[data-rule=heat]').open = true")
    zone_rules.ask(f"{field('off', 'heat')}.click()")
    zone_rules.ask("document.querySelector('[data-key=save]').click()")
    zone_rules.until(f"({BAR}).includes('Saved.') && !({BAR}).includes('not saved')")
    assert house.zone_rules == {"north-1": {"changes": {"heat": {"off": False}}}}
    assert zone_rules.ask(BRIEF)["heat"].startswith("Heat this zone's own above 33.0 °C")
