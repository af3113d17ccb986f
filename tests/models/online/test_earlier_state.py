"""Rings of every row, as releases before kept them, become rings of examples."""

from __future__ import annotations

import numpy as np
import pytest

from models.day_knots import DayKnots
from models.online.earlier_state import state_of_now
from models.online.online_forecaster import OnlineForecaster
from models.spec import ForecastSpec


@pytest.mark.parametrize("step_min", [1, 5, 15])
@pytest.mark.parametrize("late", [0, 1, 2])
def test_each_example_of_now_is_that_row_of_before(step_min: int, late: int) -> None:
    """Wherever quarters of an hour begin among a zone's rows; of two zones, one of which is a few rows old."""
    spec = ForecastSpec(channels=("air_temp_c",), targets=("air_temp_c",), horizons_min=(15, 60, 1440),
                        step_ms=60_000 * step_min, lookback_steps=1440 // step_min)  # fmt: skip
    day, stride, steps = spec.steps_per_day, DayKnots(spec).stride, np.array(spec.horizon_steps)
    made = OnlineForecaster(spec, 2)
    made.add_zones(2)
    new = made.state_dict()
    rows, newest = np.array([3 * day + late, 4]), np.array([7 * day + 5, 7 * day + 5])
    ring, past = day + 180 // step_min + 1, day + 1
    held = {name: np.full((2, size), np.nan, np.float16) for name, size in
            (("past", past), ("deviation", ring), ("issued", int(steps.sum())))}  # fmt: skip
    first = np.concatenate([[0], np.cumsum(steps)[:-1]])

    def value(row: int) -> np.float16:
        return np.float16(row % 1000)

    for zone, count in enumerate(rows.tolist()):
        for row in range(count):
            held["past"][zone, row % past] = held["deviation"][zone, row % ring] = value(row)
            held["issued"][zone, first + row % steps] = value(row)
    climatology = {
        **new["climatology"], "rows": rows, "past": held["past"][..., None], "issued": held["issued"][..., None],
        "deviation": np.repeat(held["deviation"][..., None, None], 3, axis=2),
        "profile": np.arange(2 * day * 3, dtype=np.float32).reshape(2, day, 3, 1),
        "count": np.ones((2, day, 1), np.uint8), "spread": new["climatology"]["spread"].astype(np.float32),
        "matured": np.full(new["climatology"]["matured"].shape, 30, np.uint16),
        "moment": np.zeros((*new["climatology"]["slope"].shape, 3), np.float32),
    }  # fmt: skip
    width = new["features"]["profile"].shape[2]
    features = {
        **{name: kept for name, kept in new["features"].items() if not name.startswith("row")}, "step": newest,
        "past": np.zeros((2, day, width), np.float16), "past_step": np.full((2, day), -1, np.int32),
        "profile": np.zeros((2, day, width), np.float16),
        "deviation": new["features"]["deviation"].astype(np.float32),
    }  # fmt: skip
    for zone, count in enumerate(rows.tolist()):
        for back in range(min(count, day)):
            features["past"][zone, (newest[zone] - back) % day] = value(newest[zone] - back)
            features["past_step"][zone, (newest[zone] - back) % day] = newest[zone] - back
    state = state_of_now({**new, "climatology": climatology, "features": features}, spec)

    other = OnlineForecaster(spec, 2)
    other.load_state_dict(state)
    found = state["climatology"]
    assert np.array_equal(found["profile"], climatology["profile"][:, ::stride])
    for zone, count in enumerate(rows.tolist()):
        shift = int(found["rows"][zone]) - count
        assert 0 <= shift < stride
        assert (count - 1 + shift) % stride == newest[zone] % stride
        for example in range(max(count - day, 0) // stride + 1, (count - 1 + shift) // stride + 1):
            row = example * stride - shift
            if row < 0 or row <= count - 1 - day:
                continue
            assert found["past"][zone, example % found["past"].shape[1], 0] == value(row)
            assert set(found["deviation"][zone, example % found["deviation"].shape[1], :, 0]) == {value(row)}
            slots, begin = -(-steps // stride), 0
            for horizon, size in zip(steps.tolist(), slots.tolist(), strict=True):
                if row > count - 1 - horizon:
                    assert found["issued"][zone, begin + example % size, 0] == value(row)
                begin += size
        kept = state["features"]
        for back in range(min(count, kept["row"].shape[1])):
            step = int(newest[zone]) - back
            assert kept["row"][zone, step % kept["row"].shape[1], 0] == value(step)
            if step % stride == 0:
                place = step // stride % kept["past"].shape[1]
                assert (kept["past_step"][zone, place], kept["past"][zone, place, 0]) == (step, value(step))
