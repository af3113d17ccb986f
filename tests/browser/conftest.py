"""One browser for the tests of a file; each test has a window of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.driver import Page, open_page
from tests.browser.ruled import Ruled, opened_rules, ruled_house


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


@pytest.fixture
def house(tmp_path: Path) -> Ruled:
    """One whose rules can be changed, with an operator's key."""
    return ruled_house(tmp_path)


@pytest.fixture
def rules(page: Page, house: Ruled) -> Iterator[Page]:
    """The rules of its site, with the card of the frost open; reached from the alerts."""
    with opened_rules(page, house):
        yield page
