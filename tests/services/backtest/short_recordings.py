"""Recordings of a few days, made up and real, for tests of the backtest."""

import csv
import lzma
from pathlib import Path

import numpy as np

from services.backtest.prequential import BacktestOptions

__all__ = ["DAY_MS", "OPTIONS", "PLACE", "RECORDING", "lettuce_days", "made_up"]

RECORDING = Path(__file__).parents[2] / "data" / "lettuce_2022"
DAY_MS = 86_400_000
PLACE = {"latitude": 52.0, "longitude": 4.5, "timezone": "Europe/Amsterdam"}
OPTIONS = BacktestOptions(warmup_ms=2 * DAY_MS, every_ms=3_600_000, network=False, **PLACE)


def _hourly(day, hour):
    """A made-up greenhouse: warm by day, with something that remembers."""
    return 18 + 5 * np.sin((hour - 6) * np.pi / 12) + 0.5 * np.sin(day)


def made_up(
    folder, zones=("a", "b"), days=6, step_min=15, start="2022-03-25", leave_out=(), columns=("t_air_c", "rh_pct")
):
    """Write a recording on a naive clock; ``leave_out`` are days that are not there at all."""
    first = np.datetime64(start, "m")
    folder.mkdir(exist_ok=True)
    for z, zone in enumerate(zones):
        with (folder / f"{zone}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["time", *columns])
            for i in range(days * 1440 // step_min):
                day, minute = divmod(i * step_min, 1440)
                if day not in leave_out:
                    value = _hourly(day, minute / 60) + z
                    row = {
                        "t_air_c": value,
                        "rh_pct": 100 - 2 * value,
                        "co2_ppm": 500 - value,
                        "sp_heat_c": 20 + _hourly(day, minute // 60),
                    }
                    out.writerow([str(first + i * step_min).replace("T", " "), *(round(row[c], 3) for c in columns)])
    return folder


def lettuce_days(folder):
    """Write the first four days of two real zones."""
    for zone in ("Koala", "Reference"):
        with lzma.open(RECORDING / f"{zone}.csv.xz", "rt") as file:
            (folder / f"{zone}.csv").write_text("".join(file.readlines()[: 4 * 288 + 1]))
    return folder
