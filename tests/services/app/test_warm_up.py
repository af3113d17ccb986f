"""History is appended beside the start; what goes wrong there stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.log import Log
from services.app.warm_up import WarmUp
from services.config import load_settings
from services.errors import StartError


def test_what_the_work_raises_is_raised_where_it_is_awaited(tmp_path: Path) -> None:
    """And the log is there before the work has begun."""
    settings = load_settings(data_dir=tmp_path)
    there: list[Log] = []

    def work(log: Log) -> None:
        there.append(log)
        raise StartError("no history")

    warming = WarmUp(settings, work)
    with pytest.raises(StartError, match="no history"):
        warming.join()
    assert len(there) == 1
