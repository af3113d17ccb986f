"""Records as earlier releases wrote them."""

from __future__ import annotations

import msgspec

from edge.wire.reading import Sample
from edge.wire.samples import SampleColumns, encode_samples


def version_2(samples: list[Sample]) -> bytes:
    """The payload as the second version wrote it."""
    c = SampleColumns.of(encode_samples(samples))
    pairs = (c.device.astype("<i4").tobytes(), c.metric_set.astype("<i4").tobytes())
    numbers = (c.seq.tobytes(), c.ts_ms.tobytes(), c.values.tobytes())
    return b"\x02" + msgspec.msgpack.encode([c.site, c.devices, c.metric_sets, *pairs, *numbers])
