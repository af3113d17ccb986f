"""The ledger of `make e2e` sees what is lost and what counts twice."""

from __future__ import annotations

import json
from collections import Counter

from tests.compose.inside.settle import Found, Published, balance, disputed, never_came

STEP_MS = 300_000
TOPIC = "hothouse/v1/demo/z/climate/sample"
BOOT = "9f3c62d1a07be845"


PLAN_ID = ("demo", "z", "grower", 60_000)
PLAN = b'plan\thothouse/v1/demo/z/grower/plan\t{"issued":60000,"source":"grower","values":{}}\n'


def line(kind: str, seq: int, ts_ms: int) -> bytes:
    """A line as the simulator writes it."""
    body = {"ts": ts_ms, "boot": BOOT, "seq": seq, "values": {"air_temp_c": 20.0, "rh_pct": 70.0}}
    return f"{kind}\t{TOPIC}\t{json.dumps(body)}\n".encode()


def whole() -> tuple[Published, Found]:
    """Three samples of two steps, a latecomer, a plan and a malformed message, all accounted for."""
    published = Published.read([
        line("sample", 1, 60_000), line("sample", 2, 300_000), line("duplicates", 2, 300_000),
        line("sample", 3, 360_000), line("late", 4, 30_000), PLAN, f"malformed\t{TOPIC}\t{{".encode(),
    ])  # fmt: skip
    found = Found(
        arrived=Counter({(TOPIC, BOOT, seq): 1 + (seq == 2) for seq in (1, 2, 3, 4)}),
        refused=Counter([(TOPIC, b"{")]), late=Counter([(TOPIC, BOOT, 4)]), dead_letters=Counter([(TOPIC, b"{")]),
        rows={
            ("z", "climate", end_ms, metric): count
            for end_ms, count in ((300_000, 2), (600_000, 1)) for metric in ("air_temp_c", "rh_pct")
        },
        plans_in_log={PLAN_ID}, plans_kept=Counter([PLAN_ID]),
    )  # fmt: skip
    return published, found


def test_what_is_whole_balances() -> None:
    """Samples in rows, a latecomer and nonsense in letters, copies beside them: nothing lost, nothing twice."""
    ledger = balance(*whole(), STEP_MS)
    assert ledger == {
        "published": 6, "samples": 4, "plans": 1, "nonsense": 1, "in_log": 6, "in_rows": 3, "late": 1, "refused": 1,
        "open": 0, "lost": 0, "twice": 0, "copies": 1, "late_copies": 0,
    }  # fmt: skip


def test_a_sample_that_is_in_no_row_is_lost() -> None:
    """One metric of one sample missing in a row is a sample lost."""
    published, found = whole()
    found.rows["z", "climate", 300_000, "rh_pct"] -= 1
    ledger = balance(published, found, STEP_MS)
    assert (ledger["lost"], ledger["in_rows"]) == (1, 2)


def test_what_never_came_is_named_by_its_time() -> None:
    """A stretch of event time each, so that it can be laid beside what was done then."""
    published, found = whole()
    assert never_came(published, found, STEP_MS) == []
    for seq in (1, 2, 4):
        found.arrived[TOPIC, BOOT, seq] = 0
    assert never_came(published, found, STEP_MS) == [(30_000, 300_000, 3)]
    assert never_came(published, found, 60_000) == [(30_000, 60_000, 2), (300_000, 300_000, 1)]
    found.plans_in_log.clear()
    assert never_came(published, found, 60_000) == [(30_000, 60_000, 3), (300_000, 300_000, 1)]


def test_a_plan_that_is_not_kept_is_lost() -> None:
    """And one that the history holds two times counts twice."""
    published, found = whole()
    found.plans_kept.clear()
    assert balance(published, found, STEP_MS)["lost"] == 1
    found.plans_kept[PLAN_ID] = 2
    ledger = balance(published, found, STEP_MS)
    assert (ledger["lost"], ledger["twice"]) == (0, 1)


def test_a_sample_that_never_came_is_lost() -> None:
    """Also where its row is not closed yet."""
    published, found = whole()
    del found.arrived[TOPIC, BOOT, 3]
    del found.rows["z", "climate", 600_000, "air_temp_c"], found.rows["z", "climate", 600_000, "rh_pct"]
    assert balance(published, found, STEP_MS)["lost"] == 1


def test_a_reading_too_many_counts_twice() -> None:
    """A row made of more readings than there were samples has one of them twice."""
    published, found = whole()
    found.rows["z", "climate", 600_000, "air_temp_c"] += 1
    assert balance(published, found, STEP_MS)["twice"] == 1


def test_a_row_that_does_not_add_up_is_told_with_the_way_of_its_samples() -> None:
    """How many readings too many or too few, and where in the log each sample came."""
    published, found = whole()
    assert disputed(published, found, STEP_MS) == []
    found.rows["z", "climate", 600_000, "air_temp_c"] += 1
    found.seen_at[TOPIC, BOOT, 3] += ["p0@17", "late@18.0"]
    (told,) = disputed(published, found, STEP_MS)
    assert told.startswith("z/climate/600000 ")
    assert "'air_temp_c': 1" in told
    assert told.endswith(f"{BOOT}-3 at 360000 p0@17 late@18.0")
    found.times_ms[TOPIC, "5f", 7] = 360_001
    found.seen_at[TOPIC, "5f", 7].append("p0@19")
    (told,) = disputed(published, found, STEP_MS)
    assert "5f-7, nonsense, at 360001 p0@19" in told


def test_a_late_copy_excuses_nothing() -> None:
    """A sample that came in time and once more late must be in its row, whatever letter its copy has."""
    published, found = whole()
    found.arrived[TOPIC, BOOT, 1] += 1
    found.late[TOPIC, BOOT, 1] += 1
    assert balance(published, found, STEP_MS)["lost"] == 0
    for metric in ("air_temp_c", "rh_pct"):
        found.rows["z", "climate", 300_000, metric] -= 1
    assert balance(published, found, STEP_MS)["lost"] == 1


def test_nonsense_without_a_letter_is_lost() -> None:
    """What was refused must have its letter."""
    published, found = whole()
    found.dead_letters.clear()
    assert balance(published, found, STEP_MS)["lost"] == 1
