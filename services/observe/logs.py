"""Where an actor's own words go: a file of its own under ``logs/``, bounded in size. A leaf: it knows no part."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

__all__ = ["log_to_file"]

MAX_BYTES = 5_000_000
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """A JSON object a line: ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``component``, ``message``, ``error``."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, also where message or traceback have several."""
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname, "logger": record.name, "component": self._component,
            "message": record.getMessage(),
        }  # fmt: skip
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def log_to_file(folder: Path, name: str, form: Literal["text", "json"] = "text") -> None:
    """Send this process's own log (``services`` and ``models``, from INFO) to ``folder/name.log``; call it once.

    Ray keeps what its workers print in a temporary folder that goes with the runtime; this stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(folder / f"{name}.log", maxBytes=MAX_BYTES, backupCount=1, delay=True)
    handler.setFormatter(JsonFormatter(name) if form == "json" else logging.Formatter(FORMAT))
    for package in ("services", "models"):
        logger = logging.getLogger(package)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
