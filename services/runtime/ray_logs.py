"""Ray keeps the logs of every process that it ever started: of those that have ended, the newest are enough.

Each training starts processes. Without this their files would be the one thing that grows as long as a system runs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["KEPT", "PRUNE_EVERY_S", "prune_logs"]

KEPT = 30
"""Processes that have ended whose logs stay: enough to see why a training failed again and again."""
PRUNE_EVERY_S = 300.0
_OF_A_PROCESS = re.compile(
    r"(?:(?:python-core-)?worker-\w+(?:-\w+)?[-_]|event_(?:CORE_WORKER|EXPORT_TASK)_)(\d+)"
    r"\.(?:log|out|err)(?:\.\d+)?"
)
_OF_A_DATASET = "session_*/logs/ray-data/ray-data-*_*.log"


def prune_logs(folder: Path, kept: int = KEPT) -> int:
    """Remove the logs of processes that have ended from a runtime's temporary folder, but for the newest ``kept``, and
    of data sets that were read likewise.

    Returns how many files were removed. A process whose number another one has by now counts as running.
    """
    ended: defaultdict[int, list[tuple[float, Path]]] = defaultdict(list)
    for path in folder.glob("session_*/logs/**/*"):
        found = _OF_A_PROCESS.fullmatch(path.name)
        if found is None or Path(f"/proc/{found[1]}").exists():
            continue
        ended[int(found[1])] += _dated([path])
    oldest_first = sorted((files for files in ended.values() if files), key=max)
    surplus = [path for files in oldest_first[: max(0, len(oldest_first) - kept)] for _, path in files]
    surplus += [path for _, path in sorted(_dated(folder.glob(_OF_A_DATASET)))[:-kept]]
    for path in surplus:
        path.unlink(missing_ok=True)
    return len(surplus)


def _dated(paths: Iterable[Path]) -> list[tuple[float, Path]]:
    """Each with the time of its last change."""
    found = []
    for path in paths:
        with suppress(OSError):  # Ray has moved it meanwhile
            found.append((path.stat().st_mtime, path))
    return found
