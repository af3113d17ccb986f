"""For everybody, everywhere: phone, dark, keyboard alone, other languages and units, and nothing that axe finds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.config import SiteNames
from services.serve.api.assets import PAGE
from tests.browser.driver import Page
from tests.browser.serving import House, opened
from tests.services.serve.page_files import files_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
READY = {
    "now": "Tonight 14.0 °C", "zone/demo/north-1": "The forecast made 12 h before", "whatif/demo/north-1": "colder (",
    "quality/demo/north-1": "What each part weighs", "rules/demo": "Cold below 4.0", "models": "What happened",
    "system": "12.5 a second",
}  # fmt: skip
"""Address of each view -> what it says once everything is there."""

VIEWS = ("now", "zone", "what_if", "quality", "rules", "models", "system")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A house with two zones, the second of them weak."""
    house = House(tmp_path_factory.mktemp("house"))
    house.fill()
    house.do(
        house.live_state.publish(
            [house.forecast("north-2", degraded=["co2_ppm: last reading 22 min before the origin"])]
        )
    )
    event = {"kind": "swap", "version": "v2", "before": "v1", "reason": ""}
    house.do(house.live_state.put_event(event))  # type: ignore[arg-type]
    with opened(house) as found:
        yield found


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")],
    ids=["desktop", "dark", "phone", "dark phone"],
)  # fmt: skip
def test_every_view_can_be_used_by_everybody(browser: Page, address: str, width: int, scheme: str) -> None:
    """Axe finds nothing in any view; on a phone nothing is wider than the screen; no script complains."""
    browser.renew(width, 780, prefers_color_scheme=scheme)
    browser.open(address)
    for view, words in READY.items():
        browser.ask(f"location.hash = '#/{view}'")
        browser.until(f"{VIEW}.includes({words!r})")
        assert browser.barriers() == [], view
        assert browser.ask("document.documentElement.scrollWidth") <= width, view
        ground = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) < 150) == (scheme == "dark")
    assert browser.complaints == []


def test_long_names_make_no_view_wider_than_a_phone(browser: Page, tmp_path: Path) -> None:
    """Neither a label of many words, which a list of zones shows, nor a zone's name that has none to break at."""
    house = House(tmp_path, zones=("north-1", "a_zone_with_a_name_that_goes_on_and_on_without_a_break_0001"))
    label = "Compartment 12b, beef tomatoes, north wing, behind the packing hall and beside the heat store"
    house.state.names = SiteNames({"demo": "Demo house"}, {("demo", "north-1"): label})
    house.fill()
    house.do(house.live_state.publish([house.forecast(house.zones[1], degraded=["rh_pct: silent since 02:10"])]))
    browser.renew(360, 780)
    with opened(house) as address:
        browser.open(address)
        for view, words in READY.items():
            browser.ask(f"location.hash = '#/{view}'")
            browser.until(f"{VIEW}.includes({words!r})")
            # A phone that is given something wider shows all of it smaller: its window is wider then, too.
            assert browser.ask("[document.documentElement.scrollWidth, innerWidth]") == [360, 360], view


@pytest.mark.parametrize("language", ["en", "nl", "es"])
def test_text_of_twice_the_size_is_all_within_a_phone(browser: Page, address: str, language: str) -> None:
    """No view becomes wider, all views stay in reach at the bottom, and the last line is above them."""
    browser.renew(390, 844)
    browser.speak(language)
    for view in READY:
        browser.open("about:blank")
        browser.open(f"{address}/#/{view}")
        browser.until("document.querySelectorAll('#views a').length === 6")
        browser.ask("document.documentElement.style.fontSize = '200%'")
        browser.until("document.querySelector('#view section') && !document.querySelector('#view > .loading')")
        if view.startswith("zone"):
            browser.until("document.querySelectorAll('.uplot canvas').length === 3")
        assert browser.ask("[document.documentElement.scrollWidth, innerWidth]") == [390, 390], view
        ends = "[...document.querySelectorAll('#views a')].map((one) => one.getBoundingClientRect())"
        assert browser.ask(f"{ends}.every((one) => one.left >= 0 && one.right <= 390 && one.bottom <= 844)"), view
        browser.ask("scrollTo(0, document.documentElement.scrollHeight)")
        last, bar = ("document.getElementById('foot')", "document.getElementById('views')")
        assert browser.ask(f"{last}.getBoundingClientRect().bottom <= {bar}.getBoundingClientRect().top"), view


def test_the_keyboard_is_enough(page: Page, address: str) -> None:
    """From the first Tab: past the navigation to the content, into a zone, along its chart, and to a what-if question,
    with a focus that can be seen at each step.
    """
    page.open(address)
    page.until(f"{VIEW}.includes('Tonight 14.0 °C')")
    focused = "document.activeElement.innerText?.trim() || document.activeElement.id"
    page.press("Tab")
    assert page.ask(focused) == "Skip to the content"
    page.press("Enter")

    def go_to(condition: str) -> None:
        for _ in range(60):
            page.press("Tab")
            outline = page.ask("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", page.ask(focused)
            if page.ask(condition):
                return
        pytest.fail(f"no Tab reached {condition}")

    go_to("document.activeElement.matches('.zone')")
    page.press("Enter")
    page.until(f"{VIEW}.includes('Tonight the air falls')")
    page.until("document.querySelectorAll('.uplot canvas').length === 3")
    go_to("document.activeElement.matches('#chart-climate .plot')")
    page.press("ArrowLeft")
    page.until("/\\d/.test(document.querySelector('#chart-climate .sr').textContent)")
    page.ask("document.querySelector('#views a').focus()")
    go_to("document.activeElement.textContent === 'What if'")
    page.press("Enter")
    page.until(f"{VIEW}.includes('colder (')")
    go_to("document.activeElement.id === 'amount'")
    page.press("ArrowRight")
    page.until("document.querySelector('output').textContent.includes('1.0')")
    assert page.ask("document.activeElement.id") == "amount"


def test_skipping_to_the_content_stays_in_the_view(page: Page, address: str) -> None:
    """The zone that is open stays; the next Tab is in it."""
    page.open(f"{address}/#/zone/demo/north-1")
    page.until(f"{VIEW}.includes('Tonight the air falls')")
    page.press("Tab")
    assert page.ask("document.activeElement.id") == "skip"
    page.press("Enter")
    page.until("document.activeElement.id === 'view'")
    assert page.ask("location.hash") == "#/zone/demo/north-1"
    page.press("Tab")
    assert page.ask("document.activeElement.id") == "zone-choice"


@pytest.mark.parametrize("view", ["zone", "whatif", "quality"])
def test_the_choice_of_a_zone_keeps_the_focus(page: Page, address: str, view: str) -> None:
    """Arrow keys go from zone to zone."""
    page.open(f"{address}/#/{view}/demo/north-1")
    page.until(f"{VIEW}.includes({READY[f'{view}/demo/north-1']!r})")
    page.ask("document.getElementById('zone-choice').focus()")
    for key, zone in (("ArrowDown", "north-2"), ("ArrowUp", "north-1")):
        page.ask("document.getElementById('zone-choice').ofBefore = true")
        page.press(key)
        page.until(f"location.hash === '#/{view}/demo/{zone}'")
        page.until("!document.getElementById('zone-choice').ofBefore")
        page.until(f"{VIEW}.includes({READY[f'{view}/demo/north-1']!r})")
        page.until(f"document.activeElement.id === 'zone-choice' && document.activeElement.value === 'demo/{zone}'")
    assert page.complaints == []


@pytest.mark.parametrize(
    ("language", "words", "number"),
    [("nl", "Vannacht daalt de lucht tot", "14,0 °C"), ("es", "Esta noche el aire baja a", "14,0 °C")],
)
def test_other_languages(page: Page, address: str, language: str, words: str, number: str) -> None:
    """Chosen in the settings, the whole page changes, numbers as well; the choice is kept."""
    page.open(f"{address}/#/zone/demo/north-1")
    page.until(f"{VIEW}.includes('Tonight the air falls')")
    page.ask(f"""{{ const one = document.getElementById('language'); one.value = '{language}';
        one.dispatchEvent(new Event('change', {{bubbles: true}})) }}""")
    page.until(f"{VIEW}.replaceAll('\\u00a0', ' ').includes('{words} {number}')")
    assert page.ask("document.documentElement.lang") == language
    page.call("Page.reload")
    page.until(f"document.readyState === 'complete' && {VIEW}.includes('{words}')")
    for view in ("now", "whatif/demo/north-1", "quality/demo/north-1", "rules/demo", "models", "system"):
        page.ask(f"location.hash = '#/{view}'")
        page.until(f"!{VIEW}.includes('…') && {VIEW}.length > 100")
        left = re.findall(r"\b[a-z]+\.[a-z_]+(?:\.[a-z_]+)*\b", page.ask(VIEW))
        assert [one for one in left if one.count(".") >= 1 and not one.startswith("hothouse.")] == [], view
    assert page.complaints == []


def test_fahrenheit(page: Page, address: str) -> None:
    """Every temperature follows the choice, a difference as one; humidity stays."""
    page.open(f"{address}/#/zone/demo/north-1")
    page.until(f"{VIEW}.includes('Tonight the air falls')")
    page.ask("""{ const one = document.getElementById('warmth'); one.value = 'f';
        one.dispatchEvent(new Event('change', {bubbles: true})) }""")
    page.until(f"{VIEW}.replaceAll('\\u00a0', ' ').includes('Tonight the air falls to 57.2 °F')")
    said = page.ask(f"{VIEW}.replaceAll('\\u00a0', ' ')")
    assert "Leaf above the dew point 1.5 °F" in said
    assert "Heating setpoint 60.8 °F" in said
    assert "90 %" in said
    assert "°C" not in said.replace("Times:", "")
    page.ask("location.hash = '#/whatif/demo/north-1'")
    page.until(f"{VIEW}.includes('colder (')")
    said = page.ask(f"{VIEW}.replaceAll('\\u00a0', ' ')")
    assert "Heat 2.7 °F less Heat 2.7 °F more" in said
    assert "Vents at least 20 % open 5.4 °F colder outside" in said
    page.ask("document.querySelector('[data-key=cooler]').click()")
    page.until("document.querySelector('output').textContent === '−2.7\\u00a0°F'")
    assert "°C" not in said


@pytest.mark.parametrize(
    ("languages", "timezone", "unit"),
    [
        (("en-US", "en"), "America/Chicago", "°F"), (("en-US", "en"), "Europe/Amsterdam", "°C"),
        (("nl", "en-US"), "America/Chicago", "°C"), (("en",), "America/Chicago", "°C"),
    ],
)  # fmt: skip
def test_the_unit_is_at_first_that_of_the_browsers_country(
    page: Page, address: str, languages: tuple[str, ...], timezone: str, unit: str
) -> None:
    """Its first language and its time zone say which; what somebody chooses stays."""
    page.speak(*languages)
    page.call("Emulation.setTimezoneOverride", timezoneId=timezone)
    page.open(f"{address}/#/whatif/demo/north-1")
    page.until(f"document.querySelector('output')?.textContent.includes({unit!r})")
    assert page.ask("document.getElementById('warmth').selectedOptions[0].label") == unit
    page.ask("""{ const one = document.getElementById('warmth'); one.value = one.value === 'f' ? 'c' : 'f';
        one.dispatchEvent(new Event('change', {bubbles: true})) }""")
    page.until(f"!document.querySelector('output')?.textContent.includes({unit!r})")
    page.ask("window.isOld = true")
    page.call("Page.reload")
    page.until("!window.isOld && document.querySelector('output')?.textContent")
    assert unit not in page.ask("document.querySelector('output').textContent")


def words_of(language: str, part: str = "") -> dict[str, str]:
    said: dict[str, str] = json.loads((PAGE / "words" / f"{language}{part}.json").read_text())
    return said


@pytest.mark.parametrize("part", ["", *(f".{view}" for view in VIEWS)])
def test_translations_say_what_the_english_says(part: str) -> None:
    """Each message is in every language, with the same values in it; none is left over."""
    english, *others = (words_of(one, part) for one in ("en", "nl", "es"))
    for said in (english, *others):
        said.pop("mends", None)
    for other in others:
        assert other.keys() == english.keys()
        for key, text in english.items():
            assert set(re.findall(r"\{\w+\}", other[key])) == set(re.findall(r"\{\w+\}", text)), key


def test_every_message_that_is_asked_for_is_there() -> None:
    """What modules ask for by its full name is in the message file, or in that of a view, which needs the module."""
    english, parts = words_of("en"), {view: words_of("en", f".{view}") for view in VIEWS}
    every = [key for said in (english, *parts.values()) for key in said]
    assert len(every) == len(set(every))
    files = [file for file in PAGE.rglob("*.js") if file.parent.name != "vendor"]
    asked = {key for file in files for key in re.findall(r'\bt\(\s*"([^"]+)"', file.read_text())}
    assert len(asked) > 100
    assert asked - {re.sub(r"\.(one|other)$", "", key) for key in every} - set(every) == set()
    for view, said in parts.items():
        needed = files_of((PAGE / "views" / f"{view}.js").resolve(), "en")
        if view == "models":  # system says those words, too
            needed |= files_of((PAGE / "views" / "system.js").resolve(), "en")
        elsewhere = [file.read_text() for file in files if file.resolve() not in {one.resolve() for one in needed}]
        assert not [key for key in said if any(f'"{key}"' in text for text in elsewhere)], view
