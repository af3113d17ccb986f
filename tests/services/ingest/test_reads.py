"""However the records of a partition are cut into reads, what comes of them is the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.log import Origin, Record
from edge.wire.events import Alias, Calibration, Change, Retirement, SettingsChange, encode_change
from edge.wire.reading import Refusal, Sample
from edge.wire.samples import SampleColumns, encode_samples
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows import headers as heads
from services.ingest.windows import open_rows
from services.ingest.windows import partition_windows as windows
from services.ingest.windows.batch import RunSamples, take_runs
from services.ingest.windows.partition_windows import Closed, PartitionWindows
from tests.edge.wire.older_samples import version_2
from tests.services.ingest.samples import STEP, T0

LATE, IDLE = 30_000, 60_000
METRICS = ["air_temp_c", "rh_pct", "vent_lee_pct", "wind_dir_deg", "irrigation_l_m2", "unheard_of"]
CHANGES: list[Change] = [
    SettingsChange(2, step_s=60), SettingsChange(3, lateness_s=90), Calibration(2, "air_temp_c", offset=-0.5),
    Alias(3, "c"), Retirement(2), Retirement(until_ms=T0 + STEP), Retirement(until_ms=T0 + 10 * STEP),
]  # fmt: skip


def undecodable(samples: Sequence[Sample]) -> bytes:
    """A payload that is whole, but for the name of its last device."""
    c = SampleColumns.of(encode_samples(samples))
    return msgspec.structs.replace(c, devices=(*c.devices[:-1], b"\x93")).payload()


def misfit(samples: Sequence[Sample]) -> bytes:
    """A payload whose samples have other lengths than its head says."""
    c = SampleColumns.of(encode_samples(samples))
    longer = tuple((*names, "co2_ppm") for names in c.metric_sets)
    return msgspec.structs.replace(c, metric_sets=longer).payload()


ENCODERS = [encode_samples] * 20 + [version_2, msgspec.msgpack.encode, undecodable, misfit]


def story(rng: random.Random, length: int) -> list[Record]:
    """Records of three sites: samples in and out of order, late, copied, torn; ticks, refusals, plans and events."""
    records: list[Record] = []
    numbers = dict.fromkeys(["demo", "other", "third"], 0)
    now = T0
    for offset in range(length):
        now += rng.choice([0, 500, 20_000, 90_000])
        site = rng.choice([*numbers])
        origin = None
        if site == "third" or (site == "other" and rng.random() < 0.3):  # some records come out of another log, twice
            origin = Origin("edge", max(0, numbers[site] - rng.choice([0, 0, 0, 1])))
            numbers[site] += 1
        kind = rng.choice(["samples"] * 12 + ["tick", "tick", "refused", "plan", "event"])
        topic, payload = "", b""
        if kind == "samples":
            samples = [_sample(rng, site, now, records) for _ in range(rng.choice([1, 1, 1, 2, 5]))]
            payload = rng.choice(ENCODERS)(samples)
            payload = payload[: rng.randrange(len(payload))] if rng.random() < 0.02 else payload
        elif kind == "refused":
            refusal = Refusal(rng.choice(["malformed", "ancient_ts"]), "t", "why", b"what", rng.random() < 0.5)
            payload = msgspec.msgpack.encode([refusal] * rng.choice([1, 2]))
        elif kind == "event":
            change = rng.choice(CHANGES)
            zone = SITE_ZONE if isinstance(change, SettingsChange) else rng.choice(["z1", "z2", SITE_ZONE])
            topic = f"hothouse/v1/{site}/{zone}/a/event"
            payload = rng.choice([encode_change(change), b'{"crop":"lettuce"}', b'{"type":"alias"}'])
        records.append(Record(0, offset, site, kind, now, payload, topic, origin))  # type: ignore[arg-type]
    return records


def _sample(rng: random.Random, site: str, now: int, before: list[Record]) -> Sample:
    ts_ms = now - rng.choice([0, 1000, 20_000, 60_000, 2 * STEP, -50_000])
    values = {name: rng.choice([0.1, 33.3, 7.7, 59.9]) for name in rng.sample(METRICS, rng.choice([2, 2, 3]))}
    seq = rng.randrange(0, len(before) + 2) + rng.choice([0] * 30 + [2**32, 2**40])
    return Sample(
        site,
        rng.choice(["z1", "z2", SITE_ZONE]),
        rng.choice("ab"),
        rng.choice(["boot-one", "boot-two"]),
        seq,
        ts_ms,
        values,
    )


def content(closed: Sequence[Closed], of_partition: PartitionWindows) -> list[Any]:
    """All that came of records, bit for bit, and the state that they left."""
    steps = [
        (s.site, s.end_ms, s.zones, s.values.tobytes(), s.ages_s.tobytes(), list(s.devices), s.step_ms)
        for one in closed for s in one.steps
    ]  # fmt: skip
    counts = [sum(c) for c in zip(*((one.accepted, one.duplicates, one.late) for one in closed), strict=True)]
    named = [
        {name: sum(getattr(one, kind).get(name, 0) for one in closed) for one in closed for name in getattr(one, kind)}
        for kind in ("rejected", "values_refused", "other_records")
    ]
    dead_letters = [letter for one in closed for letter in one.dead_letters]
    return [
        steps,
        counts,
        named,
        dead_letters,
        msgspec.msgpack.encode(of_partition.state(), enc_hook=np.ndarray.tobytes),
    ]


@pytest.mark.parametrize("small", [False, True])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 150))
@pytest.mark.thorough
def test_what_comes_of_records_does_not_depend_on_how_they_are_read(
    small: bool, monkeypatch: pytest.MonkeyPatch, seed: int, length: int
) -> None:
    """Rows, counts, dead letters and the state are those of reading record by record, also where names and heads are
    forgotten all the time.
    """
    if small:
        monkeypatch.setattr(open_rows, "_SPARE_NAMES", 1)
        monkeypatch.setattr(open_rows, "_RECENT", 2)
        monkeypatch.setattr(heads, "_MOST", 4)
        monkeypatch.setattr(heads, "_MOST_BYTES", 100)
    rng = random.Random(seed)
    records = story(rng, length)
    one_by_one = PartitionWindows(STEP, LATE, IDLE, VOCABULARY)
    expected = content([one_by_one.feed([record]) for record in records], one_by_one)
    at_once = PartitionWindows(STEP, LATE, IDLE, VOCABULARY)
    assert content([at_once.feed(records)], at_once) == expected
    cuts = sorted(rng.sample(range(length), rng.randrange(min(length, 12))))
    in_reads = PartitionWindows(STEP, LATE, IDLE, VOCABULARY)
    closed = [in_reads.feed(records[a:b]) for a, b in zip([0, *cuts], [*cuts, length], strict=True)]
    assert content(closed, in_reads) == expected


@pytest.mark.parametrize("seq", [1, 2**33])
def test_records_between_ticks_are_numbered_in_one_walk(monkeypatch: pytest.MonkeyPatch, seq: int) -> None:
    """A site's new devices, and a ``seq`` that counts milliseconds, cost no walk each time a tick comes between."""
    taken: list[int] = []

    def counted(records: Sequence[Record], *rest: Any) -> list[RunSamples]:
        taken.append(len(records))
        return take_runs(records, *rest)

    monkeypatch.setattr(windows, "take_runs", counted)
    records: list[Record] = []
    for n in range(50):
        payload = encode_samples([Sample("demo", "z1", f"d{n}", "boot-one", seq + n, T0, {"rain": 1.0})])
        records.append(Record(0, 2 * n, "demo", "samples", T0, payload, "", None))
        records.append(Record(0, 2 * n + 1, "demo", "tick", T0, b"", "", None))
    closed = PartitionWindows(STEP, LATE, IDLE, VOCABULARY).feed(records)
    assert (closed.accepted, taken) == (50, [50])


def test_long_heads_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads whose samples carry thousands of metrics each are forgotten before their bytes are too many."""
    monkeypatch.setattr(heads, "_MOST_BYTES", 100_000)
    kept = PartitionWindows(STEP, LATE, IDLE, VOCABULARY)
    values = {f"air_temp_c.{n}": 20.0 for n in range(100)}
    for n in range(300):
        payload = encode_samples([Sample("demo", "z1", "a", f"boot-{n:08d}", n, T0, values)])
        kept.feed([Record(0, n, "demo", "samples", T0, payload, "", None)])
    assert sum(map(len, kept._heads._known)) < 110_000


def test_a_head_is_what_it_was_after_a_payload_that_does_not_fit_it() -> None:
    """A record whose columns do not fit its head leaves no name behind, in whatever read it stands."""
    sample = Sample("demo", "z9", "d9", "boot-one", 1, T0, {"rh_pct": 71.0})
    bad = Record(0, 0, "demo", "samples", T0, misfit([sample]), "", None)
    good = bad._replace(offset=1, payload=encode_samples([Sample("demo", "z1", "a", "boot-one", 1, T0, {"rain": 1.0})]))
    of_partition = PartitionWindows(STEP, LATE, IDLE, VOCABULARY)
    closed = of_partition.feed([bad, good])
    assert (closed.rejected, closed.accepted) == ({"corrupt_record": 1}, 1)
    assert of_partition.state()["sites"]["demo"]["names"]["devices"] == [("z1", "a", "boot-one", 0)]
