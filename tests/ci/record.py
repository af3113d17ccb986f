"""What a run says of its failures: which of them may be races, which are not. Standard library only.

`.ci/run` names a folder in ``HOTHOUSE_RERUN``. A pytest (plugin.py) and `make e2e` leave a record there as they end.
Without the variable nobody writes one, and a failure is a failure.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["BALANCE", "FOLDER_VARIABLE", "MOST_RACES", "PROCESS_KINDS", "Record", "balance"]

FOLDER_VARIABLE = "HOTHOUSE_RERUN"
PROCESS_KINDS = frozenset({"ray", "broker", "browser", "chaos", "e2e", "compose"})
"""Markers of the tests that start processes: only these can lose a race against a machine that is held up."""
MOST_RACES = 5
"""So many failures in one stage may be races; more are a fault."""
BALANCE = "A balance that does not hold is no race: CI runs this test once."


@dataclass(frozen=True)
class Record:
    """How a run ended.

    ``races`` may be races, ``faults`` are not. ``again`` is the command that runs the races once more, ``parts`` how
    many failures that are, where one makes others fail.
    """

    exit_code: int
    races: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    parts: int = 0

    def write(self, folder: Path) -> None:
        """Leave it where `.ci/run` looks."""
        (folder / f"{os.getpid()}.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read_all(cls, folder: Path) -> list[Record]:
        """The records of every run that ended."""
        found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        return [cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in each.items()}) for each in found]

    def refusal(self) -> str:
        """Why the failures of this run are no races; empty where they may be."""
        if self.faults:
            more = f" and {len(self.faults) - 5} more" if len(self.faults) > 5 else ""
            return f"no race: {', '.join(self.faults[:5])}{more}"
        if self.exit_code != 1 or not self.races:
            return f"it ended with exit code {self.exit_code}, and {len(self.races)} failed tests"
        if self.parts > MOST_RACES:
            return f"{self.parts} failures are more than the {MOST_RACES} that may be races"
        return ""


@contextmanager
def balance() -> Iterator[None]:
    """What is asserted in here is that nothing was lost or counted twice: whenever that fails, it is a fault."""
    try:
        yield
    except AssertionError as error:
        error.add_note(BALANCE)
        raise
