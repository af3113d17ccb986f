"""Step 5 of the way of a reading: the columns of many log records' payloads, taken apart in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from edge.wire.samples import ENCODING, HEADER

__all__ = ["PayloadColumns", "ranges"]

I64 = npt.NDArray[np.int64]


class PayloadColumns(NamedTuple):
    """The ``n`` samples of ``p`` payloads, one payload after another; heads are left as they are encoded.

    Whether indices and lengths fit the heads is not checked here.
    """

    heads: list[bytes]  # [p]
    counts: I64  # [p], how many samples each payload holds
    value_counts: I64  # [p]
    device: I64  # [n], index into the devices of the payload's own head
    metric_set: I64  # [n]
    seq: I64  # [n]
    ts_ms: I64  # [n]
    values: npt.NDArray[np.float64]  # [sum of value_counts]

    @classmethod
    def of(cls, payloads: Sequence[bytes]) -> PayloadColumns:
        """Take at least one payload apart.

        Raises ``msgspec.DecodeError`` if one is torn, holds no sample or is of an older version, without saying
        which: :meth:`edge.wire.samples.SampleColumns.of` tells, a payload at a time.
        """
        sizes = np.array([*map(len, payloads)])
        if sizes.min() < HEADER.itemsize:
            raise msgspec.DecodeError("a payload is cut off in its header")
        headers = np.frombuffer(b"".join([payload[: HEADER.itemsize] for payload in payloads]), HEADER)
        begins = HEADER.itemsize + headers["head_bytes"].astype(np.int64)
        counts, value_counts = headers["samples"].astype(np.int64), headers["values"].astype(np.int64)
        fits = begins + 8 * (3 * counts + value_counts) == sizes
        if not (fits.all() and counts.all() and (headers["encoding"] == ENCODING).all()):
            raise msgspec.DecodeError("a payload is torn, empty or of an older version")
        cuts = begins.tolist()
        heads = [payload[HEADER.itemsize : cut] for payload, cut in zip(payloads, cuts, strict=True)]
        words = np.frombuffer(b"".join([payload[cut:] for payload, cut in zip(payloads, cuts, strict=True)]), "<i8")
        # Of each payload come its pairs of indices, its ``seq``, its ``ts_ms``, a word a sample each, then its values.
        first = np.cumsum(3 * counts + value_counts) - (3 * counts + value_counts)
        of_pair, apart = ranges(first, counts), np.repeat(counts, counts)
        index = words[of_pair].view("<u4")
        device, metric_set = index[::2].astype(np.int64), index[1::2].astype(np.int64)
        seq, ts_ms = words[of_pair + apart], words[of_pair + 2 * apart]
        values = words[ranges(first + 3 * counts, value_counts)].view("<f8")
        return cls(heads, counts, value_counts, device, metric_set, seq, ts_ms, values)


def ranges(starts: I64, lengths: I64) -> I64:
    """``start, start + 1, ... start + length - 1`` of each, one after another."""
    ends = np.cumsum(lengths)
    numbers: I64 = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return numbers
