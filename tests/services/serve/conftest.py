"""The application that most tests ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.serve.api.auth import Keys
from tests.services.serve.system import System


@pytest.fixture
def system() -> Iterator[System]:
    """Two zones, reading open."""
    made = System(Keys("op-key"))
    yield made
    made.client.close()
