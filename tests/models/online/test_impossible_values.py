"""Values that no sensor measures are missing ones: no calculation goes wrong of them, now or later."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.online.corrections.made_networks import forecaster, made
from tests.models.online.online_worlds import DAY, SPEC, rows, sun

ROWS = rows(1, zones=2)[:, :72]
CHANNELS = len(SPEC.channels)

impossible = st.one_of(
    st.sampled_from([np.inf, -np.inf, 9.97e36, -3.4e38, 1e30, -1e20, 65_520.0, -237.3, -1e9, 1e9, 1e-30]),
    st.floats(width=32),
)  # fmt: skip
strange = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, CHANNELS - 1), st.integers(0, 71), st.sampled_from([1, 2, 30, 72]), impossible
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(strange, st.integers(0, 5))
def test_no_value_makes_a_calculation_go_wrong(strange: list[tuple[int, int, int, int, float]], seed: int) -> None:
    """Infinite, huge or missing values in any metrics, once or for hours, also of a whole zone: a forecast is whole or
    not there, its quantiles are in order, and no NaN or infinity arises on the way, also after the values are over.
    """
    values = ROWS.copy()
    for zone, channel, first, length, value in strange:
        values[zone, first : first + length, channel] = value
    learner = forecaster(2, made(seed=seed))
    zones = np.arange(2)
    with np.errstate(invalid="raise", divide="raise", over="raise"):
        for step in range(values.shape[1]):
            learned = learner.learn(zones, step, values[:, step], np.full(2, step % DAY), sun(step, 2))
            quantiles = learner.predict(learned)
            known = np.isfinite(quantiles)
            assert (known.all(axis=-1) == known.any(axis=-1)).all()
            assert (known | np.isnan(quantiles)).all()
            whole = quantiles[known.all(axis=-1)]
            assert (np.diff(whole, axis=-1) >= 0).all()


def test_a_fill_value_is_a_missing_one() -> None:
    """Bit for bit: a program that writes 9.97e36 where it has no value is learned from as one that writes nothing."""
    missing, filled = ROWS.copy(), ROWS.copy()
    missing[0, 20:30, 0], filled[0, 20:30, 0] = np.nan, 9.97e36
    one, other = forecaster(2, made()), forecaster(2, made())
    for step in range(ROWS.shape[1]):
        said = [
            each.predict(each.learn(np.arange(2), step, values[:, step], np.full(2, step % DAY), sun(step, 2)))
            for each, values in ((one, missing), (other, filled))
        ]
        np.testing.assert_array_equal(*said)
