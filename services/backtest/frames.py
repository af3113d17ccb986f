"""The backtest as a function: recordings go in and forecasts come out as pandas frames."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

from edge.recordings.columns import Column, RecordingError
from edge.recordings.columns import Mapping as Meaning
from edge.recordings.recording import recording_of
from edge.wire.vocabulary import VOCABULARY, base_metric
from models.durations import DAY_MS, HOUR_MS, MINUTE_MS
from models.features.plans import Plan
from services.backtest.ahead import plans_of, read_plans
from services.backtest.prequential import BacktestOptions, replay
from services.backtest.report import predictions, scores
from services.backtest.table import Table, read_table, table_of
from services.errors import ConfigError, HothouseError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Backtest", "backtest", "options_of", "table_of_frames"]

FRAMES_HINT = "recording.toml is for files: in a frame convert the column, or name its metric with `columns`."
UNITS_MS = {"min": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}


@dataclass(frozen=True, slots=True)
class Backtest:
    """The result of a backtest: the forecasts, how good they were, and what was found on the way.

    ``predictions`` and ``scores`` are as :mod:`services.backtest.report` says; ``told`` counts sensor faults and drifts
    by kind; ``notes`` says, one sentence each, what was left out of the recording.
    """

    predictions: pd.DataFrame
    scores: pd.DataFrame
    told: dict[str, int]
    notes: tuple[str, ...]


def backtest(
    recording: Path | str | pd.DataFrame | Mapping[str, pd.DataFrame], *, columns: Mapping[str, str] | None = None,
    every: str = "30min", warmup: str = "14d", until: str | None = None, latitude: float | None = None,
    longitude: float | None = None, timezone: str | None = None, network: bool = False,
    ahead: Path | str | pd.DataFrame | None = None, ahead_sources: Sequence[str] = (),
) -> Backtest:  # fmt: skip
    """What ``hothouse backtest`` does, on a folder or on frames: a frame a zone, or one with a column ``zone``.

    A frame has its times in a column ``time`` or as its index, and one column a measurement, named as in files;
    ``columns`` says what others hold (column -> metric). ``ahead`` are plans, a file or a frame of its columns
    (:mod:`services.backtest.ahead`). The options are those of the command, but with plans there is one run only, with
    them. Frames are not changed.

    Raises :class:`HothouseError` in one sentence.
    """
    options = options_of(every, warmup, until, latitude, longitude, timezone, network)
    if isinstance(recording, Path | str):
        if columns:
            raise ConfigError("columns are for frames", "Say in recording.toml what the columns of files hold.")
        table = read_table(Path(recording))
    else:
        table = table_of_frames(recording, columns or {})
    plans: list[Plan] = []
    notes: list[str] = []
    if isinstance(ahead, Path | str):
        plans, notes = read_plans(Path(ahead), ahead_sources, table)
    elif ahead is not None:
        plans, notes = plans_of(ahead, ahead_sources, table, "ahead")
    forecasts = replay(table, options, plans=plans)
    made, found = predictions(table, forecasts), scores(table, forecasts)
    return Backtest(made, found, dict(forecasts.told), (*table.notes, *notes))


def table_of_frames(frames: pd.DataFrame | Mapping[str, pd.DataFrame], columns: Mapping[str, str]) -> Table:
    """Rows as of files with these columns; raises :class:`HothouseError` in one sentence."""
    named = _by_zone(frames)
    said = _meaning(columns, [frame for _, frame in named])
    zones = {zone: _arrow_table(zone, frame, said.time) for zone, frame in named}
    try:
        return table_of(recording_of(zones, said), said)
    except RecordingError as error:
        is_of_files = "recording.toml" in str(error)
        raise HothouseError(str(error), FRAMES_HINT if is_of_files else "") from error


def _by_zone(frames: pd.DataFrame | Mapping[str, pd.DataFrame]) -> list[tuple[str, pd.DataFrame]]:
    """The zones and their frames."""
    import pandas as pd

    if isinstance(frames, pd.DataFrame):
        if "zone" not in frames:
            raise HothouseError("the frame has no column 'zone'", "Add one, or give a frame a zone: {zone: frame}.")
        if frames["zone"].isna().any():
            raise HothouseError("the column 'zone' is empty in some rows", "Fill it in, or drop those rows.")
        named = [(str(zone), part.drop(columns="zone")) for zone, part in frames.groupby("zone")]
    else:
        parts = frames.values() if isinstance(frames, Mapping) else [frames]
        if wrong := [type(part).__name__ for part in parts if not isinstance(part, pd.DataFrame)]:
            raise HothouseError(f"a {wrong[0]} is no recording", "Give a folder, or a DataFrame a zone: {zone: frame}.")
        named = [(str(zone), frame) for zone, frame in frames.items()]
    names = [zone for zone, _ in named]
    if twice := sorted({zone for zone in names if names.count(zone) > 1}):
        raise HothouseError(f"two zones are called {twice[0]!r}, as a number and as text", "Name them differently.")
    return named


def _meaning(columns: Mapping[str, str], frames: Sequence[pd.DataFrame]) -> Meaning:
    """What the columns hold: ``columns`` of those that are not named as in files."""
    unknown = sorted(metric for metric in columns.values() if base_metric(metric) not in VOCABULARY)
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)} is not a metric", "The table of metrics is VOCABULARY in edge/wire/vocabulary.py."
        )
    there = {str(name).strip().lower(): str(name) for frame in frames for name in frame.columns}
    if frames and (absent := sorted(name for name in columns if name.lower() not in there)):
        raise ConfigError(f"no frame has the column {absent[0]!r}", f"Columns are {', '.join(there.values())}.")
    return Meaning(columns={name.lower(): Column(metric) for name, metric in columns.items()})


def _arrow_table(zone: str, frame: pd.DataFrame, time: str) -> pa.Table:
    """A zone's frame, with its times in the column ``time``."""
    import pyarrow as pa

    has_time = time in [str(name).strip().lower() for name in frame.columns]
    if not has_time and frame.index.nlevels > 1:
        raise HothouseError(f"the frame of {zone} has an index of several levels", "Name a column 'time' in it.")
    try:
        timed = frame if has_time else frame.reset_index(names=time)
        return pa.Table.from_pandas(timed, preserve_index=False)
    except (pa.ArrowException, ValueError) as error:  # the latter for two columns of one name
        raise HothouseError(f"the frame of {zone} cannot be read: {error}") from error


def options_of(
    every: str, warmup: str, until: str | None, latitude: float | None, longitude: float | None, timezone: str | None,
    network: bool, warmup_name: str = "warmup", dashes: str = "",
) -> BacktestOptions:  # fmt: skip
    """The options that people write, checked; raises :class:`ConfigError` in one sentence.

    ``warmup_name`` is what the sentence calls ``warmup``; ``dashes`` stand before the name of each, as in a terminal.
    """
    every_ms, warmup_ms = _duration_ms(f"{dashes}every", every), _duration_ms(f"{dashes}{warmup_name}", warmup)
    until_ms = None if until is None else _duration_ms(f"{dashes}until", until)
    if until_ms is not None and until_ms < warmup_ms:
        words = f"{dashes}until {until} ends before {dashes}{warmup_name} {warmup}"
        raise ConfigError(words, "Set the first to more, or the second to less.")
    if timezone is not None and timezone not in zoneinfo.available_timezones():
        raise ConfigError(f"{timezone!r} is not a time zone", "Give an IANA name such as Europe/Amsterdam.")
    if (latitude is None) != (longitude is None):
        raise ConfigError(f"{dashes}latitude and {dashes}longitude belong together", "Give both or neither.")
    for name, value, most in (("latitude", latitude, 90), ("longitude", longitude, 180)):
        if value is not None and not (isinstance(value, Real) and -most <= value <= most):
            raise ConfigError(
                f"{name} {value!r} is not within -{most} to {most}", "Give degrees, north and east positive."
            )
    return BacktestOptions(
        every_ms=every_ms, warmup_ms=warmup_ms, latitude=latitude, longitude=longitude, timezone=timezone,
        network=network, until_ms=until_ms,
    )  # fmt: skip


def _duration_ms(name: str, text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*(min|h|d)\s*", text) if isinstance(text, str) else None
    if match is None or int(match[1]) == 0:
        raise ConfigError(f"{name} {text!r} is not a duration", "Write it as 30min, 1h or 14d.")
    return int(match[1]) * UNITS_MS[match[2]]
