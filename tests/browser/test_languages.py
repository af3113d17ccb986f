"""Dutch and Spanish as people write them: decimals, articles before times; and the colours of the API's description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.driver import Page
from tests.browser.held import hold, let_go
from tests.browser.serving import House, opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A house with two zones."""
    house = House(tmp_path_factory.mktemp("house"))
    house.fill()
    with opened(house) as found:
        yield found


def said(page: Page, language: str, expression: str, module: str = "words") -> Any:
    """What an expression says in a language, with a module of the page as ``m``. The page, which has just begun, may
    speak its own language meanwhile.
    """
    return page.ask(f"""(async () => {{
        const words = await import('/page/words.js');
        const m = await import('/page/{module}.js');
        do await words.speak('{language}'); while (words.spoken() !== '{language}');
        return {expression};
    }})()""")


@pytest.mark.parametrize("language", ["nl", "es"])
@pytest.mark.parametrize(
    ("english", "numbers"),
    [
        ("air_temp_c: stuck at 21.4 °C since 2022-03-01 14:05", "21,4 °C"),
        ("12,093 rows are closed; a forecast from the newest is awaited", "12.093"),
        ("errors are 1.75 times as large since 14:05", "1,75"), ("the newest reading is 2.5 h old.", "2,5 h"),
        ("sp_heat_c is -1.5, planned was 18.5", "-1,5, "),
        ("1,234.5 J/cm² came", "1.234,5"), ("broker 127.0.0.1:1883 is away", "127.0.0.1:1883"),
        ("read v1.2 of docs/plans.md", "v1.2"), ("since 2022-03-01 14:05", "2022-03-01 14:05"),
    ],
)  # fmt: skip
def test_numbers_in_sentences_of_the_api(page: Page, address: str, language: str, english: str, numbers: str) -> None:
    """Decimals and thousands are as in the rest of the page; addresses, versions and dates stay."""
    page.open(address)
    assert numbers in said(page, language, f"m.reason({json.dumps(english)})")
    assert said(page, "en", f"m.reason({json.dumps(english)})").endswith(english[-8:])


@pytest.mark.parametrize(
    ("english", "dutch"),
    [
        ("air_temp_c errors of 2.1 are 2.1 times as large since 14:05", "van 2.1 zijn 2,1 keer zo groot sinds 14:05"),
        ("out_temp_c of 2.1 is 2.1 °C below the two weeks before since 14:05", " van 2.1 ligt 2,1 °C onder de twee"),
        ("2.1/climate rh_pct looks like a share (0.62 to 0.71): send percent", "2.1/climate "),
        ("the forecast of 1.1/2.1 is too old to be used: no row has closed for 2.1 h", "1.1/2.1 is te oud: "),
        (
            "3 samples came; the first row, of 1.1, closes in 2.1 min of the stream, at 14:05",
            "van 1.1, sluit na 2,1 min",
        ),
        ("air_temp_c errors of 3.1 are 3.1 times as large since 14:05", "van 3,1 zijn 3,1 keer"),
    ],
)
def test_a_zone_that_is_called_as_a_number_keeps_its_name(page: Page, address: str, english: str, dutch: str) -> None:
    """Its point is no decimal, where a sentence names it; as a number it gets a comma."""
    page.open(address)
    assert dutch in said(page, "nl", f"(m.learnNames(['2.1', '1.1']), m.reason({json.dumps(english)}))")


@pytest.mark.parametrize(
    ("language", "key", "time", "words"),
    [
        ("en", "alert.since.firing", "14:05", "warned at 14:05"),
        ("en", "alert.since.firing", "Sat 26 Feb, 21:00", "warned on Sat 26 Feb, 21:00"),
        ("nl", "alert.since.firing", "14:05", "gewaarschuwd om 14:05"),
        ("nl", "alert.since.firing", "za 26 feb, 21:00", "gewaarschuwd op za 26 feb, 21:00"),
        ("nl", "zone.row", "om de 15 s", "Gemeten tot om de 15 s"),
        ("es", "alert.since.firing", "14:05", "avisada a las 14:05"),
        ("es", "alert.since.firing", "01:05", "avisada a la 01:05"),
        ("es", "alert.since.firing", "sáb, 26 feb, 21:00", "avisada el sáb, 26 feb, 21:00"),
        ("es", "alert.since.pending", "mié, 2 mar, 21:00", "desde el mié, 2 mar, 21:00"),
        ("es", "alert.until", "dom, 27 feb, 21:00", "silenciada hasta el dom, 27 feb, 21:00"),
    ],
)  # fmt: skip
def test_what_stands_before_a_time_follows_it(
    page: Page, address: str, language: str, key: str, time: str, words: str
) -> None:
    """In Spanish "las" before hours, "la" before one o'clock, and "el" before a day; in English "at" and "on"."""
    page.open(address)
    assert said(page, language, f"m.t({key!r}, {{time: {time!r}}})") == words


def test_the_language_that_is_chosen_last_is_spoken(page: Page, address: str) -> None:
    """Arrow keys go through the list; the words of one that was passed may come after those of the last."""
    page.open(address)
    page.until("document.getElementById('state').textContent === 'live'")
    choose = """((one) => { const list = document.getElementById('language'); list.value = one;
        list.dispatchEvent(new Event('change')); })"""
    hold(page, "page/words/nl.json")
    page.ask(f"{choose}('nl')")
    page.until("window.release")
    page.ask(f"{choose}('es')")
    page.until("document.documentElement.lang === 'es'")
    let_go(page)
    assert page.ask("document.documentElement.lang") == "es"
    assert "Qué requiere su atención" in page.ask("document.getElementById('view').innerText")


def test_negative_numbers_have_one_minus(page: Page, address: str) -> None:
    """The same sign as differences have, which no line breaks after."""
    page.open(address)
    for language, number in (("en", "−2.5"), ("nl", "−2,5"), ("es", "−2,5")):
        assert said(page, language, "m.count(-2.5, 1)", "units") == number


def test_the_description_of_the_api_follows_the_device(page: Page, address: str) -> None:
    """Also when its colours change while it is open, unless light or dark was chosen."""

    def scheme(value: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": value}]
        page.call("Emulation.setEmulatedMedia", features=features)

    theme = "document.documentElement.dataset.theme"
    scheme("light")
    page.open(f"{address}/docs")
    page.until(f"document.querySelector('#view h3') && {theme} === 'light'")
    scheme("dark")
    page.until(f"{theme} === 'dark'")
    page.ask("localStorage.setItem('hothouse', JSON.stringify({theme: 'light'}))")
    page.call("Page.reload")
    page.until(f"document.querySelector('#view h3') && {theme} === 'light'")
    scheme("light")
    scheme("dark")
    assert page.ask(f"new Promise((go) => setTimeout(() => go({theme}), 200))") == "light"
