"""The options of a demo run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge.wire.plan import PlanMessage

__all__ = ["DemoOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of ``hothouse demo``; times are wall-clock unless they say otherwise."""

    headless: bool = False
    minutes: float = 10.0
    summary: Path | None = None
    recording: Path | None = None
    mapping: Path | None = None
    timezone: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    plans: tuple[PlanMessage, ...] = ()  # published beside the recording, when they were issued
    warm_days: float = 14.0  # simulated or recorded history, in stream time
    speed: float = 900.0  # stream seconds a wall second
    retrain_every: float = 15.0  # seconds
    promote: Literal["gate", "always"] = "always"
    zones: int = 3
    seed: int = 1
    port: int = 0
    keep: bool = False
    data_dir: Path | None = None
    config: Path | None = None  # else $HOTHOUSE_CONFIG or hothouse.toml
