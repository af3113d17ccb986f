"""One browser for the tests of a file; each test has a window of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.driver import Page, open_page


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
