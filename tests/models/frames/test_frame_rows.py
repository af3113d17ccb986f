"""Rows of frames are the rows that a running system would make, and do not depend on how samples were cut."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.wire.vocabulary import VOCABULARY
from models.frames.frame_rows import GAP_MS, FrameRows
from models.frames.frame_samples import read_frames
from services.backtest.frames import table_of_frames
from services.ingest.windows import partition_windows
from tests.models.frames.recording import recorded

STEP_MS = 300_000
CHANNELS = list(VOCABULARY)


def rows_of(frames, *until):
    """The rows ``[T, Z, C]`` of frames that come in parts, each up to a time, and the rest."""
    made, parts, before = None, [], None
    for stop in [*until, max(frame.index[-1] for frame in frames.values())]:
        part = {zone: f[(f.index <= stop) & (f.index > before if before else True)] for zone, f in frames.items()}
        part = {zone: frame for zone, frame in part.items() if len(frame)}
        if not part:
            continue
        samples = read_frames(part, VOCABULARY, "UTC")
        if made is None:
            made = FrameRows(VOCABULARY, STEP_MS, min(int(s.times_ms[0]) for s in samples.values()))
        made.add(samples)
        zones, before = list(made.zones), stop
        parts.append((zones, made.close()[1]))
    assert zones == list(frames)
    return np.concatenate(
        [np.pad(rows, ((0, 0), (0, len(zones) - rows.shape[1]), (0, 0)), constant_values=np.nan) for _, rows in parts]
    )


def wanted(frames):
    """What the windows of a running system make of the same samples."""
    return table_of_frames(frames, {}).values.transpose(1, 0, 2)


def equal(given, expected):
    """Bit for bit; a direction to the last digit of single precision, for its mean is taken by other sines."""
    turned = CHANNELS.index("wind_dir_deg")
    np.testing.assert_allclose(given[..., turned], expected[..., turned], rtol=1e-6)
    rest = [c for c in range(len(CHANNELS)) if c != turned]
    np.testing.assert_array_equal(given[..., rest], expected[..., rest])


def test_rows_of_a_recording_are_those_of_a_running_system():
    """Every channel of three real zones, bit for bit."""
    frames = recorded(1.5)
    given = rows_of(frames)
    assert np.isfinite(given).any(axis=(0, 1)).sum() == 26
    equal(given, wanted(frames))


def test_a_pause_begins_as_in_a_running_system():
    """What a pause is, is said twice: models know nothing of windows."""
    assert GAP_MS == partition_windows.GAP_MS


def made_up(seed, zones=2, rows=250):
    """Zones whose sensors speak at odd times, now and then, with values that cannot be among them."""
    rng, frames = np.random.default_rng(seed), {}
    for zone in range(zones):
        at = np.cumsum(
            rng.choice([40, 60, 90, 150, 280, 300, 500, 5000], rows, p=[0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.09, 0.01])
        )
        index = pd.Timestamp("2022-02-01") + pd.to_timedelta(at + 17 * zone, unit="s")
        columns = {
            "air_temp_c": rng.normal(20, 3, rows), "rh_pct": rng.uniform(60, 102, rows),
            "vent_lee_pct": rng.uniform(0, 101.9, rows), "sp_heat_c": rng.uniform(15, 20, rows).round(),
            "out_temp_c": rng.normal(5, 2, rows), "wind_dir_deg": rng.uniform(0, 360, rows),
            "irrigation_l_m2": np.cumsum(rng.choice([0, 0.5], rows)) % 9, "rain": rng.choice([0.0, 1.0], rows),
        }  # fmt: skip
        frame = pd.DataFrame(columns, index)
        for name, share in {"vent_lee_pct": 0.9, "sp_heat_c": 0.97, "irrigation_l_m2": 0.5, "out_temp_c": 0.3}.items():
            frame.loc[rng.random(rows) < share, name] = np.nan
        frame.loc[frame.index[100:104], "air_temp_c"] = -99.0
        frames[f"z{zone}"] = frame
    return frames


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_odd_samples_are_those_of_a_running_system(seed):
    """Means, directions, counters, values that hold, weather from whoever has it, and what cannot be."""
    frames = made_up(seed)
    expected = wanted(frames)
    given = rows_of(frames)
    equal(given, expected[: len(given)])
    assert len(expected) - len(given) <= 1  # a running system's last step may be cut short; this one waits for its end
    assert np.isfinite(given).any(axis=(0, 1)).sum() == 8


@given(seed=st.integers(0, 50), cuts=st.lists(st.floats(0.0, 1.0), max_size=4))
def test_it_does_not_matter_how_samples_are_cut(seed, cuts):
    """In one call or in several, within a step or between two: the rows are the same, bit for bit."""
    frames = made_up(seed, rows=60)
    first, last = frames["z0"].index[0], max(frame.index[-1] for frame in frames.values())
    whole = rows_of(frames)
    until = sorted(first + (last - first) * share for share in cuts)
    np.testing.assert_array_equal(rows_of(frames, *until), whole)
