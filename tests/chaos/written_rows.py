"""What the tables of rows_process.py have to hold, and what they do, read by Polars: no code of ours reads them."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pyarrow as pa

from services.store.parquet import day_of, read_table, write_table
from services.store.storage import Storage
from services.store.tables.old_files import OLD_FOLDERS, old_files
from tests.chaos.rows_process import SITES, STEP_MS, ZONES

__all__ = ["FOLDERS", "key_of", "make_old_history", "old_rows", "rows_there", "rows_to_be"]

FOLDERS = ("history/zone_rows", "history/device_rows", "history/plan_values")
_KEYS = {
    "history/zone_rows": ["site", "zone", "end_ms"],
    "history/device_rows": ["site", "zone", "device", "metric", "end_ms"],
    "history/plan_values": ["site", "zone", "source", "issued_ms", "metric", "valid_ms"],
}
_VALUES = {
    "history/zone_rows": ["air_temp_c", "rh_pct", "step_s"],
    "history/device_rows": ["mean", "min", "max", "last", "count"],
    "history/plan_values": ["value", "known_ms", "offset"],
}


def key_of(folder: str) -> list[str]:
    """The columns that say which row it is."""
    return _KEYS[folder]


def rows_there(storage: Storage, folder: str) -> pl.DataFrame:
    """A table as another program sees it, sorted; no rows where there is no table yet."""
    local = storage.local(folder)
    if not storage.list_folder(f"{folder}/_delta_log").names:
        return pl.DataFrame()
    where, options = (str(local), None) if local is not None else (storage.address(folder), storage.delta_options())
    rows = pl.scan_delta(where, storage_options=options).collect()
    return rows.select(_KEYS[folder] + _VALUES[folder]).sort(_KEYS[folder])


def rows_to_be(folder: str, count: int, sites: dict[str, int] = SITES, step_s: int = 300) -> pl.DataFrame:
    """What a table has to hold after the first ``count`` steps of sites; made here, by no code that writes it."""
    base = pl.DataFrame({"n": range(count)}).join(
        pl.DataFrame({"site": list(sites), "before_ms": list(sites.values())}), how="cross"
    )
    base = base.with_columns(end_ms=pl.col("before_ms") + (pl.col("n") + 1) * STEP_MS)
    zones = base.join(pl.DataFrame({"zone": ZONES, "z": range(len(ZONES))}), how="cross")
    f32, n = pl.Float32, pl.col("n")
    if folder == "history/zone_rows":
        rows = zones.with_columns(
            air_temp_c=(n + pl.col("z") / 4).cast(f32), rh_pct=(50 + pl.col("z")).cast(f32),
            step_s=pl.lit(step_s, pl.Int32),
        )  # fmt: skip
    elif folder == "history/device_rows":
        rows = zones.with_columns(
            device=pl.lit("climate"), metric=pl.lit("air_temp_c"), mean=n.cast(f32), min=(n - 1).cast(f32),
            max=(n + 1).cast(f32), last=(n + 0.5).cast(f32), count=pl.lit(3, pl.Int32),
        )  # fmt: skip
    else:
        rows = base.join(pl.DataFrame({"m": [0, 1]}), how="cross").with_columns(
            zone=pl.lit(""), source=pl.lit("weather"), issued_ms="end_ms", metric=pl.lit("out_temp_c"),
            valid_ms=pl.col("end_ms") + (pl.col("m") + 1) * STEP_MS, value=(n + pl.col("m")).cast(f32),
            known_ms="end_ms", offset="n",
        )  # fmt: skip
    return rows.select(_KEYS[folder] + _VALUES[folder]).sort(_KEYS[folder])


def make_old_history(storage: Storage, sites: dict[str, int], count: int) -> None:
    """The same rows as a version before kept them: files of days, and a retired one beside what took it in."""
    days = 86_400_000
    for old, folder in zip(OLD_FOLDERS, FOLDERS, strict=True):
        time = "issued_ms" if folder == FOLDERS[2] else "end_ms"
        for site, before_ms in sites.items():
            rows = rows_to_be(folder, count, {site: before_ms})
            day = ((pl.col(time) - before_ms) // days).alias("day")
            parts = [(int(number), part.drop("day")) for (number,), part in rows.with_columns(day).group_by("day")]
            for number, part in parts:
                _write_old(storage, old, site, before_ms + number * days, None, part)
            first = pl.concat([part for number, part in parts if number < 2])
            _write_old(storage, old, site, before_ms, before_ms + days, first)


def old_rows(storage: Storage, folder: str) -> pl.DataFrame:
    """The keys of the rows that lie in old files."""
    old = dict(zip(FOLDERS, OLD_FOLDERS, strict=True))[folder]
    files = [file for site in storage.list_folder(old).folders for file in old_files(storage, f"{old}/{site}")]
    frames = [pl.DataFrame(pl.from_arrow(read_table(storage, file.key))).select(_KEYS[folder]) for file in files]
    return pl.concat(frames) if frames else pl.DataFrame()


def _write_old(storage: Storage, old: str, site: str, first_ms: int, last_ms: int | None, rows: pl.DataFrame) -> None:
    table = rows.drop("step_s", strict=False).to_arrow()
    table = table.cast(pa.schema([field.with_type(_plain(field.type)) for field in table.schema]))
    if old == OLD_FOLDERS[2]:
        more = {"kind": pa.array(["weather"] * len(table))}
    else:
        more = {"schema_version": pa.array([1] * len(table), pa.int32())}
    for name, values in more.items():
        table = table.append_column(name, values)
    names: Iterable[int] = [first_ms] if last_ms is None else [first_ms, last_ms]
    span = "-to-".join(day_of(ms) for ms in names)
    kind = "plans" if old == OLD_FOLDERS[2] else "300s"
    write_table(storage, f"{old}/{site}/{span}-p0-{kind}.parquet", table)


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind
