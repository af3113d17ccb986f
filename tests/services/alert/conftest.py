"""A mail server for tests of alerts by e-mail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.alert.mail_box import MailBox


@pytest.fixture
def box() -> Iterator[MailBox]:
    """A server that takes mails."""
    made = MailBox()
    yield made
    made.close()
