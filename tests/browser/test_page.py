"""The page in a real browser: Chromium runs its scripts against the API and hands back the document."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.serve.api.auth import Keys
from services.serve.live_state import LiveState
from tests.browser.driver import FLAGS, chromium, open_page
from tests.browser.serving import serving, whole_path
from tests.patience import patience_s
from tests.services.serve.fakes import ORIGIN_MS, zone_forecast

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

STEP_MS = 300_000


@pytest.fixture
def live_state() -> LiveState:
    """Two zones, one of them degraded, the first with two days of past."""
    live_state = LiveState(10_000, lambda: ORIGIN_MS)
    ends = list(range(ORIGIN_MS - 575 * STEP_MS, ORIGIN_MS + 1, STEP_MS))

    async def fill() -> None:
        await live_state.publish([
            zone_forecast("north-1", now={"air_temp_c": 20.4, "rh_pct": 81.0, "sp_heat_c": 18.5, "rain": 1.0},
                          path=whole_path()),
            zone_forecast("north-2", degraded=["co2_ppm is missing <b>since</b> 3 h"]),
        ])  # fmt: skip
        await live_state.put_stats(
            "shard-0", {"accepted": 1200, "duplicates": 3, "late": 2, "rejected": {"<i>odd</i>": 4}}
        )
        await live_state.put_stats(
            "shard-1", {"accepted": 34, "duplicates": 0, "late": 5, "rejected": {"future_ts": 1}}
        )
        await live_state.put_stats("retrainer", {"refused": 9})
        await live_state.put_past("demo", "north-1", ends, {"air_temp_c": [19.0 + (i % 36) / 9 for i in range(576)]})

    asyncio.run(fill())
    return live_state


@pytest.fixture
def url(live_state: LiveState) -> Iterator[str]:
    """Where the API over that live state answers; no Ray behind it."""
    with serving(live_state, Keys("op-key")) as address:
        yield address


def browse(url: str, profile: Path) -> tuple[str, list[str]]:
    """The document after 5 s of the page's own time, and what its scripts complained about."""
    done = subprocess.run(
        [chromium(), *FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom", url],
        capture_output=True, text=True, timeout=patience_s(90), check=True,
    )  # fmt: skip
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def text_of(document: str, tag: str, of_id: str) -> str:
    """The text inside the element with that id."""
    found = re.search(rf'<{tag}[^>]*\bid="{of_id}".*?</{tag}>', document, re.DOTALL)
    assert found, f"no {tag} with id {of_id}"
    return re.sub(r"<[^>]+>|\s+", " ", found.group())


def test_the_page_shows_zones_now_chart_and_table(url: str, tmp_path: Path) -> None:
    """Every zone, the present climate by its name, past and band as a chart, and a table of the learned horizons and of
    every hour, without an error.
    """
    document, complaints = browse(url, tmp_path)
    assert complaints == []
    assert "2 zones, 1 degraded" in text_of(document, "p", "state")
    assert "Samples: 1,234 accepted · 3 sent twice · 7 too late · 5 refused" in text_of(document, "p", "intake")
    zones = text_of(document, "ul", "zones")
    assert "north-1" in zones
    assert "north-2" in zones
    now = text_of(document, "dl", "now")
    for shown in ("Air temperature", "20.4 °C", "Heating setpoint", "18.5 °C", "Rain", "yes"):
        assert shown in now
    assert text_of(document, "table", "table").count("°C") == 3 * 28
    assert "1 h" in text_of(document, "table", "table")
    assert "main-svg" in document
    assert document.count('class="js-line"') + document.count("js-line") >= 2
    assert "forecast (p50)" in document


def test_a_zone_of_the_address_is_shown_and_text_stays_text(url: str, tmp_path: Path) -> None:
    """The zone after # is chosen, and what a reason contains is never taken as markup."""
    document, complaints = browse(f"{url}/#demo%2Fnorth-2", tmp_path)
    assert complaints == []
    assert "demo/north-2" in text_of(document, "h2", "zone-name")
    assert "&lt;b&gt;since&lt;/b&gt;" in document
    assert "(&lt;i&gt;odd&lt;/i&gt; 4, future ts 1)" in document


SHOWN = "document.getElementById('key-form').checkVisibility()"
SAID = "document.getElementById('key-said').textContent"
STATE = "document.getElementById('state').textContent"
KEPT = """(async () => [localStorage.length, sessionStorage.length, document.cookie, location.href,
    (await indexedDB.databases()).length, (await caches.keys()).length,
    document.getElementById('key').value])()"""


def test_the_page_asks_for_the_key_and_goes_on(live_state: LiveState, tmp_path: Path) -> None:
    """Where reading needs a key the page asks for it, refuses a wrong one in words, and shows all with the right one:
    by the keyboard alone, without being loaded again. The key is in no storage, cookie or address; a reload forgets it.
    """
    with serving(live_state, Keys("op-key", "read-key")) as address, open_page(tmp_path / "profile") as page:
        page.open(f"{address}/#demo%2Fnorth-2")
        page.until(SHOWN)
        page.until("document.activeElement.id === 'key'")
        assert page.ask(STATE) == "a key is needed"
        assert page.ask(SAID) == ""
        assert "north-1" not in page.ask("document.body.innerText")
        page.ask("window.loaded = 'once'")
        for wrong in ("not-it", "Schlüssel €"):
            page.type(wrong)
            page.press("Enter")
            page.until(f"{SAID} === 'This key is not accepted.'")
            page.until("document.getElementById('key').value === ''")
            assert page.ask("document.activeElement.id") == "key"
            page.type("x")
            page.until(f"{SAID} === ''")
            page.ask("document.getElementById('key').value = ''")
        page.type("read-key")
        page.press("Enter")
        page.until(f"!{SHOWN}")
        page.until(f"{STATE} === '2 zones, 1 degraded'")
        page.until("document.getElementById('zone-name').textContent === 'demo/north-2'")
        page.until("document.getElementById('intake').textContent.startsWith('Samples: 1,234 accepted')")
        assert page.ask("window.loaded") == "once"
        assert page.ask(KEPT) == [0, 0, "", f"{address}/#demo%2Fnorth-2", 0, 0, ""]
        page.call("Page.reload")
        page.until(f"window.loaded === undefined && {SHOWN}")


def test_the_page_asks_again_when_the_key_no_longer_holds(live_state: LiveState, tmp_path: Path) -> None:
    """A key that is changed while the page is open is asked for again; what was shown is hidden meanwhile."""
    keys = Keys("op-key", "read-key")
    with serving(live_state, keys) as address, open_page(tmp_path / "profile") as page:
        page.open(address)
        page.until(SHOWN)
        page.type("read-key")
        page.press("Enter")
        page.until("document.getElementById('zones').innerText.includes('north-1')")
        keys._reader = "another"
        page.until(f"{SHOWN} && {SAID} === 'This key is not accepted.'")
        assert "north-1" not in page.ask("document.body.innerText")
        page.type("another")
        page.press("Enter")
        page.until("document.getElementById('zones').innerText.includes('north-1')")


def test_an_open_page_asks_for_no_key(url: str, tmp_path: Path) -> None:
    """Where reading is open there is no such question."""
    with open_page(tmp_path / "profile") as page:
        page.open(url)
        page.until("document.getElementById('zones').innerText.includes('north-1')")
        assert not page.ask(SHOWN)
