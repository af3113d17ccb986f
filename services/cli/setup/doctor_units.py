"""Is what devices send in the right unit? The doctor's check of the dead letters in the data folder."""

from __future__ import annotations

import json
import sqlite3

from services.cli.setup.check import Check, CheckState
from services.config import Settings

__all__ = ["check_units"]

_LETTERS = 10_000
_SHOWN = 5


def check_units(settings: Settings) -> Check | None:
    """Which sensors send another unit, by the newest letter about each; ``None`` if nothing was ever taken in."""
    from services.store.deadletters import read_dead_letters

    name = "units"
    try:
        dead_letters = read_dead_letters(settings.storage_folder, _LETTERS, "unit")
    except sqlite3.Error as error:
        return Check(name, CheckState.WARN, f"the dead letters cannot be read: {error}", "Is the disk full or damaged?")
    if not any(settings.storage_folder.glob("deadletters-p*.sqlite")):
        return None
    newest: dict[tuple[str, str], str] = {}
    for letter in dead_letters:  # the newest comes first
        said = json.loads(letter.payload)
        newest.setdefault((letter.topic, said["metric"]), letter.detail if said["looks_like"] else "")
    wrong = sorted(filter(None, newest.values()))
    if not wrong:
        return Check(name, CheckState.OK, "no sensor looks as if it sent another one")
    more = f"; {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    advice = "Change the device, or calibrate it: hothouse change calibrate --help"
    return Check(name, CheckState.WARN, "; ".join(wrong[:_SHOWN]) + more, advice)
