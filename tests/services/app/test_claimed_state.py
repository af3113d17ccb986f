"""A start takes the state for itself, and leaves alone what is no state of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from services.app.whole_system import System
from services.config import load_settings
from services.errors import StartError


def test_a_start_on_a_storage_that_is_not_mounted_writes_nothing_there(tmp_path: Path) -> None:
    """It would begin from nothing, under a log that goes on."""
    settings = load_settings(data_dir=tmp_path / "data")
    for _ in range(2):
        first = System(settings)
        first._claim_state()
        first._parts.close()
    mounted = settings.storage_folder.rename(tmp_path / "elsewhere")
    settings.storage_folder.mkdir()
    second = System(settings)
    with pytest.raises(StartError, match=r"storage is empty, and .* belongs to the installation"):
        second._claim_state()
    second._parts.close()
    assert list(settings.storage_folder.iterdir()) == []
    shutil.rmtree(settings.storage_folder)
    mounted.rename(settings.storage_folder)
    third = System(settings)
    third._claim_state()
    third._parts.close()
