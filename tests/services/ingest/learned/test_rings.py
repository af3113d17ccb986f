"""Rings hold the newest rows of every zone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.learned.rings import Rings

STEP = 1000


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 6))
def test_a_window_equals_the_rows_that_were_written(gaps: list[int], length: int) -> None:
    """Any window within the capacity holds exactly the rows written, NaN in the gaps."""
    rings = Rings(STEP, 6, 1)
    at = rings.index("s", "z")
    written: dict[int, float] = {}
    step = 5
    for value, gap in enumerate(gaps):
        step += gap
        rings.write(np.array([at]), step * STEP, np.array([[value]], np.float32))
        written[step] = value
    for origin in range(step, step - 6, -1):
        window = rings.window(np.array([at]), np.array([origin * STEP]), length)[0, :, 0]
        wanted = [written.get(s, np.nan) if s > step - 6 else np.nan for s in range(origin - length + 1, origin + 1)]
        np.testing.assert_array_equal(window, np.array(wanted, np.float32))


def test_zones_are_added_without_disturbing_the_others() -> None:
    """Growth and a snapshot keep every zone's rows and index."""
    rings = Rings(STEP, 4, 2)
    for n in range(40):
        assert rings.index("s", f"z{n}") == n
        rings.write(np.array([n]), 10 * STEP, np.full((1, 2), n, np.float32))
    copy = Rings(STEP, 4, 2)
    copy.load(rings.state())
    assert copy.zones == rings.zones
    ends, rows = copy.recent(copy.index("s", "z7"), 4)
    assert ends.tolist() == [10 * STEP]
    assert rows.tolist() == [[7.0, 7.0]]
    assert copy.newest_ms(copy.index("s", "new")) is None
    assert len(copy.recent(copy.index("s", "new"), 4)[0]) == 0


def test_wrong_writes_and_states_are_refused() -> None:
    """A row that is not newer, and a state of another shape, raise."""
    rings = Rings(STEP, 4, 1)
    at = np.array([rings.index("s", "z")])
    rings.write(at, 10 * STEP, np.zeros((1, 1), np.float32))
    with pytest.raises(ValueError, match="not newer"):
        rings.write(at, 10 * STEP, np.zeros((1, 1), np.float32))
    with pytest.raises(ValueError, match="expected"):
        Rings(STEP, 5, 1).load(rings.state())


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=25), st.booleans())
def test_channels_may_come_later_or_never(there: list[list[bool]], half: bool) -> None:
    """Channels that were never there take no room and read as missing, also after a reload, and in every block."""
    rings = Rings(STEP, 8, 3, np.float16 if half else np.float32)
    written: list[np.ndarray] = []
    for n, channels in enumerate(there):
        row = np.where(channels, np.float32(n) + np.arange(3, dtype=np.float32), np.float32(np.nan))
        rings.write(np.array([rings.index("s", f"z{n}")]), (5 + n) * STEP, row[None])
        written.append(row)
        if n == len(there) // 2:
            copy = Rings(STEP, 8, 3, np.float16 if half else np.float32)
            copy.load(rings.state())
            rings = copy
    for n, row in enumerate(written):
        np.testing.assert_array_equal(rings.window(np.array([n]), np.array([(5 + n) * STEP]), 1)[0, 0], row)
    with pytest.raises(ValueError, match="expected"):
        Rings(STEP, 8, 4).load(rings.state())
