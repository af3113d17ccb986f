"""What the tests of learning share: a history that can be learned, and candidates that were never trained."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from services.config import Settings, load_settings
from services.forecast_spec import forecast_spec
from services.learn.records import Candidate
from services.store.history import History
from services.store.rows import SiteStep

START_MS = 1_646_092_800_000  # 2022-03-01T00:00Z
LONGEST_DAYS = 40.0
SCHEMA = "0123456789abcdef"
"""The schema hash that registries of these tests promote."""


def small_settings(folder: Path, **learn: Any) -> Settings:
    """Quarter-hour rows, three horizons, a quick training inside the trainer's own process."""
    quick = {
        "workers": 0, "epochs": 16, "max_windows": 2000, "min_days": 2.0, "held_back": 0.2, "retrain_every_s": 0,
        "use_gpu": "no", "timeout_s": 240, "cool_down_s": 0, "shadow_hours": 0,
    }  # fmt: skip
    return load_settings(
        data_dir=folder,
        api={"port": 0},
        stream={"step_s": 900},
        forecast={"horizons_min": (30, 60, 120), "targets": ("air_temp_c", "rh_pct")},
        learn={**quick, **learn},
    )


def write_history(
    settings: Settings, days: float = 8, zones: tuple[str, ...] = ("z1", "z2"), seed: int = 1, after_days: float = 0,
    changed_days: float = LONGEST_DAYS, dead: tuple[str, ...] = (),
) -> int:  # fmt: skip
    """Write rows of site ``demo`` from ``START_MS`` on; returns the newest ``end_ms``.

    The heating pipe shows what the next hour will bring: a network can learn that, no climatology can. Rows of the
    first ``after_days`` are left out: they were written by an earlier call. After ``changed_days`` the pipe says the
    opposite, so that a network of before is wrong. Zones that are ``dead`` have rows without a value that is
    forecast.
    """
    spec = forecast_spec(settings)
    count = round(days * spec.steps_per_day)
    lag = 3_600_000 // spec.step_ms
    rng = np.random.default_rng(seed)
    outside = np.zeros(round(LONGEST_DAYS * spec.steps_per_day) + lag)
    for step in range(1, len(outside)):
        outside[step] = 0.97 * outside[step - 1] + rng.normal(0, 1.0)
    now = np.arange(count)
    sun = np.maximum(0, np.sin(2 * np.pi * (now / spec.steps_per_day - 0.25)))
    history = History(settings.storage_folder, spec.channels, settings.stream.step_s)
    column = {
        name: spec.channels.index(name) for name in ("air_temp_c", "rh_pct", "heat_pipe_low_c", "out_radiation_w_m2")
    }
    for step in range(round(after_days * spec.steps_per_day), count):
        noise = np.random.default_rng((seed, step))
        sign = 1 if step < changed_days * spec.steps_per_day else -1
        values = np.full((len(zones), len(spec.channels)), np.nan, np.float32)
        for zone in range(len(zones)):
            temperature = 18 + zone + 6 * sun[step] + outside[step] + noise.normal(0, 0.05)
            humidity = np.clip(75 - 2 * (temperature - 20) + noise.normal(0, 0.2), 5, 99)
            if zones[zone] not in dead:
                values[zone, column["air_temp_c"]], values[zone, column["rh_pct"]] = temperature, humidity
            values[zone, column["heat_pipe_low_c"]] = 40 + 4 * sign * (outside[step + lag] - outside[step])
            values[zone, column["out_radiation_w_m2"]] = 700 * sun[step]
        end_ms = START_MS + (step + 1) * spec.step_ms
        history.add([SiteStep(0, "demo", end_ms, zones, values, np.zeros_like(values))])
    history.flush()
    return START_MS + count * spec.step_ms


def make_candidate(
    folder: Path, passed: bool = True, forced: bool = False, schema: str = SCHEMA, shadow: bool = False,
    kind: str = "network",
) -> Candidate:  # fmt: skip
    """A candidate whose artefact has the right files with arbitrary bytes."""
    folder.mkdir(parents=True)
    weights, golden = folder.name.encode() * 100, folder.name.encode()
    (folder / "weights.safetensors").write_bytes(weights)
    (folder / "golden.safetensors").write_bytes(golden)
    manifest = {"schema_hash": schema, "kind": kind, "golden_sha256": hashlib.sha256(golden).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Candidate(
        folder=str(folder),
        kind=kind,
        weights_sha256=hashlib.sha256(weights).hexdigest(),
        trained_on={
            "from": "2022-03-01T00:00:00Z",
            "to": "2022-03-15T00:00:00Z",
            "rows": 12096,
            "zones": 3,
            "to_ms": 400,
            "known_to_ms": 500,
        },
        log_offsets={"0": 17},
        params={"seed": 7, "epochs": 2},
        held_back_mae={"air_temp_c": {"60": {"model": 0.5, "persistence": 0.9}}},
        curves={"loss": [0.9, 0.5]},
        recipe={},
        evidence={},
        shadow=shadow,
        passed=passed and not shadow,
        reason="better than all" if passed else "air_temp_c at 60 min: 0.95 is worse than persistence, 0.90",
        forced=forced,
    )
