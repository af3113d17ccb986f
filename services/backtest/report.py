"""How good forecasts were, as frames: the predictions, their file, and a table beside the baselines."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from models.durations import MINUTE_MS
from models.spec import QUANTILES
from services.backtest.prequential import Forecasts
from services.backtest.table import Table
from services.errors import HothouseError
from services.store.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["beside", "predictions", "scores", "write"]

RIVALS = ("climatology", "persistence", "naive_24h")


def predictions(table: Table, forecasts: Forecasts) -> pd.DataFrame:
    """The forecasts, a row a zone, origin, horizon and target in that order; named and timed as in the recording.

    Columns: ``zone, origin, target_time, metric, q10, q50, q90, model_version``.
    """
    import pandas as pd

    f = forecasts
    n, horizons, targets, _ = f.quantiles.shape
    names, metrics = np.array(table.names), np.array([table.metrics[name] for name in f.spec.targets])
    order = np.lexsort((f.origin_ms, f.zone))
    q = f.quantiles[order].reshape(-1, len(QUANTILES))
    frame = pd.DataFrame({
        "zone": names[f.zone[order]].repeat(horizons * targets),
        "origin": f.origin_ms[order].repeat(horizons * targets).astype("datetime64[ms]"),
        "target_time": (f.origin_ms[order][:, None] + _ahead_ms(f)).repeat(targets).astype("datetime64[ms]"),
        "metric": np.tile(metrics, n * horizons),
        "q10": q[:, 0], "q50": q[:, 1], "q90": q[:, 2],
        "model_version": np.array(f.version)[order].repeat(horizons * targets),
    })  # fmt: skip
    return frame.loc[np.flatnonzero(np.isfinite(q).all(axis=1))].reset_index(drop=True)


def _ahead_ms(forecasts: Forecasts) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(forecasts.spec.horizons_min, dtype=np.int64) * MINUTE_MS


def scores(table: Table, forecasts: Forecasts) -> pd.DataFrame:
    """The scores: a row a target and horizon, in their order; those without a known truth are left out.

    ``mae`` and those of ``climatology``, ``persistence`` and ``naive_24h`` are means over zones of each zone's mean, of
    the ``cases`` that all of them answered; ``frozen`` is that of the network as it was after the warm-up, on those it
    answered, NaN where there was none. ``base`` is the better of persistence and naive in each zone, in hindsight,
    and ``skill`` is 1 - ``mae`` / ``base``. ``pinball`` and ``coverage`` are means over cases.
    """
    import pandas as pd

    f = forecasts
    cell = pd.MultiIndex.from_product(
        [[table.metrics[name] for name in f.spec.targets], f.spec.horizons_min], names=["metric", "horizon_min"]
    )
    said = {"mae": f.quantiles[..., 1], "frozen": f.frozen} | {name: getattr(f, name) for name in RIVALS}
    error = f.truth[..., None] - f.quantiles
    level = np.array(QUANTILES)
    inside = (f.truth >= f.quantiles[..., 0]) & (f.truth <= f.quantiles[..., 2])
    cases = pd.DataFrame(
        {name: _column(np.abs(one - f.truth)) for name, one in said.items()}
        | {
            "pinball": _column(np.maximum(level * error, (level - 1) * error).mean(axis=-1)),
            "coverage": _column(inside.astype(np.float32)),
            "cell": np.repeat(np.arange(len(cell)), len(f.zone)),
            "zone": np.tile(f.zone, len(cell)),
        }
    )
    cases = cases.dropna(subset=["mae", "pinball", *RIVALS])
    by_zone = cases.groupby(["cell", "zone"])[list(said)].mean()
    by_zone["base"] = by_zone[["persistence", "naive_24h"]].min(axis=1)
    found = by_zone.groupby("cell").mean().join(cases.groupby("cell")[["pinball", "coverage"]].mean())
    found.insert(0, "cases", cases.groupby("cell").size())
    found["skill"] = (1 - found["mae"] / found["base"]).where(found["base"] > 0, 0.0)
    return found.set_index(cell[found.index]).reset_index()


def beside(found: pd.DataFrame, without: pd.DataFrame) -> pd.DataFrame:
    """Scores with plans, and ``without``, the mean error of those ``without`` them in each cell; ``ratio`` of both."""
    cell = ["metric", "horizon_min"]
    joined = found.merge(without[[*cell, "mae"]].rename(columns={"mae": "without"}), on=cell, how="left")
    joined["ratio"] = joined["mae"] / joined["without"]
    return joined


def _column(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """``[N, H, M]`` as a column of cases: by target, then horizon, then origin."""
    return values.transpose(2, 1, 0).ravel().astype(np.float64)


def write(path: Path, frame: pd.DataFrame) -> None:
    """Write predictions as Parquet or CSV; raises :class:`HothouseError` if that fails."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    # Doubles in Parquet: who puts measurements beside them, which are doubles elsewhere, need not convert them.
    number = pa.float32() if path.suffix == ".csv" else pa.float64()
    kinds = {"zone": pa.string(), "metric": pa.string(), "model_version": pa.string()}
    kinds |= dict.fromkeys(("origin", "target_time"), pa.timestamp("ms")) | dict.fromkeys(("q10", "q50", "q90"), number)
    schema = pa.schema([(name, kinds[name]) for name in frame.columns])
    put = pyarrow.csv.write_csv if path.suffix == ".csv" else pq.write_table
    written = pa.Table.from_pandas(frame, schema, preserve_index=False).replace_schema_metadata()
    try:
        write_atomically(path, partial(put, written))
    except OSError as error:
        raise HothouseError(f"{path} cannot be written: {error.strerror or error}") from error
