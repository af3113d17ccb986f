"""Where a process's own words go: a file of its own under ``logs/``, bounded in size. A leaf: it knows no part."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Literal

from edge.log_lines import formatter

__all__ = ["log_to_file", "request_fields"]

MAX_BYTES = 5_000_000
KEPT = 30
"""Replicas of one kind whose logs stay, the newest ones: each start of one has a name of its own."""
PACKAGES = ("services", "models")

request_fields: ContextVar[Mapping[str, Any]] = ContextVar("request_fields", default={})  # noqa: B039 - never changed
"""Fields of every line that is written while a request is answered."""


def log_to_file(
    folder: Path, name: str, form: Literal["text", "json"] = "text", level: Literal["info", "debug"] = "info",
    *, warns: bool = False, kind: str = "",
) -> Callable[[], None]:  # fmt: skip
    """Send this process's own log (``services`` and ``models``, from ``level``) to ``folder/name.log``; call it once.

    Ray keeps what its workers print in a temporary folder that goes with the runtime; this stays. What is returned
    ends it. ``warns``: warnings go to standard error, too, as where there is no file. ``kind``: a new name, which
    begins with it, is taken at each start; the oldest logs of such names are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if kind:
        _remove_oldest(folder, kind)
    file = _LogFile(folder / f"{name}.log", maxBytes=MAX_BYTES, backupCount=1, delay=True)
    file.setFormatter(formatter(form, name))
    file.addFilter(_with_request)
    handlers = [file, logging.lastResort] if warns and logging.lastResort else [file]
    loggers = {logging.getLogger(package): logging.getLogger(package).level for package in PACKAGES}
    for logger in loggers:
        logger.setLevel(level.upper())
        for handler in handlers:
            logger.addHandler(handler)

    def end() -> None:
        for logger, before in loggers.items():
            logger.setLevel(before)
            for handler in handlers:
                logger.removeHandler(handler)
        file.close()

    return end


class _LogFile(RotatingFileHandler):
    """Begins anew where its file is removed: thirty starts of a failing replica remove that of one with few words."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream and not Path(self.baseFilename).exists():
            self.close()
        super().emit(record)


def _remove_oldest(folder: Path, kind: str) -> None:
    """Leave room for one more log beside the newest; what was rotated goes and stays with its log."""
    changed_s: dict[str, float] = {}
    for path in folder.glob(f"{kind}-*.log*"):
        name = path.name.partition(".log")[0]
        with suppress(OSError):  # another one removes it
            changed_s[name] = max(changed_s.get(name, 0.0), path.stat().st_mtime)
    for name in sorted(changed_s, key=lambda one: changed_s[one])[: -(KEPT - 1)]:
        for path in (folder / f"{name}.log", folder / f"{name}.log.1"):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _with_request(record: logging.LogRecord) -> bool:
    if not hasattr(record, "fields"):
        record.fields = request_fields.get()
    return True
