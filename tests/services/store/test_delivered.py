"""What a restart sends to InfluxDB: the rows that it may have missed, no others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from edge.log import partition_of
from services.errors import HistoryError
from services.store.delivered import Delivered
from services.store.history import History
from services.store.influx.gaps import Gap, Stream
from services.store.rows import SiteStep
from services.store.tables import file_spans, table_reader

CHANNELS = ("air_temp_c", "rh_pct")
T0, STEP = 1_646_092_800_000, 300_000
PARTITIONS = 4
SITES = ("demo", "north", "south")


def step(site: str, number: int) -> SiteStep:
    """A closed step of two zones."""
    values = np.array([[20.0 + number, np.nan], [np.nan, 50.0]], np.float32)
    return SiteStep(partition_of(site, PARTITIONS), site, T0 + number * STEP, ("z1", "z2"), values, values)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Four steps a site."""
    made = History(tmp_path, CHANNELS)
    made.add([step(site, number) for site in SITES for number in range(4)])
    made.flush()
    return made


def delivered(root: Path, partitions: range = range(PARTITIONS)) -> Delivered:
    """As after a start."""
    return Delivered(root, partitions, PARTITIONS)


def missing(notes: Delivered, history: History) -> dict[str, list[int]]:
    """Site -> the numbers of the steps that are to be sent."""
    gaps, found = notes.gaps(history.zones), {}
    while (oldest := gaps.oldest()) is not None:
        stream, gap = oldest
        if stream.kind == "rows":
            ends = history.read(gap.after_ms, gap.until_ms, [stream.site])["end_ms"].to_pylist()
            found[stream.site] = sorted({(end_ms - T0) // STEP for end_ms in ends})
        gaps.fill(stream, gap.until_ms, 0)
    return found


def rows(numbers: dict[str, int]) -> dict[Stream, int]:
    """Site -> the number of a step, as a note."""
    return {Stream("rows", site): T0 + number * STEP for site, number in numbers.items()}


def test_without_a_note_nothing_of_before_is_sent(history: History, tmp_path: Path) -> None:
    """Where InfluxDB is configured late, the past stays in the history; from then on a restart misses nothing."""
    assert missing(delivered(tmp_path), history) == {}
    history.add([step("demo", 4), step("new", 4)])
    history.flush()
    assert missing(delivered(tmp_path), history) == {"demo": [4], "new": [4]}


def test_the_newest_row_is_known_without_reading_values(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first note of a long history reads of each file at most whose rows are in it and when, once."""
    history.add([step(site, 288 * day) for site in SITES for day in range(1, 4)])
    history.flush()
    read: list[tuple[str, tuple[str, ...]]] = []
    ask = file_spans.read_files

    def watched(storage: Any, sizes: Any, schema: Any, columns: Sequence[str], within: Any) -> pa.Table:
        read.extend((key, tuple(columns)) for key in sizes)
        return ask(storage, sizes, schema, columns, within)

    for module in (file_spans, table_reader):
        monkeypatch.setattr(module, "read_files", watched)
    assert missing(delivered(tmp_path), history) == {}
    assert {columns for _, columns in read} == {("site", "end_ms")}
    assert len({key for key, _ in read}) == len(read) <= len(history.files())
    monkeypatch.undo()
    history.add([step("demo", 3 * 288 - 1), step("demo", 3 * 288 + 1)])
    history.flush()
    assert missing(delivered(tmp_path), history) == {"demo": [3 * 288 + 1]}


def test_a_restart_sends_what_was_not_taken(history: History, tmp_path: Path) -> None:
    """Rows after the note come again; a site without a note comes whole."""
    Delivered(tmp_path, range(PARTITIONS), PARTITIONS).gaps(History(tmp_path / "empty", CHANNELS).zones)
    delivered(tmp_path).note(rows({"demo": 1, "north": 3}))
    notes = delivered(tmp_path)
    assert missing(notes, history) == {"demo": [2, 3], "south": [0, 1, 2, 3]}


def test_a_note_never_goes_back(history: History, tmp_path: Path) -> None:
    """Points that a replay sends again change no note."""
    notes = delivered(tmp_path)
    notes.gaps(history.zones)
    notes.note(rows({"demo": 0}))
    assert missing(delivered(tmp_path), history) == {}


def test_each_partition_has_its_own_note(history: History, tmp_path: Path) -> None:
    """Another number of shards finds the notes of those before."""
    for number in range(PARTITIONS):
        delivered(tmp_path, range(number, number + 1)).gaps(history.zones)
    history.add([step(site, 4) for site in SITES])
    history.flush()
    assert missing(delivered(tmp_path), history) == {site: [4] for site in SITES}


def test_forecasts_have_a_note_of_their_own(history: History, tmp_path: Path) -> None:
    """Of a row that was taken the forecast may still be missing; it may have been kept before its row."""
    notes = delivered(tmp_path)
    notes.gaps(history.zones)
    notes.note(rows(dict.fromkeys(SITES, 4)))
    again = delivered(tmp_path).gaps(history.zones)
    day_ms = 86_400_000
    assert Stream("rows", "demo") not in again
    assert again.oldest() == (Stream("forecasts", "demo"), Gap(T0 + 3 * STEP, T0 + 3 * STEP + day_ms))


def test_a_note_of_the_first_release_counts_for_rows_and_forecasts(history: History, tmp_path: Path) -> None:
    """It noted rows alone; what is sent again of the forecasts changes nothing."""
    number = partition_of("demo", PARTITIONS)
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / f"p{number}.json").write_text(json.dumps({"demo": T0 + STEP}))
    notes = delivered(tmp_path, range(number, number + 1))
    assert missing(notes, history)["demo"] == [2, 3]
    notes.note(rows({"demo": 3}))
    assert json.loads((tmp_path / "series" / f"p{number}.json").read_text()) == {
        "rows": {"demo": T0 + 3 * STEP}, "forecasts": {"demo": T0 + STEP}
    }  # fmt: skip


@pytest.mark.parametrize(
    "content", ["", "{", "[3]", "null", '{"demo": "3"}', '{"rows": {"demo": null}}', '{"rows": {}, "forecasts": 3}']
)
def test_a_damaged_note_is_named(tmp_path: Path, content: str) -> None:
    """With what to do; a shard that is restarted waits for that, where any other error would end it for good."""
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "p1.json").write_text(content)
    with pytest.raises(HistoryError, match=r"series/p1\.json is damaged") as raised:
        delivered(tmp_path, range(1, 2))
    assert "remove it" in raised.value.hint
