"""A recording as a user would have it: a frame a zone, columns named as the vocabulary's metrics."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from edge.recordings.columns import find_column, load_mapping
from edge.wire.vocabulary import VOCABULARY
from models.frames import FrameForecaster

FOLDER = Path(__file__).parents[2] / "data" / "lettuce_2022"
PLACE = {"timezone": "Europe/Amsterdam", "latitude": 51.98, "longitude": 4.53}


def recorded(days: float, every: int = 1) -> dict[str, pd.DataFrame]:
    """The first days of the three zones, every so many rows of five minutes."""
    rows = round(days * 288)
    return {zone: frame.iloc[:rows:every].copy() for zone, frame in _whole().items()}


@cache
def _whole() -> dict[str, pd.DataFrame]:
    said, found = load_mapping(FOLDER / "recording.toml"), {}
    for path in sorted(FOLDER.glob("*.csv.xz")):
        raw = pd.read_csv(path, parse_dates=["time"], index_col="time")
        columns = {}
        for name in raw.columns:
            column = find_column(name, said)
            if column is not None and not column.device and not column.coding:
                columns[column.metric] = raw[name]
        # One bit of eight says where the wind comes from.
        columns["wind_dir_deg"] = np.log2(raw["out_winddir"].where(raw["out_winddir"] > 0)) * 45
        found[path.name.partition(".")[0]] = pd.DataFrame(columns)
    return found


def forecaster(**options) -> FrameForecaster:
    """One for the recording's place."""
    return FrameForecaster(VOCABULARY, **PLACE | options)
