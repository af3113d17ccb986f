"""What a process says goes to a file of its own, as text or as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from services.observe.logs import log_to_file


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Those that a test adds are taken off again."""
    loggers = [logging.getLogger(name) for name in ("services", "models")]
    before = [(logger, list(logger.handlers), logger.level) for logger in loggers]
    yield
    for logger, handlers, level in before:
        for handler in set(logger.handlers) - set(handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)


def test_json_is_an_object_a_line(tmp_path: Path) -> None:
    """Whatever is in the message, and a traceback too; what other packages say is not there."""
    log_to_file(tmp_path, "shard-0", "json")
    logging.getLogger("services.ingest").warning('storage failed: "no\nroom", %s', "für 3 s")
    try:
        raise OSError("disk full")
    except OSError:
        logging.getLogger("models").exception("it ends")
    logging.getLogger("ray").error("not ours")
    first, second = map(json.loads, (tmp_path / "shard-0.log").read_text().splitlines())
    assert datetime.fromisoformat(first.pop("time")).utcoffset() is not None
    assert first == {
        "level": "WARNING", "logger": "services.ingest", "component": "shard-0",
        "message": 'storage failed: "no\nroom", für 3 s',
    }  # fmt: skip
    assert second["error"].endswith("OSError: disk full")


def test_text_is_the_default(tmp_path: Path) -> None:
    """A line that people read."""
    log_to_file(tmp_path, "shard-0")
    logging.getLogger("services.ingest").warning("storage failed")
    assert (tmp_path / "shard-0.log").read_text().endswith("WARNING services.ingest: storage failed\n")
