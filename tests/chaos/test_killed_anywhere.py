"""Writers are killed with SIGKILL in the middle of flushes, compactions, snapshots and migrations: as if nothing had
been. ``pytest -s -m long tests/chaos/test_killed_anywhere.py`` kills 50 times, on a folder and on a bucket.
"""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from services.config import load_settings
from services.log import open_settings_log
from services.store.storage import Storage, StorageAddress, open_storage
from tests.chaos.rows_process import SITES
from tests.chaos.stored_shard import PARTITION, content, saved, undisturbed, written_config
from tests.chaos.told_child import AT_FIRST_S, ToldChild
from tests.chaos.written_rows import FOLDERS, key_of, make_old_history, old_rows, rows_there, rows_to_be
from tests.ci.record import balance
from tests.patience import until as wait_until
from tests.s3 import s3_address
from tests.services.ingest.rig import day

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(1800)]

SEED = 17
MOST_REPEATED = 3
"""So many steps that were durable come again after a restart, as behind a snapshot that is a little older."""
OLD_STEPS = 48 * 6
KINDS = ["folder", pytest.param("s3", marks=pytest.mark.s3)]


def address_in(kind: str, folder: Path) -> StorageAddress:
    """An empty storage."""
    folder.mkdir()
    return s3_address(folder) if kind == "s3" else StorageAddress(url=str(folder / "storage"))


def opened(address: StorageAddress) -> Storage:
    """As a new process opens it."""
    return open_storage.__wrapped__(address)


@contextmanager
def child(took_s: dict[str, float], module: str, *arguments: str) -> Iterator[ToldChild]:
    """One that is gone afterwards, however the test ends."""
    begun = ToldChild(f"tests.chaos.{module}", arguments, took_s)
    try:
        yield begun
    finally:
        begun.process.kill()
        begun.end()


class Kills:
    """Counts kills, and what they hit; says what is to be hit next."""

    def __init__(self, rng: random.Random, least: int) -> None:
        self.rng, self.least, self.count, self.hits = rng, least, 0, Counter[str]()
        self.took_s = dict[str, float]()

    def left(self, wanted: int, since: int, activities: tuple[str, ...]) -> bool:
        """Whether to kill once more: so many, and each activity must be hit ``least`` times. A kill may miss, but not
        for ever.
        """
        done = self.count - since
        return done < wanted or (done < 3 * wanted + 5 and any(self.hits[one] < self.least for one in activities))

    def kill(
        self, killed: ToldChild, activities: tuple[str, ...], most: int = 3, feed: Callable[[], None] = lambda: None
    ) -> bool:
        """Kill it somewhere in what was hit least so far; ``False`` where it had ended by itself."""
        target = min(activities, key=lambda one: self.hits[one])
        if not killed.reach(target, self.rng, most, feed):
            return False
        hit = killed.kill()
        if killed.process.returncode != -signal.SIGKILL:
            return False
        self.count += 1
        self.hits.update(hit)
        if target not in hit:  # it is over sooner than the last time: kill sooner
            self.took_s[target] = self.took_s.get(target, AT_FIRST_S) / 2
        return True


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_kills_at_any_moment_lose_nothing_and_write_nothing_twice(kind: str, kills: int, tmp_path: Path) -> None:
    """After each kill the tables have every row that was durable, once; at the end they have all, to the bit."""
    tally, quarter = Kills(random.Random(SEED), max(kills // 8, 1)), kills // 4
    rows = kill_flushes_and_compactions(tally, kills - 2 * quarter, address_in(kind, tmp_path / "rows"))
    rows += kill_migrations(tally, quarter, address_in(kind, tmp_path / "old"))
    rows += kill_snapshots(tally, quarter, kind, tmp_path / "shard")
    hits = ", ".join(f"{tally.hits[one]} in a {one}" for one in ("flush", "compaction", "snapshot", "migration"))
    print(f"\n{kind}: killed {tally.count} times ({hits}): {rows} rows, 0 lost, 0 twice")
    assert tally.count >= kills
    for activity in ("flush", "compaction", "snapshot", "migration"):
        assert tally.hits[activity] >= tally.least, activity


def kill_flushes_and_compactions(tally: Kills, wanted: int, address: StorageAddress) -> int:
    """Returns how many rows there are at the end."""
    first, since, durable = 0, tally.count, -1
    activities = ("flush", "compaction")
    told = json.dumps(asdict(address))
    while tally.left(wanted, since, activities):
        with child(tally.took_s, "rows_process", told, "flush", str(first), "1400") as writer:
            assert tally.kill(writer, activities), writer.end()
        durable = max([durable, *(int(number) for number in writer.ended("flush"))])
        check_rows(opened(address), durable)
        first = max(0, durable + 1 - tally.rng.randint(0, MOST_REPEATED))
    with child(tally.took_s, "rows_process", told, "flush", str(first), str(durable + 4)) as writer:
        assert not writer.end()
        assert writer.process.returncode == 0
    with balance():
        found = [rows_there(opened(address), folder) for folder in FOLDERS]
        for folder, rows in zip(FOLDERS, found, strict=True):
            assert_frame_equal(rows, rows_to_be(folder, durable + 5))
    return sum(map(len, found))


def check_rows(storage: Storage, durable: int) -> None:
    """Each table has the steps up to the last durable one, and at most one more: that in which it was killed."""
    for folder in FOLDERS:
        found = rows_there(storage, folder)
        with balance():
            known, more = rows_to_be(folder, durable + 1), rows_to_be(folder, durable + 2)
            assert_frame_equal(found if len(found) else more.clear(), more if len(found) > len(known) else known)


def kill_migrations(tally: Kills, wanted: int, address: StorageAddress) -> int:
    """One old history after the other is brought over; returns how many rows there are at the end."""
    storage, told, sites, since = opened(address), json.dumps(asdict(address)), dict[str, int](), tally.count
    while tally.left(wanted, since, ("migration",)):
        new = {f"site-{len(sites) + n}": SITES["south"] - 3 * 86_400_000 for n in range(2)}  # days of two months
        make_old_history(storage, new, OLD_STEPS)
        sites |= new
        ended = False
        while not ended:
            with child(tally.took_s, "rows_process", told, "migrate") as migration:
                killed = tally.left(wanted, since, ("migration",)) and tally.kill(migration, ("migration",), most=1)
                assert not migration.end()
                assert killed or migration.process.returncode == 0
                ended = bool(migration.ended("migration"))  # before it was killed, maybe
            check_migration(opened(address), sites, ended)
    return sum(len(rows_there(opened(address), folder)) for folder in FOLDERS)


def check_migration(storage: Storage, sites: dict[str, int], ended: bool) -> None:
    """No row is twice in a table, and each is there or in an old file still; at the end all are there, to the bit."""
    for folder in FOLDERS:
        found, wanted, keys = rows_there(storage, folder), rows_to_be(folder, OLD_STEPS, sites), key_of(folder)
        left = old_rows(storage, folder)
        with balance():
            if ended:
                assert_frame_equal(found, wanted)
                assert not len(left)
                continue
            assert not len(found) or not found.select(keys).is_duplicated().any()
            there = pl.concat([one.select(keys) for one in (found, left) if len(one)]).unique().sort(keys)
            assert_frame_equal(there, wanted.select(keys))


def kill_snapshots(tally: Kills, wanted: int, kind: str, folder: Path) -> int:
    """A whole shard, which reads a log, is killed in its snapshots and flushes; returns how many rows there are."""
    address = address_in(kind, folder)
    config = written_config(folder, address if kind == "s3" else None)
    settings = load_settings(config)
    settings.data_dir.mkdir()
    records, since = iter(day(60 + 60 * wanted)), tally.count
    with closing(open_settings_log(settings)) as log:

        def feed() -> None:
            log.append(list(islice(records, 4)))

        def start() -> AbstractContextManager[ToldChild]:
            return child(tally.took_s, "shard_process", str(config), "0", "1", "--say")

        while tally.left(wanted, since, ("snapshot",)):
            with start() as shard:
                assert tally.kill(shard, ("snapshot",), feed=feed), shard.end()
        log.append(list(records))
        with start() as shard:
            wait_until(lambda: saved(settings) >= log.end_offset(PARTITION), "everything is saved")
            shard.process.send_signal(signal.SIGTERM)
            shard.end()
            assert shard.process.returncode == 0
        expected = undisturbed(config, log, folder / "undisturbed")
    found = content(settings)
    with balance():
        for what in ("zones", "devices", "letters", "alerts"):
            assert found[what] == expected[what], what
        assert found["origins"] == sorted(set(found["origins"]))
    return len(found["zones"]) + len(found["devices"])


@pytest.mark.thorough
@pytest.mark.parametrize("stops", [2, pytest.param(12, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_that_hung_finds_the_newer_one_and_ends(kind: str, stops: int, tmp_path: Path) -> None:
    """Stopped in the middle of a flush or a compaction, while another one takes the partition over, writes the same
    steps and more, and compacts: when it goes on it says one sentence, and nothing is there twice.
    """
    address, rng, took_s = address_in(kind, tmp_path / "rows"), random.Random(SEED), dict[str, float]()
    told, first, hits = json.dumps(asdict(address)), 0, Counter[str]()
    for number in range(stops):
        with child(took_s, "rows_process", told, "flush", str(first), "1400") as older:
            hit = set[str]()
            while not hit:
                assert older.reach(("flush", "compaction")[number % 2], rng), older.end()
                if not (hit := older.stop()):  # between two of them: once more
                    older.process.send_signal(signal.SIGCONT)
            hits.update(hit)
            durable = max(map(int, older.ended("flush")), default=first - 1)
            last = durable + 10
            with child(took_s, "rows_process", told, "flush", str(max(0, durable - 1)), str(last)) as newer:
                assert not newer.end()
            older.process.send_signal(signal.SIGCONT)
            said = older.end()
        assert older.process.returncode == 1
        epoch = 2 * (number + 1)
        with balance():
            for folder in FOLDERS:
                assert_frame_equal(rows_there(opened(address), folder), rows_to_be(folder, last + 1))
        assert said == f"partition 0 was taken over by another writer (epoch {epoch})\n"
        first = last + 1
    print(f"\n{kind}: stopped and taken over {stops} times ({dict(hits)}): one sentence each, 0 lost, 0 twice")
