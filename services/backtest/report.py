"""How good forecasts were: the predictions as a file, and a table beside the baselines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.spec import QUANTILES
from services.backtest.replay import Forecasts
from services.backtest.table import Table
from services.errors import HothouseError

__all__ = ["Cell", "cells", "write"]

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Cell:
    """One target and horizon: errors are means over zones; ``skill`` is 1 − MAE / ``base``."""

    metric: str
    horizon_min: int
    cases: int
    mae: float
    climatology: float
    frozen: float  # the network as it was after the warm-up, on the cases that it answered; NaN where there was none
    persistence: float
    naive_24h: float
    base: float  # the better of persistence and naive in each zone, in hindsight
    pinball: float
    coverage: float

    @property
    def skill(self) -> float:
        """How much better than the base; 0 is no better."""
        return 1 - self.mae / self.base if self.base > 0 else 0.0


def cells(table: Table, forecasts: Forecasts) -> list[Cell]:
    """The closing table, targets then horizons; cells without a truth are left out."""
    f = forecasts
    found = []
    for m, target in enumerate(f.spec.targets):
        for h, horizon in enumerate(f.spec.horizons_min):
            truth, q = f.truth[:, h, m], f.quantiles[:, h, m]
            known = np.isfinite(truth) & np.isfinite(q).all(axis=-1)
            rivals = (q[:, 1], f.climatology[:, h, m], f.persistence[:, h, m], f.naive_24h[:, h, m])
            known &= np.isfinite(np.stack(rivals)).all(axis=0)
            zones = [known & (f.zone == z) for z in np.unique(f.zone[known])]
            if not zones:
                continue
            mae = np.array([[np.abs(rival - truth)[at].mean(dtype=np.float64) for rival in rivals] for at in zones])
            error = truth[:, None] - q
            level = np.array(QUANTILES)
            loss = np.maximum(level * error, (level - 1) * error)[known].mean()
            inside = ((truth >= q[:, 0]) & (truth <= q[:, 2]))[known].mean()
            means = mae.mean(axis=0)
            frozen = [np.abs(f.frozen[at, h, m] - truth[at]) for at in zones]
            frozen = [errors[np.isfinite(errors)] for errors in frozen]
            old = [errors.mean(dtype=np.float64) for errors in frozen if len(errors)]
            found.append(
                Cell(
                    table.metrics[target], horizon, int(known.sum()), mae=float(means[0]), climatology=float(means[1]),
                    frozen=float(np.mean(old)) if old else float("nan"),
                    persistence=float(means[2]), naive_24h=float(means[3]),
                    base=float(mae[:, 2:].min(axis=1).mean()), pinball=float(loss), coverage=float(inside),
                )
            )  # fmt: skip
    return found


def write(path: Path, table: Table, forecasts: Forecasts) -> int:
    """Write the predictions as Parquet or CSV, in a fixed order; returns the number of rows."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    f = forecasts
    n, horizons, targets, _ = f.quantiles.shape
    names, metrics = np.array(table.names), np.array([table.metrics[name] for name in f.spec.targets])
    ahead = np.array(f.spec.horizons_min, dtype=np.int64) * 60_000
    order = np.lexsort((f.origin_ms, f.zone))
    origin = np.repeat(f.origin_ms[order], horizons * targets)
    target = (f.origin_ms[order][:, None] + ahead).repeat(targets)
    # Doubles in Parquet: who puts measurements beside them, which are doubles elsewhere, need not convert them.
    q = f.quantiles[order].reshape(-1, len(QUANTILES)).astype(np.float32 if path.suffix == ".csv" else np.float64)
    columns = {
        "zone": names[f.zone[order]].repeat(horizons * targets),
        "origin": origin.astype("datetime64[ms]"),
        "target_time": target.astype("datetime64[ms]"),
        "metric": np.tile(metrics, n * horizons),
        "q10": q[:, 0], "q50": q[:, 1], "q90": q[:, 2],
        "model_version": np.array(f.version)[order].repeat(horizons * targets),
    }  # fmt: skip
    given = np.isfinite(q).all(axis=1)
    written = pa.table({name: column[given] for name, column in columns.items()})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(written, path)
        else:
            pq.write_table(written, path)
    except OSError as error:
        raise HothouseError(f"{path} cannot be written: {error.strerror or error}") from error
    return int(written.num_rows)
