"""What a restart sends to InfluxDB: the rows that it may have missed, no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge.log import partition_of
from services.store.delivered import Delivered
from services.store.history import History
from services.store.rows import SiteStep

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
    found = [one for steps in notes.missing(history) for one in steps]
    return {site: [(s.end_ms - T0) // STEP for s in found if s.site == site] for site in {s.site for s in found}}


def test_without_a_note_nothing_of_before_is_sent(history: History, tmp_path: Path) -> None:
    """Where InfluxDB is configured late, the past stays in the history; from then on a restart misses nothing."""
    assert missing(delivered(tmp_path), history) == {}
    history.add([step("demo", 4), step("new", 4)])
    history.flush()
    assert missing(delivered(tmp_path), history) == {"demo": [4], "new": [4]}


def test_the_newest_row_is_known_without_reading_rows(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first note of a long history reads no table: what the newest file of a site says of itself is enough."""
    history.add([step(site, 288 * day) for site in SITES for day in range(1, 4)])
    history.flush()
    monkeypatch.setattr("services.store.history.read_table", lambda path: pytest.fail(f"{path} is read"))
    assert missing(delivered(tmp_path), history) == {}
    monkeypatch.undo()
    history.add([step("demo", 3 * 288 - 1), step("demo", 3 * 288 + 1)])
    history.flush()
    assert missing(delivered(tmp_path), history) == {"demo": [3 * 288 + 1]}


def test_a_restart_sends_what_was_not_taken(history: History, tmp_path: Path) -> None:
    """Rows after the note come again, with their values; a site without a note comes whole."""
    list(Delivered(tmp_path, range(PARTITIONS), PARTITIONS).missing(History(tmp_path / "empty", CHANNELS)))
    delivered(tmp_path).note({"demo": T0 + STEP, "north": T0 + 3 * STEP})
    notes = delivered(tmp_path)
    assert missing(notes, history) == {"demo": [2, 3], "south": [0, 1, 2, 3]}
    (again, *_), *_ = [steps for steps in notes.missing(history) if steps and steps[0].site == "demo"]
    assert again.zones == ("z1", "z2")
    np.testing.assert_array_equal(again.values, step("demo", 2).values)


def test_a_note_never_goes_back(history: History, tmp_path: Path) -> None:
    """Points that a replay sends again change no note."""
    notes = delivered(tmp_path)
    list(notes.missing(history))
    notes.note({"demo": T0})
    assert missing(delivered(tmp_path), history) == {}


def test_each_partition_has_its_own_note(history: History, tmp_path: Path) -> None:
    """Another number of shards finds the notes of those before."""
    for number in range(PARTITIONS):
        list(delivered(tmp_path, range(number, number + 1)).missing(history))
    history.add([step(site, 4) for site in SITES])
    history.flush()
    assert missing(delivered(tmp_path), history) == {site: [4] for site in SITES}
