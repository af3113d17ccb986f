"""The log of the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.config import Settings
from services.log import open_settings_log, warn_of_unread_log


def test_a_log_file_that_kafka_took_the_place_of_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What no snapshot holds yet would be lost without a word."""
    in_a_file = Settings(data_dir=tmp_path)
    on_kafka = Settings.model_validate(
        {"data_dir": tmp_path, "log": {"kind": "kafka"}, "kafka": {"servers": ["a:9092"]}}
    )
    warn_of_unread_log(on_kafka)
    open_settings_log(in_a_file).close()
    warn_of_unread_log(in_a_file)
    assert caplog.messages == []
    warn_of_unread_log(on_kafka)
    assert [f"the log in {in_a_file.log_path} is not read" in line for line in caplog.messages] == [True]
