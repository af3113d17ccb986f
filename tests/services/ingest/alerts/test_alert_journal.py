"""What is kept in the journal of alerts, and read from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.ingest.alerts.alert_journal import AlertJournal, JournalReader, changes_in
from services.ingest.snapshots.snapshot import FencedError
from tests.services.alert.told import change, journal
from tests.storages import KINDS, Open, opener


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Each kind of storage, empty."""
    return opener(request.param, tmp_path)


def test_a_shard_goes_on_with_the_journal_of_another_machine(storage: Open) -> None:
    """Changes since an offset, alerts that stand before it, and nothing twice of what is read again."""
    first = AlertJournal(storage(), 0)
    assert len(first.put([(5, change("a1", 1)), (7, change("b1", 1)), (7, change("b1", 1))])) == 2
    assert len(first.put([(8, change("b1", 2, "resolved")), (9, change("c1", 1))])) == 2
    second = AlertJournal(storage(), 0)
    assert [(at, one["id"], one["change"]) for at, one in second.since(8)] == [(8, "b1", 2), (9, "c1", 1)]
    assert [one["id"] for one in second.standing(9)] == ["a1"]
    assert second.put([(9, change("c1", 1)), (11, change("c1", 2))]) == [change("c1", 2)]
    assert [entry.number for entry in JournalReader(storage(), "p0").read(0)[0]] == [1, 2, 3, 4, 5]


def test_of_two_shards_neither_takes_anything_from_the_other(storage: Open) -> None:
    """One that lost its partition and writes once more is told so; what it had written before stays."""

    def lost() -> None:
        raise FencedError("partition 0 was taken over by another writer")

    first, second = AlertJournal(storage(), 0), AlertJournal(storage(), 0)
    first.put([(1, change("a1", 1))])
    second.put([(1, change("a1", 1)), (2, change("a1", 2))])
    with pytest.raises(FencedError):
        first.put([(2, change("a1", 2)), (3, change("x1", 1))], lost)
    second.put([(3, change("a1", 3))])
    found = JournalReader(storage(), "p0").read(0)[0]
    assert [(entry.alert["id"], entry.alert["change"]) for entry in found] == [("a1", 1), ("a1", 2), ("a1", 3)]


def test_a_zones_changes_come_in_order_with_since_when_its_site_is_known(tmp_path: Path) -> None:
    """From all partitions; of other zones only the time counts, of other sites nothing."""
    assert changes_in(tmp_path, "demo", "z1") == ([], None)
    journal(
        tmp_path, change("a1", 1, began_ms=70), change("b1", 1, zone="z2", began_ms=50),
        change("c1", 1, site="attic", began_ms=10), change("a1", 2, began_ms=70),
    )  # fmt: skip
    journal(tmp_path, change("d1", 1, site="attic", zone="z1"), partition=1)
    found, first_ms = changes_in(tmp_path, "demo", "z1")
    assert [(one["id"], one["change"]) for one in found] == [("a1", 1), ("a1", 2)]
    assert first_ms == 50
