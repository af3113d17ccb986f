"""Ray keeps the logs of every process that it ever started: of those that have ended, the newest are enough.

Each training starts processes. Without this their files would be the one thing that grows as long as a system runs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

__all__ = ["KEPT", "PRUNE_EVERY_S", "prune_logs"]

KEPT = 30
"""Of so many processes that have ended the logs stay: enough to see why a training failed again and again."""
PRUNE_EVERY_S = 300.0
_OF_A_PROCESS = re.compile(r"(?:python-core-)?worker-\w+(?:-\w+)?[-_](\d+)\.(?:log|out|err)(?:\.\d+)?")


def prune_logs(folder: Path, kept: int = KEPT) -> int:
    """Remove the logs of workers that have ended from a runtime's temporary folder, but for the newest ``kept``.

    Returns how many files were removed. A process whose number another one has by now counts as running.
    """
    ended: defaultdict[int, list[tuple[float, Path]]] = defaultdict(list)
    for path in folder.glob("session_*/logs/**/*"):
        found = _OF_A_PROCESS.fullmatch(path.name)
        if found is None or Path(f"/proc/{found[1]}").exists():
            continue
        try:
            ended[int(found[1])].append((path.stat().st_mtime, path))
        except OSError:  # Ray has moved it meanwhile
            continue
    oldest_first = sorted(ended.values(), key=max)
    surplus = [path for files in oldest_first[: max(0, len(oldest_first) - kept)] for _, path in files]
    for path in surplus:
        path.unlink(missing_ok=True)
    return len(surplus)
