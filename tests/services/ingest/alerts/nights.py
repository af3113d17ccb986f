"""Nights of a small greenhouse with alerts, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.wire.alert_orders import ChangeRules
from services.config import ForecastSettings
from services.ingest.alerts.alert_journal import JournalReader
from services.messages import ShownAlert
from tests.services.ingest.alerts.greenhouse import NIGHT_RULES, order
from tests.services.ingest.rig import Rig

__all__ = ["HOUR", "RULES", "in_pieces", "small", "told"]

HOUR = 12
RULES = order(ChangeRules(NIGHT_RULES))


def small(folder: Path, log: MemoryLog, **stream: float) -> Rig:
    """A rig that forecasts little: learning is most of what a step costs."""
    rig = Rig(folder, log, **stream)
    little = ForecastSettings(horizons_min=(30, 360, 1440), targets=("air_temp_c", "rh_pct"))
    rig.settings = rig.settings.model_copy(update={"forecast": little})
    return rig


def told(rig: Rig) -> list[ShownAlert]:
    """Every change, as it was made durable."""
    found, lost = JournalReader(rig.settings.storage_folder, "p0").read(0, 10_000)
    assert lost == 0
    return [entry.alert for entry in found]


def in_pieces(log: Sequence[NewRecord], size: int) -> Iterator[list[NewRecord]]:
    """The log, some records at a time."""
    yield from (list(log[at : at + size]) for at in range(0, len(log), size))
