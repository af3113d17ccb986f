"""A log record holds samples in columns."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.wire.payloads import PayloadColumns
from edge.wire.reading import Sample
from edge.wire.samples import SampleColumns, decode_head, decode_samples, encode_samples
from tests.edge.wire.older_samples import version_2

NAMES = st.sampled_from(["a", "b", "z-1"])
VALUES = st.dictionaries(st.sampled_from(["rh_pct", "co2_ppm", "rain"]), st.floats(allow_nan=False), min_size=1)
SAMPLES = st.builds(
    Sample, st.just("demo"), NAMES, NAMES, st.sampled_from(["bootboot", "otherboot"]), st.integers(0, 2**53 - 1),
    st.integers(0, 2**45), VALUES,
)  # fmt: skip


@given(st.lists(SAMPLES, max_size=20))
def test_samples_come_back_as_they_were(samples: list[Sample]) -> None:
    """Whatever devices and metrics are mixed, in order and to the last bit."""
    assert decode_samples(encode_samples(samples)) == samples


@given(st.lists(SAMPLES, min_size=1, max_size=5))
def test_records_of_older_versions_stay_readable(samples: list[Sample]) -> None:
    """A plain MessagePack list of samples, and columns within MessagePack, give the same columns."""
    for payload in (msgspec.msgpack.encode(samples), version_2(samples)):
        columns = SampleColumns.of(payload)
        assert columns.samples() == samples
        assert columns.payload() == encode_samples(samples)


def test_a_number_that_no_sample_has_is_an_error() -> None:
    """A gateway's record of the first version holds what MessagePack can, which is more."""
    body = msgspec.msgpack.encode([["s", "z", "d", "9f3c62d1a07be845", 2**63, 1, {"rh_pct": 71.0}]])
    with pytest.raises(msgspec.DecodeError):
        SampleColumns.of(body)


@given(st.lists(st.lists(SAMPLES, min_size=1, max_size=4), min_size=1, max_size=6))
def test_many_payloads_taken_apart_together_hold_what_each_holds(records: list[list[Sample]]) -> None:
    """Column by column, payload after payload."""
    payloads = [*map(encode_samples, records)]
    together, each = PayloadColumns.of(payloads), [*map(SampleColumns.of, payloads)]
    assert together.counts.tolist() == [*map(len, each)]
    for name in ("device", "metric_set", "seq", "ts_ms", "values"):
        assert getattr(together, name).tobytes() == b"".join(getattr(one, name).tobytes() for one in each)
    assert [decode_head(head).devices for head in together.heads] == [one.devices for one in each]


@given(st.lists(SAMPLES, min_size=1, max_size=5), st.data())
def test_a_torn_record_is_an_error(samples: list[Sample], data: st.DataObject) -> None:
    """Cut anywhere, no sample is made up."""
    payload = encode_samples(samples)
    torn = payload[: data.draw(st.integers(0, len(payload) - 1))]
    with pytest.raises(msgspec.DecodeError):
        SampleColumns.of(torn)
    with pytest.raises(msgspec.DecodeError):
        PayloadColumns.of([payload, torn])
    with pytest.raises(msgspec.DecodeError):
        SampleColumns.of(payload + b"\0")


@given(st.lists(SAMPLES, min_size=1, max_size=5), st.data())
def test_a_torn_record_of_the_second_version_is_an_error(samples: list[Sample], data: st.DataObject) -> None:
    """Cut anywhere, no sample is made up."""
    payload = version_2(samples)
    with pytest.raises(msgspec.DecodeError):
        SampleColumns.of(payload[: data.draw(st.integers(0, len(payload) - 1))])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"device": np.array([1])}, "columns"),
        ({"metric_set": np.array([7])}, "columns"),
        ({"values": np.array([1.0, 2.0])}, "values"),
        ({"metric_sets": (("rain", "rh_pct"),)}, "values"),
    ],
)
def test_columns_that_do_not_fit_are_an_error(changed: dict[str, Any], said: str) -> None:
    """An index without its entry, a value more or fewer than the head says."""
    columns = SampleColumns.of(encode_samples([Sample("s", "z", "d", "boot", 1, 2, {"rain": 1.0})]))
    with pytest.raises(msgspec.DecodeError, match=f"{said} .*fit"):
        SampleColumns.of(msgspec.structs.replace(columns, **changed).payload())


def test_heads_of_many_metrics_are_not_kept() -> None:
    """Samples of a thousand metrics under ever-new boots take no memory of the gateway."""
    many = [(f"boot-{n:08d}", {f"rh_pct.{k}-{n}": 70.0 for k in range(1000)}) for n in range(20)]
    tracemalloc.start()
    try:
        for boot, values in many:
            encode_samples([Sample("demo", "z1", "d", boot, 1, 0, values)])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 200_000
