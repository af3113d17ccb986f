"""A log record holds samples in columns."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.reading import Sample
from edge.samples import ENCODING, SampleColumns, decode_samples, encode_samples

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
    """A plain MessagePack list of samples gives the same columns."""
    assert SampleColumns.of(msgspec.msgpack.encode(samples)).samples() == samples


@given(st.lists(SAMPLES, min_size=1, max_size=5), st.data())
def test_a_torn_record_is_an_error(samples: list[Sample], data: st.DataObject) -> None:
    """Cut anywhere, no sample is made up."""
    payload = encode_samples(samples)
    with pytest.raises(msgspec.DecodeError):
        SampleColumns.of(payload[: data.draw(st.integers(0, len(payload) - 1))])


@pytest.mark.parametrize("changed", [{"device": b"\x01\0\0\0"}, {"metric_set": b"\xff" * 4}, {"seq": b"\0" * 16}])
def test_columns_that_do_not_fit_are_an_error(changed: dict[str, bytes]) -> None:
    """An index without its entry, a column longer than the others."""
    (columns,) = [[*msgspec.msgpack.decode(encode_samples([Sample("s", "z", "d", "boot", 1, 2, {"rain": 1.0})])[1:])]]
    places = {"device": 3, "metric_set": 4, "seq": 5}
    for name, content in changed.items():
        columns[places[name]] = content
    with pytest.raises(msgspec.DecodeError, match="fit"):
        SampleColumns.of(bytes([ENCODING]) + msgspec.msgpack.encode(columns))
