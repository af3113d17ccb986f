"""A zone leaves and comes back: by an event of the log and a sample, and by nothing else."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from edge.log import Record
from edge.wire.reading import Sample
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows.partition_windows import PartitionWindows
from services.ingest.windows.site_zones import Silent
from services.store.rows import SiteStep
from tests.services.ingest.samples import STEP, T0, record, sample, tick

LATE, IDLE = 30_000, 60_000
TICK = STEP // 10
DAY = 86_400_000


def windows() -> PartitionWindows:
    return PartitionWindows(STEP, LATE, IDLE, VOCABULARY)


def retire(zone: str = "typo", receive_ms: int = T0, **fields: Any) -> Record:
    payload = json.dumps({"type": "retire", **fields}).encode()
    return Record(0, 0, "demo", "event", receive_ms, payload, f"hothouse/v1/demo/{zone}/operator/event")


def batch(n: int, *zones: str) -> Record:
    """What these zones send in the middle of step ``n``."""
    at = T0 + n * STEP - STEP // 2
    return record(n, [sample(at, n, zone, air_temp_c=20.0 + n) for zone in zones])


def zones(steps: list[SiteStep]) -> dict[int, tuple[str, ...]]:
    return {(step.end_ms - T0) // STEP: step.zones for step in steps}


def test_a_zone_that_was_retired_has_no_rows_until_its_next_sample() -> None:
    """Its row of the newest sample is its last; the rows of others are those without it, byte for byte."""
    records = [batch(1, "z1", "typo"), *(batch(n, "z1") for n in range(2, 6)), retire(until_ms=T0 + STEP)]
    records += [batch(n, "z1") for n in range(6, 9)] + [batch(9, "z1", "typo"), batch(10, "z1")]
    found = windows().feed(records).steps
    assert zones(found) == {
        **dict.fromkeys(range(1, 5), ("typo", "z1")), **dict.fromkeys(range(5, 9), ("z1",)), 9: ("typo", "z1"),
    }  # fmt: skip
    back = found[-1]
    column = list(VOCABULARY).index("air_temp_c")
    assert back.values[0, column] == 29.0
    assert back.schema_version == found[0].schema_version
    alone = windows().feed([batch(n, "z1") for n in range(1, 11)]).steps
    for step, other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(step.values[step.zones.index("z1")], other.values[0])


@pytest.mark.parametrize("seed", range(8))
def test_rows_do_not_depend_on_batches_nor_on_restarts(seed: int) -> None:
    """Zones come and go, events come twice: in any batches, through any snapshots, the rows are the same."""
    rng = random.Random(seed)
    records: list[Record] = []
    for n in range(1, 60):
        there = [zone for zone in ("a", "b", "c", SITE_ZONE) if rng.random() < 0.4]
        records += [batch(n, *there)] if there else []
        if rng.random() < 0.5:
            zone = rng.choice(["a", "b", "c"])
            fields = {"version": 2 + n} if rng.random() < 0.5 else {"until_ms": T0 + rng.randrange(n) * STEP}
            records += [retire(zone, **fields)] * rng.choice([1, 2])
        if rng.random() < 0.2:
            records += [tick(0, T0 + n * STEP + k * TICK) for k in range(4)]
    whole = windows().feed(records).steps
    parts, at, w = list[SiteStep](), 0, windows()
    while at < len(records):
        size = rng.randint(1, 9)
        parts += w.feed(records[at : at + size]).steps
        at += size
        other = windows()
        other.load(w.state())
        w = other
    assert len({step.zones for step in whole}) > 2
    for one, other_step in zip(whole, parts, strict=True):
        assert (one.end_ms, one.zones, one.values.tobytes()) == (
            other_step.end_ms, other_step.zones, other_step.values.tobytes(),
        )  # fmt: skip
        assert list(one.devices) == list(other_step.devices)


def test_a_sample_that_was_quicker_keeps_its_zone() -> None:
    """An event for silence names the newest row; where a sample came meanwhile, or it comes twice, nothing happens."""
    silence = retire(until_ms=T0 + STEP)
    first = [batch(1, "z1", "typo"), batch(2, "z1")]
    in_an_open_row = windows().feed([*first, batch(3, "z1", "typo"), silence, batch(4, "z1"), batch(5, "z1")]).steps
    assert set(zones(in_an_open_row).values()) == {("typo", "z1")}
    back = [batch(3, "z1"), silence, batch(4, "z1", "typo"), batch(5, "z1"), silence, batch(6, "z1"), batch(7, "z1")]
    assert zones(windows().feed([*first, *back]).steps)[6] == ("typo", "z1")


def test_what_an_operator_retires_leaves_behind_the_row_of_its_newest_sample() -> None:
    """No sample is lost; one after the event keeps the zone; the same event again counts once."""
    event = retire(version=7)
    left = windows().feed([batch(1, "z1", "typo"), event, batch(2, "z1"), batch(3, "z1"), batch(4, "z1")]).steps
    assert zones(left) == {1: ("typo", "z1"), 2: ("z1",), 3: ("z1",)}
    assert {row.zone for row in left[0].devices} == {"typo", "z1"}
    late = record(8, [Sample("demo", "typo", "climate", "f" * 16, 9, T0 + STEP - 1000, {"rh_pct": 60.0})])
    kept = windows().feed([batch(1, "z1", "typo"), event, late, batch(2, "z1"), batch(3, "z1"), batch(4, "z1")]).steps
    assert set(zones(kept).values()) == {("typo", "z1")}
    again = windows().feed(
        [batch(1, "z1", "typo"), event, *(batch(n, "z1", "typo") for n in (2, 3)), event, batch(4, "z1")]
    )
    assert set(zones(again.steps).values()) == {("typo", "z1")}


def test_silence_is_counted_in_time_that_ticks_saw() -> None:
    """While nobody listens, for a holiday say, no zone becomes silent; a site without zones leaves as a whole."""
    w = windows()
    w.feed([batch(1, "z1", "typo"), batch(2, "z1")])

    def listen(begin_ms: int, hours: int) -> None:
        w.feed([tick(0, begin_ms + n * TICK) for n in range(hours * 3_600_000 // TICK + 1)])

    def silent() -> dict[str, tuple[int, int]]:
        return {one.zone: (one.until_ms, one.silent_ms // 3_600_000) for one in w.zones("demo").silent()}

    listen(T0 + 2 * STEP, 5)
    listen(T0 + 30 * DAY, 5)
    assert silent() == {"z1": (T0 + 2 * STEP, 9), "typo": (T0 + STEP, 10)}
    w.feed([retire(SITE_ZONE, until_ms=T0 + 2 * STEP)])
    assert set(silent()) == {"z1", "typo"}, "a site with zones does not leave"
    w.feed([retire("typo", until_ms=T0 + STEP), retire("z1", until_ms=T0 + 2 * STEP)])
    (site,) = w.zones("demo").silent()
    assert (site.zone, site.until_ms) == (SITE_ZONE, w.watermark_ms("demo"))
    w.feed([retire(SITE_ZONE, until_ms=site.until_ms)])
    assert w.zones("demo").gone
    assert list(w.zones("demo").silent()) == []
    w.feed([batch(31 * 288, "z1"), batch(31 * 288 + 2, "z1")])
    assert not w.zones("demo").gone
    assert list(w.zones("demo").silent()) == [Silent("z1", T0 + 31 * 288 * STEP, 0)]
