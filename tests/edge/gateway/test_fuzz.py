"""Whatever comes over MQTT, nothing crashes, and everything is counted."""

from __future__ import annotations

import msgspec
import pytest

from edge.clock import ReplayedClock
from edge.gateway.record_builder import Message, RecordBuilder
from edge.log.contract import Record
from edge.wire.reading import Refusal
from edge.wire.samples import SampleColumns
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows.partition_windows import PartitionWindows
from tests.edge.gateway.bent_messages import STEP_MS, T0, messages

REFUSALS = msgspec.msgpack.Decoder(list[Refusal])


@pytest.mark.parametrize(
    "count", [5_000, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.slow])], ids=["some", "many"]
)
def test_nothing_crashes_and_everything_is_counted(count: int) -> None:
    """Each message ends in the records: as samples, a refusal with a sentence, a plan, an event, or as counted among
    others of its topic. Of the samples each is accepted, a duplicate or late.
    """
    builder = RecordBuilder(ReplayedClock(T0 + 500), STEP_MS)
    windows = PartitionWindows(STEP_MS, 30_000, 600_000, VOCABULARY)
    offset = samples = refused = others = accounted = 0
    said = set()
    batch: list[Message] = []
    for number, message in enumerate(messages(count, seed=count), start=1):
        batch.append(message)
        if len(batch) < 500 and number < count:
            continue
        records = []
        for new in builder.take(batch):
            records.append(Record(0, offset, new.site, new.kind, new.receive_ms, new.payload, new.topic, new.origin))
            offset += 1
            if new.kind == "samples":
                samples += len(SampleColumns.of(new.payload).ts_ms)
            elif new.kind == "refused":
                for refusal in REFUSALS.decode(new.payload):
                    assert refusal.detail
                    said.add(refusal.reason)
                    refused += 1
            elif new.kind != "tick":
                others += 1
        batch = []
        closed = windows.feed([record for record in records if record.origin is None])
        accounted += closed.accepted + closed.duplicates + closed.late
    assert builder.messages == count
    assert builder.samples == samples == accounted
    assert samples > count / 50
    assert refused > count / 10
    assert others > 0
    assert len(said) >= 4, said
