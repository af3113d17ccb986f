"""The lines about devices in the terminal: of ``hothouse up``, and of ``hothouse doctor --watch``."""

from __future__ import annotations

import time
from collections.abc import Callable

from services.cli.base import console, print_news, tell_if_new
from services.config import Settings

__all__ = ["LOOK_S", "trouble_lines", "watch_devices"]

LOOK_S = 1.0


def trouble_lines(settings: Settings) -> Callable[[], None]:
    """A function that prints what is new since its last call; it begins now."""
    from services.cli.setup.troubles import BrokerRefusals, Troubles  # `hothouse --help` must not pay for NumPy
    from services.store.storage import storage_of

    storage = storage_of(settings)
    troubles, every_s = Troubles(storage, time.monotonic), storage.poll_s if settings.storage.url else 0.0
    looked_s = -every_s
    refusals = BrokerRefusals(settings.data_dir / "broker" / "broker.log", time.monotonic)

    def look() -> None:
        nonlocal looked_s
        lines = refusals.lines()
        if time.monotonic() >= looked_s + every_s:
            looked_s, lines = time.monotonic(), [*troubles.lines(), *lines]
        for line in lines:
            print_news(line)

    look()
    return look


def watch_devices(settings: Settings) -> None:
    """Print lines until Ctrl-C. Nothing needs to run: what the system keeps out while it runs is told."""
    look = trouble_lines(settings)
    tell_if_new(settings)
    where = settings.data_dir.absolute()
    console.print(f"watching what devices send to {where}; Ctrl-C ends it", highlight=False, soft_wrap=True)
    try:
        while True:
            time.sleep(LOOK_S)
            look()
    except KeyboardInterrupt:
        return
