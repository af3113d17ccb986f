"""What one is warned of, seen and changed on the page, over the API's own routes."""

from __future__ import annotations

import asyncio

import pytest

from edge.wire.alert_orders import ChangeRules
from edge.wire.topic import SITE_ZONE
from services.messages import SiteRulesShown
from services.serve.api.problems import ProblemError
from tests.browser.driver import Page
from tests.browser.ruled import BAR, VIEW, Ruled, field, save, write
from tests.browser.serving import STEP_MS, opened
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_rules_are_seen_and_changed_with_the_operators_key(rules: Page, house: Ruled) -> None:
    """Each rule says in a line what it warns of. A changed limit, chance, severity and hours are saved together, and
    shown as the site's own; the page says by whom and when.
    """
    assert "Cold below 4.0 °C · from a chance of 25 %, 12 h ahead · critical" in rules.ask(VIEW)
    assert "Nobody has changed them yet." in rules.ask(VIEW)
    assert rules.barriers() == []
    write(rules, "limit", "9.5")
    write(rules, "chance", "40")
    rules.ask(f"""{{ const one = {field("severity")}; one.value = 'info'; one.dispatchEvent(new Event('change')); }}""")
    rules.ask(f"""{{ const from = {field("hours")}, to = document.getElementById('frost-hours-to');
        from.value = '18:00'; from.dispatchEvent(new Event('change'));
        to.value = '24:00'; to.dispatchEvent(new Event('change')); }}""")
    rules.until(f"({BAR}).includes('1 change is not saved.')")
    rules.ask(f"{field('limit')}.focus()")
    save(rules, "op-key")
    rules.until(f"({BAR}).includes('Saved. It takes effect within half an hour.')")
    assert house.changes == {
        "frost": {"limit": 9.5, "chance": 0.4, "severity": "info", "hours": ["18:00", "24:00"]}
    }  # fmt: skip
    said = rules.ask(VIEW)
    assert "Cold yours below 9.5 °C · from a chance of 40 %, 12 h ahead · 18:00 to 24:00 · to know" in said
    assert "Changed now, on this page or by a program." in said
    assert "limit = 9.5" in rules.ask("document.querySelector('#rules pre').textContent")
    assert rules.barriers() == []


def test_a_rule_may_have_the_name_of_a_builtin(rules: Page, house: Ruled) -> None:
    """It is changed as any other, and nothing else of the page changes with it."""
    own = {"changes": {"__proto__": {"kind": "frost", "limit": 3}, "constructor": {"kind": "heat", "limit": 30}}}
    house.documents.take("demo", SITE_ZONE, ChangeRules(own), ORIGIN_MS)
    rules.ask("location.reload()")
    rules.until("document.querySelector('[data-rule=__proto__]')")
    rules.ask("document.querySelector('[data-rule=__proto__]').open = true")
    write(rules, "limit", "5", rule="__proto__")
    rules.until(f"({BAR}).includes('1 change is not saved.')")
    assert rules.ask("({}).limit === undefined")
    save(rules, "op-key")
    rules.until(f"({BAR}).includes('Saved.')")
    changes = house.changes
    assert isinstance(changes, dict)
    assert changes["__proto__"]["limit"] == 5


def test_a_rule_goes_back_to_the_crops(rules: Page, house: Ruled) -> None:
    """As a whole, or a field that is emptied. Another crop changes what is not one's own; a rule can be off."""
    write(rules, "limit", "9")
    write(rules, "for_min", "20")
    rules.ask(f"{field('off', 'co2_high')}.click()")
    rules.ask("""{ const one = document.getElementById('rules-crop'); one.value = 'tomato';
        one.dispatchEvent(new Event('change')); }""")
    rules.until(f"({BAR}).includes('3 changes are not saved.')")
    rules.ask(f"{field('limit')}.focus()")
    save(rules, "op-key")
    rules.until(f"({BAR}).includes('Saved.')")
    assert house.changes == {"frost": {"limit": 9, "for_min": 20}, "co2_high": {"off": True}}
    assert "CO₂ too high off yours" in rules.ask(VIEW)
    assert "Heat above 33.0 °C" in rules.ask(VIEW)
    write(rules, "for_min", "")
    rules.ask(f"{field('limit')}.focus()")
    save(rules)
    rules.until(f"({BAR}).includes('Saved.') && {field('for_min')}.value === '0'")
    assert house.changes == {"frost": {"limit": 9}, "co2_high": {"off": True}}
    rules.ask("document.querySelector('[data-rule=co2_high]').open = true")
    rules.ask(f"{field('off', 'co2_high')}.click()")
    rules.ask(f"{field('back')}.click()")
    rules.until(f"{VIEW}.includes('Goes back to the crop')")
    rules.ask("document.querySelector('[data-key=save]').click()")
    rules.until(f"({BAR}).includes('Saved.') && !document.querySelector('#view .badge')")
    assert house.changes == {}
    assert "Cold below 10.0 °C" in rules.ask(VIEW)


def test_fields_of_rules_in_any_letters_have_names_of_their_own(page: Page, house: Ruled) -> None:
    """The label of a field is that of no other one."""
    own = {name: {"kind": "frost"} for name in ("太冷", "太热")}
    house.documents.take("demo", SITE_ZONE, ChangeRules({"changes": own}, merge=True), ORIGIN_MS)
    with opened(house) as address:
        page.open(f"{address}/#/rules/demo")
        page.until("document.querySelectorAll('[data-rule=太冷], [data-rule=太热]').length === 2")
        ids = page.ask("[...document.querySelectorAll('#view [id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids))


def test_rules_that_could_not_be_read_are_asked_for_again(page: Page, house: Ruled) -> None:
    """A shard that was away when the view was opened: they are there with the next row, without being opened again."""
    works = house.backend.alert_rules

    async def away(site: str) -> SiteRulesShown:
        await asyncio.sleep(0)
        raise ProblemError(503, "the shard does not answer now")

    house.backend.alert_rules = away  # type: ignore[method-assign]
    with opened(house) as address:
        page.open(f"{address}/#/rules/demo")
        page.until(f"{VIEW}.includes('the shard does not answer now')")
        page.until("document.getElementById('state').textContent === 'live'")
        house.backend.alert_rules = works  # type: ignore[method-assign]
        house.do(house.live_state.publish([house.forecast("north-1", ORIGIN_MS + STEP_MS)]))
        page.until("document.querySelector('[data-rule=frost]')")


def test_rules_on_a_phone_by_the_keyboard(browser: Page, house: Ruled) -> None:
    """Nothing is wider than the screen, axe finds nothing in the dark; a card opens, a field changes and is saved with
    keys alone.
    """
    browser.renew(360, 780, prefers_color_scheme="dark")
    with opened(house) as address:
        browser.open(f"{address}/#/rules/demo")
        browser.until("document.querySelector('[data-rule=frost]')")
        browser.ask("document.querySelector('[data-rule=frost] summary').focus()")
        browser.press("Enter")
        browser.until("document.querySelector('[data-rule=frost]').open")
        for _ in range(3):
            browser.press("Tab")
            if browser.ask(f"document.activeElement === {field('limit')}"):
                break
        assert browser.ask(f"document.activeElement === {field('limit')}")
        browser.press("5")
        assert browser.ask("document.documentElement.scrollWidth") <= 360
        assert browser.barriers() == []
        save(browser, "op-key")
        browser.until(f"({BAR}).includes('Saved.')")
        assert house.changes == {"frost": {"limit": 5}}
        assert browser.ask("document.documentElement.scrollWidth") <= 360


def test_the_choice_of_a_site_keeps_the_focus(page: Page, house: Ruled) -> None:
    """The rules of another site have it in the same place."""
    house.do(house.live_state.publish([house.forecast("east-1", site="far")]))
    with opened(house) as address:
        page.open(f"{address}/#/rules/demo")
        page.until("document.querySelector('[data-rule=frost]') && document.getElementById('rules-site')")
        page.ask("document.getElementById('rules-site').focus()")
        page.press("ArrowDown")
        page.until("location.hash === '#/rules/far'")
        page.until("document.activeElement.id === 'rules-site' && document.activeElement.value === 'far'")
