"""One browser for the tests of a file; each test has a window of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.driver import Page, open_page
from tests.browser.ruled import Ruled, opened_rules, ruled_house
from tests.browser.serving import House, opened
from tests.browser.views import house_of_two


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A running Chromium."""
    with open_page(tmp_path_factory.mktemp("browser") / "profile") as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Page:
    """A new window of desktop size."""
    browser.renew()
    return browser


@pytest.fixture(scope="module")
def two_zones(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Two zones of a house near Delft; the second has a sensor that fails."""
    return house_of_two(tmp_path_factory.mktemp("house"))


@pytest.fixture(scope="module")
def address(two_zones: House) -> Iterator[str]:
    """Where these are served."""
    with opened(two_zones) as found:
        yield found


@pytest.fixture
def house(tmp_path: Path) -> Ruled:
    """One whose rules can be changed, with an operator's key."""
    return ruled_house(tmp_path)


@pytest.fixture
def rules(page: Page, house: Ruled) -> Iterator[Page]:
    """The rules of its site, with the card of the frost open; reached from the alerts."""
    with opened_rules(page, house):
        yield page
