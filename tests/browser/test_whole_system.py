"""The page over a whole system that runs: Ray, a broker, a simulated greenhouse, models that are swapped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from services.runtime.ports import free_port
from tests.browser.driver import Page
from tests.e2e.test_demo import Run
from tests.patience import patience_s

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
START_S = 120.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A demonstration with two zones, an hour in six seconds; every trained network serves."""
    folder, port = tmp_path_factory.mktemp("system"), free_port()
    temporary = Path(f"/tmp/t-{port}")  # Ray's socket paths bound its length
    temporary.mkdir()
    run = Run(folder, temporary, "demo", "--headless", "--zones", "2", "--warm-days", "3", "--speed", "600",
              "--retrain-every", "20", "--minutes", "20", "--port", str(port))  # fmt: skip
    found = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        try:
            return httpx.get(f"{found}/health/ready", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    try:
        run.wait_for(is_ready, "it is ready", patience_s(START_S))
        yield found
        run.stop(signal.SIGINT, group=True)
    finally:
        run.end()


def test_each_view_shows_what_goes_on(browser: Page, address: str) -> None:
    """Rows come by themselves, the night is told, a change is answered, models are swapped before one's eyes, and the
    parts of the system work; no script complains.
    """
    browser.renew()
    browser.open(f"{address}/#/now")
    browser.until("document.querySelectorAll('.zone').length === 2")
    browser.until("document.getElementById('state').textContent === 'live'")
    browser.until(f"{VIEW}.includes('Tonight ')")
    row = "document.querySelector('.zone').innerText.match(/Row of ([0-9:]+)/)[1]"
    first = browser.ask(row)
    browser.until(f"{row} !== {first!r}")
    key = browser.ask("document.querySelector('.zone').dataset.key")
    browser.ask("document.querySelector('.zone').click()")
    browser.until("document.querySelectorAll('.uplot canvas').length === 3")
    browser.until("document.getElementById('tonight')?.textContent.includes('°C')")
    at = "document.querySelector('#view .soft.small').textContent"
    before = browser.ask(at)
    browser.until(f"{at} !== {before!r}")
    browser.ask(f"location.hash = '#/whatif/{key}'")
    browser.until("document.getElementById('effect') || document.querySelector('#view .note.warn strong')")
    browser.ask(f"location.hash = '#/quality/{key}'")
    browser.until("document.querySelector('#scores tbody tr')")
    browser.until(f"{VIEW}.includes('What each part weighs')")
    browser.ask("location.hash = '#/system'")
    browser.until(f"{VIEW}.includes('Gateway (MQTT) works')")
    browser.ask("location.hash = '#/models'")
    swapped = "[...document.querySelectorAll('#timeline .swap')].length"
    browser.until(f"{swapped} > 0")
    assert "forecasts now" in browser.ask(VIEW)
    assert browser.complaints == []
