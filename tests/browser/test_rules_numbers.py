"""Numbers of rules, in any language and unit: how they are typed, what they mean, and what is wrong with them."""

from __future__ import annotations

import pytest

from tests.browser.driver import Page
from tests.browser.ruled import BAR, VIEW, Ruled, field, label, save, write
from tests.browser.serving import opened
from tests.patience import until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_mistakes_are_told_beside_their_field(rules: Page, house: Ruled) -> None:
    """In the units of the field; nothing is saved, what was typed stays, and the field has the focus."""
    write(rules, "chance", "200")
    save(rules, "op-key")
    rules.until(f"{field('chance')}?.getAttribute('aria-invalid') === 'true'")
    error = f"document.getElementById({field('chance')}.getAttribute('aria-describedby')).textContent"
    assert rules.ask(error) == "It must be between 1 % and 99 %."
    assert rules.ask(f"document.activeElement === {field('chance')}")
    assert rules.ask(f"{field('chance')}.value") == "200"
    assert rules.ask(BAR).startswith("Nothing was saved:")
    assert house.changes == {}
    assert rules.barriers() == []
    write(rules, "chance", "20")
    rules.ask(f"{field('keep_min')}.focus()")
    write(rules, "keep_min", "-5")
    save(rules)
    rules.until(f"{field('keep_min')}?.getAttribute('aria-invalid') === 'true'")
    assert rules.ask("document.querySelectorAll('[aria-invalid]').length") == 1
    write(rules, "keep_min", "30")
    save(rules)
    rules.until(f"({BAR}).includes('Saved.')")
    assert house.changes == {"frost": {"chance": 0.2, "keep_min": 30}}


@pytest.mark.parametrize(
    ("rule", "typed", "between"),
    [
        ("heat", "335", "It must be between −4 °F and 140 °F."),
        ("mean_low", "40", "It must be between −36 °F and 36 °F."),
        ("plan_not_followed", "400", "It must be between 0 and 100."),
    ],
)
def test_a_limit_that_no_greenhouse_has_is_not_saved(
    rules: Page, house: Ruled, rule: str, typed: str, between: str
) -> None:
    """It may be a forgotten decimal comma: a rule that never warns is not noticed otherwise."""
    rules.ask("""{ const one = document.getElementById('warmth'); one.value = 'f';
        one.dispatchEvent(new Event('change', {bubbles: true})) }""")
    rules.until(f"{VIEW}.includes('Cold below 39.2 °F')")
    rules.ask(f"document.querySelector('[data-rule={rule}]').open = true")
    write(rules, "limit", typed, rule)
    save(rules, "op-key")
    rules.until(f"{field('limit', rule)}?.getAttribute('aria-invalid') === 'true'")
    assert between in rules.ask(VIEW)
    assert house.changes == {}


@pytest.mark.parametrize(
    ("language", "shown", "typed"),
    [
        ("en", "0.5", {"12.5": 12.5, "12,5": 12.5, "1,500": None, "1.500": None, "1.1250": 1.125}),
        ("nl", "0,5", {"12,5": 12.5, "12.5": 12.5, "1.500": None, "1500": 1500, "0,125": 0.125}),
        ("es", "0,5", {"-2,5": -2.5, "−3": -3, ",5": 0.5, "5,": 5, "1e3": None, "1.000,5": None, "-": None}),
    ],
)  # fmt: skip
def test_a_comma_is_a_decimal_comma(
    rules: Page, house: Ruled, language: str, shown: str, typed: dict[str, float | None]
) -> None:
    """Whatever the browser's own language is. What may mean thousands is asked again; nothing else is saved for it."""
    rules.ask(f"""{{ window.before = document.querySelector('[data-rule=frost]');
        const one = document.getElementById('language'); one.value = '{language}';
        one.dispatchEvent(new Event('change', {{bubbles: true}})) }}""")
    rules.until("!window.before.isConnected")
    rules.until(f"document.documentElement.lang === '{language}' && {field('hysteresis')}?.value === '{shown}'")
    rules.ask("import('/page/views/rules.js').then((found) => { window.numberIn = found.numberIn; })")
    rules.until("window.numberIn")
    assert {text: rules.ask(f"window.numberIn({text!r})") for text in typed} == typed
    rules.ask("document.querySelector('[data-rule=frost]').open = true")
    wrong = next((text for text, number in typed.items() if number is None), "")
    write(rules, "limit", wrong)
    asked = {"en": "Is that 1500 or 1.5?", "nl": "Is dat 1500 of 1,5?", "es": "Esto no es un número."}
    rules.until(f"{field('limit')}.closest('div').innerText.includes('{asked[language]}')")
    save(rules)
    assert rules.ask(f"{field('limit')}.validity.customError && document.activeElement === {field('limit')}")
    text, number = next((text, number) for text, number in typed.items() if number is not None)
    write(rules, "limit", text)
    save(rules, "op-key")
    until(lambda: house.changes == {"frost": {"limit": number}}, "it is saved")


def test_limits_follow_the_choice_of_degrees(rules: Page, house: Ruled) -> None:
    """A temperature as °F, a difference without its offset; what is saved is in °C."""
    rules.ask("""{ const one = document.getElementById('warmth'); one.value = 'f';
        one.dispatchEvent(new Event('change', {bubbles: true})) }""")
    rules.until(f"{VIEW}.includes('Cold below 39.2 °F')")
    assert "°C" not in rules.ask(VIEW)
    rules.ask("document.querySelector('[data-rule=frost]').open = true")
    assert rules.ask(f"{field('hysteresis')}.value") == "0.9"
    write(rules, "limit", "50")
    save(rules, "op-key")
    rules.until(f"({BAR}).includes('Saved.')")
    assert house.changes == {"frost": {"limit": 10}}


def test_the_field_of_a_distance_says_from_what(rules: Page, house: Ruled) -> None:
    """The limit of such a rule is no temperature; one that is below has no minus on the page, and is saved with it."""
    assert rules.ask(label("limit", "frost")) == "Warn below (°C)"
    assert rules.ask(label("limit", "condensation")) == "Warn at less than this above the dew point (°C)"
    assert rules.ask(label("limit", "mean_low")) == "Warn at more than this below what the light asks for (°C)"
    assert rules.ask(label("limit", "mean_high")) == "Warn at more than this above what the light asks for (°C)"
    assert rules.ask(label("limit", "botrytis")) == (
        "Warn when wet for more than this in the last 24 hours, within the temperature band (h)"
    )
    assert rules.ask(f"{field('limit', 'mean_low')}.value") == "2"
    rules.ask("document.querySelector('[data-rule=mean_low]').open = true")
    write(rules, "limit", "2.5", rule="mean_low")
    write(rules, "night_limit", "4", rule="mean_low")
    save(rules, "op-key")
    rules.until(f"({BAR}).includes('Saved.')")
    assert house.changes == {"mean_low": {"limit": -2.5, "night_limit": -4}}
    assert "24-hour mean too low for the light yours by more than 2.5 °C" in rules.ask(VIEW)
    assert [rules.ask(f"{field(option, 'mean_low')}.value") for option in ("limit", "night_limit")] == ["2.5", "4"]


def test_what_must_be_given_is_told_in_the_numbers_of_the_language(page: Page, house: Ruled) -> None:
    """With a decimal comma, as beside the field."""
    with opened(house) as address:
        page.speak("nl")
        page.open(f"{address}/#/rules/demo")
        page.until("document.querySelector('[data-rule=frost]')")
        page.ask("document.querySelector('[data-rule=frost]').open = true")
        write(page, "lead_h", "0.1")
        save(page, "op-key")
        page.until(f"{VIEW}.includes('Het moet tussen 0,5 u en 24 u liggen.')")
