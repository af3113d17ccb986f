"""What is read from the journal of alerts."""

from __future__ import annotations

from pathlib import Path

from services.ingest.alerts.alert_journal import changes_in
from tests.services.alert.told import change, journal


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
