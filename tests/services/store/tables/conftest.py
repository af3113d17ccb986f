"""The kinds of storage that a table can lie in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storages import TABLE_KINDS, Open, opener


@pytest.fixture(params=TABLE_KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Each kind that tables can lie in."""
    return opener(request.param, tmp_path, 0.1)
