"""Is what devices send in the right unit? The doctor's check of the dead letters."""

from __future__ import annotations

import json

from services.cli.setup.check import Check, CheckState
from services.config import Settings
from services.errors import HothouseError

__all__ = ["check_units"]

_LETTERS = 10_000
_SHOWN = 5


def check_units(settings: Settings) -> Check | None:
    """Which sensors send another unit, by the newest letter about each; ``None`` if nothing was ever taken in."""
    from services.store.deadletters import are_kept, read_dead_letters
    from services.store.storage import storage_of

    name = "units"
    try:
        storage = storage_of(settings)
        dead_letters, any_at_all = read_dead_letters(storage, _LETTERS, "unit"), are_kept(storage)
    except (OSError, HothouseError) as error:
        return Check(name, CheckState.WARN, f"the dead letters cannot be read: {error}", "Is the storage damaged?")
    if not any_at_all:
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
