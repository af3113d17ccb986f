"""Rules that are typed and not saved: nobody else's change, no other view and no language loses them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.browser.driver import Page
from tests.browser.rows import new_row
from tests.browser.ruled import BAR, VIEW, Ruled, elsewhere, field, save, write
from tests.browser.serving import STEP_MS, opened
from tests.patience import until
from tests.services.serve.fakes import ORIGIN_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_what_somebody_else_changed_is_shown(rules: Page, house: Ruled) -> None:
    """A page that stays open follows rules that another browser changed, but never under what is typed."""
    rules.ask("{ const at = Date.now(); window.passed_ms = 0; Date.now = () => at + window.passed_ms; }")
    elsewhere("frost", house, limit=7.5)
    rules.ask("window.passed_ms = 61_000")
    rules.ask("document.querySelector('#rules details:not(.rule)').open = true")
    rules.ask("document.querySelector('[data-rule=heat] summary').focus()")
    new_row(rules, house, ORIGIN_MS + STEP_MS)
    rules.until(f"{VIEW}.includes('Cold yours below 7.5 °C')")
    assert rules.ask("document.querySelector('[data-rule=frost]').open")
    assert rules.ask("document.querySelector('#rules details:not(.rule)').open"), "somebody reads it as a file"
    assert rules.ask("document.activeElement.closest('[data-rule]')?.dataset.rule") == "heat"
    write(rules, "limit", "9")
    rules.until(f"({BAR}).includes('1 change is not saved.')")
    elsewhere("heat", house, limit=31)
    rules.ask("document.activeElement.blur()")
    rules.ask("window.passed_ms = 122_000")
    new_row(rules, house, ORIGIN_MS + 2 * STEP_MS)
    rules.ask("new Promise((go) => setTimeout(go, 300))")
    assert rules.ask(f"{field('limit')}.value") == "9"
    rules.ask("document.querySelector('[data-key=discard]').click()")
    rules.ask("window.passed_ms = 183_000")
    new_row(rules, house, ORIGIN_MS + 3 * STEP_MS)
    rules.until(f"{VIEW}.includes('Heat yours above 31.0 °C')")


def test_what_is_typed_while_it_saves_is_not_lost(rules: Page, house: Ruled) -> None:
    """The field has it, and the page says that it is not saved; a rule may have any name."""
    publish, may_end = house.backend.publish, threading.Event()

    async def slowly(topic: str, payload: bytes) -> None:
        await asyncio.to_thread(may_end.wait, 60)
        await publish(topic, payload)

    house.backend.publish = slowly  # type: ignore[method-assign]
    write(rules, "limit", "9.5")
    write(rules, "chance", "40")
    save(rules, "op-key")
    rules.until("!document.getElementById('order-key').open")
    write(rules, "limit", "8.5")
    write(rules, "keep_min", "33")
    may_end.set()
    rules.until(f"({BAR}).includes('Saved.')")
    assert "1 change is not saved." in rules.ask(BAR)
    assert [rules.ask(f"{field(option)}.value") for option in ("limit", "chance", "keep_min")] == ["8.5", "40", "33"]
    assert house.changes == {"frost": {"limit": 9.5, "chance": 0.4}}
    rules.ask(f"{field('limit')}.focus()")
    save(rules)
    rules.until(f"!({BAR}).includes('not saved')")
    assert house.changes == {"frost": {"limit": 8.5, "chance": 0.4, "keep_min": 33}}


def test_what_is_not_saved_is_not_lost_by_leaving(rules: Page, house: Ruled) -> None:
    """Another view asks first, and staying keeps what was typed, also in another language; the browser asks before it
    closes the page.
    """
    write(rules, "limit", "9")
    rules.ask("document.querySelector('[data-key=system]').click()")
    rules.until("document.getElementById('sure').open")
    assert rules.ask("document.getElementById('sure-what').textContent") == "Leave, and lose what is not saved?"
    rules.ask("document.getElementById('sure-no').click()")
    rules.until("!document.getElementById('sure').open && location.hash === '#/rules'")
    assert rules.ask(f"{field('limit')}.value") == "9"
    rules.ask("""{ const one = document.getElementById('language'); one.value = 'nl';
        one.dispatchEvent(new Event('change', {bubbles: true})) }""")
    rules.until(f"({BAR}).includes('1 wijziging is niet opgeslagen.')")
    assert "Kijkt vooruit (u)" in rules.ask("document.querySelector('[data-rule=frost]').textContent")
    assert rules.ask(f"{field('limit')}.value") == "9"
    assert rules.ask("dispatchEvent(new Event('beforeunload', {cancelable: true}))") is False
    rules.ask("document.querySelector('[data-key=system]').click()")
    rules.until("document.getElementById('sure').open")
    rules.ask("document.getElementById('sure-yes').click()")
    rules.until("location.hash === '#/system'")
    assert house.changes == {}
    rules.ask("location.hash = '#/rules'")
    rules.until("document.querySelector('[data-rule=frost]')")
    assert rules.ask(f"{field('limit')}.value") == "4"
    assert rules.ask(BAR) == ""


def test_what_is_no_number_yet_is_not_lost_either(rules: Page, house: Ruled) -> None:
    """It was what had been typed up to then that was kept, and saved: 1,5 of 1,500. In another language it stays, too,
    and the person says which number it is.
    """
    write(rules, "limit", "1,50")
    rules.type("0")
    rules.ask("document.querySelector('[data-key=system]').click()")
    rules.until("document.getElementById('sure').open")
    rules.ask("document.getElementById('sure-no').click()")
    rules.until("!document.getElementById('sure').open && location.hash === '#/rules'")
    assert rules.ask(f"{field('limit')}.value") == "1,500"
    assert "Is that 1500 or 1.5?" in rules.ask(f"{field('limit')}.closest('div').innerText")
    rules.ask(f"{field('chance')}.focus()")
    save(rules)
    rules.until(f"document.activeElement === {field('limit')}")
    assert house.changes == {}
    rules.ask("""{ const one = document.getElementById('language'); one.value = 'nl';
        one.dispatchEvent(new Event('change', {bubbles: true})) }""")
    rules.until(f"({BAR}).includes('1 wijziging is niet opgeslagen.')")
    assert rules.ask(f"{field('limit')}.value") == "1,500"
    rules.ask("document.querySelector('[data-rule=frost]').open = true")
    write(rules, "limit", "1,5")
    save(rules, "op-key")
    until(lambda: house.changes == {"frost": {"limit": 1.5}}, "it is saved")


def test_who_stays_with_a_zones_rules_sees_that_zone_in_the_list(page: Page, house: Ruled) -> None:
    """Not the one that was chosen and not gone to."""
    chosen = "document.getElementById('zone-choice')"
    with opened(house) as address:
        page.open(f"{address}/#/rules/demo/north-1")
        page.until("document.querySelector('[data-rule=frost]')")
        page.ask("document.querySelector('[data-rule=frost]').open = true")
        write(page, "limit", "9")
        page.ask(f"{chosen}.value = 'demo/north-2'; {chosen}.dispatchEvent(new Event('change'))")
        page.until("document.getElementById('sure').open && location.hash === '#/rules/demo/north-1'")
        page.ask("document.getElementById('sure-no').click()")
        page.until(f"{chosen}.value === 'demo/north-1'")
        assert page.ask(f"{field('limit')}.value") == "9"


def test_going_back_from_what_is_not_saved_keeps_the_browsers_history(rules: Page, house: Ruled) -> None:
    """Who stays can go back as before, and who leaves is where the browser's button leads, with the rules ahead."""
    rules.ask("location.hash = '#/now'")
    rules.until(f"{VIEW}.includes('No alert.')")
    rules.ask("document.querySelector('[data-key=system]').click()")
    rules.until(f"{VIEW}.includes('12.5 a second')")
    rules.ask("location.hash = '#/rules'")
    rules.until("document.querySelector('[data-rule=frost]')")
    rules.ask("document.querySelector('[data-rule=frost]').open = true")
    write(rules, "limit", "9")
    for answer, then in (("no", "rules"), ("yes", "system")):
        rules.ask("void history.back()")
        rules.until("document.getElementById('sure').open && location.hash === '#/rules'")
        rules.ask(f"document.getElementById('sure-{answer}').click()")
        rules.until(f"!document.getElementById('sure').open && location.hash === '#/{then}'")
    rules.until(f"{VIEW}.includes('12.5 a second')")
    rules.ask("void history.back()")
    rules.until("location.hash === '#/now'")
    rules.ask("void history.go(2)")
    rules.until("location.hash === '#/rules'")
    rules.until(f"{field('limit')}?.value === '4'")
