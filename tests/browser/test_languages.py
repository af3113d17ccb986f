"""Dutch and Spanish as people write them: decimals, articles before times; and the colours of the API's description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from services.messages.sentences import codes_of
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
    page.until("document.body")  # of one that was just opened there may be nothing yet
    return page.ask(f"""(async () => {{
        const words = await import('/page/words.js');
        const m = await import('/page/{module}.js');
        do await words.speak('{language}'); while (words.spoken() !== '{language}');
        return {expression};
    }})()""")


def worded(page: Page, language: str, sentence: str, unit: str = "c") -> str:
    """How the page says a sentence of the API, with temperatures in this unit."""
    made = said(
        page,
        language,
        f"""(m.learnCodes({json.dumps(codes_of([sentence]))}),
        (await import('/page/prefs.js')).choose({{fahrenheit: {json.dumps(unit == "f")}}}),
        (await import('/page/units.js')).learnUnits({{air_temp_c: '°C', sp_heat_c: '°C', rh_pct: '%'}}),
        m.reason({json.dumps(sentence)}))""",
        "reasons",
    )
    assert isinstance(made, str)
    return made.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("language", "sentence", "words"),
    [
        (
            "nl", "air_temp_c: stuck at 21.4 °C since 2022-03-01 14:05",
            "Luchttemperatuur: staat vast op 21,4 °C sinds di 1 mrt, 14:05",
        ),
        ("es", "air_temp_c: silent since 01:10", "Temperatura del aire: en silencio desde la 01:10"),
        ("es", "no sample since 2022-03-01 14:05", "sin muestras desde el mar, 1 mar, 14:05"),
        ("en", "now: by no schedule", "now: none is scheduled"),
        (
            "es", "12,093 rows are closed; a forecast from the newest is awaited",
            "hay 12.093 filas; se calcula el pronóstico de la última",
        ),
        (
            "nl", "rh_pct: last reading 2.5 h before the origin",
            "Luchtvochtigheid: laatste meting 2 u 30 min voor de verwachting",
        ),
        ("nl", "nothing has come from this site for 45 s", "van deze kas is 45 s niets gekomen"),
        (
            "nl", "air_temp_c errors of 2.1 are 2.1 times as large since 14:05",
            "Luchttemperatuur: fouten van 2.1 zijn 2,1 keer zo groot sinds 14:05",
        ),
        (
            "en", "air_temp_c of 2.1 is 2.1 °C below the two weeks before since 14:05",
            "Air temperature of 2.1 is 2.1 °C below the two weeks before since 14:05",
        ),
        (
            "nl", "the forecast of 1.1/2.1 is too old to be used: the newest reading is 2 h old",
            "de verwachting van 1.1/2.1 is te oud: de nieuwste meting is 2 u oud",
        ),
        (
            "nl", "input drift at my_site_2022: rh_pct is 6 % above the two weeks before since 14:05",
            "my_site_2022: Luchtvochtigheid ligt 6,0 % boven de twee weken ervoor, sinds 14:05",
        ),
        ("nl", "in 2 h: every 6 h; a drift need not wait", "over 2 u: om de 6 u; een afwijking hoeft niet te wachten"),
        (
            "es", "The challenger does not beat the 24-hour naive and v1: its error is 1.1 (1.0 to 1.2) of the 24-hour "
            "naive, 1.1 (1.0 to 1.2) of v1, over 6,474 rows in 8 blocks of 12 h.",
            "no fue mejor que “como ayer” y v1",
        ),
        ("nl", "a newer server of my_site says air_temp_c", "a newer server of my_site says luchttemperatuur"),
    ],
)  # fmt: skip
def test_sentences_of_the_api(page: Page, address: str, language: str, sentence: str, words: str) -> None:
    """They are in the page's language, numbers, times and metrics, too; names stay. Else metrics alone."""
    page.open(address)
    said(page, language, "(await import('/page/words.js')).learn('.models')")
    assert worded(page, language, sentence) == words


def test_temperatures_in_sentences_are_as_the_person_likes_them(page: Page, address: str) -> None:
    """A difference is no temperature: 2 °C more is 3.6 °F more."""
    page.open(address)
    planned = "sp_heat_c is 15.0 °C, planned 18.0 °C"
    assert worded(page, "en", planned, "f") == "Heating setpoint is 59.0 °F, planned 64.4 °F"
    off = "air_temp_c: 2.0 °C below its usual range since 02:10"
    assert worded(page, "en", off, "f") == "Air temperature: 3.6 °F below its usual range since 02:10"


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


@pytest.mark.parametrize(
    ("inside", "words"), [(0.86, "quedó el 86 % de la noche"), (1.0, "quedó más del 99 % de la noche")]
)
def test_a_share_in_spanish_has_its_article(page: Page, address: str, inside: float, words: str) -> None:
    """But for one that is "more than" or "less than"."""
    page.open(address)
    night = said(
        page, "es", f"words.t('night.words', {{inside: m.percent({inside})}}).replaceAll('\\u00a0', ' ')", "units"
    )
    assert words in night
