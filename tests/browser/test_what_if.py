"""The view of what-ifs as people use it: a slider that is drawn, the plan in force, a page that is left open."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.driver import Page
from tests.browser.serving import House, opened
from tests.patience import until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

VIEW = "document.getElementById('view').innerText.replace(/\\s+/g, ' ')"
ANSWERED = "document.querySelector('#effect')"


def test_the_slider_follows_the_mouse(page: Page, tmp_path: Path) -> None:
    """It is drawn in one go from the middle to near its end; beside it stands its value, and that is asked."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(ANSWERED)
        page.drag("#amount", page.ask("document.querySelector('#amount').clientWidth") * 0.4, 0)
        value = float(page.ask("document.querySelector('#amount').value"))
        assert value > 4
        assert page.ask("document.querySelector('output').textContent").startswith(f"+{value}")
        assert page.ask("document.querySelector('#amount').getAttribute('aria-valuetext')").startswith(f"+{value}")
        until(lambda: house.backend.asked[-1][0]["value"] == value, "its value is asked")
    assert page.complaints == []


def test_a_time_is_typed_in_one_go(page: Page, tmp_path: Path) -> None:
    """Minutes that are typed after hours are minutes, though the plan is drawn anew in between."""
    house = House(tmp_path)
    house.fill()
    with opened(house) as address:
        page.open(f"{address}/#/whatif/demo/north-1")
        page.until(ANSWERED)
        page.ask("document.querySelector('#from').focus()")
        for key in "0545":
            page.press(key)
        page.until("document.querySelector('#from').value === '05:45'")
        page.until(f"{VIEW}.includes('Tue 1 Mar, 05:45 to')")
