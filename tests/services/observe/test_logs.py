"""What a process says goes to a file of its own, as text or as JSON."""

from __future__ import annotations

import json
import logging
import os
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


def test_of_replicas_the_newest_logs_stay(tmp_path: Path) -> None:
    """Each start of a replica takes a new name: a month of restarts leaves no more files than thirty starts."""
    for age in range(40):
        for name in (f"api-{age:08}.log", f"api-{age:08}.log.1", f"forecaster-{age:08}.log"):
            (tmp_path / name).write_text("said\n")
            os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    for name in ("api-00000000.txt", "main.log"):
        (tmp_path / name).write_text("said\n")
        os.utime(tmp_path / name, (1e8, 1e8))
    log_to_file(tmp_path, "api-new", kind="api")
    logging.getLogger("services").warning("began")
    kept = {path.name for path in tmp_path.glob("api-*.log")}
    assert kept == {"api-new.log"} | {f"api-{age:08}.log" for age in range(29)}
    assert len(list(tmp_path.glob("api-*.log.1"))) == 29
    assert len(list(tmp_path.glob("forecaster-*.log"))) == 40
    assert (tmp_path / "api-00000000.txt").exists()
    assert (tmp_path / "main.log").exists()


def test_a_log_that_another_replica_removed_begins_anew(tmp_path: Path) -> None:
    """A replica that runs for months with few words, while another one is started again and again."""
    log_to_file(tmp_path, "api-quiet", kind="api")
    logging.getLogger("services").warning("began")
    (tmp_path / "api-quiet.log").unlink()
    logging.getLogger("services").warning("still here")
    logging.getLogger("services").warning("and here")
    lines = (tmp_path / "api-quiet.log").read_text().splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == ["still here", "and here"]
