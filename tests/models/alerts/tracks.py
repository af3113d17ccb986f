"""Made-up courses of a zone for tests of alerts."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.alerts.foreseen import STEP_MS
from models.alerts.measures import Track

HALF_HOURS = 48


def track(count: int = HALF_HOURS, start: int = 0, step_ms: int = STEP_MS, **values: Any) -> Track:
    """A track of ``count`` steps that begins ``start`` minutes after midnight; night is from 19:00 to 07:00."""
    minute = (start + np.arange(count) * step_ms // 60_000) % 1440
    held = {name: np.asarray(np.broadcast_to(np.float32(value), np.broadcast_shapes(np.shape(value), (count,))))
            for name, value in values.items()}  # fmt: skip
    return Track(held, step_ms, (minute >= 19 * 60) | (minute < 7 * 60), minute)
