"""Rows while the clock of a gateway is wrong: from a message at the gateway to the rows, through a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.gateway.record_builder import Message, RecordBuilder
from edge.log.memory import MemoryLog
from edge.wire.reading import encode_message
from edge.wire.topic import sample_topic
from edge.wire.vocabulary import VOCABULARY
from services.config import StreamSettings
from services.ingest.windows.closed import Closed
from services.ingest.windows.partition_windows import PartitionWindows
from tests.services.ingest.samples import T0, record, sample, tick

HOUR_S = 3600
LENGTH_S = 4 * HOUR_S
LOOK_S = 5  # the gateway takes what came, and looks whether a tick is due

Ahead = Callable[[int], int]
"""Seconds since the beginning -> by how many seconds a clock is ahead."""


Span = tuple[int, int]
"""From a second on, to another."""


class Device(NamedTuple):
    """Sends every ``every_s``, first at ``phase_s``; a message takes ``delay_s``."""

    every_s: int
    phase_s: int = 0
    delay_s: int = 0
    ahead: Ahead = lambda at_s: 0


class Wrong(NamedTuple):
    """A clock is ``ahead_s`` ahead in this time."""

    from_s: int
    to_s: int
    ahead_s: int

    def __call__(self, at_s: int) -> int:
        return self.ahead_s if self.from_s <= at_s < self.to_s else 0


class Clock:
    now_s = 0

    def now_ms(self) -> int:
        return T0 + self.now_s * 1000


class Result(NamedTuple):
    off_s: list[int]
    """What time the site took it for at each tick, less what time it was."""
    sent: int
    accepted: int
    late: int
    refused: dict[str, int]
    rows: dict[tuple[int, str], tuple[object, ...]]
    """(end, device) -> what the row holds of it."""
    made: dict[tuple[int, str], int]
    """(end, device) -> how many samples were made."""


def run(
    devices: Sequence[Device], gateways: Sequence[Ahead] = (lambda at_s: 0,), step_s: int = 300,
    away: Span = (0, 0), silent: Sequence[Span] = (), restarts: Sequence[int] = (),
) -> Result:  # fmt: skip
    """Four hours of a site. Its devices share the gateways, which write into one log; while those are away the broker
    keeps what comes. At ``restarts`` the windows go on from a snapshot.
    """
    stream = StreamSettings(step_s=step_s)

    def windows() -> PartitionWindows:
        return PartitionWindows(step_s * 1000, stream.lateness_s * 1000, stream.idle_s * 1000, VOCABULARY)

    into, made = windows(), Counter[tuple[int, str]]()
    log, total, rows, sent = MemoryLog(1), Closed(), dict[tuple[int, str], tuple[object, ...]](), 0
    clocks, builders, off_s = [Clock() for _ in gateways], list[RecordBuilder](), list[int]()
    queues: list[list[Message]] = [[] for _ in gateways]
    for at_s in range(0, LENGTH_S, LOOK_S):
        for number, device in enumerate(devices):
            made_s = at_s - device.delay_s
            is_silent = any(begin_s <= made_s < end_s for begin_s, end_s in silent)
            if made_s >= 0 and made_s % device.every_s == device.phase_s and not is_silent:
                sent += 1
                made[T0 + -(-made_s // step_s) * step_s * 1000, f"d{number}"] += 1
                ts_ms = T0 + (made_s + device.ahead(made_s)) * 1000
                one = sample(ts_ms, sent, device=f"d{number}", site="s", air_temp_c=20.0 + number + made_s % 7)
                topic = sample_topic("s", "z1", one.device)
                queues[number % len(gateways)].append(Message(topic, encode_message([one])))
        if away[0] <= at_s < away[1]:
            builders = []
            continue
        for clock, ahead in zip(clocks, gateways, strict=True):
            clock.now_s = at_s + ahead(at_s)
        if at_s in restarts:
            state, into = into.state(), windows()
            into.load(state)
        begin = log.end_offset(0)
        if not builders:
            builders = [RecordBuilder(c, step_s * 1000, log.sites(), log.last_receive_ms(0)) for c in clocks]
        for builder, queue in zip(builders, queues, strict=True):
            if records := builder.take(queue):
                log.append(records)
            queue.clear()
        closed = into.feed(log.read(0, begin, 10_000))
        for name in ("accepted", "late"):
            setattr(total, name, getattr(total, name) + getattr(closed, name))
        for reason, count in closed.rejected.items():
            total.rejected[reason] = total.rejected.get(reason, 0) + count
        off_s += [(mark.now_ms - T0) // 1000 - at_s for mark in closed.marks]
        rows |= {(step.end_ms, row.device): (*row,) for step in closed.steps for row in step.devices}
    return Result(off_s, sent, total.accepted, total.late, dict(total.rejected), rows, made)


def same(one: Result, other: Result, without: str = "") -> bool:
    """Whether the rows that both closed are the same, but for one device; they may differ in the newest ones."""
    until_ms = min(max(end for end, _ in result.rows) for result in (one, other))
    first, second = (
        {key: row for key, row in result.rows.items() if key[0] <= until_ms and key[1] != without}
        for result in (one, other)
    )
    return first == second and len(first) > 0


STEPS = st.sampled_from([60, 300, 900, 3600])
DEVICES = st.lists(
    st.builds(
        lambda every_s, phase, delay: Device(every_s, phase * LOOK_S % every_s, delay * LOOK_S),
        st.sampled_from([10, 60, 120, 300, 600, 900]), st.integers(0, 200), st.integers(0, 4),
    ), min_size=1, max_size=4,
)  # fmt: skip


@st.composite
def wrong_clocks(draw: st.DrawFn) -> Wrong:
    """Ahead by hours or days, for minutes or until the end."""
    begin_s = draw(st.integers(0, LENGTH_S // 2))
    length_s = draw(st.sampled_from([120, 1800, LENGTH_S]))
    return Wrong(begin_s, begin_s + length_s, draw(st.sampled_from([1, 2, 24, 300 * 24])) * HOUR_S)


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(DEVICES, STEPS, wrong_clocks(), st.booleans())
def test_a_gateways_clock_that_is_ahead_costs_no_row(
    devices: list[Device], step_s: int, clock: Wrong, away: bool
) -> None:
    """Whenever it is ahead, how far and for how long, also from a start on: rows are those of a right clock, and orders
    and plans are taken at the time that it is.
    """
    gone = (max(0, clock.from_s - 600), clock.from_s) if away else (0, 0)
    right, wrong = run(devices, step_s=step_s), run(devices, [clock], step_s, gone)
    assert (wrong.late, wrong.refused) == (right.late, right.refused) == (0, {})
    assert wrong.accepted == wrong.sent == right.sent
    assert same(right, wrong)
    silent_s = max(device.every_s + device.delay_s for device in devices) + gone[1] - gone[0] + LOOK_S
    assert -silent_s - 2 * max(60, step_s // 5) <= min(wrong.off_s) <= max(wrong.off_s) <= 0


SPANS = st.builds(lambda begin, length: (begin, begin + length), st.integers(0, LENGTH_S), st.integers(0, 2400))


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(
    DEVICES, STEPS, st.lists(st.lists(wrong_clocks(), max_size=3), min_size=1, max_size=2), st.lists(SPANS, max_size=2),
    SPANS, st.lists(st.integers(0, LENGTH_S // LOOK_S).map(lambda n: n * LOOK_S), max_size=3),
)  # fmt: skip
def test_whatever_clocks_do_each_row_has_all_its_samples_once(
    devices: list[Device], step_s: int, clocks: list[list[Wrong]], silent: list[Span], away: Span, restarts: list[int]
) -> None:
    """Gateways that are ahead again and again, devices that are silent, windows that go on from snapshots, and a broker
    that keeps what comes while the only gateway is away: rows close, and none before all of it came.
    """
    gateways = [lambda at_s, of=of: max((wrong(at_s) for wrong in of), default=0) for of in clocks]
    found = run(devices, gateways, step_s, away if len(gateways) == 1 else (0, 0), silent, restarts)
    assert (found.late, found.refused, found.accepted) == (0, {}, found.sent)
    until_ms = max((end for end, _ in found.rows), default=T0)
    in_rows = {key: row[3] for key, row in found.rows.items()}
    assert in_rows == {key: count for key, count in found.made.items() if key[0] <= until_ms}
    behind_s = 2 * step_s + HOUR_S  # the newest rows wait for more, or for silence, which one of an hour surely is
    assert until_ms >= max((end for end, _ in found.made), default=T0) - behind_s * 1000


@pytest.mark.parametrize("every_s", [10, 120, 300])
def test_two_gateways_of_a_site_need_not_agree(every_s: int) -> None:
    """One of them is an hour ahead for ever: neither's devices lose anything."""
    devices = [Device(every_s, 5), Device(every_s, 0)]
    right, wrong = run(devices), run(devices, [lambda at_s: 0, lambda at_s: HOUR_S])
    assert (wrong.late, wrong.refused, wrong.accepted) == (0, {}, wrong.sent)
    assert same(right, wrong)


@pytest.mark.parametrize(("step_s", "every_s"), [(900, 300), (900, 600), (900, 900), (3600, 600)])
def test_two_gateways_that_do_not_agree_leave_the_lateness_its_length(step_s: int, every_s: int) -> None:
    """A tick of the one that is behind has the time of the other's last record: the other's next tick, at the same
    moment, is no silence. What takes twenty seconds is not late.
    """
    found = run([Device(10, 5), Device(every_s, 0, 20)], [lambda at_s: 0, lambda at_s: HOUR_S], step_s)
    assert (found.late, found.refused, found.accepted) == (0, {}, found.sent)


@pytest.mark.parametrize("ahead_s", [HOUR_S, HOUR_S - 5, HOUR_S - 10, HOUR_S + 40])
def test_a_record_between_the_ticks_of_two_gateways_takes_nothing_from_the_lateness(ahead_s: int) -> None:
    """The one that is behind gives its sample and its tick the time of what the other one took before."""
    devices = [Device(900, 895, 20), Device(300, 230), Device(300, 280)]
    found = run(devices, [lambda at_s: 0, lambda at_s: ahead_s], step_s=900)
    assert (found.late, found.refused, found.accepted) == (0, {}, found.sent)


@pytest.mark.parametrize("every_s", [10, 120, 300])
@pytest.mark.parametrize("wrong_s", [120, 2 * HOUR_S])
def test_a_clock_of_2106_costs_what_comes_meanwhile_and_no_more(every_s: int, wrong_s: int) -> None:
    """Its samples are refused as 80 years old, which is no silence; once the clock is right, rows go on."""
    years = 80 * 365 * 24 * HOUR_S
    found = run([Device(every_s)], [Wrong(HOUR_S, HOUR_S + wrong_s, years)])
    assert found.late == 0
    assert found.refused == {"ancient_ts": -(-wrong_s // every_s)}
    assert found.accepted == found.sent - found.refused["ancient_ts"]


@settings(max_examples=40, deadline=None)
@given(
    DEVICES, STEPS, st.sampled_from([1, 30, 60, 61, HOUR_S, 80 * 365 * 24 * HOUR_S]), st.sampled_from([10, 120, 300])
)
@pytest.mark.thorough
def test_one_device_that_is_ahead_changes_no_row_of_the_others(
    devices: list[Device], step_s: int, ahead_s: int, every_s: int
) -> None:
    """Within a minute it counts by its own clock; beyond that each of its samples is a dead letter."""
    fast = Device(every_s, 0, 0, Wrong(HOUR_S, HOUR_S + 1800, ahead_s))
    plain, found = run(devices, step_s=step_s), run([*devices, fast], step_s=step_s)
    assert found.late == 0
    kept_out = len(range(HOUR_S, HOUR_S + 1800, every_s)) if ahead_s > 60 else 0
    assert found.refused == ({"future_ts": kept_out} if kept_out else {})
    assert found.accepted == found.sent - kept_out
    assert same(plain, found, without=f"d{len(devices)}")


@pytest.mark.parametrize("every_s", [10, 120, 300])
@pytest.mark.parametrize("wrong_s", [-HOUR_S, -300 * 24 * HOUR_S])
def test_a_site_whose_only_device_is_behind_has_rows_at_its_time(wrong_s: int, every_s: int) -> None:
    """Nothing else says what time it is there: none of its samples is late."""
    found = run([Device(every_s, ahead=lambda at_s: wrong_s)])
    assert (found.late, found.refused, found.accepted) == (0, {}, found.sent)


@pytest.mark.parametrize("every_min", [4, 10, 16, 50, 61])
def test_a_silent_sites_rows_go_on_while_its_gateway_starts_again_and_again(every_min: int) -> None:
    """Each pause of ticks costs its own length until an hour without one, not what ticks had told before it."""
    into = PartitionWindows(300_000, 10_000, 60_000, VOCABULARY)
    into.feed([record(0, [sample(T0, 1)])])
    ticks = [n for n in range(1, 24 * 120) if n // 2 % every_min >= 2]  # half minutes; two minutes are missing
    for n in ticks:
        into.feed([tick(n, T0 + n * 30_000)])
    behind_s = ticks[-1] * 30 - ((into.watermark_ms("demo") or 0) - T0) // 1000
    paused_s = sum(30 * (after - before) for before, after in pairwise(ticks) if after - before > 2)
    assert behind_s < 450 + paused_s


@pytest.mark.parametrize(("device_s", "gateway_s"), [(-600, 0), (0, HOUR_S), (-24 * HOUR_S, 0)])
def test_a_site_of_a_wrong_clock_goes_on_after_a_long_silence(device_s: int, gateway_s: int) -> None:
    """Rows closed as far ahead as the clocks are apart: what is late is what was made by then, not all that follows."""
    into, log, clock, late, accepted = (
        PartitionWindows(300_000, 10_000, 60_000, VOCABULARY),
        MemoryLog(1),
        Clock(),
        0,
        0,
    )
    builder = RecordBuilder(clock, 300_000)
    for at_s in range(0, 10 * HOUR_S, LOOK_S):
        silent = 3 * HOUR_S <= at_s < 4 * HOUR_S + 600
        one = sample(T0 + (24 * HOUR_S + at_s + device_s) * 1000, at_s, site="s")
        queue = [] if silent or at_s % 60 else [Message(sample_topic("s", "z1", one.device), encode_message([one]))]
        clock.now_s, begin = 24 * HOUR_S + at_s + gateway_s, log.end_offset(0)
        log.append(builder.take(queue))
        closed = into.feed(log.read(0, begin, 1000))
        late, accepted = late + closed.late, accepted + closed.accepted
    apart_s = gateway_s - device_s
    assert late <= apart_s // 60 + 7
    assert late + accepted == (10 * HOUR_S - HOUR_S - 600) // 60
    assert accepted > 100
