"""Where an actor's own words go: a file of its own under ``logs/``, bounded in size. A leaf: it knows no part."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

__all__ = ["log_to_file"]

MAX_BYTES = 5_000_000
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_file(folder: Path, name: str) -> None:
    """Send this process's own log (``services`` and ``models``, from INFO) to ``folder/name.log``; call it once.

    Ray keeps what its workers print in a temporary folder that goes with the runtime; this stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(folder / f"{name}.log", maxBytes=MAX_BYTES, backupCount=1, delay=True)
    handler.setFormatter(logging.Formatter(FORMAT))
    for package in ("services", "models"):
        logger = logging.getLogger(package)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
