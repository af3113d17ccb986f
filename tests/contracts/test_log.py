"""What every log keeps, whatever it is made of."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.log import (
    Log,
    LogClosedError,
    LogError,
    LogFullError,
    LogReplacedError,
    LogTruncatedError,
    NewRecord,
    Origin,
    Record,
    partition_of,
)
from edge.log.memory import MemoryLog
from edge.log.sqlite import SqliteLog
from tests.conftest import require_env
from tests.kafka_logs import kafka_logs, made_anew, opened
from tests.patience import until

PARTITIONS = 3
SITES = ("north", "south", "east", "west", "demo")

NEIGHBOURS = ("north", next(f"n{n}" for n in range(99) if partition_of(f"n{n}", 3) == partition_of("north", 3)))
"""Two sites of one partition."""

Make = Callable[[], Log]


def _fill(log: Log) -> None:
    """Make the next append find no room."""
    if isinstance(log, MemoryLog):
        log.capacity = sum(log.end_offset(p) - log.begin_offset(p) for p in range(log.partitions))
    elif isinstance(log, SqliteLog):
        assert log._db is not None
        pages = log._db.execute("PRAGMA page_count").fetchone()[0]
        log._db.execute(f"PRAGMA max_page_count={pages}").fetchall()


LOCAL = ["memory", "sqlite"]


@pytest.fixture(params=[*LOCAL, pytest.param("kafka", marks=pytest.mark.kafka)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes empty logs of one kind; closed at the end."""
    made: list[Log] = []
    numbers = itertools.count()
    kafka = kafka_logs(require_env("HOTHOUSE_TEST_KAFKA")) if request.param == "kafka" else contextlib.nullcontext()

    def factory() -> Log:
        if request.param == "memory":
            made.append(MemoryLog(PARTITIONS))
        elif request.param == "sqlite":
            made.append(SqliteLog(tmp_path / f"{next(numbers)}.sqlite", PARTITIONS))
        else:
            made.append(new_kafka_log(PARTITIONS))
        return made[-1]

    with kafka as new_kafka_log:
        yield factory
        for log in made:
            log.close()


@pytest.fixture
def log(make: Make) -> Log:
    """One empty log."""
    return make()


def _new(site: str, receive_ms: int = 1000, payload: bytes = b"x") -> NewRecord:
    return NewRecord(site, "samples", receive_ms, payload, f"topic/{site}")


def _all(log: Log) -> list[tuple[int, int, str, int, bytes]]:
    return [
        (r.partition, r.offset, r.site, r.receive_ms, r.payload)
        for p in range(log.partitions)
        for r in log.read(p, log.begin_offset(p), 10_000)
    ]


def test_an_empty_log_reads_empty(log: Log) -> None:
    """A new log has nothing to read, begins where it ends and knows no time and no site."""
    for partition in range(PARTITIONS):
        assert log.read(partition, 0, 10) == []
        assert (log.begin_offset(partition), log.end_offset(partition)) == (0, 0)
        assert log.last_receive_ms(partition) is None
    assert log.sites() == []
    assert log.append([]) == []


def test_a_record_is_read_as_it_was_appended(log: Log) -> None:
    """Every field comes back, in the partition of its site, at the offset that append returned."""
    places = log.append([NewRecord("demo", "event", 77, b"\x00\xff{}", "hothouse/v1/demo/z/d/event")])
    ((partition, offset),) = places
    assert partition == partition_of("demo", PARTITIONS)
    (record,) = log.read(partition, offset, 5)
    assert record[:7] == (partition, offset, "demo", "event", 77, b"\x00\xff{}", "hothouse/v1/demo/z/d/event")


def test_an_origin_is_kept_and_its_site_is_ticked_for_elsewhere(log: Log) -> None:
    """A record out of another log keeps its origin and makes no site known; one without has none of another log's."""
    origin = Origin("9f3c62d1a07be845", 2**40)
    partition = partition_of("demo", PARTITIONS)
    log.append([_new("demo")._replace(origin=origin), _new("demo", 1001)._replace(kind="tick")])
    first, second = log.read(partition, 0, 10)
    assert first.origin == origin
    assert second.origin is None or second.origin.log != origin.log
    assert log.sites() == []
    log.append([_new("demo", 1002)])
    assert log.sites() == ["demo"]
    log.append([_new("demo", 1003)._replace(kind="tick", origin=origin), _new("other")])
    assert log.sites() == ["demo", "other"]
    log.append([_new("demo", 1004)._replace(origin=origin)])  # the site has got a gateway of its own
    assert log.sites() == ["other"]


def test_a_site_that_was_retired_is_not_ticked_for_until_its_next_sample(log: Log) -> None:
    """An event in zone ``_site`` says so; retiring a zone, or another event there, does not."""

    def event(zone: str, payload: bytes) -> NewRecord:
        return NewRecord("demo", "event", 1001, payload, f"hothouse/v1/demo/{zone}/hothouse/event")

    log.append([_new("demo"), _new("other")])
    log.append([event("z1", b'{"type":"retire","until_ms":1000}'), event("_site", b'{"crop":"lettuce"}')])
    assert log.sites() == ["demo", "other"]
    log.append([event("_site", b'{"type":"retire","until_ms":1000}')])
    assert log.sites() == ["other"]
    log.append([_new("demo", 1002)._replace(kind="tick")])
    assert log.sites() == ["other"]
    log.append([_new("demo", 1003)])
    assert log.sites() == ["demo", "other"]
    log.append([_new("demo", 1004), event("_site", b'{"type":"retire","until_ms":1000}')])
    assert log.sites() == ["other"]


def test_offsets_are_dense_and_reads_are_bounded(log: Log) -> None:
    """Offsets count up by one within a partition, and a read gives at most ``limit`` from ``offset`` on."""
    places = log.append([_new("demo", n, bytes([n])) for n in range(10)])
    assert [offset for _, offset in places] == list(range(10))
    partition = places[0][0]
    assert [r.offset for r in log.read(partition, 4, 3)] == [4, 5, 6]
    assert [r.offset for r in log.read(partition, 8, 100)] == [8, 9]
    assert log.read(partition, 10, 100) == []


def test_receive_times_of_a_site_never_decrease(log: Log) -> None:
    """A smaller receive time is lifted to the site's newest, within a batch and over batches."""
    partition = partition_of("demo", PARTITIONS)
    log.append([_new("demo", 100), _new("demo", 50), _new("demo", 120)])
    log.append([_new("demo", 70)])
    assert [r.receive_ms for r in log.read(partition, 0, 10)] == [100, 100, 120, 120]
    assert log.last_receive_ms(partition) == 120


def test_a_site_does_not_lift_its_neighbour(log: Log) -> None:
    """What a site sends late, after an outage, keeps its receive times in a partition that others share."""
    site, neighbour = NEIGHBOURS
    partition = partition_of(site, PARTITIONS)
    log.append([_new(site, 100), _new(neighbour, 90_000)])
    log.append([_new(site, 200), _new(neighbour, 80_000), _new(site, 300)])
    assert [r.receive_ms for r in log.read(partition, 0, 10)] == [100, 90_000, 200, 90_000, 300]
    assert log.last_receive_ms(partition) == 90_000
    log.truncate(partition, 5)
    log.append([_new(site, 250)])
    assert log.read(partition, 5, 1)[0].receive_ms == 300


def test_truncated_offsets_raise_and_are_never_used_again(log: Log) -> None:
    """What was truncated is an error to read, the rest stays, and the next offset goes on."""
    partition = partition_of("demo", PARTITIONS)
    log.append([_new("demo") for _ in range(5)])
    log.truncate(partition, 3)
    with pytest.raises(LogTruncatedError) as caught:
        log.read(partition, 2, 1)
    assert caught.value.begin == log.begin_offset(partition) == 3
    assert [r.offset for r in log.read(partition, 3, 10)] == [3, 4]
    log.truncate(partition, 99)
    assert log.begin_offset(partition) == log.end_offset(partition) == 5
    assert log.read(partition, 5, 10) == []
    assert log.append([_new("demo")]) == [(partition, 5)]
    log.truncate(partition, 1)
    assert log.begin_offset(partition) == 5


def test_a_truncated_partition_keeps_its_time_and_its_sites(log: Log) -> None:
    """Receive times stay non-decreasing and sites stay known when every record is gone."""
    partition = partition_of("demo", PARTITIONS)
    log.append([_new("demo", 500), NewRecord("other", "refused", 1, b"")])
    log.truncate(partition, 1)
    log.append([_new("demo", 400)])
    assert log.last_receive_ms(partition) == 500
    assert log.sites() == ["demo"]


@pytest.mark.parametrize("make", LOCAL, indirect=True)
def test_a_full_log_appends_nothing_and_recovers(log: Log) -> None:
    """An append without room raises LogFullError, leaves no record of its batch and takes no offset.

    (A Kafka without room stops its server.)
    """
    log.append([_new(site) for site in SITES])
    before = _all(log)
    _fill(log)
    with pytest.raises(LogFullError):
        log.append([_new(site, 2000, b"y" * 50_000) for site in SITES])
    assert _all(log) == before
    assert log.sites() == sorted(SITES)
    for partition in range(PARTITIONS):
        assert log.last_receive_ms(partition) in (None, 1000)


def test_a_closed_log_says_so(log: Log) -> None:
    """Every call after close raises LogClosedError; another close does nothing."""
    log.close()
    log.close()
    calls: list[Callable[[], object]] = [
        lambda: log.append([_new("demo")]),
        lambda: log.read(0, 0, 1),
        lambda: log.end_offset(0),
        lambda: log.begin_offset(0),
        lambda: log.last_receive_ms(0),
        lambda: log.sites(),
        lambda: log.truncate(0, 1),
        lambda: log.commit(0, 0),
    ]
    for call in calls:
        with pytest.raises(LogClosedError):
            call()


def _replaced(log: Log) -> Log:
    """Another log, open, in the place of this one."""
    if isinstance(log, SqliteLog):
        for file in log.path.parent.glob(f"{log.path.name}*"):
            file.unlink()
        return SqliteLog(log.path, PARTITIONS)
    return made_anew(log)


@pytest.mark.parametrize("make", ["sqlite", pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True)
def test_a_log_that_took_the_place_of_another_is_not_read_on_from_its_middle(log: Log) -> None:
    """Also where it has more records than were read of the one before: of those that it begins with none was read.

    (A log in memory is no place.)
    """
    records = [_new("demo", n) for n in range(10)]
    partition = log.append(records[:3])[0][0]
    assert len(log.read(partition, 0, 10)) == 3
    other = _replaced(log)
    try:
        other.append(records)
        told: list[LogReplacedError] = []
        until(lambda: _given(log, partition, 3, told) or told, "the reader has something")
        assert told
        calls: list[Callable[[], object]] = [
            lambda: log.append([_new("demo")]),
            lambda: log.read(partition, 3, 10),
            lambda: log.end_offset(partition),
            lambda: log.commit(partition, 3),
        ]
        for call in calls:
            with pytest.raises(LogReplacedError):
                call()
        assert other.end_offset(partition) == len(records)
        assert len(other.read(partition, 0, 20)) == len(records)
    finally:
        other.close()


@pytest.mark.parametrize("make", ["sqlite", pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True)
def test_a_log_has_a_name_that_no_other_in_its_place_has(log: Log) -> None:
    """Snapshots hold it: nothing starts on another log, however many records that one has."""
    again = SqliteLog(log.path, PARTITIONS) if isinstance(log, SqliteLog) else opened(log)
    other = _replaced(log)
    try:
        assert log.id
        assert again.id == log.id
        assert other.id not in {"", log.id}
    finally:
        again.close()
        other.close()


def _given(log: Log, partition: int, offset: int, told: list[LogReplacedError]) -> Sequence[Record]:
    """What a reader gets; that the log is another one goes into ``told``."""
    try:
        return log.read(partition, offset, 10)
    except LogReplacedError as error:
        told.append(error)
    except LogError:
        pass  # the topic is away
    return []


@pytest.mark.parametrize("partition", [-1, PARTITIONS])
def test_a_partition_that_is_not_there_is_a_mistake(log: Log, partition: int) -> None:
    """A wrong partition number raises ValueError, never another partition's records."""
    with pytest.raises(ValueError, match="partition"):
        log.read(partition, 0, 1)


def test_a_commit_changes_nothing_that_is_read(log: Log) -> None:
    """Whatever was committed, every record can be read, and again."""
    places = log.append([_new("demo") for _ in range(3)])
    log.commit(places[0][0], 2)
    for _ in range(2):
        assert [r.offset for r in log.read(places[0][0], 0, 10)] == [0, 1, 2]


def test_threads_share_a_log(log: Log) -> None:
    """Appends of several threads interleave as whole batches: offsets stay dense and unique."""
    places: list[tuple[int, int]] = []
    lock = threading.Lock()

    def work() -> None:
        for _ in range(10):
            mine = log.append([_new("demo"), _new("demo")])
            assert mine[1][1] == mine[0][1] + 1
            with lock:
                places.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offset for _, offset in places) == list(range(80))


_STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from(SITES), st.integers(0, 50), st.binary(max_size=4)), max_size=6),
        st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, 12)),
    ),
    max_size=8,
)


def test_any_history_reads_as_a_list_would(make: Make, request: pytest.FixtureRequest) -> None:
    """Whatever is appended and truncated, each partition reads as a plain list of what it was given."""
    # Each example makes two topics: fewer of them there.
    examples = 8 if "kafka" in request.node.name else settings.default.max_examples

    @settings(max_examples=examples)
    @given(_STEPS)
    def check(steps: list[list[tuple[str, int, bytes]] | tuple[int, int]]) -> None:
        log = make()
        lists: list[list[tuple[str, int, bytes]]] = [[] for _ in range(PARTITIONS)]
        begin = [0] * PARTITIONS
        for step in steps:
            if isinstance(step, tuple):
                partition, before = step
                log.truncate(partition, before)
                begin[partition] = max(begin[partition], min(before, len(lists[partition])))
                continue
            places = log.append([_new(*new) for new in step])
            for (site, receive_ms, payload), place in zip(step, places, strict=True):
                mine = lists[partition_of(site, PARTITIONS)]
                assert place == (partition_of(site, PARTITIONS), len(mine))
                mine.append((site, max([receive_ms, *(ms for name, ms, _ in mine if name == site)]), payload))
        for partition, mine in enumerate(lists):
            assert log.begin_offset(partition) == begin[partition]
            assert log.end_offset(partition) == len(mine)
            read = log.read(partition, begin[partition], 1000)
            assert [(r.site, r.receive_ms, r.payload) for r in read] == mine[begin[partition] :]
        log.close()

    check()
