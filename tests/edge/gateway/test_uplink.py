"""The uplink without servers: order, what is sent again, what is truncated, and when."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.gateway.uplink.forward import LogTarget, Uplink
from edge.gateway.uplink.open_uplink import mqtt_address, open_target
from edge.log import LogClosedError, LogError, LogFullError, LogReplacedError, NewRecord, Origin
from edge.log.memory import MemoryLog
from edge.log.sqlite import SqliteLog
from edge.tls_files import TlsFiles
from tests.edge.log.sqlite_logs import PARTITION, to_format_1
from tests.patience import patience_s, until


class Target:
    """Keeps what it was sent; refuses as often as ``refusals`` says, and may lose what it acknowledged."""

    def __init__(self, tail_s: float = 0.0) -> None:
        self.tail_s, self.refusals, self.losses = tail_s, 0, 0
        self.batches: list[list[NewRecord]] = []
        self.closed = False

    def send(self, records: Sequence[NewRecord]) -> None:
        """Take them, or not."""
        if self.refusals:
            self.refusals -= 1
            raise LogError("away")
        self.batches.append(list(records))

    def check(self) -> None:
        """Refuse as often as ``losses`` says."""
        if self.losses:
            self.losses -= 1
            raise LogError("the connection was lost")

    def close(self) -> None:
        """Note it."""
        self.closed = True

    @property
    def payloads(self) -> list[bytes]:
        """All of them, in order."""
        return [record.payload for batch in self.batches for record in batch]


@pytest.fixture
def buffer(tmp_path: Path) -> Iterator[SqliteLog]:
    """An empty buffer."""
    log = SqliteLog(tmp_path / "buffer.sqlite")
    yield log
    log.close()


def fill(log: SqliteLog, numbers: range, site: str = "demo") -> None:
    """Append records that are told apart by their payload."""
    log.append([NewRecord(site, "samples", 1000 + n, b"%d" % n, "t") for n in numbers])


def drain(uplink: Uplink) -> None:
    """Carry everything."""
    while uplink.step():
        pass


def test_records_leave_in_order_with_their_times_and_origins(buffer: SqliteLog) -> None:
    """What the target gets is what was appended; the origin is the buffer's id and the record's number in its site."""
    fill(buffer, range(3))
    fill(buffer, range(2), "elsewhere")
    target = Target()
    drain(Uplink(buffer, target))
    mine = [r for batch in target.batches for r in batch if r.site == "demo"]
    assert mine == [NewRecord("demo", "samples", 1000 + n, b"%d" % n, "t", Origin(buffer.id, n)) for n in range(3)]
    assert sum(map(len, target.batches)) == 5


def test_the_origin_of_another_gateway_is_handed_on(buffer: SqliteLog) -> None:
    """Through two uplinks a record keeps the name that the first log gave it."""
    origin = Origin("a" * 16, 7)
    buffer.append([NewRecord("demo", "tick", 5, b"", origin=origin)])
    target = Target()
    drain(Uplink(buffer, target))
    assert target.batches[0][0].origin == origin


def test_truncated_is_only_what_was_taken(buffer: SqliteLog) -> None:
    """A refused batch stays; the position is the buffer's beginning, so a new uplink goes on there."""
    fill(buffer, range(10))
    target = Target()
    target.refusals = 1
    uplink = Uplink(buffer, target)
    with pytest.raises(LogError, match="away"):
        uplink.step()
    uplink.trim()
    assert buffer.begin_offset(PARTITION) == 0
    drain(uplink)
    uplink.trim()
    assert buffer.begin_offset(PARTITION) == buffer.end_offset(PARTITION) == 10
    fill(buffer, range(10, 12))
    again = Target()
    drain(Uplink(buffer, again))
    assert again.payloads == [b"10", b"11"]


@pytest.mark.parametrize("tail_s", [0.0, 60.0])
def test_an_uplink_goes_on_behind_what_another_one_of_the_buffer_has_sent(buffer: SqliteLog, tail_s: float) -> None:
    """Somebody starts a second gateway on the site's folder to see what it says, and ends it again."""
    fill(buffer, range(10))
    target, now_s = Target(tail_s), [0.0]
    uplink = Uplink(buffer, target, clock_s=lambda: now_s[0])
    drain(uplink)
    fill(buffer, range(10, 20))
    same = SqliteLog(buffer.path)
    other = Uplink(same, Target())
    drain(other)
    other.trim()
    same.close()
    fill(buffer, range(20, 30))
    drain(uplink)
    assert target.payloads == [b"%d" % n for n in (*range(10), *range(20, 30))]
    now_s[0] = 60.0
    uplink.trim()
    assert buffer.begin_offset(PARTITION) == buffer.end_offset(PARTITION) == 30


def test_a_batch_is_small_enough_for_a_slow_line(buffer: SqliteLog) -> None:
    """Kafka's client gives a batch a few seconds, after an outage too. A larger record is a batch by itself."""
    buffer.append([NewRecord("demo", "samples", 1000, bytes(size)) for size in (*[50_000] * 5, 300_000, 10)])
    target = Target()
    drain(Uplink(buffer, target))
    assert [[len(record.payload) for record in batch] for batch in target.batches] == [
        [50_000, 50_000], [50_000, 50_000], [50_000], [300_000], [10]
    ]  # fmt: skip


def test_a_refused_batch_is_sent_as_it_was(buffer: SqliteLog) -> None:
    """A log on Kafka completes a batch that arrived in part only when the same batch comes again."""
    fill(buffer, range(3))
    log = MemoryLog()
    seen: list[Sequence[NewRecord]] = []

    class Failing(MemoryLog):
        def append(self, records: Sequence[NewRecord]) -> list[tuple[int, int]]:
            seen.append(records)
            if len(seen) == 1:
                raise LogError("the answer was lost")
            return log.append(records)

    failing = Failing()
    uplink = Uplink(buffer, LogTarget(lambda: failing))
    with pytest.raises(LogError):
        uplink.step()
    fill(buffer, range(3, 6))
    drain(uplink)
    assert seen[0] == seen[1]
    assert [r.payload for r in log.read(PARTITION, 0, 10)] == [b"%d" % n for n in range(6)]


def test_a_log_that_took_the_place_of_the_target_gets_what_follows(buffer: SqliteLog) -> None:
    """The first refusal is told; the next try opens what is there."""
    fill(buffer, range(3))
    refused, found = MemoryLog(), MemoryLog()

    def append(records: Sequence[NewRecord]) -> list[tuple[int, int]]:
        raise LogReplacedError("it was deleted and made anew")

    refused.append = append  # type: ignore[method-assign]
    logs = iter([refused, found])
    uplink = Uplink(buffer, LogTarget(lambda: next(logs)))
    with pytest.raises(LogReplacedError):
        uplink.step()
    with pytest.raises(LogClosedError):
        refused.end_offset(PARTITION)
    drain(uplink)
    assert [r.payload for r in found.read(PARTITION, 0, 10)] == [b"0", b"1", b"2"]


def test_what_a_target_may_still_lose_is_kept_and_sent_again(buffer: SqliteLog) -> None:
    """Of a broker, the last minute stays in the buffer: after a failure all of it is sent again, then truncated."""
    now_s = [0.0]
    target = Target(tail_s=60)
    uplink = Uplink(buffer, target, clock_s=lambda: now_s[0])
    for n in range(4):
        fill(buffer, range(n, n + 1))
        now_s[0] = 20.0 * n
        drain(uplink)
        uplink.trim()
    assert buffer.begin_offset(PARTITION) == 1  # taken at 0 s, and it is 60 s now
    target.refusals = 1
    fill(buffer, range(4, 5))
    with pytest.raises(LogError):
        uplink.step()
    now_s[0] = 1000.0
    uplink.trim()
    assert buffer.begin_offset(PARTITION) == 1  # not before it was sent again
    drain(uplink)
    now_s[0] = 1060.0
    uplink.trim()
    assert target.payloads == [b"0", b"1", b"2", b"3", b"1", b"2", b"3", b"4"]
    assert buffer.begin_offset(PARTITION) == 5


def test_what_was_sent_again_may_be_lost_again(buffer: SqliteLog) -> None:
    """Two brokers end, the second soon after it took what the first had lost: its minute begins anew."""
    now_s = [0.0]
    target = Target(tail_s=60)
    uplink = Uplink(buffer, target, clock_s=lambda: now_s[0])
    fill(buffer, range(2))
    drain(uplink)
    for lost_at_s in (55.0, 65.0):
        now_s[0] = lost_at_s
        uplink.trim()
        target.losses, target.batches = 1, []
        with pytest.raises(LogError, match="lost"):
            uplink.step()
        drain(uplink)
        assert target.payloads == [b"0", b"1"]
    now_s[0] = 124.0
    uplink.trim()
    assert buffer.begin_offset(PARTITION) == 0
    now_s[0] = 125.0
    uplink.trim()
    assert buffer.begin_offset(PARTITION) == 2


def test_connections_that_are_too_short_for_anything_to_be_safe_are_told(buffer: SqliteLog) -> None:
    """The same records are then sent again and again; once something was safe, a loss is one as any other."""
    now_s = 0.0
    target = Target(tail_s=60.0)
    uplink = Uplink(buffer, target, clock_s=lambda: now_s)

    def loss(after_s: float) -> str:
        nonlocal now_s
        drain(uplink)
        now_s += after_s
        uplink.trim()
        target.losses = 1
        fill(buffer, range(1))
        uplink.step()
        with pytest.raises(LogError) as caught:
            uplink.step()
        return str(caught.value)

    fill(buffer, range(4))
    told = [loss(after_s) for after_s in (50, 50, 70, 50, 50)]
    assert ["sent again and again" in words for words in told] == [False, True, False, True, True]


def test_a_lost_connection_is_noticed_when_nothing_is_to_be_sent(buffer: SqliteLog) -> None:
    """An idle uplink asks the target as long as it may lose something, and then sends it again; later it need not."""
    now_s = [0.0]
    target = Target(tail_s=60)
    uplink = Uplink(buffer, target, clock_s=lambda: now_s[0])
    fill(buffer, range(2))
    drain(uplink)
    target.losses = 1
    with pytest.raises(LogError, match="lost"):
        uplink.step()
    drain(uplink)
    assert target.payloads == [b"0", b"1"] * 2
    now_s[0] = 61.0
    uplink.trim()
    target.losses = 1
    assert uplink.step() is False


@given(st.lists(st.sampled_from(["fill", "step", "refuse", "trim", "restart", "wait"]), max_size=40), st.booleans())
def test_nothing_is_ever_truncated_that_was_not_taken(actions: list[str], tail: bool) -> None:
    """Whatever happens in whatever order: no gap, and after a last run everything was taken at least once."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        buffer, now_s, total = SqliteLog(Path(folder) / "b.sqlite"), [0.0], 0
        assert buffer._db is not None
        buffer._db.execute("PRAGMA synchronous=OFF")
        target = Target(tail_s=60 if tail else 0)
        uplink = Uplink(buffer, target, clock_s=lambda: now_s[0])
        for action in actions:
            if action == "fill":
                fill(buffer, range(total, total + 3))
                total += 3
            elif action == "restart":
                uplink = Uplink(buffer, target, clock_s=lambda: now_s[0])
            elif action == "wait":
                now_s[0] += 30
            elif action == "trim":
                uplink.trim()
            else:
                target.refusals = int(action == "refuse")
                try:
                    uplink.step()
                except LogError:
                    assert action == "refuse"
                target.refusals = 0
            taken = {int(payload) for payload in target.payloads}
            assert set(range(buffer.begin_offset(PARTITION))) <= taken
        drain(uplink)
        assert {int(payload) for payload in target.payloads} == set(range(total))
        buffer.close()


def test_a_disk_that_refuses_the_truncation_does_not_stop_the_uplink(
    buffer: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records go on; the truncation is tried again until there is room for it, and then nothing is left."""
    fill(buffer, range(10))
    target = Target()
    uplink = Uplink(buffer, target)
    drain(uplink)

    def refuse(partition: int, before: int) -> None:
        raise LogFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(buffer, "truncate", refuse)
        for _ in range(2):
            with pytest.raises(LogFullError):
                uplink.trim()
    uplink.trim()
    assert buffer.usage().records == 0


def test_a_running_uplink_counts_errors_and_recovers(buffer: SqliteLog) -> None:
    """It tries again by itself, says what fails as long as it fails, truncates and closes the target at the end."""
    seen = threading.Event()

    class Held(Target):
        def send(self, records: Sequence[NewRecord]) -> None:
            """After the refusals, only once they were seen."""
            if not self.refusals:
                seen.wait()
            super().send(records)

    fill(buffer, range(5))
    target, stop = Held(), threading.Event()
    target.refusals = 2
    uplink = Uplink(buffer, target)
    thread = threading.Thread(target=uplink.run, args=(stop,), daemon=True)
    thread.start()
    try:
        until(lambda: uplink.errors == 2)
        assert uplink.last_error == "away"
        seen.set()
        until(lambda: not buffer.usage().records)
    finally:
        seen.set()
        stop.set()
        thread.join(patience_s(60))
    assert not thread.is_alive()
    assert (uplink.errors, uplink.sent, uplink.last_error) == (2, 5, "")
    assert target.closed
    assert buffer.usage().records == 0


def test_records_of_a_migrated_buffer_are_told_apart(tmp_path: Path) -> None:
    """A record from before format 2 has no origin; its offset becomes one, and the file goes on in format 2."""
    path = tmp_path / "buffer.sqlite"
    SqliteLog(path).close()
    to_format_1(path)
    buffer = SqliteLog(path)
    fill(buffer, range(2, 4))
    target = Target()
    drain(Uplink(buffer, target))
    assert [r.origin for r in target.batches[0]] == [
        Origin(f"{buffer.id}.{PARTITION}", 0), Origin(f"{buffer.id}.{PARTITION}", 1),
        Origin(buffer.id, 0), Origin(buffer.id, 1),
    ]  # fmt: skip
    buffer.close()


def test_an_address_is_kafka_or_mqtt() -> None:
    """Anything else is refused in a sentence, a password in it above all; TLS changes the default port."""
    assert (mqtt_address("mqtt://a").port, mqtt_address("mqtt://a", tls=TlsFiles(Path("c"))).port) == (1883, 8883)
    for wrong in ("a:1", "http://a", "mqtt://u:p@a", "mqtt://a/topic", "mqtt://", "mqtt://a:x"):
        with pytest.raises(ValueError, match=r"mqtt://host|port|Port"):
            open_target(wrong, "id")
    with pytest.raises(ValueError, match="kafka://host"):
        open_target("kafka://a:1", "id")
