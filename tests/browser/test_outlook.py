"""What the page says of tonight and tomorrow, and the path that it draws, in a real browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.messages import Extreme
from services.serve.api.auth import Keys
from services.serve.live_state import LiveState
from tests.browser.driver import open_page
from tests.browser.serving import MINUTES, serving, whole_path
from tests.services.serve.fakes import ORIGIN_MS, FakeBackend, zone_forecast

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

OUTLOOK = "document.getElementById('outlook').innerText"
SAID = "document.getElementById('outlook-said').textContent"
NO_PATH = "document.getElementById('no-path').checkVisibility()"
CHART = "document.getElementById('chart').data"
AUCKLAND = "Pacific/Auckland"  # the origin is 13:00 on 1 March there


def extreme(level: float, minutes: int, first: int, last: int) -> Extreme:
    """Scenarios of a night or day: around a level, at a time of the path or an hour before; 21 past ones from 9 to 11
    degrees.
    """
    values = level + np.linspace(-1, 1, 100, dtype=np.float32)[:, None].repeat(3, axis=1)
    past = np.linspace(9, 11, 21, dtype=np.float32)[:, None].repeat(3, axis=1)
    at = np.full((100, 3), MINUTES.index(minutes), np.int64)
    at[:20] = MINUTES.index(minutes - 60)
    return Extreme(first=MINUTES.index(first), last=MINUTES.index(last), values=values, at=at, past=past)


@pytest.fixture
def backend() -> FakeBackend:
    """A zone with a path, another without; a night that begins at 19:30 in Auckland, and a day that goes on."""
    live_state = LiveState(10_000, lambda: ORIGIN_MS)

    async def fill() -> None:
        without: Any = zone_forecast("north-2")
        del without["path"]
        await live_state.publish([zone_forecast("north-1", path=whole_path()), without])

    asyncio.run(fill())
    made = FakeBackend(live_state)
    made.steps = np.array(MINUTES) // 5
    made.extremes = {"night": extreme(10, 990, 390, 1050), "day": extreme(24, 120, 5, 360)}
    return made


def test_tonight_and_tomorrow_are_told_in_words(backend: FakeBackend, tmp_path: Path) -> None:
    """Minimum and maximum with time and p10 to p90, the chance of a cold night and which limit that is: in the
    greenhouse's time, whatever the browser's is.
    """
    with (
        serving(backend.live_state, Keys("op-key"), backend, AUCKLAND) as address,
        open_page(tmp_path / "profile") as page,
    ):
        page.open("about:blank")
        page.call("Emulation.setTimezoneOverride", timezoneId="America/New_York")
        page.open(address)
        page.until(f"{OUTLOOK}.includes('Tonight')")
        words = " ".join(page.ask(OUTLOOK).split())
        assert "Tonight's minimum 10.0 °C at about 05:30" in words
        assert "80 % likely: 9.2 °C to 10.8 °C (p10 to p90); the time: 04:30 to 05:30." in words
        assert "Chance of a night below 9.2 °C 10 %" in words
        assert "The limit is the zone's own: one in ten of its 21 nights so far was colder." in words
        assert "Today's maximum, from now on 24.0 °C at about 15:00" in words
        assert page.ask(SAID) == ""
        assert page.ask("document.getElementById('time-zone').textContent") == AUCKLAND
        assert page.ask("document.getElementById('model').textContent").endswith("1 Mar, 13:00")
        assert page.ask(f"{CHART}[3].x[0]") == "2022-03-01 13:00:00"


def test_a_maximum_after_midnight_is_tomorrows(backend: FakeBackend, tmp_path: Path) -> None:
    """The day is named by the greenhouse's date; a night that goes on counts from now."""
    backend.extremes = {"night": extreme(10, 300, 5, 360), "day": extreme(24, 1200, 390, 1410)}
    with (
        serving(backend.live_state, Keys("op-key"), backend, AUCKLAND) as address,
        open_page(tmp_path / "profile") as page,
    ):
        page.open(address)
        page.until(f"{OUTLOOK}.includes('Tonight')")
        words = " ".join(page.ask(OUTLOOK).split())
        assert "Tonight's minimum, from now on 10.0 °C at about 18:00" in words
        assert "Tomorrow's maximum 24.0 °C at about 09:00" in words


def test_the_chart_draws_the_path(backend: FakeBackend, tmp_path: Path) -> None:
    """Every time of the path with its band, no straight line from 12 to 24 hours; of a zone without a path the page
    says so in a sentence, and marks the horizons.
    """
    path = whole_path()
    with serving(backend.live_state, Keys("op-key"), backend) as address, open_page(tmp_path / "profile") as page:
        page.open(address)
        page.until(f"{CHART}?.length === 4")
        for trace, name in ((1, "p10"), (2, "p90"), (3, "p50")):
            drawn = page.ask(f"{CHART}[{trace}].y")[1:]
            assert drawn == pytest.approx(path["targets"]["air_temp_c"][name])
        assert page.ask(f"{CHART}[3].x[{MINUTES.index(1080) + 1}]") == "2022-03-01 18:00:00"
        assert page.ask(f"{CHART}[3].mode") == "lines"
        assert not page.ask(NO_PATH)
        page.ask("document.querySelector('[data-key=\"demo/north-2\"]').click()")
        page.until(NO_PATH)
        page.until(f"{CHART}[3].mode === 'lines+markers'")
        assert len(page.ask(f"{CHART}[3].x")) == 11


def test_what_is_not_known_is_said_in_a_sentence(backend: FakeBackend, tmp_path: Path) -> None:
    """Few nights so far, no night within the path, a shard that is away: each is said, and the forecast stays."""
    night = extreme(10, 990, 390, 1050)
    night["past"] = night["past"][:3]
    backend.extremes = {"night": night}
    with serving(backend.live_state, Keys("op-key"), backend) as address, open_page(tmp_path / "profile") as page:
        page.open(address)
        page.until(f"{OUTLOOK}.includes('Tonight')")
        words = " ".join(page.ask(OUTLOOK).split())
        assert "Not known: too few nights were seen as a whole: 3 of 5." in words
        assert "The next day's maximum – Not known: no day ends within the path." in words
        backend.shard_away = "the zone's shard does not answer"
        page.ask("document.querySelector('[data-key=\"demo/north-2\"]').click()")
        page.until(f"{SAID} === 'Tonight and tomorrow cannot be said now: the zone\\'s shard does not answer.'")
        assert page.ask(OUTLOOK) == ""
        assert page.ask("document.getElementById('table').rows.length") > 5
        backend.shard_away = ""
        page.until(f"{OUTLOOK}.includes('Tonight')")
        page.until(f"{SAID} === ''")


def test_the_page_fits_a_phone(backend: FakeBackend, tmp_path: Path) -> None:
    """At 360 pixels nothing is wider than the screen, and no script complains."""
    with serving(backend.live_state, Keys("op-key"), backend) as address, open_page(tmp_path / "profile") as page:
        page.open("about:blank")
        page.call("Emulation.setDeviceMetricsOverride", width=360, height=780, deviceScaleFactor=2, mobile=True)
        page.open(address)
        page.until(f"{OUTLOOK}.includes('Tonight')")
        page.until(f"{CHART}?.length === 4")
        assert page.ask("document.documentElement.scrollWidth") <= 360
        widest = (
            "Math.max(...[...document.querySelectorAll('#outlook div')].map((e) => e.getBoundingClientRect().right))"
        )
        assert page.ask(widest) <= 360
