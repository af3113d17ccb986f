"""Step 6 of the way of a reading: issued forecasts as Parquet, durable before anybody sees them.

What is issued at once, of origins of a day, is one small file, a *part*:
``history/forecasts/{YYYY-MM-DD}/p{writer}-{newest origin}-{number}-...``, by UTC day of its newest origin; the numbers
of a writer rise. Once a day is over its parts become one file,
``history/forecasts/{YYYY-MM-DD}-p{writer}.parquet``. A crash in between leaves forecasts in both; readers take each
once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from models.durations import DAY_MS, MINUTE_MS
from services.errors import HistoryError
from services.messages import SaidAhead
from services.store.parquet import day_of, read_between, read_table, unreadable, version_of, write_table, write_tables
from services.store.storage import Storage, always, stored_in

__all__ = ["IssuedForecast", "IssuedForecasts"]

F32 = npt.NDArray[np.float32]

_NAME = ("site", "origin_ms", "model_version")
"""Names a forecast; the newest of equal ones counts."""

_VALUES = ("p10", "p50", "p90", "network", "climatology")

_ROOT = "history/forecasts"
_NUMBERED = 4
LAST_MS = 250_000_000_000_000  # the year 9892

MERGE_ROWS = 1 << 17
"""About how many rows of a day are in memory while it is merged."""

_SCHEMA = pa.schema(
    {
        "site": pa.string(), "zone": pa.string(), "origin_ms": pa.int64(), "model_version": pa.string(),
        "horizon_min": pa.int32(), "target": pa.string(), "p10": pa.float32(), "p50": pa.float32(),
        "p90": pa.float32(), "network": pa.float32(), "climatology": pa.float32(), "age_steps": pa.int16(),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class IssuedForecast:
    """The forecasts for a site at an origin, by one version, and all that learners take from them."""

    site: str
    origin_ms: int
    version: str
    zones: tuple[str, ...]  # Z
    quantiles: F32  # [Z, H, M, Q]
    network: F32  # [Z, H, M], the network's median; NaN where none answered
    climatology: F32  # [Z, H, M], the climatology's median
    age_steps: int  # how many newer rows of the site had closed when it was issued


class IssuedForecasts:
    """Reads and writes the forecasts of a storage; ``writer`` is a partition that only the caller owns."""

    def __init__(self, storage: Storage | Path, writer: int) -> None:
        self._storage = stored_in(storage)
        self._writer = writer
        self._numbers: tuple[str, int] = ("", 0)  # the day of the newest part, and its number
        self._newest: tuple[str, str] = ("", "")  # what the newest part holds, and its key

    def put(
        self, issued: Sequence[IssuedForecast], horizons_min: Sequence[int], targets: Sequence[str],
        check: Callable[[], None] = always,
    ) -> None:  # fmt: skip
        """Keep forecasts of one version durably; called before they are published. The same again changes nothing.

        Raises :class:`HistoryError` when they cannot be kept, and what ``check`` raises (see ``write_atomically``).
        """
        for part in _of_a_day(issued):
            self._put(part, horizons_min, targets, check)

    def _put(
        self, issued: Sequence[IssuedForecast], horizons_min: Sequence[int], targets: Sequence[str],
        check: Callable[[], None],
    ) -> None:  # fmt: skip
        newest_ms = max(forecast.origin_ms for forecast in issued)
        named = hashlib.sha256(repr([(f.site, f.origin_ms, f.version) for f in issued]).encode()).hexdigest()[:16]
        tables = [_table(forecast, horizons_min, targets) for forecast in issued]
        try:
            part = self._part(day_of(newest_ms), newest_ms, named)
        except OSError as error:
            raise unreadable(self._storage.address(_ROOT), error) from error
        write_table(self._storage, part, pa.concat_tables(tables), check)

    def read(
        self, site: str, after_ms: int, horizons_min: Sequence[int], targets: Sequence[str], until_ms: int = LAST_MS
    ) -> list[IssuedForecast]:
        """A site's forecasts of all writers with an origin after ``after_ms`` and not after ``until_ms``, by origin,
        the newest issued last.

        Those of other horizons or targets are left out, as from before a change of the settings.

        Raises :class:`HistoryError` for a damaged file.
        """
        found: dict[tuple[int, str], IssuedForecast] = {}
        cells = [(horizon, target) for horizon in horizons_min for target in targets]
        wanted = (pc.field("site") == site) & (pc.field("origin_ms") > after_ms) & (pc.field("origin_ms") <= until_ms)
        for table in self._tables(site, after_ms, until_ms):
            rows = table.filter(wanted).combine_chunks()
            keys = list(zip(rows["origin_ms"].to_pylist(), rows["model_version"].to_pylist(), strict=True))
            for key in dict.fromkeys(keys):
                if key in found:
                    continue
                one = rows.filter((pc.field("origin_ms") == key[0]) & (pc.field("model_version") == key[1]))
                zones = tuple(dict.fromkeys(one["zone"].to_pylist()))
                shape = (len(zones), len(horizons_min), len(targets))
                first = one.slice(0, len(cells))
                said = list(zip(first["horizon_min"].to_pylist(), first["target"].to_pylist(), strict=True))
                if len(one) == np.prod(shape) and said == cells:
                    columns = {name: one[name].to_numpy().reshape(shape) for name in _VALUES}
                    quantiles = np.stack([columns.pop(q) for q in ("p10", "p50", "p90")], axis=-1)
                    age_steps = one["age_steps"][0].as_py()
                    found[key] = IssuedForecast(site, *key, zones, quantiles, **columns, age_steps=age_steps)
        newest_last = list(found.values())[::-1]
        return sorted(newest_last, key=lambda forecast: forecast.origin_ms)

    def ahead(self, site: str, zone: str, target: str, horizon_min: int, start_ms: int, end_ms: int) -> SaidAhead:
        """What was said of one target ``horizon_min`` before each time of ``start_ms < time <= end_ms``, by time; of
        several that were issued for an origin the newest. Raises as :meth:`read`.
        """
        lead_ms = horizon_min * MINUTE_MS
        after_ms, until_ms = start_ms - lead_ms, end_ms - lead_ms
        wanted = (
            (pc.field("site") == site) & (pc.field("zone") == zone) & (pc.field("target") == target)
            & (pc.field("horizon_min") == horizon_min) & (pc.field("origin_ms") > after_ms)
            & (pc.field("origin_ms") <= until_ms)
        )  # fmt: skip
        columns = ["origin_ms", "p10", "p50", "p90"]
        # People wait for it, over hundreds of files: nothing is read but what is asked or looked at.
        tables = self._tables(site, after_ms, until_ms, [*columns, "site", "zone", "target", "horizon_min"])
        rows = [table.filter(wanted).select(columns) for table in tables]
        found = pa.concat_tables(rows) if rows else pa.table({n: pa.array([], _SCHEMA.field(n).type) for n in columns})
        origins, newest = np.unique(found["origin_ms"].to_numpy(), return_index=True)  # the first of equal ones
        p10, p50, p90 = (found[name].to_numpy()[newest] for name in columns[1:])
        return SaidAhead(time_ms=origins + lead_ms, p10=p10, p50=p50, p90=p90)

    def merge_days(self, before_ms: int, writers: Collection[int], check: Callable[[], None] = always) -> int:
        """Make one file of the parts of each day of ``writers`` before the day of ``before_ms``; how many parts.

        Safe to be stopped anywhere and to be repeated. Raises as :meth:`put`.
        """
        merged = 0
        for day in [name for name in self._storage.list_folder(_ROOT).folders if name < day_of(before_ms)]:
            for writer in writers:
                parts = self._parts(day, writer)
                if parts:
                    whole = f"{_ROOT}/{day}-p{writer}.parquet"
                    version = version_of(self._storage, whole)
                    tables = _Distinct(self._storage, [*parts, *([whole] if version else [])])
                    write_tables(self._storage, whole, _SCHEMA, tables, check, version)
                for part in parts:
                    self._storage.delete(part)
                merged += len(parts)
            if not self._storage.list_folder(f"{_ROOT}/{day}").names:
                self._storage.tidy(f"{_ROOT}/{day}")
        return merged

    def _part(self, day: str, newest_ms: int, named: str) -> str:
        """Where a part goes. The one that was written last, if it is to be written again, has its name already."""
        if self._newest[0] == f"{day} {named}":
            return self._newest[1]
        if self._numbers[0] != day:
            self._numbers = day, max((_number(key) for key in self._parts(day, self._writer)), default=-1)
        number = self._numbers[1] + 1
        self._numbers = day, number
        key = f"{_ROOT}/{day}/p{self._writer}-{newest_ms}-{number:06d}-{named}.parquet"
        self._newest = f"{day} {named}", key
        return key

    def _tables(
        self, site: str, after_ms: int, until_ms: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Tables that may hold a site's origins after ``after_ms``, up to ``until_ms``; of equal ones the newest comes
        first. They have all columns, or these with names as dictionaries. A restart asks for all since a site's newest
        row, which may be months of others' forecasts.
        """
        names = ("site", "zone", "target") if columns else ()

        def read(key: str) -> pa.Table:
            return read_between(self._storage, key, "origin_ms", after_ms, until_ms, columns, names, site)

        # A part has the day of its newest origin; others in it may be of the day before: those of later days are newer.
        first, last = day_of(max(after_ms, 0)), day_of(until_ms + DAY_MS)
        # Parts before whole days: what is merged meanwhile is then found in its day.
        days = [name for name in self._storage.list_folder(_ROOT).folders if first <= name <= last]
        for day in sorted(days, reverse=True):
            for part in self._parts(day):
                if int(_name(part).split("-")[1]) <= after_ms:
                    continue
                try:
                    yield read(part)
                except HistoryError:
                    if version_of(self._storage, part):
                        raise
        for name in sorted(self._storage.list_folder(_ROOT).names, reverse=True):
            if name.endswith(".parquet") and first <= name and name[: len(last)] <= last:
                yield read(f"{_ROOT}/{name}")

    def _parts(self, day: str, writer: int | None = None) -> list[str]:
        """The parts of a day, the newest first."""
        folder, begin = f"{_ROOT}/{day}", "p" if writer is None else f"p{writer}-"
        names = [n for n in self._storage.list_folder(folder).names if n.startswith(begin) and n.endswith(".parquet")]
        earlier = self._storage.entries(folder) if any(_number(name) < 0 for name in names) else {}

        def order(name: str) -> tuple[int, float, str]:
            number = _number(name)
            entry = earlier.get(name) if number < 0 else None  # None: merged meanwhile
            return number, entry.modified_s if entry is not None else 0.0, name

        return [f"{folder}/{name}" for name in sorted(names, key=order, reverse=True)]


def _of_a_day(issued: Sequence[IssuedForecast]) -> Iterator[Sequence[IssuedForecast]]:
    """In parts of a day at most, nearly always one: a site that was cut off may be days behind the others. Who looks
    for an origin looks into the files of its day and of the next.
    """
    left = list(issued)
    while left:
        after_ms = max(forecast.origin_ms for forecast in left) - DAY_MS
        yield [forecast for forecast in left if forecast.origin_ms > after_ms]
        left = [forecast for forecast in left if forecast.origin_ms <= after_ms]


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _number(key: str) -> int:
    """The number of a part, which rises; -1 for a part from a release that gave none.

    >>> [_number(name) for name in ("p0-1646092800000-000007-01ab.parquet", "p0-1646092800000-01ab.parquet")]
    [7, -1]
    """
    said = _name(key).split("-")
    return int(said[2]) if len(said) == _NUMBERED else -1


class _Distinct:
    """The rows of some parts, as :func:`_distinct` gives them; they may be gone over again."""

    def __init__(self, storage: Storage, keys: Sequence[str]) -> None:
        self._storage, self._keys = storage, keys

    def __iter__(self) -> Iterator[pa.Table]:
        return _distinct(read_table(self._storage, key) for key in self._keys)


def _distinct(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows, some at a time; of forecasts with the same name only the first."""
    seen: set[tuple[object, ...]] = set()
    waiting: list[pa.Table] = []
    for table in tables:
        new = {tuple(row.values()) for row in table.select(_NAME).group_by(_NAME).aggregate([]).to_pylist()}
        if not new.isdisjoint(seen):
            rows = zip(*(table[name].to_pylist() for name in _NAME), strict=True)
            table = table.filter(pa.array([row not in seen for row in rows], pa.bool_()))
        seen |= new
        waiting.append(table)
        if sum(map(len, waiting)) >= MERGE_ROWS:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _table(issued: IssuedForecast, horizons_min: Sequence[int], targets: Sequence[str]) -> pa.Table:
    count, per_zone = len(issued.zones), len(horizons_min) * len(targets)
    quantiles = issued.quantiles.astype(np.float32).reshape(count * per_zone, 3)
    return pa.table({
        "site": pa.array([issued.site] * (count * per_zone)),
        "zone": pa.array(np.repeat(np.array(issued.zones, dtype=object), per_zone)),
        "origin_ms": pa.array(np.full(count * per_zone, issued.origin_ms, np.int64)),
        "model_version": pa.array([issued.version] * (count * per_zone)),
        "horizon_min": pa.array(np.tile(np.repeat(np.array(horizons_min, np.int32), len(targets)), count)),
        "target": pa.array(list(targets) * (count * len(horizons_min))),
        "p10": quantiles[:, 0], "p50": quantiles[:, 1], "p90": quantiles[:, 2],
        "network": issued.network.astype(np.float32).ravel(),
        "climatology": issued.climatology.astype(np.float32).ravel(),
        "age_steps": np.full(count * per_zone, issued.age_steps, np.int16),
    }, _SCHEMA)  # fmt: skip
