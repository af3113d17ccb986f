"""A made-up day and night of two zones with ticks, and orders about their alerts."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator

from edge.log import NewRecord
from edge.wire.alert_orders import AlertOrder, encode_order, order_topic
from tests.services.ingest.samples import STEP, T0, new_records, sample

__all__ = ["NIGHT_RULES", "order", "records"]

NIGHT_RULES = {
    "crop": "other",
    "changes": {
        "frost": {"limit": 13.5, "keep_min": 30}, "botrytis": {"off": True}, "mean_low": {"off": True},
        "mean_high": {"off": True}, "co2_low": {"off": True}, "silent_metric": {"keep_min": 30},
    },
}  # fmt: skip


def order(said: AlertOrder, zone: str = "_site", receive_ms: int = T0) -> NewRecord:
    """An order as the gateway appends it."""
    return NewRecord("demo", "event", receive_ms, encode_order(said), order_topic("demo", zone))


def records(
    steps: int, first: int = 0, silent: Container[int] = range(0), zones: tuple[str, ...] = ("z1", "z2"), **more: float
) -> Iterator[NewRecord]:
    """Rows of five minutes with ten ticks each; z2 sends nothing in the ``silent`` steps. Nights are below 13.5 °C.
    ``more`` is what all zones send besides, always the same.
    """
    for n in range(first, first + steps):
        at = T0 + n * STEP
        sun = math.sin(2 * math.pi * (n / 288 - 0.25))
        batch = [
            sample(
                at, n, zone, air_temp_c=16 + 4 * sun + z + n % 7 / 10, rh_pct=75 - 10 * sun + n % 5 / 3,
                co2_ppm=500.0 + n % 40, **more,
            )
            for z, zone in enumerate(zones)
            if not (zone == "z2" and n in silent)
        ]  # fmt: skip
        yield from new_records([batch])
        for tick in range(10):
            yield NewRecord("demo", "tick", at + tick * STEP // 10, b"")
