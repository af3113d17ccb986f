"""What was known ahead along a recording: plans of a file, as a backtest may use them."""

from __future__ import annotations

import zoneinfo
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edge.recordings.columns import Mapping, convert, find_column, load_mapping
from edge.recordings.local_time import to_utc_ms
from edge.recordings.recording import RecordingError, load_recording
from edge.recordings.time_cells import UNIX_MS
from edge.recordings.zone_file import name_of
from edge.wire.plan import PlanMessage
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from models.features.plans import Plan, PlanKind
from services.backtest.table import Table, table_of
from services.errors import ConfigError, HothouseError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "plans_of", "read_plans", "replayed_plans"]

COLUMNS = ("issued", "source", "zone", "metric", "valid", "value")


def read_plans(path: Path, sources: Sequence[str], table: Table) -> tuple[list[Plan], list[str]]:
    """The plans of these sources (all, without any) in a Parquet or CSV file, and what was left out, a sentence each.

    Columns are :data:`COLUMNS`: times and zones as in the recording, ``zone`` empty for the whole site, ``metric`` by
    the recording's names, in its units. Raises :class:`HothouseError` in one sentence.
    """
    import pandas as pd

    try:
        is_csv = path.suffix == ".csv"
        # Names as they are written: 01 is no number.
        frame = pd.read_csv(path, dtype={"zone": str, "source": str}) if is_csv else pd.read_parquet(path)
    except FileNotFoundError as error:
        raise HothouseError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:
        raise HothouseError(f"{path} cannot be read as plans: {error}", "Give Parquet or .csv.") from error
    return plans_of(frame, sources, table, str(path))


def plans_of(frame: pd.DataFrame, sources: Sequence[str], table: Table, label: str) -> tuple[list[Plan], list[str]]:
    """As :func:`read_plans`, from a frame; ``label`` names it in sentences."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise HothouseError(f"{label} is a {type(frame).__name__}", "Give plans as a file or as a DataFrame of pandas.")
    lacks = [name for name in COLUMNS if name not in frame]
    if lacks:
        raise HothouseError(f"{label} has no column {', '.join(lacks)}", f"Plans have {', '.join(COLUMNS)}.")
    there = frame["source"].astype(str)
    unknown = sorted(set(sources) - set(there))
    if unknown:
        raise ConfigError(
            f"{label} has no plans of {', '.join(map(repr, unknown))}",
            f"It has those of {', '.join(map(repr, sorted(set(there))))}.",
        )
    chosen = frame[there.isin(list(sources) or there.unique())]
    try:
        rows = pd.DataFrame({
            "issued": _ms(chosen["issued"], table), "source": chosen["source"].astype(str),
            "zone": [_zone(str(zone), table) for zone in chosen["zone"].astype(object).fillna("")],
            "metric": chosen["metric"].astype(str), "valid": _ms(chosen["valid"], table),
            "value": pd.to_numeric(chosen["value"]).astype(np.float64),
        })  # fmt: skip
    except (ValueError, TypeError) as error:
        raise HothouseError(
            f"the plans of {label} cannot be read: {error}",
            "Times are written as in the recording; values are numbers, with a point.",
        ) from error
    return _plans(rows, table, label)


def replayed_plans(
    path: Path, sources: Sequence[str], folder: Path, mapping: Path | None = None, timezone: str | None = None
) -> tuple[list[PlanMessage], list[str]]:
    """The same plans as they are published beside the recording when it is replayed: times in UTC, the site's and
    zones' names as in topics. Arguments and errors are those of :func:`read_plans` and ``load_recording``.
    """
    try:
        recording = load_recording(folder, mapping, timezone=timezone)
        beside = mapping or folder / "recording.toml"
        said = load_mapping(beside) if beside.exists() else Mapping()
    except RecordingError as error:
        raise HothouseError(str(error)) from error
    table = table_of(recording, said)
    plans, notes = read_plans(path, sources, table)
    zones = {"": SITE_ZONE, **dict(zip(table.names, recording.zones, strict=True))}
    zone_info = zoneinfo.ZoneInfo("UTC" if table.is_utc else recording.timezone)
    messages = []
    for plan in plans:
        issued, values = to_utc_ms(np.array([plan.issued_ms]), zone_info, said.clock)[1], {}
        for metric, (valid_ms, value) in plan.series.items():
            rows, utc_ms = to_utc_ms(valid_ms, zone_info, said.clock)
            values[metric] = list(zip(utc_ms.tolist(), value[rows].tolist(), strict=True))
        if len(issued):  # else the clock never showed that time
            source = name_of(plan.source, "plans").rstrip("-")
            messages.append(PlanMessage(recording.site, zones[plan.zone], source, plan.kind, int(issued[0]), values))
    return messages, notes


def _plans(rows: pd.DataFrame, table: Table, label: str) -> tuple[list[Plan], list[str]]:
    notes = []
    for zone in sorted(set(rows["zone"]) - {"", *table.names}):
        notes.append(f"{label}: the plans of zone {zone!r} are left out, which the recording does not have")
    rows = rows[rows["zone"].isin(["", *table.names])]
    series: dict[tuple[int, str, str, PlanKind], dict[str, pd.DataFrame]] = {}
    for name, of_metric in rows.groupby("metric", sort=True):
        column = find_column(str(name), table.said)
        # Nobody plans a second sensor, which may be another device, or have a number behind its metric.
        if column is None or column.device or column.coding or column.metric not in VOCABULARY:
            notes.append(f"{label}: {name} is left out, because the recording has no metric of this name")
            continue
        metric = VOCABULARY[column.metric]
        raw = of_metric["value"].to_numpy()
        value = convert(column, raw, raw, raw)
        good = (value >= metric.low) & (value <= (metric.clip_from or metric.high))
        if not good.all():
            notes.append(f"{label}: {(~good).sum()} values of {name} are left out, because the metric cannot have them")
        kept = of_metric.assign(value=np.minimum(value, metric.high))[good]
        kind: PlanKind = "setpoint" if column.metric.startswith("sp_") else "weather"
        for (issued, source, zone), part in kept.groupby(["issued", "source", "zone"], sort=True):
            series.setdefault((int(str(issued)), str(source), str(zone), kind), {})[column.metric] = part
    plans = []
    for (issued, source, zone, kind), metrics in sorted(series.items(), key=lambda item: item[0]):
        said = {}
        for name, part in metrics.items():
            ordered = part.drop_duplicates("valid", keep="last").sort_values("valid")
            said[name] = (ordered["valid"].to_numpy(np.int64), ordered["value"].to_numpy(np.float32))
        # One source may foresee weather and setpoints: neither replaces the other.
        plans.append(Plan(f"{source} ({kind})", kind, issued, said, zone))
    if not plans:
        notes.append(f"{label} has no plan that is of use: forecasts are made without")
    return plans, notes


def _zone(name: str, table: Table) -> str:
    """A zone as the table has it: pandas writes whole numbers beside empty places as 1.0."""
    return name if name in table.names else name.removesuffix(".0")


def _ms(times: pd.Series[Any], table: Table) -> pd.Series[int]:
    """Times as the table has its own; raises ``ValueError`` where they are of another kind. Text is read as that of the
    recording: in its ``time_format``, and with offsets that may change with the clock.
    """
    import pandas as pd

    if times.isna().any():
        raise ValueError(f"column {times.name!r} lacks times")
    written, utc = None, False
    scale_ms = UNIX_MS.get(table.said.time_format)
    if scale_ms and not pd.api.types.is_datetime64_any_dtype(times):
        times = pd.to_datetime(times.astype(np.float64) * scale_ms, unit="ms", utc=True)
    elif len(times) and pd.api.types.is_numeric_dtype(times):  # pandas would count nanoseconds, and all be of 1970
        raise ValueError(f"column {times.name!r} holds numbers, as {times.iloc[0]}, and the recording's times are none")
    elif len(times) and isinstance(times.iloc[0], str):
        written = table.said.time_format or "ISO8601"
        utc = pd.to_datetime(times.iloc[:1], format=written, errors="coerce").dt.tz is not None
    read = pd.to_datetime(times, format=written, utc=utc, errors="coerce")
    if read.isna().any():
        raise ValueError(f"column {times.name!r} holds {str(times[read.isna()].iloc[0])!r}, which is no time")
    if (read.dt.tz is not None) != table.is_utc:
        raise ValueError(f"column {times.name!r} and the recording must both have a UTC offset, or neither")
    if table.is_utc:
        read = read.dt.tz_convert("UTC").dt.tz_localize(None)
    return read.astype("datetime64[ms]").astype(np.int64)
