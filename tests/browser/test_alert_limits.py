"""The limits in alerts, in the words and units of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser.driver import Page
from tests.browser.serving import House, opened
from tests.services.alert.told import change

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

LIMITS = {
    "frost": (12.0, "(below 53.6 °F)", "(onder 12,0 °C)", "(por debajo de 12,0 °C)"),
    "heat": (33.0, "(above 91.4 °F)", "(boven 33,0 °C)", "(por encima de 33,0 °C)"),
    "condensation": (
        1.0, "(leaf or fruit less than 1.8 °F above the dew point)",
        "(blad of vrucht minder dan 1,0 °C boven het dauwpunt)",
        "(hoja o fruto a menos de 1,0 °C sobre el punto de rocío)",
    ),
    "vpd_low": (0.075, "(VPD below 0.075 kPa)", "(VPD onder 0,075 kPa)", "(DPV por debajo de 0,075 kPa)"),
    "vpd_high": (1.28, "(VPD above 1.28 kPa)", "(VPD boven 1,28 kPa)", "(DPV por encima de 1,28 kPa)"),
    "co2_low": (350.0, "(below 350 ppm)", "(onder 350 ppm)", "(por debajo de 350 ppm)"),
    "co2_high": (1500.0, "(above 1,500 ppm)", "(boven 1.500 ppm)", "(por encima de 1500 ppm)"),
    "botrytis": (
        8.0, "(wet for more than 8 h in the last 24)", "(meer dan 8 u nat in de laatste 24)",
        "(más de 8 h mojado en las últimas 24)",
    ),
    "mean_low": (-2.0, "(by more than 3.6 °F)", "(met meer dan 2,0 °C)", "(en más de 2,0 °C)"),
    "mean_high": (3.0, "(by more than 5.4 °F)", "(met meer dan 3,0 °C)", "(en más de 3,0 °C)"),
}  # fmt: skip
"""Kind -> a limit, and what is said of it in °F, in Dutch and in Spanish."""


@pytest.mark.parametrize(("place", "language"), [(1, "en-US"), (2, "nl"), (3, "es")])
def test_an_alert_names_its_limit(page: Page, tmp_path: Path, place: int, language: str) -> None:
    """Each kind in the words and units of the page. Condensation at the dew point needs none, as that is its name;
    an alert of a release before has none.
    """
    house = House(tmp_path)
    house.fill()
    none = {"dew": {"kind": "condensation", "limit": 0.0}, "before": {"kind": "frost"}}
    said = {kind: {"kind": kind, "limit": limit} for kind, (limit, *_) in LIMITS.items()}
    told = [change(id, zone="north-1", **{"rule": id, **more}) for id, more in (said | none).items()]
    house.do(house.live_state.put_alerts(told))
    page.speak(language)
    page.call(
        "Emulation.setTimezoneOverride", timezoneId="America/New_York" if language == "en-US" else "Europe/Madrid"
    )
    strong = "document.querySelector('[data-alert={id}] strong').textContent"
    with opened(house) as address:
        page.open(address)
        page.until(f"document.querySelectorAll('[data-alert]').length === {len(told)}")
        found = {alert["id"]: page.ask(strong.format(id=alert["id"])).replace("\u00a0", " ") for alert in told}
    assert {kind: re.findall(r"\(.*\)", found[kind]) for kind in LIMITS} == {
        kind: [words[place]] for kind, words in LIMITS.items()
    }
    assert not any("(" in found[id] for id in none)
